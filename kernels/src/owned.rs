//! A section with the memory it takes, for programs that may allocate.

use std::vec;
use std::vec::Vec;

use crate::error::PackedError;
use crate::fc::Affine;
use crate::lookups::Lanes;
use crate::pack::packed_len;
use crate::path::Path;
use crate::plan::{Needs, Plan};
use crate::section::{Section, Temporaries, Weights};
use crate::tables::Table;
use crate::threshold::Threshold;

/// A section, its weights and its temporaries; a run allocates nothing.
#[derive(Clone, Debug)]
pub struct Owned {
    plan: Plan,
    path: Path,
    needs: Needs,
    weights: Vec<u64>,
    signs: Vec<u8>,
    lanes: Vec<Lanes>,
    thresholds: Vec<Threshold>,
    classes: Vec<Affine>,
    words: Vec<u64>,
    tables: Vec<Table>,
    sums: Vec<i16>,
    bytes: Vec<u8>,
    scores: Vec<i32>,
    features: Vec<u8>,
}

impl Owned {
    /// Reads a section, to be run on a path.
    ///
    /// # Errors
    /// [`PackedError`] naming what is wrong with the bytes.
    pub fn load(section: &[u8], path: Path) -> Result<Self, PackedError> {
        let plan = Plan::read(section)?;
        let needs = plan.needs(path);
        let mut weights = vec![0; needs.weights];
        let mut signs = vec![0; needs.signs];
        let mut lanes = vec![Lanes::default(); needs.lanes];
        let mut thresholds = vec![Threshold::default(); needs.thresholds];
        let mut classes = vec![Affine::default(); plan.classes()];
        let memory = Weights {
            words: &mut weights,
            signs: &mut signs,
            lanes: &mut lanes,
            thresholds: &mut thresholds,
            classes: &mut classes,
        };
        Section::load(&plan, path, section, memory)?;
        Ok(Self {
            path,
            needs,
            weights,
            signs,
            lanes,
            thresholds,
            classes,
            words: vec![0; needs.words],
            tables: vec![Table::default(); needs.tables],
            sums: vec![0; needs.sums],
            bytes: vec![0; needs.bytes],
            scores: vec![0; plan.classes()],
            features: vec![0; packed_len(plan.features().len())],
            plan,
        })
    }

    /// The shapes.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Runs one view, as [`Section::run`] does; gives scores and packed features.
    ///
    /// # Panics
    /// When the input has another length than [`Plan::input_bytes`].
    pub fn run(&mut self, input: &[u8]) -> (&[i32], &[u8]) {
        let Self { plan, path, needs, weights, signs, lanes, thresholds, classes, .. } = self;
        let section = Section::loaded(plan, (*path, *needs), weights, signs, lanes, thresholds, classes);
        let Self { words, tables, sums, bytes, scores, features, .. } = self;
        section.run(input, Temporaries { words, tables, sums, bytes }, scores, features);
        (&self.scores, &self.features)
    }
}
