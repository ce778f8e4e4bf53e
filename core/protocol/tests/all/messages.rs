//! Messages against hostile bytes: every message survives encoding, other bytes are refused.

use headwater_protocol::{
    Batch, BatchEntry, BatchMistake, BatchedAnswer, Body, DecodeError, DeviceDecision, HEADER_BYTES, Header,
    Limits, MAX_BATCH_SAMPLES, Message, PolicyId, SampleId, ScoreEncoding, Session, SlotSet, decode, encode,
    encode_batch, frame_details, put_frame_details,
};
use proptest::prelude::*;

const LIMITS: Limits = Limits {
    classes: 3,
    scores: ScoreEncoding::F32,
    feature_bits: 21,
    codes_features: false,
    view_bytes: 48,
    edge_bits: 11,
};

const SESSION: Session = Session([0xab, 0xcd]);

fn header(sample: SampleId) -> Header {
    Header { late: false, session: SESSION, sample, age_ms: 3 }
}

fn any_header() -> impl Strategy<Value = Header> {
    (any::<bool>(), any::<[u8; 2]>(), any::<u64>(), 0..64u32, any::<u16>()).prop_map(
        |(late, session, sample, shift, age_ms)| Header {
            late,
            session: Session(session),
            sample: SampleId(sample >> shift),
            age_ms,
        },
    )
}

/// Owned form of a body, since a proptest strategy cannot return borrowed bytes.
#[derive(Clone, Debug)]
enum Owned {
    Trigger,
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
        Just(Owned::Trigger),
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
        Owned::Trigger => Body::Trigger,
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
    let header = match body {
        Body::Trigger | Body::Request(_) => Header::to_group(header.session, header.sample),
        _ => header,
    };
    check(Message { header, body });
}

proptest! {
    #[test]
    fn every_message_survives_its_bytes(header in any_header(), body in any_body()) {
        with_message(header, &body, |message| {
            let mut bytes = Vec::new();
            encode(&message, &LIMITS, &mut bytes).unwrap();
            let is_of_a_source = header.sample.0 < 1 << 42;
            assert!(!is_of_a_source || bytes.len() <= HEADER_BYTES + message.body.len());
            assert_eq!(decode(&bytes, &LIMITS), Ok(message));
        });
    }

    #[test]
    fn a_message_cut_or_lengthened_anywhere_is_refused(header in any_header(), body in any_body()) {
        with_message(header, &body, |message| {
            let mut bytes = Vec::new();
            encode(&message, &LIMITS, &mut bytes).unwrap();
            for cut in 0..bytes.len() {
                // A request that is cut within its slot set may be another valid request.
                let is_request = matches!(decode(&bytes[..cut], &LIMITS), Ok(Message { body: Body::Request(_), .. }));
                assert!(is_request || decode(&bytes[..cut], &LIMITS).is_err(), "cut at {cut}");
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
            if let Some(details) = frame_details(&bytes, &LIMITS) {
                put_frame_details(&details, &mut again);
            }
            prop_assert_eq!(again, bytes);
        }
    }
}

#[track_caller]
fn check_golden(name: &str, body: Body<'_>, golden: &str) {
    let sample = SampleId(0x0102_0304_0506_0708);
    let header = match body {
        Body::Trigger | Body::Request(_) => Header::to_group(SESSION, sample),
        _ => header(sample),
    };
    let message = Message { header, body };
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
    check_golden("trigger", Body::Trigger, "21abcd888e98a8c0e0808101");
    check_golden("summary", Body::Summary(&scores), "2200abcd888e98a8c0e080810103000000803f000020c000000000");
    check_golden("not_in_view", Body::NotInView, "2300abcd888e98a8c0e08081010300");
    check_golden("request", Body::Request(SlotSet::from_bits(0b101)), "24abcd888e98a8c0e080810105");
    check_golden("features", Body::Features(&[0x01, 0x80, 0x1f]), "2500abcd888e98a8c0e0808101030001801f");
    check_golden("gone", Body::Gone, "2600abcd888e98a8c0e08081010300");
    let decision = DeviceDecision { class: 3, confidence: 0.5, policy: PolicyId([4; 8]) };
    check_golden(
        "decided",
        Body::Decided(decision),
        "2800abcd888e98a8c0e0808101030003000000003f0404040404040404",
    );
    check_golden(
        "edge_features",
        Body::EdgeFeatures { slots: SlotSet::from_bits(0b101), scores: &scores, map: &[0x01, 0x07] },
        "2900abcd888e98a8c0e0808101030005000000000000000000803f000020c0000000000107",
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
    check_refused(|b| b[0] = 0x11, Body::Request(SlotSet::first(1)), &DecodeError::Version(1));
    check_refused(|b| b[0] = 0x2f, Body::Request(SlotSet::first(1)), &DecodeError::Kind(15));
    check_refused(|b| b[1] = 0x82, Body::Gone, &DecodeError::Flags(0x82));
    check_refused(|b| b.truncate(4), Body::Gone, &DecodeError::Truncated(4));
    check_refused(|b| b[9] = 0xff, Body::Features(&[0, 0, 0]), &DecodeError::TailBits);
    check_refused(
        |b| b[7..11].copy_from_slice(&f32::NAN.to_le_bytes()),
        Body::Summary(&[0; 12]),
        &DecodeError::NotFinite,
    );
    let decision = DeviceDecision { class: 3, confidence: 0.5, policy: PolicyId([4; 8]) };
    for wrong in [-0.1f32, 1.1, f32::NAN] {
        check_refused(
            |b| b[9..13].copy_from_slice(&wrong.to_le_bytes()),
            Body::Decided(decision),
            &DecodeError::Confidence,
        );
    }
    let edge = Body::EdgeFeatures { slots: SlotSet::first(1), scores: &[0; 12], map: &[0; 2] };
    check_refused(|b| b[7] = 0, edge, &DecodeError::NoSlots);
    check_refused(|b| b[28] = 0x08, edge, &DecodeError::TailBits);
    check_refused(|b| b[15..19].copy_from_slice(&f32::NAN.to_le_bytes()), edge, &DecodeError::NotFinite);
    check_refused(
        |b| b.resize(5000, 0),
        Body::Gone,
        &DecodeError::Oversize { limit: LIMITS.largest_payload(), found: 5000 },
    );
    check_refused(
        |b| b.push(1),
        Body::Trigger,
        &DecodeError::Length { kind: "trigger", expected: 0, found: 1 },
    );
    check_refused(|b| b[4..].fill(0xff), Body::Gone, &DecodeError::Truncated(7));
    check_refused(|b| b.splice(4..5, [0xff; 11]).for_each(drop), Body::Gone, &DecodeError::SampleId);
    check_refused(|b| b.splice(4..5, [0x89, 0]).for_each(drop), Body::Gone, &DecodeError::SampleId);
}

/// Lengths of headers in bytes, with ids of each numbering.
#[test]
fn bytes_of_headers_by_numbering() {
    let bytes = |sample: u64, body| {
        let header = header(SampleId(sample));
        let mut bytes = Vec::new();
        encode(&Message { header, body }, &LIMITS, &mut bytes).unwrap();
        bytes.len() - body.len()
    };
    // Ids of one moment of 21 November 2025: milliseconds by source, and by a clock with a period of 100 ms.
    let (source, clock) = (1_763_719_200_123, 17_637_192_001);
    for (sample, of_answer, to_group) in
        [(1, 7, 4), (300, 8, 5), (100_000, 9, 6), (clock, 11, 8), (source, 12, 9)]
    {
        let request = Body::Request(SlotSet::first(1));
        let found = [Body::NotInView, Body::Trigger, request].map(|body| bytes(sample, body));
        assert_eq!(found, [of_answer, to_group, to_group], "sample {sample}");
    }
}

/// The network of `LIMITS` with scores of 4 bits and coded maps.
const CODED: Limits = Limits { scores: ScoreEncoding::Bits4, codes_features: true, ..LIMITS };

#[test]
fn golden_messages_of_coded_scores_and_maps() {
    for (body, golden) in [
        (Body::Summary(&[0x21, 0x03]), "2200abcd888e98a8c0e080810103002103"),
        (Body::Features(&[0x01, 0x80]), "2500abcd888e98a8c0e080810103000180"),
        (Body::Features(&[0x01, 0x80, 0x1f]), "2500abcd888e98a8c0e0808101030001801f"),
    ] {
        let message = Message { header: header(SampleId(0x0102_0304_0506_0708)), body };
        let mut bytes = Vec::new();
        encode(&message, &CODED, &mut bytes).unwrap();
        assert_eq!(bytes.iter().map(|b| format!("{b:02x}")).collect::<String>(), golden);
        assert_eq!(decode(&bytes, &CODED), Ok(message));
        // Limits without coding accept only the map of full length.
        let is_plain = matches!(body, Body::Features(map) if map.len() == 3);
        assert_eq!(decode(&bytes, &LIMITS).is_ok(), is_plain);
    }
}

#[test]
fn coded_bodies_of_a_wrong_length_or_tail_are_named() {
    let refused = |kind: u8, body: &[u8], expected: DecodeError| {
        let head = [0x20 | kind, 0, 0xab, 0xcd, 8, 3, 0];
        assert_eq!(decode(&[&head, body].concat(), &CODED), Err(expected));
    };
    refused(5, &[], DecodeError::CodedLength { limit: 3, found: 0 });
    refused(5, &[1, 2, 3, 4], DecodeError::CodedLength { limit: 3, found: 4 });
    refused(5, &[1, 2, 0xff], DecodeError::TailBits);
    refused(2, &[0x21, 0x13], DecodeError::ScoreTail);
    refused(2, &[0x21], DecodeError::Length { kind: "summary", expected: 2, found: 1 });
    refused(2, &[0; 12], DecodeError::Length { kind: "summary", expected: 2, found: 12 });
}

/// Entries of a batch from id 9 on. `samples` has for each: distance from the id before, age in ms, whether the device has a view.
fn entries<'a>(samples: &[(u64, u16, bool)], scores: &'a [u8]) -> Vec<BatchEntry<'a>> {
    let mut sample = SampleId(9);
    let entry = |&(distance, age_ms, has_view): &(u64, u16, bool)| {
        sample = SampleId(sample.0 + distance);
        let answer = if has_view { BatchedAnswer::Summary(scores) } else { BatchedAnswer::NotInView };
        BatchEntry { sample, age_ms, answer }
    };
    samples.iter().map(entry).collect()
}

/// A message with entries from the start of `entries`, and the number of entries in it.
fn batch_bytes(entries: &[BatchEntry<'_>], limits: &Limits) -> (Vec<u8>, usize) {
    let mut bytes = Vec::new();
    let taken = encode_batch(SESSION, entries, limits, &mut bytes).unwrap();
    (bytes, taken)
}

#[track_caller]
fn decoded_batch<'a>(bytes: &'a [u8], limits: &Limits) -> (Header, Batch<'a>) {
    match decode(bytes, limits) {
        Ok(Message { header, body: Body::Batch(batch) }) => (header, batch),
        other => panic!("{other:?}"),
    }
}

/// Bytes that other implementations must agree with: fixed once, changed only with the version.
#[test]
fn golden_batches() {
    let scores: Vec<u8> = [1.0f32, -2.5, 0.0].iter().flat_map(|s| s.to_le_bytes()).collect();
    for (limits, scores, samples, golden) in [
        (LIMITS, &scores[..], &[(0, 3, true)][..], "2a00abcd09030000000000803f000020c000000000"),
        (
            CODED,
            &[0x21, 0x03],
            &[(0, 25, true), (1, 15, false), (10, 5, true)],
            "2a00abcd0919000000210303\
0a140a2103",
        ),
        (CODED, &[0x21, 0x03], &[(0, 65_535, false), (64, 0, true)], "2a00abcd09ffff01008001ffff032103"),
    ] {
        let entries = entries(samples, scores);
        let (bytes, taken) = batch_bytes(&entries, &limits);
        assert_eq!(bytes.iter().map(|b| format!("{b:02x}")).collect::<String>(), golden);
        assert_eq!(taken, entries.len());
        let (header, batch) = decoded_batch(&bytes, &limits);
        assert_eq!((header.late, header.session, header.sample), (false, SESSION, SampleId(9)));
        assert!(batch.entries(&header).eq(entries));
    }
}

#[test]
fn a_batch_ends_before_a_sample_that_it_cannot_say() {
    let limits = CODED;
    let taken = |samples: &[(u64, u16, bool)]| batch_bytes(&entries(samples, &[0x21, 3]), &limits).1;
    assert_eq!(taken(&[(0, 9, true), (1, 9, true), (1, 10, true)]), 2, "older than the one before");
    assert_eq!(taken(&[(0, 9, true), (0, 9, true)]), 1, "the same sample");
    assert_eq!(taken(&[(0, 9, true), (1 << 31, 9, true)]), 1, "a distance has 31 bits");
    assert_eq!(taken(&[(0, 9, true), ((1 << 31) - 1, 9, true), ((1 << 31) - 1, 9, true), (2, 9, true)]), 4);
    assert_eq!(taken(&[(0, 9, true), (1 << 63, 9, true)]), 1);
    assert_eq!(taken(&[]), 0);
    let many: Vec<_> = (0..100).map(|at| (u64::from(at > 0), 100 - at, at % 2 == 0)).collect();
    assert_eq!(taken(&many), MAX_BATCH_SAMPLES);
    let wrong = encode_batch(SESSION, &entries(&[(0, 9, true)], &[1]), &limits, &mut Vec::new());
    assert_eq!(wrong.unwrap_err().to_string(), "batch message: expected a body of 2 bytes, got 1");
}

#[test]
fn each_wrong_entry_of_a_batch_is_named() {
    let head = [0x2a, 0, 0xab, 0xcd, 9, 3, 0];
    let refused = |body: &[u8], entry: usize, mistake: BatchMistake| {
        let found = decode(&[&head, body].concat(), &CODED).map(|_| ());
        assert_eq!(found, Err(DecodeError::Batch { entry, mistake }), "{body:02x?}");
    };
    refused(&[], 0, BatchMistake::Missing);
    refused(&[2, 0, 0x21, 3], 0, BatchMistake::NotTheHeaders);
    refused(&[0, 1, 0x21, 3], 0, BatchMistake::NotTheHeaders);
    refused(&[1, 0, 1, 0], 1, BatchMistake::NotRising);
    refused(&[1, 0, 3, 4], 1, BatchMistake::NegativeAge);
    refused(&[1, 0, 3, 2, 3, 2], 2, BatchMistake::NegativeAge);
    refused(&[1, 0, 3], 1, BatchMistake::Number);
    refused(&[1, 0, 0x83, 0, 0], 1, BatchMistake::Number);
    refused(&[1, 0, 3, 0x80, 0], 1, BatchMistake::Number);
    refused(&[1, 0, 3, 0x80, 0x80, 4], 1, BatchMistake::Number);
    refused(&[1, 0, 0xff, 0xff, 0xff, 0xff, 0x1f, 0], 1, BatchMistake::Number);
    let last = [&[0x2a, 0, 0xab, 0xcd][..], &[0xff; 9], &[1, 3, 0], &[1, 0, 3, 0]].concat();
    let found = decode(&last, &CODED).map(|_| ());
    assert_eq!(found, Err(DecodeError::Batch { entry: 1, mistake: BatchMistake::TooFar }));
    refused(&[0, 0, 0x21], 0, BatchMistake::CutOff { expected: 2, found: 1 });
    let many = [&[1, 0][..], &[3, 0].repeat(MAX_BATCH_SAMPLES)].concat();
    refused(&many, MAX_BATCH_SAMPLES, BatchMistake::TooMany);
    let late = [&[0x2a, 1][..], &head[2..], &[1, 0]].concat();
    let found = decode(&late, &CODED).map(|_| ());
    assert_eq!(found, Err(DecodeError::Batch { entry: 0, mistake: BatchMistake::Late }));
    assert_eq!(decode(&[&head[..], &[0, 0, 0x21, 0x13]].concat(), &CODED), Err(DecodeError::ScoreTail));
}

proptest! {
    #[test]
    fn a_batch_keeps_ids_ages_and_answers(
        samples in prop::collection::vec((1..5000u64, 0..900u16, any::<bool>()), 1..=MAX_BATCH_SAMPLES),
        scores: [u8; 8],
        first: u32,
    ) {
        let limits = Limits { classes: 8, scores: ScoreEncoding::Bits8, ..LIMITS };
        let (mut sample, mut age_ms) = (SampleId(first.into()), u16::MAX);
        let entry = |(distance, younger_ms, has_view): (u64, u16, bool)| {
            sample.0 += distance;
            age_ms -= younger_ms;
            let answer = if has_view { BatchedAnswer::Summary(&scores[..]) } else { BatchedAnswer::NotInView };
            BatchEntry { sample, age_ms, answer }
        };
        let entries: Vec<_> = samples.into_iter().map(entry).collect();
        let (bytes, taken) = batch_bytes(&entries, &limits);
        prop_assert_eq!(taken, entries.len());
        let (header, batch) = decoded_batch(&bytes, &limits);
        prop_assert!(batch.entries(&header).eq(entries.iter().copied()));
        let message = Message { header, body: Body::Batch(batch) };
        let mut again = Vec::new();
        encode(&message, &limits, &mut again).unwrap();
        prop_assert_eq!(&again, &bytes);
        let under_others = encode(&message, &LIMITS, &mut again);
        prop_assert!(under_others.is_err());
        // A message that is cut off reads as a batch of fewer samples, or is refused.
        for cut in 0..bytes.len() {
            if let Ok(Message { body: Body::Batch(fewer), .. }) = decode(&bytes[..cut], &limits) {
                prop_assert!(fewer.entries(&header).count() < entries.len());
            }
        }
    }

    #[test]
    fn garbage_after_the_header_of_a_batch_is_refused_or_encodes_to_itself(
        rest in prop::collection::vec(prop_oneof![0..8u8, any::<u8>()], 0..60),
    ) {
        let bytes = [&[0x2a, 0, 0xab, 0xcd, 9, 30, 0][..], &rest].concat();
        if let Ok(message) = decode(&bytes, &CODED) {
            let mut again = Vec::new();
            encode(&message, &CODED, &mut again).unwrap();
            prop_assert_eq!(again, bytes);
        }
    }
}
