//! The shipped bundle, as every tier opens it.

use headwater_inference::bundle::Bundle;
use headwater_inference::cost::Costs;
use headwater_inference::engine::TractEngine;
use headwater_inference::whole::Whole;
use headwater_protocol::Exit;

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/shipped/fashion-6cam.hwb");

/// Issue A1: at most 400 KB.
const SHIPPED_BYTES_MAX: usize = 400_000;

#[test]
fn the_shipped_bundle_is_whole_small_and_answers() {
    let bundle = Bundle::open(SHIPPED).expect("the shipped bundle holds");
    assert!(bundle.stored_bytes() <= SHIPPED_BYTES_MAX, "{} bytes", bundle.stored_bytes());
    assert!(Costs::of(&bundle).sections.iter().all(|section| section.stored_bytes.is_some()));
    let mut whole = Whole::load(&bundle, &TractEngine::new()).expect("every section loads");
    let view = vec![128; bundle.manifest().preprocessing.view_bytes()];
    let answers = whole.run(&[vec![Some(view.as_slice()); usize::from(bundle.manifest().slots)]]).unwrap();
    assert_eq!(answers[0].logits.of(Exit::Cloud).len(), bundle.manifest().classes());
}

#[test]
fn the_shipped_bundle_with_one_byte_changed_is_refused() {
    let mut bytes = std::fs::read(SHIPPED).expect("the shipped bundle is there");
    // Every byte of a small bundle is tried in the unit tests; here a few hundred, spread over all members.
    for i in (0..bytes.len()).step_by(bytes.len() / 300) {
        bytes[i] ^= 0x10;
        assert!(Bundle::from_bytes(&bytes).is_err(), "byte {i}");
        bytes[i] ^= 0x10;
    }
    assert!(Bundle::from_bytes(&bytes).is_ok());
}
