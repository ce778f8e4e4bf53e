//! Largest messages of a group, in bytes. The broker's limit of packets must allow these messages.

use crate::decision::SettledNotice;
use crate::ids::Slot;
use crate::limits::MAX_FILE_NAME_BYTES;

/// Room for topic, properties and header of a packet: a topic has at most three names of 64 bytes.
const PACKET_OVERHEAD_BYTES: usize = 256;

/// Bytes of a birth, a status or a claim with its names.
const NOTICE_BYTES: usize = 1024;

/// Bytes of a result without the label and the parts for each slot: times, byte counts, ids, at most four exits.
const RESULT_BYTES: usize = 2048;

/// Bytes of a result for each slot: a word of its presence, and the name of a missing device (64 bytes), each with quotes and comma.
const RESULT_SLOT_BYTES: usize = 14 + 67;

/// Bytes of a view in a result: names of device and file, time, number of the frame. JSON takes up to two bytes for a byte of the file name.
const VIEW_BYTES: usize = 192 + 2 * MAX_FILE_NAME_BYTES;

/// Bytes of a class probability with its comma.
const SCORE_BYTES: usize = 16;

/// Bytes of the longest sample id with its comma.
const ID_BYTES: usize = 21;

/// Bytes of a refused device's name and reason, with quotes, in an account. JSON takes up to six bytes for a character.
const REFUSED_BYTES: usize = 64 + 6 * SettledNotice::MAX_REASON_CHARS + 6;

/// Bytes of a leader's account with all of its late ids, ranges (`[first,last],`) and refused devices, and 1 KiB of counts.
const ACCOUNT_BYTES: usize = SettledNotice::MAX_LATE * ID_BYTES
    + SettledNotice::MAX_RANGES * (2 * ID_BYTES + 2)
    + SettledNotice::MAX_REFUSED * REFUSED_BYTES
    + 1024;

/// Bytes of the largest result of a network with `slots` slots and labels of at most `label_bytes` bytes.
pub const fn largest_result(label_bytes: usize, slots: usize) -> usize {
    RESULT_BYTES + label_bytes + slots * RESULT_SLOT_BYTES
}

/// Bytes that views and class probabilities add to a result: in a group with `details` to every result, elsewhere to results of devices
/// that name their frames. The leader does not know of such devices in advance, but [`PacketSizes::rare`] has room: an account is as large.
pub const fn details(slots: usize, classes: usize) -> usize {
    slots * VIEW_BYTES + classes * SCORE_BYTES
}

/// Bytes of the largest result of any network, without its label.
pub const LARGEST_RESULT_BYTES: usize = largest_result(0, Slot::MAX);

/// Largest packets that a member of a group publishes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketSizes {
    /// Largest packet in ordinary work.
    pub usual: usize,
    /// Largest packet of all, also after long outages.
    pub rare: usize,
}

impl PacketSizes {
    /// Packets of a leader, whose group has results and binary messages of at most these sizes.
    pub fn of_leader(largest_result: usize, largest_payload: usize) -> Self {
        let usual = PACKET_OVERHEAD_BYTES + largest_result.max(largest_payload).max(NOTICE_BYTES);
        Self { usual, rare: usual.max(PACKET_OVERHEAD_BYTES + ACCOUNT_BYTES) }
    }

    /// Packets of a device or an edge, whose binary messages have at most this size.
    pub fn of_member(largest_payload: usize) -> Self {
        let usual = PACKET_OVERHEAD_BYTES + largest_payload.max(NOTICE_BYTES);
        Self { usual, rare: usual }
    }

    /// The larger of both sizes, `usual` and `rare` each.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { usual: self.usual.max(other.usual), rare: self.rare.max(other.rare) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::{Settled, SlotView};
    use crate::ids::{DeviceId, SampleId};
    use crate::json_version::Schema;
    use crate::utc_time::UtcTime;

    #[test]
    fn an_account_with_every_range_and_late_id_fits_the_bytes_for_it() {
        let newest = SampleId(u64::MAX);
        let notice = SettledNotice {
            schema: Schema,
            account: Settled { highest: newest, decided: u64::MAX, ..Settled::default() },
            late: vec![newest; SettledNotice::MAX_LATE],
            closed: vec![(newest, newest); SettledNotice::MAX_RANGES],
            refused: (0..SettledNotice::MAX_REFUSED)
                .map(|device| (DeviceId::new(format!("{device:0>64}")).unwrap(), "r".repeat(200)))
                .collect(),
            batch_ms: Some(u32::MAX),
        };
        let bytes = serde_json::to_vec(&notice).unwrap().len();
        assert!(bytes <= ACCOUNT_BYTES, "{bytes}");
    }

    #[test]
    fn the_longest_names_of_every_view_fit_the_bytes_of_details_and_of_an_account() {
        let view = |slot| SlotView {
            slot,
            device: Some("d".repeat(64)),
            captured_at: UtcTime::from_ms(u64::from(u32::MAX)),
            frame: Some(u64::MAX),
            file: Some("\"".repeat(MAX_FILE_NAME_BYTES)),
        };
        // A thousand probabilities, each with its comma.
        let (views, scores) =
            (Slot::first(Slot::MAX).map(view).collect::<Vec<_>>(), vec![1.0e-7_f32 / 3.0; 1000]);
        let bytes = serde_json::to_vec(&(views, scores)).unwrap().len();
        assert!(bytes <= details(Slot::MAX, 1000), "{bytes}");
        assert!(LARGEST_RESULT_BYTES + bytes <= ACCOUNT_BYTES, "{bytes}");
    }
}
