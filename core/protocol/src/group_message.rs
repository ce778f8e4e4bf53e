//! Messages to every device of a group: triggers and requests.

use crate::bit_set::SlotSet;
use crate::header::{Header, put_header};
use crate::ids::{SampleId, Session};
use crate::kind::Kind;
use crate::message::put_slots;

/// The bytes of a trigger. `session` is [`Session::of_network`]: a hash of the network's id alone, since a trigger goes to every device.
pub fn encode_trigger(session: Session, sample: SampleId) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_header(Kind::Trigger, &Header::to_group(session, sample), &mut bytes);
    bytes
}

/// The bytes of a request for the features of these slots. `session` is [`Session::of_network`].
pub fn encode_request(session: Session, sample: SampleId, slots: SlotSet) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_header(Kind::Request, &Header::to_group(session, sample), &mut bytes);
    put_slots(slots, &mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Body, DecodeError, Limits, Message, decode, encode};

    const SESSION: Session = Session([0xab, 0xcd]);

    #[track_caller]
    fn check_hex(bytes: &[u8], expected: &str) {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected);
    }

    /// Bytes that other implementations must agree with: fixed once, changed only with the version.
    #[test]
    fn golden_messages_to_a_group() {
        let trigger = |sample| encode_trigger(SESSION, SampleId(sample));
        check_hex(&trigger(5), "21abcd05");
        check_hex(&trigger(300), "21abcdac02");
        check_hex(&trigger(u64::MAX), "21abcdffffffffffffffffff01");
        let request = |slots| encode_request(SESSION, SampleId(9), SlotSet::from_bits(slots));
        check_hex(&request(0b101), "24abcd0905");
        check_hex(&request(1 << 63), "24abcd090000000000000080");
        check_hex(&request(0), "24abcd09");
    }

    #[test]
    fn what_is_not_exactly_a_trigger_or_a_request_is_refused() {
        let check = |bytes: &[u8], expected: DecodeError| {
            assert_eq!(decode(bytes, &Limits::default()), Err(expected), "{bytes:02x?}");
        };
        let trigger = encode_trigger(SESSION, SampleId(5));
        check(&trigger[..3], DecodeError::Truncated(3));
        check(&[&trigger[..], &[0]].concat(), DecodeError::Length { kind: "trigger", expected: 0, found: 1 });
        check(&[&[0x11], &trigger[1..]].concat(), DecodeError::Version(1));
        check(&[&[0x2f], &trigger[1..]].concat(), DecodeError::Kind(15));
        check(&[&trigger[..3], &[0x85, 0]].concat(), DecodeError::SampleId);
        let request = encode_request(SESSION, SampleId(5), SlotSet::from_bits(1));
        check(&[&request[..], &[0]].concat(), DecodeError::ZeroAtEnd);
        check(
            &[&request[..], &[1; 8]].concat(),
            DecodeError::Length { kind: "request", expected: 8, found: 9 },
        );
    }

    proptest! {
        #[test]
        fn each_is_the_message_that_encode_writes(sample: u64, slots: u64) {
            let (sample, slots) = (SampleId(sample), SlotSet::from_bits(slots));
            let header = Header::to_group(SESSION, sample);
            let trigger = (encode_trigger(SESSION, sample), Body::Trigger);
            let request = (encode_request(SESSION, sample, slots), Body::Request(slots));
            for (bytes, body) in [trigger, request] {
                let message = Message { header, body };
                let mut written = Vec::new();
                encode(&message, &Limits::default(), &mut written).unwrap();
                prop_assert_eq!(&bytes, &written);
                prop_assert_eq!(decode(&bytes, &Limits::default()), Ok(message));
            }
        }
    }
}
