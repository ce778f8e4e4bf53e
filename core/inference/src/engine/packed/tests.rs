//! The packed engine on a small section written by hand.

use headwater_kernels::{
    Affine, BlockParts, Convp, HeadParts, InputKind as Kind, Map, Threshold, Window, write,
};

use super::*;
use crate::engine::{Input, Outputs};
use crate::manifest::{InputKind, OutputKind, SectionInput, SectionManifest, SectionOutput, Tier};

const WINDOW: Window = Window { kernel: 3, stride: 1, pad: 1 };

/// One 3x3 filter over 1x4x4 pixels, +1 from a sum of 255 on, pooled to 2x2. The scores are the sum of the four signs, and 0.5 minus that
/// sum.
fn packed() -> Vec<u8> {
    let shape = Convp {
        input: Map { channels: 1, height: 4, width: 4 },
        filters: 1,
        conv: WINDOW,
        pool: Window { stride: 2, ..WINDOW },
    };
    let block =
        BlockParts { shape, weights: &[true; 9], thresholds: &[Threshold { from: 255, flipped: false }] };
    let classes = [Affine { factor: 2, offset: 0 }, Affine { factor: -2, offset: 1 }];
    let head = HeadParts { weights: &[true; 8], classes: &classes, scale: 0.5 };
    let mut bytes = Vec::new();
    write(Kind::Pixels, &[block], &head, block.shape.filters, |part| bytes.extend_from_slice(part)).unwrap();
    bytes
}

fn manifest(view: &[usize]) -> SectionManifest {
    let output =
        |name: &str, kind, shape: &[usize]| SectionOutput { name: name.into(), kind, shape: shape.to_vec() };
    SectionManifest {
        name: "device-0".into(),
        tier: Tier::Device,
        slot: None,
        input: SectionInput { kind: InputKind::Pixels, shape: view.to_vec() },
        outputs: vec![
            output("scores", OutputKind::F32, &[2]),
            output("features", OutputKind::Bits, &[1, 2, 2]),
        ],
        parameters: 0,
        macs: 0,
        sha256: String::new(),
        packed_sha256: None,
        contexts_sha256: None,
    }
}

fn load(manifest: &SectionManifest, packed: Option<&[u8]>) -> Result<Box<dyn Section>, EngineError> {
    PackedEngine.load(&SectionBytes { manifest, onnx: Vec::new().into(), packed })
}

#[test]
fn a_batch_gives_scores_and_bits_of_each_view() {
    let (manifest, packed) = (manifest(&[1, 4, 4]), packed());
    let mut section = load(&manifest, Some(&packed)).unwrap();
    let mut views = [0; 32];
    // The second view is bright in its last corner, which only the last window of the pooling reaches.
    views[31] = 255;
    let mut outputs = Outputs::default();
    section.run(2, Input::Pixels(&views), &mut outputs).unwrap();
    assert_eq!(outputs.floats(0), [-4.0, 4.5, -2.0, 2.5]);
    assert_eq!(outputs.bits(1), [0b0000, 0b1000]);
    assert!(section.run(1, Input::Pixels(&views), &mut outputs).is_err());
    assert!(section.run(1, Input::Floats(&[0.0; 16]), &mut outputs).is_err());
    section.run(0, Input::Pixels(&[]), &mut outputs).unwrap();
    assert!(outputs.floats(0).is_empty());
}

#[test]
fn a_packed_form_that_does_not_fit_the_manifest_is_refused_at_load() {
    let packed = packed();
    let error = load(&manifest(&[1, 4, 5]), Some(&packed)).err().unwrap().to_string();
    assert!(
        error.contains("input of its packed form: expected Pixels [1, 4, 5], found Pixels [1, 4, 4]"),
        "{error}"
    );
    let error = load(&manifest(&[1, 4, 4]), None).err().unwrap().to_string();
    assert_eq!(error, "section device-0: packed cannot load it: it has no packed form");
    let error = load(&manifest(&[1, 4, 4]), Some(&packed[..9])).err().unwrap().to_string();
    assert!(error.contains("expected 22 bytes, found 9"), "{error}");
}
