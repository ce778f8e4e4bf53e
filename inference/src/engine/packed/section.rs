//! A packed section with the memory it runs in.

use headwater_kernels::{
    Affine, Map, PackedError, Path, Plan, Section as Kernel, Table, Temporaries, Threshold, Weights,
    packed_len,
};

use super::NAME;
use crate::bundle::SectionBytes;
use crate::engine::{EngineError, Input, Outputs, Section};
use crate::manifest::{OutputKind, SectionManifest};

pub(super) struct PackedSection {
    manifest: SectionManifest,
    path: Path,
    plan: Plan,
    weights: Vec<u64>,
    signs: Vec<u8>,
    thresholds: Vec<Threshold>,
    classes: Vec<Affine>,
    words: Vec<u64>,
    tables: Vec<Table>,
    sums: Vec<i16>,
    scores: Vec<i32>,
    features: Vec<u8>,
}

impl PackedSection {
    pub(super) fn load(section: &SectionBytes<'_>, path: Path) -> Result<Self, EngineError> {
        let manifest = section.manifest;
        let refused =
            |reason: String| EngineError::Load { section: manifest.name.clone(), engine: NAME, reason };
        let bytes = section.packed.ok_or_else(|| refused("it has no packed form".into()))?;
        let named = |error: PackedError| refused(error.to_string());
        let plan = Plan::read(bytes).map_err(named)?;
        check_shapes(manifest, &plan)?;
        let needs = plan.needs();
        let mut weights = vec![0; needs.weights];
        let mut signs = vec![0; needs.signs];
        let mut thresholds = vec![Threshold::default(); needs.thresholds];
        let mut classes = vec![Affine::default(); plan.classes()];
        let memory = Weights {
            words: &mut weights,
            signs: &mut signs,
            thresholds: &mut thresholds,
            classes: &mut classes,
        };
        Kernel::load(&plan, bytes, memory).map_err(named)?;
        Ok(Self {
            manifest: manifest.clone(),
            path,
            weights,
            signs,
            thresholds,
            classes,
            words: vec![0; needs.words],
            tables: vec![Table::default(); needs.tables],
            sums: vec![0; needs.sums],
            scores: vec![0; plan.classes()],
            features: vec![0; packed_len(plan.features().len())],
            plan,
        })
    }

    fn run_view(&mut self, view: &[u8], outputs: &mut Outputs) {
        let Self {
            plan,
            path,
            weights,
            signs,
            thresholds,
            classes,
            words,
            tables,
            sums,
            scores,
            features,
            ..
        } = self;
        let kernel = Kernel::loaded(plan, weights, signs, thresholds, classes);
        kernel.run(*path, view, Temporaries { words, tables, sums }, scores, features);
        for &score in scores.iter() {
            outputs.append(0, &[score as f32 * plan.scale()]);
        }
        outputs.append_bits(1, features);
    }
}

impl Section for PackedSection {
    fn run(&mut self, batch: usize, input: Input<'_>, outputs: &mut Outputs) -> Result<(), EngineError> {
        let elements = self.manifest.input_len();
        let expected = batch.saturating_mul(elements);
        let Input::Pixels(pixels) = input else { return Err(self.misfit(batch, &input, expected)) };
        if pixels.len() != expected {
            return Err(self.misfit(batch, &input, expected));
        }
        outputs.start(&self.manifest);
        pixels.chunks_exact(elements).for_each(|view| self.run_view(view, outputs));
        Ok(())
    }
}

impl PackedSection {
    fn misfit(&self, batch: usize, input: &Input<'_>, expected: usize) -> EngineError {
        EngineError::Input {
            section: self.manifest.name.clone(),
            batch,
            kind: self.manifest.input.kind,
            expected,
            found: format!("{} {:?}", input.len(), input.kind()),
        }
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
    check(
        "input",
        show(&input.kind, &input.shape),
        show(&crate::manifest::InputKind::Pixels, &shape(plan.input())),
    )?;
    let outputs: Vec<String> =
        manifest.outputs.iter().map(|output| show(&output.kind, &output.shape)).collect();
    let found = [show(&OutputKind::F32, &[plan.classes()]), show(&OutputKind::Bits, &shape(plan.features()))];
    check("outputs", outputs.join(", "), found.join(", "))
}
