//! Promises: thresholds whose loss against the last exit is bounded, exactly and for a finite number of samples.
//!
//! ```text
//! validation ──> temperatures, exit scores, path (thresholds, strictest first), spread of the losses
//! calibration ─> the loss of each step is tested at the full risk, from the first step on; the last one before a failure is taken
//! ```
//!
//! The risk is the mean over samples of [last exit right] - [given answer right], with the same views and the same presence. A promise says
//! that the risk is at most `loss` with probability `confidence` over the draw of the calibration part, for data like that part. Each test
//! of a step is wrong with probability at most `1 - confidence`, and a sequence that is fixed beforehand and ends at the first failure is
//! wrong no more often than one test (Angelopoulos et al. 2021, "Learn then Test", section 3.2). No test is an approximation.

pub mod betting;
pub mod binomial;
pub mod by_missing;
pub mod outcomes;
pub mod path;
pub mod presence;
#[cfg(test)]
mod simulation;
pub mod wrong;
#[cfg(test)]
mod wrong_simulation;

use std::collections::BTreeSet;

use headwater_inference::policy::{Bound, CalibrationData, Presence, Promise};
use thiserror::Error;

use self::betting::{Betting, UnitLoss};
use self::outcomes::Outcomes;
use self::path::Step;
use crate::random::Random;

/// Loss and confidence that are promised. [`Bound::Net`] is tested by betting, [`Bound::Losses`] by the binomial distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// Kind of loss that is bounded.
    pub bound: Bound,
    /// Largest loss as a share of the samples, in `(0, 1)`.
    pub loss: f64,
    /// Probability that the promise holds, in `(0, 1)`, over the draw of the calibration part.
    pub confidence: f64,
}

/// Samples on which a promise is tested, under the rules and temperatures of a policy. Nothing was chosen with these samples.
#[derive(Clone, Debug)]
pub struct CalibrationPart {
    /// Outcomes of all samples, once per mask of missing devices that was drawn for every sample; a sample's loss is the mean over
    /// the masks.
    pub masks: Vec<Outcomes>,
    /// Independent units of the part: samples, or groups of samples.
    pub units: Units,
}

/// Units of the calibration part that are independent of each other.
#[derive(Clone, Debug, PartialEq)]
pub enum Units {
    /// Each sample.
    Samples,
    /// Groups of samples that share a scene, an object or a recording: the group of each sample, from 0, and the size of the largest
    /// group that can occur, declared beforehand.
    Groups {
        /// Group of each sample.
        of: Vec<u32>,
        /// Samples of the largest group.
        largest: u32,
        /// Mean size of a group in other data, such as the validation part: the bets depend on this size and must not depend on the calibration
        /// part.
        typical: f64,
    },
}

impl Units {
    /// Number of groups; `None` for independent samples.
    pub fn groups(&self) -> Option<u32> {
        match self {
            Self::Samples => None,
            Self::Groups { of, .. } => Some(of.iter().collect::<BTreeSet<_>>().len() as u32),
        }
    }

    /// Samples of the largest group that can occur, as declared; `None` for independent samples.
    pub fn largest(&self) -> Option<u32> {
        match self {
            Self::Samples => None,
            Self::Groups { largest, .. } => Some(*largest),
        }
    }

    /// The samples of each unit of a part.
    fn members(&self, samples: usize) -> Result<Members, PromiseError> {
        let mut members = Members { samples: (0..samples as u32).collect(), ends: (1..=samples).collect() };
        if let Self::Groups { of, largest, .. } = self {
            members.samples.sort_by_key(|sample| of[*sample as usize]);
            let is_end = |end: &usize| {
                let group = |index: usize| members.samples.get(index).map(|sample| of[*sample as usize]);
                group(end - 1) != group(*end)
            };
            members.ends = (1..=samples).filter(is_end).collect();
            let sizes = (0..members.ends.len()).map(|unit| members.of(unit).len());
            if sizes.max().is_some_and(|size| size > *largest as usize) {
                return Err(PromiseError::GroupTooLarge { declared: *largest });
            }
        }
        Ok(members)
    }

    /// Mean size of a unit in other data.
    fn typical_size(&self) -> f64 {
        match self {
            Self::Samples => 1.0,
            Self::Groups { largest, typical, .. } => typical.min(f64::from(*largest)),
        }
    }

    /// The units of the given samples, in the given order.
    fn subset(&self, samples: &[usize]) -> Self {
        match self {
            Self::Samples => Self::Samples,
            Self::Groups { of, largest, typical } => Self::Groups {
                of: samples.iter().map(|sample| of[*sample]).collect(),
                largest: *largest,
                typical: *typical,
            },
        }
    }
}

/// A promise that cannot be tested.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PromiseError {
    /// Losses of samples that depend on each other are no binomial count.
    #[error(
        "`losses` needs independent samples, and those of this data share scenes or objects: ask for `net`"
    )]
    GroupedLosses,
    /// A sample whose loss is a mean over masks is no trial of a binomial count.
    #[error("`losses` needs one mask of missing devices a sample, found {0}")]
    SeveralMasks(usize),
    /// Too few units: even a part without any loss would not show the promise.
    #[error(
        "expected at least {least} independent {unit} in the calibration part, found {found}: with fewer, not even {unit} without a loss would show the promise"
    )]
    TooFew {
        /// Independent units of the part.
        found: u64,
        /// Least number of units that a part needs, even without a loss.
        least: u64,
        /// Name of the units in the message: samples or groups.
        unit: &'static str,
    },
    /// A group is larger than was declared. The message omits its size: the largest group of the part does not bound future groups.
    #[error(
        "a group has more than the {declared} samples that were declared as the most; declare what is known to be the most, whatever this part has"
    )]
    GroupTooLarge {
        /// Declared largest group.
        declared: u32,
    },
}

impl Target {
    /// Largest probability with which a test passes though the true loss is above `loss`.
    pub fn delta(&self) -> f64 {
        1.0 - self.confidence
    }

    /// The promise that a passed test on a part of a data set makes; `missing` is the probability with which each device was missing.
    pub fn promise(&self, data: &str, part: &CalibrationPart, missing: f64) -> Promise {
        let samples = part.masks.first().map_or(0, Outcomes::len) as u32;
        self.promise_on(data, (samples, &part.units), missing)
    }

    /// The promise of a passed test on `samples` samples in `units`.
    fn promise_on(&self, data: &str, (samples, units): (u32, &Units), missing: f64) -> Promise {
        let (groups, largest_group) = (units.groups(), units.largest());
        Promise {
            kind: self.bound.into(),
            policies: Vec::new(),
            loss: self.loss,
            confidence: self.confidence,
            presence: Presence { missing, by_missing: Vec::new() },
            part: CalibrationData { data: data.to_owned(), samples, groups, largest_group },
            answered: None,
        }
    }

    /// Index of the last step of the path up to which every test on the calibration part passes; `None` if the first test fails or the
    /// path is empty. `seed` gives the order of the units, which must not depend on their losses.
    ///
    /// # Errors
    /// [`PromiseError`] when the part allows no promise.
    pub fn last_step(
        &self,
        path: &[Step],
        part: &CalibrationPart,
        seed: u64,
    ) -> Result<Option<usize>, PromiseError> {
        let members = part.units.members(part.masks.first().map_or(0, Outcomes::len))?;
        let units = members.ends.len();
        self.check(&part.units, part.masks.len(), units as u64)?;
        let order = Random::new(seed, &[units as u64]).permutation(units);
        let passes = |step: &&Step| match self.bound {
            Bound::Net => {
                let losses =
                    order.iter().map(|unit| part.unit_loss(members.of(*unit as usize), &step.thresholds));
                self.betting(&part.units).passes(losses, self.spread(step, &part.units))
            }
            Bound::Losses => {
                let lost = (0..part.masks[0].len())
                    .filter(|sample| part.masks[0].outcome(*sample, &step.thresholds).loss() > 0);
                binomial::at_most(lost.count() as u64, units as u64, self.loss) <= self.delta()
            }
        };
        Ok(path.iter().take_while(passes).count().checked_sub(1))
    }

    /// Approximate number of independent samples that a promise needs, for thresholds that lose and win these shares of the samples;
    /// `None` if the risk of these shares is not below `loss`.
    pub fn samples_needed(&self, lost: f64, won: f64) -> Option<u64> {
        let spread = match self.bound {
            Bound::Net => lost + won,
            Bound::Losses => lost,
        };
        let room = self.loss - self.bound.risk(lost, won);
        let for_losses = -2.0 * self.delta().ln() * spread / (room * room);
        let least = binomial::least_samples(self.loss, self.delta());
        (room > 0.0).then_some((for_losses.ceil() as u64).max(least))
    }

    fn check(&self, units: &Units, masks: usize, found: u64) -> Result<(), PromiseError> {
        let (least, unit) = match (units, self.bound) {
            (Units::Groups { .. }, Bound::Losses) => return Err(PromiseError::GroupedLosses),
            (Units::Samples, Bound::Losses) if masks != 1 => return Err(PromiseError::SeveralMasks(masks)),
            (Units::Samples, Bound::Losses | Bound::Net) => {
                (binomial::least_samples(self.loss, self.delta()), "samples")
            }
            (Units::Groups { of, .. }, Bound::Net) if of.is_empty() => {
                (binomial::least_samples(self.loss, self.delta()), "groups")
            }
            (Units::Groups { of, .. }, Bound::Net) => {
                (self.betting(units).least_units(of.len() as f64 / found.max(1) as f64), "groups")
            }
        };
        if found < least { Err(PromiseError::TooFew { found, least, unit }) } else { Ok(()) }
    }

    fn betting(&self, units: &Units) -> Betting {
        let largest = units.largest().unwrap_or(1);
        Betting { budget: self.loss, delta: self.delta(), largest_unit: f64::from(largest) }
    }

    /// Variance of the gain of a unit, guessed from the validation part as if all samples of a group were lost or won together.
    fn spread(&self, step: &Step, units: &Units) -> f64 {
        let mean_size = units.typical_size();
        (step.lost + step.won).max(self.loss / 2.0) * mean_size * mean_size
    }
}

/// Samples of each unit.
struct Members {
    /// Samples, with the samples of one unit side by side.
    samples: Vec<u32>,
    /// End of each unit in `samples`.
    ends: Vec<usize>,
}

impl Members {
    fn of(&self, unit: usize) -> &[u32] {
        let start = unit.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.samples[start..self.ends[unit]]
    }
}

impl CalibrationPart {
    /// The part with the given samples alone, in the given order.
    ///
    /// # Panics
    /// When there is no such sample.
    #[must_use]
    pub fn subset(&self, samples: &[usize]) -> Self {
        let masks = self.masks.iter().map(|outcomes| outcomes.subset(samples)).collect();
        Self { masks, units: self.units.subset(samples) }
    }

    /// Loss of a unit; the loss of a sample is the mean over its masks.
    fn unit_loss(&self, unit: &[u32], thresholds: &[f32]) -> UnitLoss {
        let of_mask = |outcomes: &Outcomes| -> i64 {
            unit.iter().map(|sample| i64::from(outcomes.outcome(*sample as usize, thresholds).loss())).sum()
        };
        let sum: i64 = self.masks.iter().map(of_mask).sum();
        UnitLoss { loss: sum as f64 / self.masks.len().max(1) as f64, size: unit.len() as f64 }
    }
}
