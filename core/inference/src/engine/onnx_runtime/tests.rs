//! ONNX Runtime on real sections. If no library is found, these tests print that and pass; a library that `HEADWATER_TEST_ONNXRUNTIME`
//! names must load.

use super::*;
use crate::bundle::Bundle;
use crate::engine::{BATCHED_TOLERANCE, Input, Outputs, TractEngine};
use crate::manifest::{Aggregation, InputKind};
use crate::testing::TinyNetwork;

fn engine() -> Option<OrtEngine> {
    let named = std::env::var_os("HEADWATER_TEST_ONNXRUNTIME").map(PathBuf::from);
    match OrtEngine::load_library(named.as_deref()) {
        Ok(engine) => Some(engine),
        Err(reason) if named.is_none() => {
            eprintln!("left out: {reason}");
            None
        }
        Err(reason) => panic!("{reason}"),
    }
}

#[track_caller]
fn assert_close(expected: &[f32], found: &[f32]) {
    assert_eq!(expected.len(), found.len());
    for (expected, found) in expected.iter().zip(found) {
        let difference = (expected - found).abs() / expected.abs().max(1.0);
        assert!(difference <= BATCHED_TOLERANCE, "expected {expected}, found {found}");
    }
}

#[test]
fn every_section_equals_tract_alone_and_in_batches() {
    let Some(engine) = engine() else { return };
    let network = TinyNetwork { local: Aggregation::Cc, ..TinyNetwork::default() };
    let bundle = Bundle::from_bytes(&network.bundle()).unwrap();
    for manifest in &bundle.manifest().sections {
        let stored = bundle.section(&manifest.name).unwrap();
        let mut ours = engine.load(&stored).unwrap();
        let mut tract = TractEngine::new().load(&stored).unwrap();
        for batch in [0, 1, 3] {
            let pixels: Vec<u8> = (0..batch * manifest.input_len()).map(|i| (i * 37 % 256) as u8).collect();
            let floats: Vec<f32> = pixels.iter().map(|&pixel| f32::from(pixel) / 128.0 - 1.0).collect();
            let input = match manifest.input.kind {
                InputKind::Pixels => Input::Pixels(&pixels),
                InputKind::Floats => Input::Floats(&floats),
            };
            let (mut expected, mut found) = (Outputs::default(), Outputs::default());
            tract.run(batch, input, &mut expected).unwrap();
            ours.run(batch, input, &mut found).unwrap();
            assert_close(expected.floats(0), found.floats(0));
            assert_eq!(expected.bits(1), found.bits(1));
        }
        assert!(ours.run(1, Input::Floats(&[]), &mut Outputs::default()).is_err());
    }
}

#[test]
fn broken_onnx_is_an_error_at_load() {
    let Some(engine) = engine() else { return };
    let bundle = Bundle::from_bytes(&TinyNetwork::default().bundle()).unwrap();
    let stored = bundle.section("cloud").unwrap();
    for onnx in [Vec::new(), vec![0xff; 100], stored.onnx[..40].to_vec()] {
        let section = SectionBytes { onnx: onnx.into(), ..stored.clone() };
        let error = engine.load(&section).err().expect("broken ONNX is refused");
        assert!(matches!(error, EngineError::Load { .. } | EngineError::Mismatch { .. }), "{error}");
    }
}

#[test]
fn a_file_that_is_not_a_library_is_refused_by_name() {
    // A library that is loaded already serves the whole process, so the wrong path would not be read.
    if engine().is_some() {
        return;
    }
    let error = OrtEngine::load_library(Some(Path::new("/nowhere/libonnxruntime.so"))).err().unwrap();
    let text = error.to_string();
    assert!(text.starts_with("ONNX Runtime: /nowhere/libonnxruntime.so: "), "{text}");
    assert!(text.ends_with("expected the shared library of version 1.24 or later"), "{text}");
}
