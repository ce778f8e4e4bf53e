//! The owner of a segment: the device whose answers it holds.
//!
//! A segment begins with a record that names its owner. The record has the sample id of the record behind it, which therefore replaces
//! it: a program of an earlier version finds the same samples as if it were not there.
//!
//! ```text
//! 0                44
//! +----------------+------------------------+------------+----------+ ...
//! | segment header | sample 7: the owner    | sample 7   | sample 8 |
//! +----------------+------------------------+------------+----------+ ...
//! ```
//!
//! In place of an answer, the record has `HWOWNER1` and the owner as JSON. Segments of earlier versions have no such record.

use std::fmt;

use headwater_protocol::{DeviceId, GroupId, SampleId, SiteId, Slot};
use serde::{Deserialize, Serialize};

use super::record::{ParsedRecord, Record};

/// First bytes of the record's answer. No message of the protocol begins with them.
const MAGIC: &[u8; 8] = b"HWOWNER1";

/// The device whose answers a segment holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) site: SiteId,
    pub(crate) group: GroupId,
    pub(crate) slot: Slot,
    pub(crate) device: DeviceId,
}

/// Owner of a segment, as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FoundOwner {
    /// This device, and the length of the record.
    Named(Owner, usize),
    /// A device that this version cannot read.
    Unreadable,
    /// None: a segment of an earlier version.
    None,
}

impl Owner {
    /// The record that names the owner, for a segment whose first sample is this one.
    pub(super) fn record(&self, sample: SampleId) -> Vec<u8> {
        let mut answer = MAGIC.to_vec();
        answer.extend_from_slice(serde_json::json!(self).to_string().as_bytes());
        let mut bytes = Vec::new();
        Record { sample, captured_unix_ms: 0, answer: &answer, features: &[] }.write(&mut bytes);
        bytes
    }

    /// The owner of a segment with these records.
    pub(super) fn of(records: &[u8]) -> FoundOwner {
        let ParsedRecord::Whole(record, length) = Record::parse(records) else { return FoundOwner::None };
        match record.answer.strip_prefix(MAGIC).map(serde_json::from_slice) {
            Some(Ok(owner)) => FoundOwner::Named(owner, length),
            Some(Err(_)) => FoundOwner::Unreadable,
            None => FoundOwner::None,
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { site, group, slot, device } = self;
        write!(f, "device {device} of slot {slot} in group {group} at site {site}")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The owner of the tests' segments, with this device id.
    pub(crate) fn owner(device: &str) -> Owner {
        Owner {
            site: SiteId::new("hall").unwrap(),
            group: GroupId::new("gate").unwrap(),
            slot: Slot::new(2).unwrap(),
            device: DeviceId::new(device).unwrap(),
        }
    }

    #[test]
    fn the_owner_is_read_back() {
        let mut records = owner("cam-2").record(SampleId(7));
        let length = records.len();
        records.extend_from_slice(b"more");
        assert_eq!(Owner::of(&records), FoundOwner::Named(owner("cam-2"), length));
        assert_eq!(owner("cam-2").to_string(), "device cam-2 of slot 2 in group gate at site hall");
    }

    #[test]
    fn records_of_earlier_versions_have_no_owner_and_a_later_one_may_be_unreadable() {
        let mut bytes = Vec::new();
        Record { sample: SampleId(7), captured_unix_ms: 5, answer: b"answer", features: &[] }
            .write(&mut bytes);
        assert_eq!(Owner::of(&bytes), FoundOwner::None);
        assert_eq!(Owner::of(&[]), FoundOwner::None);
        bytes.clear();
        let answer = b"HWOWNER1{}";
        Record { sample: SampleId(7), captured_unix_ms: 5, answer, features: &[] }.write(&mut bytes);
        assert_eq!(Owner::of(&bytes), FoundOwner::Unreadable);
    }
}
