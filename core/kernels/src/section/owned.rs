//! A section with its memory, for programs that may allocate.

use core::ops::RangeInclusive;
use std::vec;
use std::vec::Vec;

use super::plan::Schedule;
use super::{Plan, Prepared, Section};
use crate::code_path::CodePath;
use crate::error::PackedError;
use crate::exit::Affine;
use crate::memory::{LookupVector, Outputs, Scratch, SumTable, Weights};
use crate::pack::packed_len;
use crate::threshold::Threshold;

/// A section with its weights, scratch memory and outputs. A run allocates nothing.
#[derive(Clone, Debug)]
pub struct OwnedSection {
    plan: Plan,
    schedule: Schedule,
    weights: Vec<u64>,
    signs: Vec<u8>,
    vectors: Vec<LookupVector>,
    thresholds: Vec<Threshold>,
    classes: Vec<Affine>,
    words: Vec<u64>,
    tables: Vec<SumTable>,
    sums: Vec<i16>,
    bytes: Vec<u8>,
    scores: Vec<i32>,
    features: Vec<u8>,
}

impl OwnedSection {
    /// Reads a section, to be run on a code path.
    ///
    /// # Errors
    /// [`PackedError`] naming the fault of the bytes.
    pub fn load(section: &[u8], path: CodePath) -> Result<Self, PackedError> {
        let plan = Plan::read(section)?;
        let schedule = plan.schedule(path);
        let needs = schedule.needs;
        let mut owned = Self {
            schedule,
            weights: vec![0; needs.weights],
            signs: vec![0; needs.signs],
            vectors: vec![LookupVector::default(); needs.vectors],
            thresholds: vec![Threshold::default(); needs.thresholds],
            classes: vec![Affine::default(); plan.classes()],
            words: vec![0; needs.words],
            tables: vec![SumTable::default(); needs.tables],
            sums: vec![0; needs.sums],
            bytes: vec![0; needs.bytes],
            scores: vec![0; plan.classes()],
            features: vec![0; packed_len(plan.features().len())],
            plan,
        };
        let Self { plan, weights: words, signs, vectors, thresholds, classes, .. } = &mut owned;
        Section::load(plan, path, section, Weights { words, signs, vectors, thresholds, classes })?;
        Ok(owned)
    }

    /// The shapes of the section.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Least and largest score of each class, for any map that the exit reads.
    pub fn score_limits(&self) -> impl ExactSizeIterator<Item = RangeInclusive<i32>> + '_ {
        let inputs = self.plan.exit_input().len();
        self.classes.iter().map(move |class| class.limits(inputs))
    }

    /// Runs one view, as [`Section::run`] does. Returns scores and packed features.
    ///
    /// # Panics
    /// If the input has another length than [`Plan::input_bytes`].
    pub fn run(&mut self, input: &[u8]) -> (&[i32], &[u8]) {
        let Self { plan, schedule, weights, signs, vectors, thresholds, classes, .. } = self;
        let prepared = Prepared { words: weights, signs, vectors, thresholds };
        let section = Section { plan, schedule: *schedule, prepared, classes };
        let Self { words, tables, sums, bytes, scores, features, .. } = self;
        section.run(input, Scratch { words, tables, sums, bytes }, Outputs { scores, features });
        (&self.scores, &self.features)
    }
}
