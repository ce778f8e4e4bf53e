//! The frontier: the settings of a path that no other setting beats in loss and cost on a part.

use headwater_inference::policy::{Bound, NoAnswer, Policy};
use serde::Serialize;

use super::Fitted;
use super::interval::{MeasuredCost, units};
use crate::account::answers;
use crate::by_exit::ByExit;
use crate::data::Samples;
use crate::part_logits::PartLogits;
use crate::sample_cost::{CostSum, MeanCost, NetworkCost};

/// A part of the data with the logits of a network.
#[derive(Clone, Copy, Debug)]
pub struct CostedPart<'a> {
    /// Logits of the network for the part.
    pub logits: &'a PartLogits,
    /// The part; its pixels are not read.
    pub samples: &'a Samples,
    /// Class prior of the network.
    pub class_prior: &'a [f32],
    /// Costs of the network.
    pub cost: &'a NetworkCost,
}

/// Loss and cost of a policy on a part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Share of right answers among the samples that show a class.
    pub accuracy: f64,
    /// Share of the samples that show a class with the last exit right and the given answer wrong.
    pub lost: f64,
    /// Share of the samples that show a class with the last exit wrong and the given answer right.
    pub won: f64,
    /// Share of samples that leave at each exit; a sample without a view counts at the first exit.
    #[serde(flatten, with = "crate::by_exit::share")]
    pub left: ByExit<f64>,
    /// Wrong answers of the exits before the last one, as a share of all answers given; answers to samples of nothing are wrong.
    #[serde(skip)]
    pub sure_wrong: f64,
    /// Mean body bytes and multiply-accumulates.
    #[serde(skip)]
    pub mean: MeanCost,
}

/// One setting of the exits that can be chosen, with its figures on the validation part.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The policy with the thresholds of the setting.
    pub policy: Policy,
    /// Loss and cost of the policy.
    pub figures: Figures,
}

impl Figures {
    /// The loss that a promise with this bound limits, as a share of the samples that show a class.
    pub fn risk(&self, bound: Bound) -> f64 {
        bound.risk(self.lost, self.won)
    }

    /// Returns true when no measure is worse than in `other`, and at least one is better.
    fn beats(&self, other: &Self, bound: Bound) -> bool {
        let measures = |of: &Self| [of.risk(bound), of.mean.body_bytes, of.mean.macs];
        let (own, others) = (measures(self), measures(other));
        let mut pairs = own.iter().zip(&others);
        pairs.clone().all(|(own, other)| own <= other) && pairs.any(|(own, other)| own < other)
    }
}

impl CostedPart<'_> {
    /// The figures of a policy on the part.
    ///
    /// # Panics
    /// When the logits have fewer samples than the part.
    pub fn figures(&self, policy: &Policy) -> Figures {
        let Self { logits, samples, class_prior, cost } = self;
        let answers = answers(logits, samples, class_prior, policy);
        let last = logits.exits.iter().next_back().map(|(exit, _)| exit).expect("a network has a last exit");
        let last_right = logits.right(last, samples, class_prior);
        let (mut right, mut lost, mut won) = (0u64, 0u64, 0u64);
        let mut left = logits.exits.map(|_, _| 0u64);
        for ((answer, label), is_last_right) in answers.iter().zip(&samples.labels).zip(last_right) {
            let is_right = answer.assessment.class == *label;
            right += u64::from(is_right);
            lost += u64::from(is_last_right && !is_right);
            won += u64::from(is_right && !is_last_right);
            *left.get_or_insert_with(answer.exit, u64::default) += 1;
        }
        let share = |count: u64, of: usize| count as f64 / of.max(1) as f64;
        let shown = samples.len() - samples.of_nothing();
        let is_given =
            |sample: &usize| !samples.seen[*sample].is_empty() || policy.no_answer == NoAnswer::ClassPrior;
        let given: Vec<usize> = (0..samples.len()).filter(is_given).collect();
        let sure = given.iter().filter(|sample| answers[**sample].exit != last);
        let sure_wrong =
            sure.filter(|sample| answers[**sample].assessment.class != samples.labels[**sample]).count();
        Figures {
            accuracy: share(right, shown),
            lost: share(lost, shown),
            won: share(won, shown),
            left: left.map(|_, count| share(*count, samples.len())),
            sure_wrong: share(sure_wrong as u64, given.len()),
            mean: cost.of_samples(logits, samples, &answers).into_iter().sum::<CostSum>().mean(),
        }
    }

    /// The mean costs of a policy on the part with their intervals; groups are the independent units if the part has groups.
    ///
    /// # Panics
    /// When the logits have fewer samples than the part.
    pub fn measured_cost(&self, policy: &Policy) -> MeasuredCost {
        let Self { logits, samples, class_prior, cost } = self;
        let answers = answers(logits, samples, class_prior, policy);
        MeasuredCost::of(&units(&cost.of_samples(logits, samples, &answers), &samples.groups))
    }
}

/// The settings of a path on its validation part: first the setting without early exits, then one setting for each step. `watch` is
/// told the number of finished settings before each setting.
///
/// # Panics
/// When the logits have fewer samples than the part.
pub fn settings(fitted: &Fitted, validation: &CostedPart<'_>, watch: &mut dyn FnMut(usize)) -> Vec<Setting> {
    let steps = std::iter::once(None).chain((0..fitted.path.len()).map(Some));
    let setting = |(done, step): (usize, Option<usize>)| {
        watch(done);
        let policy = fitted.with_thresholds(step);
        Setting { figures: validation.figures(&policy), policy }
    };
    steps.enumerate().map(setting).collect()
}

/// Ascending indices of the settings that no other setting beats in loss, bytes and compute together. Of equal settings the first is kept.
pub fn frontier(settings: &[Setting], bound: Bound) -> Vec<usize> {
    let is_kept = |index: &usize| {
        let figures = &settings[*index].figures;
        let risk_and_cost = |of: &Figures| (of.risk(bound), of.mean);
        let is_equal = |other: &Setting| risk_and_cost(&other.figures) == risk_and_cost(figures);
        !settings.iter().any(|other| other.figures.beats(figures, bound))
            && !settings[..*index].iter().any(is_equal)
    };
    (0..settings.len()).filter(is_kept).collect()
}
