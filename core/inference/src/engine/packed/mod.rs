//! The engine of binary sections; it runs the packed form of a section with [`headwater_kernels`].

#[cfg(test)]
mod tests;

use headwater_kernels::{CodePath, InputKind as Kind, Map, OwnedSection, PackedError, Plan};

use super::{Engine, EngineError, Input, Outputs, Section};
use crate::bundle::SectionBytes;
use crate::manifest::{InputKind, OutputKind, SectionManifest};

const NAME: &str = "packed";

/// Largest number of products of a brief run, about a tenth of a millisecond. A first block over pixels does some 20 products a
/// nanosecond on the portable path (bench `section` of `headwater-kernels`).
const MAX_BRIEF_PRODUCTS: usize = 2_000_000;

/// Runs packed sections with the fastest instructions of this processor.
#[derive(Clone, Copy, Debug, Default)]
pub struct PackedEngine;

impl PackedEngine {
    /// Name of the instructions that the engine uses.
    pub fn path(&self) -> &'static str {
        CodePath::best().name()
    }
}

impl Engine for PackedEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn load(&self, section: &SectionBytes<'_>) -> Result<Box<dyn Section>, EngineError> {
        let manifest = section.manifest;
        let refused = |reason: String| EngineError::load(manifest, NAME, reason);
        let bytes = section.packed.ok_or_else(|| refused("it has no packed form".into()))?;
        let named = |error: PackedError| refused(error.to_string());
        // Shapes are checked before memory is allocated.
        check_shapes(manifest, &Plan::read(bytes).map_err(named)?)?;
        let kernel = OwnedSection::load(bytes, CodePath::best()).map_err(named)?;
        Ok(Box::new(PackedSection { manifest: manifest.clone(), kernel }))
    }
}

/// A packed section with its working memory.
struct PackedSection {
    manifest: SectionManifest,
    kernel: OwnedSection,
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
    let show = |kind: &dyn std::fmt::Debug, shape: &[usize]| format!("{kind:?} {shape:?}");
    let input = &manifest.input;
    let found = match plan.input_kind() {
        Kind::Pixels => show(&InputKind::Pixels, &shape(plan.input())),
        Kind::Bits => show(&OutputKind::Bits, &shape(plan.input())),
    };
    EngineError::check(manifest, "input of its packed form", show(&input.kind, &input.shape), found)?;
    let outputs: Vec<String> =
        manifest.outputs.iter().map(|output| show(&output.kind, &output.shape)).collect();
    let found = [show(&OutputKind::F32, &[plan.classes()]), show(&OutputKind::Bits, &shape(plan.features()))];
    EngineError::check(manifest, "outputs of its packed form", outputs.join(", "), found.join(", "))
}
