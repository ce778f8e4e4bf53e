//! Messages against hostile bytes: every message survives encoding, other bytes are refused.

use headwater_protocol::{
    Body, Boot, DecodeError, DeviceDecision, Form, HEADER_BYTES, Header, Limits, Message, NetworkTag,
    PolicyId, SampleId, SlotSet, decode, encode, encode_request, encode_trigger,
};
use proptest::prelude::*;

const LIMITS: Limits = Limits { score_bytes: 12, feature_bits: 21, view_bytes: 48, edge_bits: 11 };

fn header(sample: SampleId) -> Header {
    Header {
        late: false,
        network: NetworkTag([0xab, 0xcd]),
        sample_low: sample.low(),
        boot: Boot(7),
        age_ms: 3,
    }
}

fn any_header() -> impl Strategy<Value = Header> {
    (any::<bool>(), any::<[u8; 2]>(), any::<u32>(), any::<u16>(), any::<u16>()).prop_map(
        |(late, tag, sample_low, boot, age_ms)| Header {
            late,
            network: NetworkTag(tag),
            sample_low,
            boot: Boot(boot),
            age_ms,
        },
    )
}

/// Owned form of a body, since a strategy cannot lend.
#[derive(Clone, Debug)]
enum Owned {
    Trigger(u32),
    Summary(Vec<f32>),
    NotInView,
    Request(u64),
    Features(Vec<u8>),
    Gone,
    Input(Vec<u8>),
    Decided(DeviceDecision),
    EdgeFeatures(u64, Vec<f32>, Vec<u8>),
}

fn any_body() -> impl Strategy<Value = Owned> {
    let finite = any::<f32>().prop_filter("finite", |v| v.is_finite());
    let decided = (any::<u16>(), 0.0..=1.0f32, any::<[u8; 8]>());
    let edge = (1..u64::MAX, prop::collection::vec(finite.clone(), 3), any::<[u8; 2]>());
    prop_oneof![
        any::<u32>().prop_map(Owned::Trigger),
        prop::collection::vec(finite, 3).prop_map(Owned::Summary),
        Just(Owned::NotInView),
        any::<u64>().prop_map(Owned::Request),
        prop::collection::vec(any::<u8>(), 3).prop_map(|mut bytes| {
            bytes[2] &= 0b0001_1111;
            Owned::Features(bytes)
        }),
        Just(Owned::Gone),
        prop::collection::vec(any::<u8>(), 48).prop_map(Owned::Input),
        decided.prop_map(|(class, confidence, policy)| {
            Owned::Decided(DeviceDecision { class, confidence, policy: PolicyId(policy) })
        }),
        edge.prop_map(|(slots, scores, [first, last])| {
            Owned::EdgeFeatures(slots, scores, vec![first, last & 0b0000_0111])
        }),
    ]
}

fn with_message(header: Header, body: &Owned, check: impl FnOnce(Message<'_>)) {
    let scores: Vec<u8> = match body {
        Owned::Summary(scores) | Owned::EdgeFeatures(_, scores, _) => {
            scores.iter().flat_map(|s| s.to_le_bytes()).collect()
        }
        _ => Vec::new(),
    };
    let body = match body {
        Owned::Trigger(high) => {
            Body::Trigger(SampleId(u64::from(*high) << 32 | u64::from(header.sample_low)))
        }
        Owned::Summary(_) => Body::Summary(&scores),
        Owned::NotInView => Body::NotInView,
        Owned::Request(slots) => Body::Request(SlotSet::from_bits(*slots)),
        Owned::Features(bits) => Body::Features(bits),
        Owned::Gone => Body::Gone,
        Owned::Input(pixels) => Body::Input(pixels),
        Owned::Decided(decision) => Body::Decided(*decision),
        Owned::EdgeFeatures(slots, _, map) => {
            Body::EdgeFeatures { slots: SlotSet::from_bits(*slots), scores: &scores, map }
        }
    };
    check(Message { header, body });
}

proptest! {
    #[test]
    fn every_message_survives_its_bytes(header in any_header(), body in any_body()) {
        with_message(header, &body, |message| {
            let mut bytes = Vec::new();
            encode(&message, &LIMITS, &mut bytes).unwrap();
            assert_eq!(bytes.len(), HEADER_BYTES + message.body.len());
            assert_eq!(decode(&bytes, &LIMITS), Ok(message));
        });
    }

    #[test]
    fn a_message_cut_or_lengthened_anywhere_is_refused(header in any_header(), body in any_body()) {
        with_message(header, &body, |message| {
            let mut bytes = Vec::new();
            encode(&message, &LIMITS, &mut bytes).unwrap();
            for cut in 0..bytes.len() {
                assert!(decode(&bytes[..cut], &LIMITS).is_err(), "cut at {cut}");
            }
            bytes.push(0);
            assert!(decode(&bytes, &LIMITS).is_err());
        });
    }

    #[test]
    fn garbage_is_refused_or_is_a_message_that_encodes_to_itself(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(message) = decode(&bytes, &LIMITS) {
            let mut again = Vec::new();
            encode(&message, &LIMITS, &mut again).unwrap();
            prop_assert!(again == bytes || short(&message).is_some_and(|short| short == bytes));
        }
    }
}

/// The short form of a trigger or a request.
fn short(Message { header, body }: &Message<'_>) -> Option<Vec<u8>> {
    let low = SampleId(header.sample_low.into());
    match *body {
        Body::Trigger(sample) => Some(encode_trigger(Form::Short, header.network, sample)),
        Body::Request(slots) => Some(encode_request(Form::Short, header.network, low, slots)),
        _ => None,
    }
}

#[track_caller]
fn check_golden(name: &str, body: Body<'_>, golden: &str) {
    let sample = SampleId(0x0102_0304_0506_0708);
    let message = Message { header: header(sample), body };
    let mut bytes = Vec::new();
    encode(&message, &LIMITS, &mut bytes).unwrap();
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, golden, "{name}");
    assert_eq!(decode(&bytes, &LIMITS), Ok(message), "{name}");
}

/// Bytes that other implementations must agree with: fixed once, changed only with the version.
#[test]
fn golden_messages() {
    let scores: Vec<u8> = [1.0f32, -2.5, 0.0].iter().flat_map(|s| s.to_le_bytes()).collect();
    check_golden(
        "trigger",
        Body::Trigger(SampleId(0x0102_0304_0506_0708)),
        "1100abcd08070605070003000807060504030201",
    );
    check_golden("summary", Body::Summary(&scores), "1200abcd08070605070003000000803f000020c000000000");
    check_golden("not_in_view", Body::NotInView, "1300abcd0807060507000300");
    check_golden(
        "request",
        Body::Request(SlotSet::from_bits(0b101)),
        "1400abcd08070605070003000500000000000000",
    );
    check_golden("features", Body::Features(&[0x01, 0x80, 0x1f]), "1500abcd080706050700030001801f");
    check_golden("gone", Body::Gone, "1600abcd0807060507000300");
    let decision = DeviceDecision { class: 3, confidence: 0.5, policy: PolicyId([4; 8]) };
    check_golden("decided", Body::Decided(decision), "1800abcd080706050700030003000000003f0404040404040404");
    check_golden(
        "edge_features",
        Body::EdgeFeatures { slots: SlotSet::from_bits(0b101), scores: &scores, map: &[0x01, 0x07] },
        "1900abcd080706050700030005000000000000000000803f000020c0000000000107",
    );
}

#[track_caller]
fn check_refused(change: impl FnOnce(&mut Vec<u8>), body: Body<'_>, expected: &DecodeError) {
    let mut bytes = Vec::new();
    encode(&Message { header: header(SampleId(9)), body }, &LIMITS, &mut bytes).unwrap();
    change(&mut bytes);
    assert_eq!(decode(&bytes, &LIMITS).as_ref(), Err(expected));
}

#[test]
fn each_wrong_byte_is_named() {
    check_refused(|b| b[0] = 0x21, Body::Request(SlotSet::first(1)), &DecodeError::Version(2));
    check_refused(|b| b[0] = 0x1f, Body::Request(SlotSet::first(1)), &DecodeError::Kind(15));
    check_refused(|b| b[1] = 0x82, Body::Gone, &DecodeError::Flags(0x82));
    check_refused(|b| b.truncate(4), Body::Gone, &DecodeError::Truncated(4));
    check_refused(|b| b[14] = 0xff, Body::Features(&[0, 0, 0]), &DecodeError::TailBits);
    check_refused(
        |b| b[12..16].copy_from_slice(&f32::NAN.to_le_bytes()),
        Body::Summary(&[0; 12]),
        &DecodeError::NotFinite,
    );
    let decision = DeviceDecision { class: 3, confidence: 0.5, policy: PolicyId([4; 8]) };
    for wrong in [-0.1f32, 1.1, f32::NAN] {
        check_refused(
            |b| b[14..18].copy_from_slice(&wrong.to_le_bytes()),
            Body::Decided(decision),
            &DecodeError::Confidence,
        );
    }
    let edge = Body::EdgeFeatures { slots: SlotSet::first(1), scores: &[0; 12], map: &[0; 2] };
    check_refused(|b| b[12] = 0, edge, &DecodeError::NoSlots);
    check_refused(|b| b[33] = 0x08, edge, &DecodeError::TailBits);
    check_refused(|b| b[20..24].copy_from_slice(&f32::NAN.to_le_bytes()), edge, &DecodeError::NotFinite);
    check_refused(
        |b| b.resize(1000, 0),
        Body::Gone,
        &DecodeError::Oversize { limit: LIMITS.largest_payload(), found: 1000 },
    );
    check_refused(
        |b| b[12] = 1,
        Body::Trigger(SampleId(9)),
        &DecodeError::SampleMismatch { header: 9, body: SampleId(1) },
    );
}
