//! Random bytes as a message: what decodes encodes, and decodes to the same.
//!
//! ```text
//! | `{` ... | JSON, read as every message |
//! | limits 4 B | binary message |        one byte a limit: scores, feature bits, view, bits of an edge's map
//! ```

#![no_main]

use std::fmt::Debug;

use headwater_protocol::{
    Birth, Decision, EdgeStatus, LeaderClaim, Limits, SettledNotice, Status, decode, encode,
};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

fuzz_target!(|bytes: &[u8]| {
    if bytes.first() == Some(&b'{') {
        check_json::<Birth>(bytes);
        check_json::<Decision>(bytes);
        check_json::<EdgeStatus>(bytes);
        check_json::<SettledNotice>(bytes);
        check_json::<Status>(bytes);
        check_claim(bytes);
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

fn check_binary(payload: &[u8], limits: &Limits) {
    let Ok(message) = decode(payload, limits) else { return };
    let mut written = Vec::new();
    encode(&message, limits, &mut written).expect("what decodes encodes under the same limits");
    assert_eq!(written, payload);
    assert!(message.body.scores().all(f32::is_finite));
}
