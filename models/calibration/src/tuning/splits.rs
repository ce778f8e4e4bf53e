//! Share of random splits on which a promise is broken, for data whose logits are known.
//!
//! ```text
//! validation + calibration ──┬─> half: temperatures, rule, path
//!                            └─> half: the population, so that the true risk of every step is known
//!                                  └─> a calibration part of the real size, drawn with replacement ──> thresholds with a promise
//! ```
//! A promise is broken if the true risk of its thresholds is above the target. No network runs again.

use std::collections::BTreeMap;
use std::num::NonZero;

use headwater_inference::policy::{Bound, PolicyError};
use serde::Serialize;
use thiserror::Error;

use super::{Fitted, ORDER_SEED};
use crate::data::Samples;
use crate::part_logits::PartLogits;
use crate::promise::outcomes::Outcomes;
use crate::promise::path::Step;
use crate::promise::{CalibrationPart, PromiseError, Target, Units, binomial};
use crate::random::Random;

/// Confidence of the interval around the share of violations.
const INTERVAL_CONFIDENCE: f64 = 0.95;

/// Validation and calibration samples together, with their logits.
#[derive(Clone, Debug)]
pub struct Pool {
    logits: PartLogits,
    samples: Samples,
    /// Samples of each independent unit.
    units: Vec<Vec<usize>>,
    /// Number of units in the real calibration part.
    calibration_units: usize,
    /// Samples of the largest group that can occur, and mean size of a group; `None` for independent samples.
    group_sizes: Option<(u32, f64)>,
}

/// Result over all splits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SplitReport {
    /// Number of splits.
    pub splits: u32,
    /// Splits in which some thresholds were promised.
    pub promised: u32,
    /// Splits in which the true risk of the promised thresholds is above the target.
    pub violations: u32,
    /// Interval of the share of violations with 95 % confidence (Clopper and Pearson 1934).
    pub interval: [f64; 2],
    /// Upper bound on the expected share of violations: for `losses` the mean over splits of the exact probability that the first step
    /// above the target passes its test; for `net` the risk of the target, which bounds that probability.
    pub predicted: f64,
    /// Mean share of the population that leaves at the first exit; a split without a promise counts as 0.
    pub leaves_first: f64,
}

/// A split that cannot be evaluated.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SplitError {
    /// The calibration part drawn from a half allows no promise.
    #[error(transparent)]
    Promise(#[from] PromiseError),
    /// A fitted number, such as a temperature, is out of range.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct SplitResult {
    is_promised: bool,
    is_violated: bool,
    predicted: f64,
    leaves_first: f64,
}

impl Pool {
    /// The pool of two parts of a data set: validation, then calibration. `units` are the units of the calibration part.
    pub fn new(
        (mut logits, mut samples): (PartLogits, Samples),
        (more_logits, more_samples): (PartLogits, Samples),
        units: &Units,
    ) -> Self {
        logits.append(more_logits);
        let group_sizes = match units {
            Units::Samples => None,
            Units::Groups { largest, typical, .. } => Some((*largest, *typical)),
        };
        let calibration_units = units.groups().map_or(more_samples.len(), |groups| groups as usize);
        samples.append(more_samples.without_pixels());
        let units = match group_sizes {
            None => (0..samples.len()).map(|sample| vec![sample]).collect(),
            Some(_) => {
                let mut units: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
                let groups = samples.groups.iter().enumerate();
                groups.for_each(|(sample, group)| units.entry(*group).or_default().push(sample));
                units.into_values().collect()
            }
        };
        Self { logits, samples, units, calibration_units, group_sizes }
    }

    /// Splits the pool `splits` times, each time with another seed, and counts broken promises.
    ///
    /// # Errors
    /// [`SplitError`] of one split that cannot be evaluated.
    ///
    /// # Panics
    /// When a thread panics.
    pub fn split(&self, target: &Target, splits: u32) -> Result<SplitReport, SplitError> {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        let share = |first: usize| -> Result<Vec<SplitResult>, SplitError> {
            (first as u64..u64::from(splits)).step_by(threads).map(|split| self.one(target, split)).collect()
        };
        let shares: Vec<_> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|first| scope.spawn(move || share(first))).collect();
            workers.into_iter().map(|worker| worker.join().expect("a worker evaluates splits")).collect()
        });
        let results: Vec<SplitResult> = shares.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
        let count = |is: fn(&SplitResult) -> bool| results.iter().filter(|result| is(result)).count() as u32;
        let mean =
            |of: fn(&SplitResult) -> f64| results.iter().map(of).sum::<f64>() / f64::from(splits.max(1));
        let violations = count(|result| result.is_violated);
        Ok(SplitReport {
            splits,
            promised: count(|result| result.is_promised),
            violations,
            interval: binomial::interval(u64::from(violations), u64::from(splits), INTERVAL_CONFIDENCE),
            predicted: mean(|result| result.predicted),
            leaves_first: mean(|result| result.leaves_first),
        })
    }

    fn one(&self, target: &Target, split: u64) -> Result<SplitResult, SplitError> {
        const STREAM: u64 = 0x7370_6c69;
        let mut random = Random::new(STREAM, &[split]);
        let order = random.permutation(self.units.len());
        let (first, second) = order.split_at(order.len() / 2);
        let of_half = |units: &[u32]| {
            let members = units.iter().flat_map(|unit| &self.units[*unit as usize]);
            let samples: Vec<usize> = members.copied().collect();
            (self.logits.subset(&samples), self.samples.subset(&samples))
        };
        let (logits, samples) = of_half(first);
        let fitted = Fitted::of(&logits, &samples, target)?;
        let (logits, samples) = of_half(second);
        let population = Outcomes::of(&logits, &samples, &fitted.policy);
        let part = self.draw(&population, second, &mut random);
        let step = target.last_step(&fitted.path, &part, ORDER_SEED)?;
        let risk = |step: &Step| Step::measure(&population, step.thresholds.clone()).risk(target.bound);
        let leaves_first = |step: &Step| {
            let leaves = |sample: &usize| population.outcome(*sample, &step.thresholds).passed == 0;
            (0..population.len()).filter(leaves).count() as f64 / population.len().max(1) as f64
        };
        let predicted = match target.bound {
            Bound::Net => target.delta(),
            Bound::Losses => {
                let units = part.masks[0].len() as u64;
                let most = binomial::most_losses(units, target.loss, target.delta());
                let above = fitted.path.iter().map(risk).find(|risk| *risk > target.loss);
                most.zip(above).map_or(0.0, |(most, risk)| match risk < 1.0 {
                    true => binomial::at_most(most, units, risk),
                    false => 0.0,
                })
            }
        };
        let step = step.map(|step| &fitted.path[step]);
        Ok(SplitResult {
            is_promised: step.is_some(),
            is_violated: step.is_some_and(|step| risk(step) > target.loss),
            predicted,
            leaves_first: step.map_or(0.0, leaves_first),
        })
    }

    /// A calibration part of the real size, drawn with replacement from the units `half`; `population` has the samples of these units, in
    /// the order of `half`.
    fn draw(&self, population: &Outcomes, half: &[u32], random: &mut Random) -> CalibrationPart {
        let mut start = 0;
        let ranges = half.iter().map(|unit| {
            let range = start..start + self.units[*unit as usize].len();
            start = range.end;
            range
        });
        let ranges: Vec<_> = ranges.collect();
        let (mut drawn, mut groups) = (Vec::new(), Vec::new());
        for unit in 0..if ranges.is_empty() { 0 } else { self.calibration_units } {
            let range = ranges[random.below(ranges.len())].clone();
            groups.extend(range.clone().map(|_| unit as u32));
            drawn.extend(range);
        }
        let units = match self.group_sizes {
            None => Units::Samples,
            Some((largest, typical)) => Units::Groups { of: groups, largest, typical },
        };
        CalibrationPart { masks: vec![population.subset(&drawn)], units }
    }
}
