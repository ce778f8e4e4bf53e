//! Random bytes as a message. Binary: what decodes must encode to the same bytes. JSON: what reads must survive writing and reading.
//!
//! ```text
//! | `{` ... | JSON, read as every message but those about policies |
//! | limits 5 B | binary message |        one byte a limit: classes, feature bits, view bytes, bits of an edge's map, encodings
//! ```

#![no_main]

use std::fmt::Debug;

use headwater_protocol::scores::floats;
use headwater_protocol::{
    Batch, BatchedAnswer, Birth, Body, EdgeStatus, Header, LeaderClaim, Limits, ResultMessage,
    ScoreEncoding, SettledNotice, Status, Trigger, TriggerMessage, decode, encode, encode_batch, frame_details,
    put_frame_details,
};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

fuzz_target!(|bytes: &[u8]| {
    if bytes.first() == Some(&b'{') {
        check_json::<Birth>(bytes);
        check_json::<ResultMessage>(bytes);
        check_json::<EdgeStatus>(bytes);
        check_json::<SettledNotice>(bytes);
        check_json::<Status>(bytes);
        check_claim(bytes);
        check_trigger(bytes);
    } else if let Some((limits, payload)) = bytes.split_first_chunk() {
        let [classes, feature_bits, view_bytes, edge_bits, encodings] = limits.map(usize::from);
        let scores = ScoreEncoding::ALL[encodings / 2 % ScoreEncoding::ALL.len()];
        let codes_features = encodings % 2 == 1;
        check_binary(payload, &Limits { classes, scores, feature_bits, codes_features, view_bytes, edge_bits });
    }
});

fn check_json<T: DeserializeOwned + Serialize + PartialEq + Debug>(text: &[u8]) {
    let Ok(message) = serde_json::from_slice::<T>(text) else { return };
    let written = serde_json::to_vec(&message).expect("messages always become JSON");
    let read: T = serde_json::from_slice(&written)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&written)));
    assert_eq!(read, message);
}

/// A leader's claim has its own reader, which bounds the term.
fn check_claim(text: &[u8]) {
    let Ok(claim) = LeaderClaim::read(text) else { return };
    let written = serde_json::to_vec(&claim).expect("claims always become JSON");
    assert_eq!(LeaderClaim::read(&written), Ok(claim));
}

/// A trigger has its own reader, which bounds the length.
fn check_trigger(text: &[u8]) {
    let Ok(Trigger { sample, .. }) = Trigger::read(text, &Limits::default()) else { return };
    let written = serde_json::to_vec(&TriggerMessage { sample }).expect("triggers always become JSON");
    assert_eq!(Trigger::read(&written, &Limits::default()), Ok(Trigger { sample, session: None }));
}

fn check_binary(payload: &[u8], limits: &Limits) {
    let Ok(message) = decode(payload, limits) else { return };
    let mut written = Vec::new();
    encode(&message, limits, &mut written).expect("what decodes encodes under the same limits");
    if let Some(details) = frame_details(payload, limits) {
        put_frame_details(&details, &mut written);
    }
    assert!(written == payload);
    match message.body {
        Body::EdgeFeatures { scores, .. } => assert!(floats(scores).all(f32::is_finite)),
        Body::Batch(batch) => check_batch(message.header, batch, limits, payload),
        _ => {}
    }
}

/// Checks that the entries of a batch encode to the same bytes.
fn check_batch(header: Header, batch: Batch<'_>, limits: &Limits, payload: &[u8]) {
    let entries: Vec<_> = batch.entries(&header).collect();
    assert!(entries.is_sorted_by(|a, b| a.sample < b.sample && a.age_ms >= b.age_ms));
    let has_finite = |answer| match answer {
        BatchedAnswer::Summary(scores) if limits.scores == ScoreEncoding::F32 => floats(scores).all(f32::is_finite),
        _ => true,
    };
    assert!(entries.iter().all(|entry| has_finite(entry.answer)));
    let mut written = Vec::new();
    let taken = encode_batch(header.session, &entries, limits, &mut written);
    assert_eq!(taken, Ok(entries.len()));
    assert!(written == payload);
}
