//! Random bytes as a message: what decodes encodes, and decodes to the same.
//!
//! ```text
//! | `{` ... | JSON, read as every message |
//! | limits 4 B | binary message |        one byte a limit: scores, feature bits, view, bits of an edge's map
//! ```

#![no_main]

use std::fmt::Debug;

use headwater_protocol::{
    Birth, Body, EdgeStatus, Form, LeaderClaim, Limits, Message, ResultMessage, SampleId, SettledNotice, Status,
    Trigger, TriggerMessage, decode, encode, encode_request, encode_trigger,
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
        let [score_bytes, feature_bits, view_bytes, edge_bits] = limits.map(usize::from);
        check_binary(payload, &Limits { score_bytes, feature_bits, view_bytes, edge_bits });
    }
});

fn check_json<T: DeserializeOwned + Serialize + PartialEq + Debug>(text: &[u8]) {
    let Ok(message) = serde_json::from_slice::<T>(text) else { return };
    let written = serde_json::to_vec(&message).expect("messages always become JSON");
    let read: T = serde_json::from_slice(&written)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&written)));
    assert_eq!(read, message);
}

/// A leader's claim has a reader of its own, with a bound.
fn check_claim(text: &[u8]) {
    let Ok(claim) = LeaderClaim::read(text) else { return };
    let written = serde_json::to_vec(&claim).expect("claims always become JSON");
    assert_eq!(LeaderClaim::read(&written), Ok(claim));
}

/// A trigger has a reader of its own, with a bound.
fn check_trigger(text: &[u8]) {
    let Ok(Trigger { sample, .. }) = Trigger::read(text, &Limits::default()) else { return };
    let written = serde_json::to_vec(&TriggerMessage { sample }).expect("triggers always become JSON");
    assert_eq!(Trigger::read(&written, &Limits::default()), Ok(Trigger { sample, network: None }));
}

fn check_binary(payload: &[u8], limits: &Limits) {
    let Ok(message) = decode(payload, limits) else { return };
    let mut written = Vec::new();
    encode(&message, limits, &mut written).expect("what decodes encodes under the same limits");
    assert!(written == payload || short(&message).is_some_and(|short| short == payload));
    assert!(message.body.scores().all(f32::is_finite));
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
