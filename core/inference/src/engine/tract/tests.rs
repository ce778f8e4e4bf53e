//! tract on small ONNX files.

use proptest::prelude::*;

use super::*;
use crate::bundle::Bundle;
use crate::engine::{Input, Outputs};
use crate::manifest::{
    Aggregation, InputKind, OutputKind, SectionInput, SectionManifest, SectionOutput, Tier,
};
use crate::testing::{OnnxGraph, TinyNetwork};

fn section(kind: InputKind, shape: &[usize], outputs: &[(OutputKind, &[usize])]) -> SectionManifest {
    SectionManifest {
        name: "cloud".into(),
        tier: Tier::Cloud,
        slot: None,
        input: SectionInput { kind, shape: shape.to_vec() },
        outputs: outputs
            .iter()
            .map(|(kind, shape)| SectionOutput { name: "y".into(), kind: *kind, shape: shape.to_vec() })
            .collect(),
        parameters: 0,
        macs: 0,
        sha256: String::new(),
        packed_sha256: None,
        contexts_sha256: None,
    }
}

fn load(manifest: &SectionManifest, onnx: &[u8]) -> Result<Box<dyn Section>, EngineError> {
    TractEngine::new().load(&SectionBytes { manifest, onnx: onnx.into(), packed: None })
}

fn relu(shape: &[usize]) -> Vec<u8> {
    let mut graph = OnnxGraph::new(shape);
    let y = graph.node("Relu", &["x"], &[]);
    graph.finish(&[&y])
}

#[test]
fn pixels_are_divided_by_255() {
    let manifest = section(InputKind::Pixels, &[4], &[(OutputKind::F32, &[4])]);
    let mut section = load(&manifest, &relu(&[4])).unwrap();
    let mut outputs = Outputs::default();
    section.run(1, Input::Pixels(&[0, 1, 128, 255]), &mut outputs).unwrap();
    assert_eq!(outputs.floats(0), [0.0, 1.0 / 255.0, 128.0 / 255.0, 1.0]);
}

#[test]
fn bits_are_packed_sample_by_sample() {
    let mut graph = OnnxGraph::new(&[3]);
    let y = graph.sign("x");
    let manifest = section(InputKind::Floats, &[3], &[(OutputKind::Bits, &[3])]);
    let mut section = load(&manifest, &graph.finish(&[&y])).unwrap();
    let mut outputs = Outputs::default();
    section.run(2, Input::Floats(&[1.0, -1.0, 0.0, -0.5, 0.5, -0.1]), &mut outputs).unwrap();
    assert_eq!(outputs.bits(0), [0b101, 0b010]);
    assert!(outputs.floats(0).is_empty() && outputs.bits(1).is_empty());
}

#[test]
fn an_empty_batch_gives_empty_outputs() {
    let manifest = section(InputKind::Floats, &[4], &[(OutputKind::F32, &[4])]);
    let mut section = load(&manifest, &relu(&[4])).unwrap();
    let mut outputs = Outputs::default();
    section.run(1, Input::Floats(&[1.0; 4]), &mut outputs).unwrap();
    section.run(0, Input::Floats(&[]), &mut outputs).unwrap();
    assert!(outputs.floats(0).is_empty());
}

#[test]
fn an_input_of_the_wrong_length_or_kind_is_refused_and_the_section_works_on() {
    let manifest = section(InputKind::Floats, &[4], &[(OutputKind::F32, &[4])]);
    let mut section = load(&manifest, &relu(&[4])).unwrap();
    let mut outputs = Outputs::default();
    let error = section.run(2, Input::Floats(&[1.0; 7]), &mut outputs).unwrap_err().to_string();
    assert!(error.contains("input of 2 samples: expected 8 Floats, found 7 Floats"), "{error}");
    assert!(section.run(1, Input::Pixels(&[1; 4]), &mut outputs).is_err());
    assert!(section.run(usize::MAX, Input::Floats(&[1.0; 4]), &mut outputs).is_err());
    section.run(1, Input::Floats(&[1.0; 4]), &mut outputs).unwrap();
}

#[test]
fn onnx_of_another_shape_is_refused_at_load() {
    let manifest = section(InputKind::Floats, &[4], &[(OutputKind::F32, &[5])]);
    let error = load(&manifest, &relu(&[4])).err().unwrap().to_string();
    assert!(error.contains("output 0 (y) of its ONNX: expected 1,5 F32, found 1,4 F32"), "{error}");
    let outputs = [(OutputKind::F32, &[4][..]), (OutputKind::F32, &[4][..])];
    let error = load(&section(InputKind::Floats, &[4], &outputs), &relu(&[4])).err().unwrap().to_string();
    assert!(error.contains("number of outputs of its ONNX: expected 2, found 1"), "{error}");
}

#[test]
fn broken_onnx_is_an_error_at_load() {
    let manifest = section(InputKind::Floats, &[4], &[(OutputKind::F32, &[4])]);
    let mut unknown = OnnxGraph::new(&[4]);
    let y = unknown.node("NoSuchOperation", &["x"], &[]);
    let mut dangling = OnnxGraph::new(&[4]);
    let z = dangling.node("Add", &["x", "nobody"], &[]);
    // tract panics on an output that no node gives.
    let lost = OnnxGraph::new(&[4]);
    for onnx in [
        b"".to_vec(),
        b"not onnx".to_vec(),
        vec![0xff; 100],
        relu(&[4])[..20].to_vec(),
        unknown.finish(&[&y]),
        dangling.finish(&[&z]),
        lost.finish(&["nobody"]),
    ] {
        let error = load(&manifest, &onnx).err().expect("broken ONNX is refused");
        assert!(matches!(error, EngineError::Load { .. } | EngineError::Mismatch { .. }), "{error}");
    }
}

#[test]
fn an_output_that_is_the_input_itself_works() {
    let manifest = section(InputKind::Floats, &[2], &[(OutputKind::F32, &[2])]);
    let mut section = load(&manifest, &OnnxGraph::new(&[2]).finish(&["x"])).unwrap();
    let mut outputs = Outputs::default();
    for run in 0..3 {
        let values = [run as f32, 7.0];
        section.run(1, Input::Floats(&values), &mut outputs).unwrap();
        assert_eq!(outputs.floats(0), values);
    }
}

/// Checks that each section of a network gives the same outputs for `batch` samples at once and one by one.
fn check_batched_equals_alone(network: &TinyNetwork, batch: usize) {
    let bundle = Bundle::from_bytes(&network.bundle()).unwrap();
    for manifest in &bundle.manifest().sections {
        let onnx = bundle.section(&manifest.name).unwrap().onnx;
        let mut section = load(manifest, &onnx).unwrap();
        let pixels: Vec<u8> = (0..batch as u64)
            .flat_map(|sample| {
                let view = network.view_of(sample);
                view.into_iter().cycle().take(manifest.input_len())
            })
            .collect();
        let floats: Vec<f32> = pixels.iter().map(|&pixel| f32::from(pixel) / 128.0 - 1.0).collect();
        let input = |samples: std::ops::Range<usize>| {
            let range = samples.start * manifest.input_len()..samples.end * manifest.input_len();
            match manifest.input.kind {
                InputKind::Pixels => Input::Pixels(&pixels[range]),
                InputKind::Floats => Input::Floats(&floats[range]),
            }
        };
        let (mut together, mut alone) = (Outputs::default(), Outputs::default());
        section.run(batch, input(0..batch), &mut together).unwrap();
        let (mut floats, mut bits) = (Vec::new(), Vec::new());
        for sample in 0..batch {
            section.run(1, input(sample..sample + 1), &mut alone).unwrap();
            floats.extend_from_slice(alone.floats(0));
            bits.extend_from_slice(alone.bits(1));
        }
        assert_eq!(together.floats(0), floats, "{} at batch {batch}", manifest.name);
        assert_eq!(together.bits(1), bits, "{} at batch {batch}", manifest.name);
    }
}

#[test]
fn batched_equals_alone_to_the_last_bit() {
    let network = TinyNetwork { local: Aggregation::Cc, ..TinyNetwork::default() };
    for batch in [1, 2, 3, 8, 33] {
        check_batched_equals_alone(&network, batch);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn onnx_with_bytes_changed_never_panics(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let manifest = section(InputKind::Floats, &[4], &[(OutputKind::F32, &[4])]);
        let mut onnx = relu(&[4]);
        for (index, value) in changes {
            let at = index.index(onnx.len());
            onnx[at] = value;
        }
        if let Ok(mut section) = load(&manifest, &onnx) {
            let _ = section.run(1, Input::Floats(&[0.5; 4]), &mut Outputs::default());
        }
    }
}
