//! The shipped bundle: its size, its ids, its scores, and the refusal of changed bytes.

use headwater_inference::bundle::{Bundle, BundleWriter};
use headwater_inference::engine::{Engine, PackedEngine, TractEngine};
use headwater_inference::manifest::SectionManifest;
use headwater_inference::sections::{DeviceSection, ScoreLimits};
use headwater_inference::whole::Whole;
use headwater_protocol::{Exit, Slot};
use sha2::{Digest, Sha256};

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/shipped/fashion-6cam.hwb");

const MAX_SHIPPED_BYTES: usize = 400_000;

/// Ids of the bundle. A renamed serde field would change the ids.
const NETWORK_ID: &str = "641d244c907cfb58334aac3b3e5807457faba4f8d517d5c38c15e807b739c4f1";
const POLICY_ID: &str = "1b34628ad2d633cf";

#[test]
fn the_shipped_bundle_is_complete_and_small_and_answers() {
    let bundle = Bundle::open(SHIPPED).expect("the shipped bundle is valid");
    assert!(bundle.stored_bytes() <= MAX_SHIPPED_BYTES, "{} bytes", bundle.stored_bytes());
    let mut sections = bundle.manifest().sections.iter();
    assert!(sections.all(|section| bundle.stored_section_bytes(&section.name).is_some()));
    let mut whole = Whole::load(&bundle, &TractEngine::new()).expect("every section loads");
    let view = vec![128; bundle.manifest().preprocessing.view_bytes()];
    let answers = whole.run(&[vec![Some(view.as_slice()); usize::from(bundle.manifest().slots)]]).unwrap();
    assert_eq!(answers[0].logits[Exit::CLOUD].len(), bundle.manifest().classes());
}

#[test]
fn the_ids_of_the_shipped_bundle_stay() {
    let bundle = Bundle::open(SHIPPED).expect("the shipped bundle is valid");
    let ids = (bundle.network_id().to_string(), bundle.policy_id().to_string());
    assert_eq!(ids, (NETWORK_ID.to_owned(), POLICY_ID.to_owned()));
}

/// The shipped bundle of commit 868d949 had format 1. It was written again in the present format with the same numbers.
#[test]
fn the_weights_and_thresholds_of_the_shipped_bundle_are_those_of_868d949() {
    // Bytes of a packed section before the shapes of its blocks; the hash leaves them out.
    const HEADER_BYTES: usize = 22;
    let bundle = Bundle::open(SHIPPED).expect("the shipped bundle is valid");
    let mut hash = Sha256::new();
    for section in &bundle.manifest().sections {
        let stored = bundle.section(&section.name).expect("the bundle has every section");
        hash.update(&stored.onnx);
        if let Some(packed) = &stored.packed {
            hash.update(&packed[HEADER_BYTES..]);
        }
        if let Some(contexts) = bundle.contexts(&section.name) {
            hash.update(contexts);
        }
    }
    let found = format!("{:x}", hash.finalize());
    assert_eq!(found, "65f694e8475631f9ccd2717eea6016f5bf2d9379940f814676a8221e38a692b3");
    let exits = Exit::FIRST.map(|exit| serde_json::to_string(&bundle.policy().exits[exit]).expect("JSON"));
    let expected = [(1.0, 0.5), (1.023_275_9, 0.604_143_2), (1.0, 0.5), (1.380_597_5_f32, 1.0_f32)].map(
        |(temperature, threshold)| {
            format!(r#"{{"rule":"margin","temperature":{temperature:?},"threshold":{threshold:?}}}"#)
        },
    );
    assert_eq!(exits, expected);
}

#[test]
fn the_scores_of_the_shipped_devices_lie_within_their_limits_on_every_engine() {
    let bundle = Bundle::open(SHIPPED).expect("the shipped bundle is valid");
    let bytes = bundle.manifest().preprocessing.view_bytes();
    let views: Vec<u8> = (0..8 * bytes).map(|at| (at * at / 7 + at / bytes * 31) as u8).collect();
    for slot in Slot::first(bundle.manifest().slots.into()) {
        let limits =
            ScoreLimits::of_section(&bundle, &SectionManifest::device_name(slot)).expect("a packed form");
        for engine in [&PackedEngine as &dyn Engine, &TractEngine::new()] {
            let mut device = DeviceSection::load(&bundle, slot, engine).expect("the section loads");
            for output in device.run(&views, 8).expect("eight views") {
                assert_eq!(limits.check(&output.scores), Ok(()), "{} {slot}", engine.name());
            }
        }
        assert!(limits.check(&vec![1e30; bundle.manifest().classes()]).is_err());
    }
}

#[test]
fn the_shipped_network_written_again_has_the_same_id() {
    let bundle = Bundle::open(SHIPPED).expect("the shipped bundle is valid");
    let names: Vec<_> = bundle.manifest().sections.iter().map(|section| section.name.clone()).collect();
    let writer = BundleWriter::new(bundle.manifest().clone(), bundle.policy().clone());
    let writer = names.into_iter().fold(writer, |writer, name| {
        let stored = bundle.section(&name).expect("the bundle has every section");
        let writer = writer.section(name.clone(), stored.onnx.to_vec());
        let writer = match stored.packed {
            Some(packed) => writer.packed(name.clone(), packed),
            None => writer,
        };
        match bundle.contexts(&name) {
            Some(contexts) => writer.contexts(name, contexts.to_vec()),
            None => writer,
        }
    });
    let again = Bundle::from_bytes(&writer.finish().expect("a bundle")).expect("the bundle is valid");
    assert_eq!(again.network_id().to_string(), NETWORK_ID);
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
