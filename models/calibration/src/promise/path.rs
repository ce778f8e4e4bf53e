//! The path: thresholds in the order in which a promise tries them, fixed on the validation part before the calibration part is seen.
//!
//! For each level of saved work the path has the thresholds with the least loss on validation; the strictest thresholds come first.
//! This is Pareto testing (Laufer-Goldshtein et al. 2023, "Efficiently Controlling Multiple Risks with Pareto Testing", section 4):
//! the thresholds of several exits form one sequence, as for one exit, so that each step is tested at the full risk.

use headwater_inference::policy::{Bound, ExitThreshold};

use super::outcomes::{Outcomes, Thresholds};

/// Number of levels of saved work above zero; a path has at most one step more.
const STEPS: usize = 200;

/// Approximate limit on the sets of thresholds that are measured for a path.
const MAX_CANDIDATES: usize = 40_000;

/// Thresholds of one step, and their measures on the validation part.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// One threshold for each exit before the last one.
    pub thresholds: Thresholds,
    /// Mean over the samples of the share of the exits after the first that a sample does not reach: 0 if every sample goes to the last
    /// exit, 1 if every sample leaves at the first.
    pub saved: f64,
    /// Share of samples with the last exit right and the given answer wrong.
    pub lost: f64,
    /// Share of samples with the last exit wrong and the given answer right.
    pub won: f64,
}

impl Step {
    /// Measures thresholds on the validation part.
    pub fn measure(validation: &Outcomes, thresholds: Thresholds) -> Self {
        let (mut saved, mut lost, mut won) = (0usize, 0usize, 0usize);
        let behind = validation.exits.len();
        for sample in 0..validation.len() {
            let outcome = validation.outcome(sample, &thresholds);
            saved += behind - outcome.passed;
            lost += usize::from(outcome.loss() > 0);
            won += usize::from(outcome.loss() < 0);
        }
        let share = |count: usize| count as f64 / validation.len().max(1) as f64;
        let (lost, won) = (share(lost), share(won));
        Self { thresholds, saved: share(saved) / behind.max(1) as f64, lost, won }
    }

    /// The loss that a promise with this bound limits, as a share of the samples.
    pub fn risk(&self, bound: Bound) -> f64 {
        bound.risk(self.lost, self.won)
    }
}

/// The path over a validation part for a kind of promise; empty if the network has only one exit or the part has no samples.
pub fn path(validation: &Outcomes, bound: Bound) -> Vec<Step> {
    let exits = validation.exits.len();
    if exits == 0 || validation.is_empty() {
        return Vec::new();
    }
    let levels = (MAX_CANDIDATES as f64).powf(1.0 / exits as f64).floor().min(STEPS as f64) as usize;
    let mut candidates: Vec<Thresholds> = vec![Vec::new()];
    for exit in 0..exits {
        let strictest = ExitThreshold::ONLY_CERTAIN.get();
        let quantiles: Vec<f32> = [strictest].into_iter().chain(validation.quantiles(exit, levels)).collect();
        let with = |before: &Thresholds, threshold: f32| [before.as_slice(), &[threshold]].concat();
        candidates = candidates
            .iter()
            .flat_map(|before| quantiles.iter().map(|threshold| with(before, *threshold)).collect::<Vec<_>>())
            .collect();
    }
    let mut measured: Vec<Step> =
        candidates.into_iter().map(|thresholds| Step::measure(validation, thresholds)).collect();
    measured.sort_by(|a, b| a.saved.total_cmp(&b.saved));
    let level = |step: &Step| (step.saved * STEPS as f64).floor();
    let best =
        |of_level: &[Step]| of_level.iter().min_by(|a, b| a.risk(bound).total_cmp(&b.risk(bound))).cloned();
    measured.chunk_by(|a, b| level(a) == level(b)).filter_map(best).collect()
}
