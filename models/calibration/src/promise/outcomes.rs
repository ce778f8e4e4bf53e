//! Outcomes of the samples of a part at each exit: the uncertainty at the exit, and whether the exit is right.

use headwater_inference::exit::argmax;
use headwater_inference::policy::Policy;
use headwater_protocol::Exit;

use crate::data::Samples;
use crate::part_logits::PartLogits;

/// Outcomes at one exit before the last one.
#[derive(Clone, Debug, PartialEq)]
struct EarlyExit {
    /// Uncertainty of each sample; infinite if it cannot be computed, so that the sample never leaves at this exit.
    uncertainty: Vec<f32>,
    right: Vec<bool>,
}

/// Outcomes of the samples of a part at every exit, under the rules and temperatures of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcomes {
    /// Exits before the last one, shallowest first.
    pub exits: Vec<Exit>,
    early: Vec<EarlyExit>,
    last_right: Vec<bool>,
    /// For each sample, the number of slots that have a view.
    present: Vec<u32>,
}

/// Largest uncertainty at which a sample leaves, for each exit before the last one, shallowest first.
pub type Thresholds = Vec<f32>;

impl Outcomes {
    /// The outcomes of a part.
    ///
    /// # Panics
    /// When `logits` has no exit or fewer samples than `samples`.
    pub fn of(logits: &PartLogits, samples: &Samples, policy: &Policy) -> Self {
        let mut exits: Vec<Exit> = logits.exits.iter().map(|(exit, _)| exit).collect();
        let last = exits.pop().expect("a network has a last exit");
        let right = |exit| -> Vec<bool> {
            let rows = samples.labels.iter().enumerate();
            rows.map(|(sample, label)| argmax(logits.of(exit, sample)) == *label).collect()
        };
        let is_seen = |sample: &usize| !samples.seen[*sample].is_empty();
        let early = exits.iter().map(|&exit| {
            let uncertainty = |sample: usize| {
                let found = policy.of(exit).uncertainty(logits.input(exit, sample, samples.seen[sample]));
                found.filter(|_| is_seen(&sample)).unwrap_or(f32::INFINITY)
            };
            EarlyExit { uncertainty: (0..samples.len()).map(uncertainty).collect(), right: right(exit) }
        });
        let present = samples.seen.iter().map(|seen| seen.len() as u32).collect();
        Self { early: early.collect(), last_right: right(last), present, exits }
    }

    /// The outcomes of the given samples, in the given order.
    ///
    /// # Panics
    /// When there is no such sample.
    #[must_use]
    pub fn subset(&self, samples: &[usize]) -> Self {
        fn of<T: Copy>(all: &[T], samples: &[usize]) -> Vec<T> {
            samples.iter().map(|sample| all[*sample]).collect()
        }
        let early = self.early.iter().map(|exit| EarlyExit {
            uncertainty: of(&exit.uncertainty, samples),
            right: of(&exit.right, samples),
        });
        Self {
            exits: self.exits.clone(),
            early: early.collect(),
            last_right: of(&self.last_right, samples),
            present: of(&self.present, samples),
        }
    }

    /// Indices of the samples of which `present` slots have a view.
    pub fn with_present(&self, present: u32) -> Vec<usize> {
        (0..self.len()).filter(|sample| self.present[*sample] == present).collect()
    }

    /// The same outcomes with other numbers of slots that have a view.
    #[cfg(test)]
    pub(super) fn seen_by(self, present: Vec<u32>) -> Self {
        Self { present, ..self }
    }

    /// Made-up outcomes of one or two early exits, which are right or wrong together: for each sample the uncertainty at each early exit,
    /// and the loss of leaving early.
    #[cfg(test)]
    pub(super) fn made_up(exits: &[Exit], samples: impl Iterator<Item = ([f32; 2], i8)>) -> Self {
        let (uncertainties, losses): (Vec<[f32; 2]>, Vec<i8>) = samples.unzip();
        let early = (0..exits.len()).map(|exit| EarlyExit {
            uncertainty: uncertainties.iter().map(|of| of[exit]).collect(),
            right: losses.iter().map(|loss| *loss <= 0).collect(),
        });
        let last_right = losses.iter().map(|loss| *loss >= 0).collect();
        let present = vec![1; uncertainties.len()];
        Self { exits: exits.to_vec(), early: early.collect(), last_right, present }
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.last_right.len()
    }

    /// Returns true when there are no samples.
    pub fn is_empty(&self) -> bool {
        self.last_right.is_empty()
    }
}

/// Outcome for one sample under thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Number of exits that the sample passed; 0 when the sample leaves at the first exit.
    pub passed: usize,
    /// True when the given answer is right.
    pub is_right: bool,
    /// True when the last exit is right.
    pub is_last_right: bool,
}

impl Outcomes {
    /// Outcome for a sample under thresholds, one for each exit before the last one.
    ///
    /// # Panics
    /// When there is no such sample.
    pub fn outcome(&self, sample: usize, thresholds: &[f32]) -> Outcome {
        let mut early = self.early.iter().zip(thresholds);
        let is_last_right = self.last_right[sample];
        let passed = early.position(|(exit, threshold)| exit.uncertainty[sample] <= *threshold);
        let is_right = passed.map_or(is_last_right, |exit| self.early[exit].right[sample]);
        Outcome { passed: passed.unwrap_or(self.early.len()), is_right, is_last_right }
    }

    /// Shares of lost and won samples under the thresholds of a policy. A sample is lost if the last exit is right and the given answer
    /// wrong, and won if the last exit is wrong and the given answer right.
    pub fn losses_and_wins(&self, policy: &Policy) -> (f64, f64) {
        let thresholds = |sample: usize| -> Thresholds {
            let threshold = |exit: &Exit| policy.of(*exit).threshold.at(self.present[sample]).get();
            self.exits.iter().map(threshold).collect()
        };
        let losses = (0..self.len()).map(|sample| self.outcome(sample, &thresholds(sample)).loss());
        let (lost, won) =
            losses.fold((0, 0), |(lost, won), loss| (lost + u64::from(loss > 0), won + u64::from(loss < 0)));
        let share = |count: u64| count as f64 / self.len().max(1) as f64;
        (share(lost), share(won))
    }

    /// At most `levels` quantiles of the finite uncertainties at an exit, ascending and distinct: thresholds that each let an equal
    /// share more of the samples leave.
    pub(super) fn quantiles(&self, exit: usize, levels: usize) -> Vec<f32> {
        let all = self.early[exit].uncertainty.iter().copied();
        quantiles(all.filter(|uncertainty| uncertainty.is_finite()), levels)
    }
}

/// At most `levels` quantiles of values, ascending and distinct; none without values.
pub(super) fn quantiles(values: impl Iterator<Item = f32>, levels: usize) -> Vec<f32> {
    let mut sorted: Vec<f32> = values.collect();
    sorted.sort_by(f32::total_cmp);
    let at = |level: usize| sorted.get((level * sorted.len()).div_ceil(levels).checked_sub(1)?).copied();
    let mut quantiles: Vec<f32> = (1..=levels).filter_map(at).collect();
    quantiles.dedup();
    quantiles
}

impl Outcome {
    /// [last exit right] - [given answer right].
    pub fn loss(self) -> i8 {
        i8::from(self.is_last_right) - i8::from(self.is_right)
    }
}
