//! Tuning: temperature and rule of each exit, and the order in which thresholds are tried, from the validation part; then thresholds,
//! from the calibration part with a promise, or from the validation part without a promise.
//!
//! `limit.rs` chooses thresholds by loss; `frontier.rs`, `interval.rs` and `choice.rs` by loss, bytes and compute.

pub mod choice;
pub mod claims;
pub mod frontier;
pub mod interval;
mod learned;
mod limit;
mod origin;
pub mod splits;
#[cfg(test)]
mod tests;

use headwater_inference::exit::cross_entropy;
use headwater_inference::policy::{ExitRule, ExitThreshold, Policy, PolicyError, Temperature, Threshold};
use headwater_protocol::Exit;

use crate::data::Samples;
use crate::part_logits::PartLogits;
use crate::promise::by_missing::{Certificate, Certified};
use crate::promise::outcomes::Outcomes;
use crate::promise::path::{Step, path};
use crate::promise::{CalibrationPart, Target, Units};
use learned::with_learned_rules;
pub use limit::{LossLimit, independent_units};
pub use origin::{FittedPart, ThresholdOrigin};

/// Rules that are compared, beside the rule `learned`; a policy has the same rule at every exit.
const RULES: [ExitRule; 3] = [ExitRule::Entropy, ExitRule::MaxProbability, ExitRule::Margin];

/// Seed of the order in which calibration samples are tested: fixed, so that nobody picks the best of several orders.
pub const ORDER_SEED: u64 = 1;

/// Least and largest temperature that is fitted.
pub const TEMPERATURES: [f64; 2] = [0.02, 50.0];

/// Weight of the prior of a temperature: at 1,000 samples it moves the temperatures of usual exits by less than 1 %.
const PRIOR: f64 = 0.25;

/// Policies that are compared, each with its own rule at every exit and default thresholds. Under `learned` the last exit keeps its rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidates {
    /// The policy of the first rule.
    pub first: Policy,
    /// Policies of the other rules, including the rule `learned` if its weights can be fitted.
    pub others: Vec<Policy>,
}

/// The policies that are compared, with temperatures and weights fitted on the samples of the validation part that show a class.
///
/// # Errors
/// [`PolicyError`] when a fitted number is out of range, which only logits that are not finite cause.
pub fn candidates(logits: &PartLogits, validation: &Samples) -> Result<Candidates, PolicyError> {
    let (logits, validation) = logits.with_class(validation);
    let (logits, validation) = (&*logits, &*validation);
    let mut policy = Policy::default();
    for (exit, logits) in logits.exits.iter() {
        policy.of_mut(exit).temperature = temperature(logits, validation)?;
    }
    let with_rule = |rule: ExitRule| {
        let mut policy = policy.clone();
        Exit::FIRST.iter().for_each(|exit| policy.of_mut(*exit).rule = rule);
        policy
    };
    let [first, others @ ..] = RULES.map(with_rule);
    let learned = with_learned_rules(logits, validation, &policy);
    Ok(Candidates { first, others: others.into_iter().chain(learned).collect() })
}

/// Choices from the validation part.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// Policy with the fitted rules and temperatures, and default thresholds.
    pub policy: Policy,
    /// Thresholds in the order in which they are tried.
    pub path: Vec<Step>,
    exits: Vec<Exit>,
}

impl Fitted {
    /// Fits temperatures, and chooses the rule whose path saves most when the target is tested on the validation part itself.
    ///
    /// # Errors
    /// [`PolicyError`] when a fitted number is out of range, which only logits that are not finite cause.
    pub fn of(logits: &PartLogits, validation: &Samples, target: &Target) -> Result<Self, PolicyError> {
        let (logits, validation) = logits.with_class(validation);
        let (logits, validation) = (&*logits, &*validation);
        let fitted = |policy: Policy| {
            let outcomes = Outcomes::of(logits, validation, &policy);
            let fitted = Self { policy, path: path(&outcomes, target.bound), exits: outcomes.exits.clone() };
            (fitted.saved_on_validation(outcomes, target), fitted)
        };
        let Candidates { first, others } = candidates(logits, validation)?;
        let (mut best_saved, mut best) = fitted(first);
        for policy in others {
            let (saved, other) = fitted(policy);
            if saved > best_saved {
                (best_saved, best) = (saved, other);
            }
        }
        Ok(best)
    }

    /// Share of work that the path saves if the validation part is also the calibration part.
    fn saved_on_validation(&self, validation: Outcomes, target: &Target) -> f64 {
        let part = CalibrationPart { masks: vec![validation], units: Units::Samples };
        let step = match target.last_step(&self.path, &part, 0) {
            Ok(step) => step,
            Err(_) => self.measured_step(target),
        };
        step.map_or(0.0, |step| self.path[step].saved)
    }

    /// The last step up to which the loss measured on the validation part is within the target; `None` if the first step loses more.
    fn measured_step(&self, target: &Target) -> Option<usize> {
        let is_within = |step: &&Step| step.risk(target.bound) <= target.loss;
        self.path.iter().take_while(is_within).count().checked_sub(1)
    }

    /// The policy with the thresholds of a step, without a promise; if `step` is `None`, no sample leaves early.
    pub fn with_thresholds(&self, step: Option<usize>) -> Policy {
        let mut policy = self.policy.clone();
        for (index, exit) in self.exits.iter().enumerate() {
            let threshold = step.map(|step| self.path[step].thresholds[index]);
            policy.of_mut(*exit).threshold = Threshold::One(stored(threshold));
        }
        policy
    }

    /// The policy of certificates by number of slots without a view, from 0, for a network of `slots` slots. For a number without a
    /// promised certificate, every sample goes to the last exit. The policy has no promise yet: the caller, who knows the part, adds it.
    pub fn by_missing(&self, slots: u32, certificates: &[Certificate]) -> Policy {
        let mut policy = self.policy.clone();
        for (index, exit) in self.exits.iter().enumerate() {
            let of_present = |present: u32| {
                let certificate = certificates.get((slots - present) as usize);
                stored(certificate.and_then(|found| match &found.result {
                    Certified::Promised(thresholds) => Some(thresholds[index]),
                    Certified::TooFew { .. } | Certified::LosesTooMuch => None,
                }))
            };
            policy.of_mut(*exit).threshold = Threshold::ByPresent((1..=slots).map(of_present).collect());
        }
        policy
    }
}

/// A threshold of a path, clamped to `[0, 1]` for the policy; `None` becomes the threshold at which no sample leaves.
fn stored(threshold: Option<f32>) -> ExitThreshold {
    threshold.map_or(ExitThreshold::NEVER, |threshold| {
        ExitThreshold::new(threshold.clamp(0.0, 1.0)).expect("clamped")
    })
}

/// The temperature with the least cross-entropy on samples that a slot sees (Guo et al. 2017, section 4.2) under a weak prior. Without
/// the prior, a part that an exit answers without a mistake drives the temperature to its least bound, and every confidence to 1.
fn temperature(logits: &[f32], samples: &Samples) -> Result<Temperature, PolicyError> {
    let loss = |log: f64| -> f64 {
        let rows = logits.chunks_exact(samples.classes).zip(&samples.labels).zip(&samples.seen);
        let seen = rows.filter(|(_, seen)| !seen.is_empty());
        let losses = seen.map(|((row, label), _)| cross_entropy(row, log.exp(), usize::from(*label)));
        // The negative logarithm of a gamma distribution of 1/temperature with mode 1.
        losses.sum::<f64>() + PRIOR * ((-log).exp() + log)
    };
    // The loss is convex in 1/temperature, so it has one minimum in the logarithm too.
    let [mut low, mut high] = TEMPERATURES.map(f64::ln);
    for _ in 0..60 {
        let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if loss(a) <= loss(b) { high = b } else { low = a }
    }
    Temperature::new(f64::midpoint(low, high).exp() as f32)
}
