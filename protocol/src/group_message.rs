//! Messages to every device of a group, triggers and requests: encoding, and their short form.
//!
//! A short message leaves out what is always zero: boot, age, and the zero bytes at the end of the body. Bit 1 of its flags is set.
//!
//! ```text
//!  0        1        2        3        4        5        6        7        8
//! +----+----+--------+-----------------+-----------------------------------+---------------------+
//! |ver |kind| flags 2| network tag     | sample id, low half               | body, 0 to 8 bytes  |
//! +----+----+--------+-----------------+-----------------------------------+---------------------+
//! ```
//!
//! | kind | body |
//! | --- | --- |
//! | `trigger` | upper half of the sample id (u32), without the zero bytes at its end |
//! | `request` | slots asked, a [`SlotSet`] (u64), without the zero bytes at its end |
//!
//! Devices of earlier versions refuse the flag. So the short form is for groups in which every reader names [`SHORT_MESSAGES`].

use crate::bit_set::SlotSet;
use crate::ids::{Boot, NetworkTag, SampleId};
use crate::message::{Body, DecodeError, Header, Kind, Message, VERSION};

/// Capability of a reader of short messages, in its birth or claim.
pub const SHORT_MESSAGES: &str = "short_messages";

/// Flags of a short message.
pub(crate) const FLAG_SHORT: u8 = 2;

/// Bytes before the body of a short message.
const SHORT_HEADER_BYTES: usize = 8;

/// Form of a trigger or a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// With the whole header, for readers of every version.
    #[default]
    Whole,
    /// Without what is always zero, for readers that name [`SHORT_MESSAGES`].
    Short,
}

impl Form {
    /// The form for readers of which all, or not all, read short messages.
    pub fn for_readers(all_read_short: bool) -> Self {
        if all_read_short { Self::Short } else { Self::Whole }
    }
}

/// A trigger as bytes.
pub fn encode_trigger(form: Form, network: NetworkTag, sample: SampleId) -> Vec<u8> {
    match form {
        Form::Whole => whole(Kind::Trigger, network, sample, sample.0),
        Form::Short => short(Kind::Trigger, network, sample, sample.0 >> 32),
    }
}

/// A request for the features of these slots as bytes.
pub fn encode_request(form: Form, network: NetworkTag, sample: SampleId, slots: SlotSet) -> Vec<u8> {
    match form {
        Form::Whole => whole(Kind::Request, network, sample, slots.bits()),
        Form::Short => short(Kind::Request, network, sample, slots.bits()),
    }
}

fn whole(kind: Kind, network: NetworkTag, sample: SampleId, body: u64) -> Vec<u8> {
    let mut bytes = start(kind, 0, network, sample);
    // Boot and age.
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&body.to_le_bytes());
    bytes
}

fn short(kind: Kind, network: NetworkTag, sample: SampleId, body: u64) -> Vec<u8> {
    let mut bytes = start(kind, FLAG_SHORT, network, sample);
    let body_bytes = 8 - body.leading_zeros() as usize / 8;
    bytes.extend_from_slice(&body.to_le_bytes()[..body_bytes]);
    bytes
}

fn start(kind: Kind, flags: u8, network: NetworkTag, sample: SampleId) -> Vec<u8> {
    let mut bytes = vec![VERSION << 4 | kind as u8, flags];
    bytes.extend_from_slice(&network.0);
    bytes.extend_from_slice(&sample.low().to_le_bytes());
    bytes
}

/// Reads a payload with [`FLAG_SHORT`].
///
/// # Errors
/// [`DecodeError`] for bytes that are not exactly one short message.
pub(crate) fn decode_short(payload: &[u8]) -> Result<Message<'static>, DecodeError> {
    let Some((head, rest)) = payload.split_first_chunk::<SHORT_HEADER_BYTES>() else {
        return Err(DecodeError::Truncated(payload.len()));
    };
    if head[0] >> 4 != VERSION {
        return Err(DecodeError::Version(head[0] >> 4));
    }
    let kind = Kind::from_bits(head[0] & 0x0f).ok_or(DecodeError::Kind(head[0] & 0x0f))?;
    let low = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    let body = match kind {
        Kind::Trigger => Body::Trigger(SampleId(number(kind, rest, 4)? << 32 | u64::from(low))),
        Kind::Request => Body::Request(SlotSet::from_bits(number(kind, rest, 8)?)),
        Kind::Summary
        | Kind::NotInView
        | Kind::Features
        | Kind::Gone
        | Kind::Input
        | Kind::Decided
        | Kind::EdgeFeatures
        | Kind::Batch => return Err(DecodeError::Flags(FLAG_SHORT)),
    };
    let network = NetworkTag([head[2], head[3]]);
    let header = Header { late: false, network, sample_low: low, boot: Boot(0), age_ms: 0 };
    Ok(Message { header, body })
}

/// A number of at most `max` bytes, little endian, without zero bytes at its end.
fn number(kind: Kind, bytes: &[u8], max: usize) -> Result<u64, DecodeError> {
    if bytes.len() > max {
        return Err(DecodeError::Length { kind: kind.name(), expected: max, found: bytes.len() });
    }
    if bytes.last() == Some(&0) {
        return Err(DecodeError::ZeroAtEnd { kind: kind.name() });
    }
    Ok(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::message::{Limits, decode, encode};

    const TAG: NetworkTag = NetworkTag([0xab, 0xcd]);

    #[track_caller]
    fn check_hex(bytes: &[u8], expected: &str) {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected);
    }

    /// Bytes that other implementations must agree with: fixed once, changed only with the version.
    #[test]
    fn golden_short_messages() {
        let short = |sample| encode_trigger(Form::Short, TAG, SampleId(sample));
        check_hex(&short(5), "1102abcd05000000");
        check_hex(&short(0x0007_0304_0506_0708), "1102abcd08070605040307");
        check_hex(&short(u64::MAX), "1102abcdffffffffffffffff");
        let request = |slots| encode_request(Form::Short, TAG, SampleId(9), SlotSet::from_bits(slots));
        check_hex(&request(0b101), "1402abcd0900000005");
        check_hex(&request(1 << 63), "1402abcd090000000000000000000080");
        check_hex(&request(0), "1402abcd09000000");
    }

    #[test]
    fn what_is_not_exactly_a_short_message_is_refused() {
        let check = |bytes: &[u8], expected: DecodeError| {
            assert_eq!(decode(bytes, &Limits::default()), Err(expected), "{bytes:02x?}");
        };
        let trigger = encode_trigger(Form::Short, TAG, SampleId(5));
        check(&trigger[..7], DecodeError::Truncated(7));
        check(&[&trigger[..], &[0]].concat(), DecodeError::ZeroAtEnd { kind: "trigger" });
        let long = [&trigger[..], &[1; 5]].concat();
        check(&long, DecodeError::Length { kind: "trigger", expected: 4, found: 5 });
        check(&[&[0x21], &trigger[1..]].concat(), DecodeError::Version(2));
        check(&[&[0x1f], &trigger[1..]].concat(), DecodeError::Kind(15));
        // A summary has no short form.
        check(&[&[0x12], &trigger[1..]].concat(), DecodeError::Flags(2));
        check(&[&[0x11, 3], &trigger[2..]].concat(), DecodeError::Truncated(8));
    }

    proptest! {
        #[test]
        fn both_forms_are_the_same_message(sample: u64, slots: u64) {
            let (sample, slots) = (SampleId(sample), SlotSet::from_bits(slots));
            let header = Header { late: false, network: TAG, sample_low: sample.low(), boot: Boot(0), age_ms: 0 };
            let forms = [Form::Whole, Form::Short];
            let triggers = forms.map(|form| encode_trigger(form, TAG, sample));
            let requests = forms.map(|form| encode_request(form, TAG, sample, slots));
            for (bytes, body) in [(triggers, Body::Trigger(sample)), (requests, Body::Request(slots))] {
                let message = Message { header, body };
                let mut whole = Vec::new();
                encode(&message, &Limits::default(), &mut whole).unwrap();
                prop_assert_eq!(&bytes[0], &whole);
                prop_assert!(bytes[1].len() <= bytes[0].len() - 4);
                for bytes in &bytes {
                    prop_assert_eq!(decode(bytes, &Limits::default()), Ok(message));
                }
            }
        }
    }
}
