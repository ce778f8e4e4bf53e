//! A packed section with its working memory.

use headwater_kernels::{CodePath, InputKind as Kind, Map, OwnedSection, PackedError, Plan};

use super::NAME;
use crate::bundle::SectionBytes;
use crate::engine::{EngineError, Input, Outputs, Section};
use crate::manifest::{InputKind, OutputKind, SectionManifest};

/// Largest number of products of a brief run, about a tenth of a millisecond. A first block over pixels does some 20 products a
/// nanosecond on the portable path (bench `section` of `headwater-kernels`).
const MAX_BRIEF_PRODUCTS: usize = 2_000_000;

pub(super) struct PackedSection {
    manifest: SectionManifest,
    kernel: OwnedSection,
}

impl PackedSection {
    pub(super) fn load(section: &SectionBytes<'_>, path: CodePath) -> Result<Self, EngineError> {
        let manifest = section.manifest;
        let refused =
            |reason: String| EngineError::Load { section: manifest.name.clone(), engine: NAME, reason };
        let bytes = section.packed.ok_or_else(|| refused("it has no packed form".into()))?;
        let named = |error: PackedError| refused(error.to_string());
        // Shapes are checked before memory is allocated.
        check_shapes(manifest, &Plan::read(bytes).map_err(named)?)?;
        let kernel = OwnedSection::load(bytes, path).map_err(named)?;
        Ok(Self { manifest: manifest.clone(), kernel })
    }
}

impl Section for PackedSection {
    fn run(&mut self, batch: usize, input: Input<'_>, outputs: &mut Outputs) -> Result<(), EngineError> {
        input.check(&self.manifest, batch)?;
        outputs.start(&self.manifest);
        // `check_shapes` made sure that the section takes pixels, and `check` that these are pixels.
        let Input::Pixels(pixels) = input else { unreachable!("the section takes pixels") };
        let scale = self.kernel.plan().scale();
        for view in pixels.chunks_exact(self.manifest.input_len()) {
            let (scores, features) = self.kernel.run(view);
            for &score in scores {
                outputs.append(0, &[score as f32 * scale]);
            }
            outputs.append_bits(1, features);
        }
        Ok(())
    }

    fn is_brief(&self) -> bool {
        self.kernel.plan().products() <= MAX_BRIEF_PRODUCTS
    }
}

/// The packed form must be the section that the manifest describes: pixels in, scores and bits out.
fn check_shapes(manifest: &SectionManifest, plan: &Plan) -> Result<(), EngineError> {
    let shape = |map: Map| vec![map.channels, map.height, map.width];
    let check = |what: &str, expected: String, found: String| {
        if expected == found {
            return Ok(());
        }
        let section = manifest.name.clone();
        Err(EngineError::Mismatch { section, what: format!("{what} of its packed form"), expected, found })
    };
    let show = |kind: &dyn std::fmt::Debug, shape: &[usize]| format!("{kind:?} {shape:?}");
    let input = &manifest.input;
    let found = match plan.input_kind() {
        Kind::Pixels => show(&InputKind::Pixels, &shape(plan.input())),
        Kind::Bits => show(&OutputKind::Bits, &shape(plan.input())),
    };
    check("input", show(&input.kind, &input.shape), found)?;
    let outputs: Vec<String> =
        manifest.outputs.iter().map(|output| show(&output.kind, &output.shape)).collect();
    let found = [show(&OutputKind::F32, &[plan.classes()]), show(&OutputKind::Bits, &shape(plan.features()))];
    check("outputs", outputs.join(", "), found.join(", "))
}
