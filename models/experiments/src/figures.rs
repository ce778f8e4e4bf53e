//! Figures of one run, from its logits.

use std::collections::BTreeMap;

use headwater_inference::cost::DeviceBody;
use headwater_inference::exit::argmax;
use headwater_inference::policy::{ExitPolicy, ExitRule, Policy, PolicyError, Promise};
use headwater_protocol::{Exit, SlotSet};
use serde::Serialize;

use crate::metrics::{self, Hits};
use crate::plan::{Plan, Run};
use crate::run::RunLogits;
use headwater_calibration::account::PartReport;
use headwater_calibration::account::answers;
use headwater_calibration::by_exit::ByExit;
use headwater_calibration::part_logits::EvaluatedPart;
use headwater_calibration::promise::Target;
use headwater_calibration::sample_cost::{CostSum, NetworkCost};
use headwater_calibration::tuning::{Candidates, Fitted, candidates};
use headwater_spec::manifest;

/// Figures of one run.
#[derive(Clone, Debug, Serialize)]
pub struct RunFigures {
    /// Name of the row.
    pub row: String,
    /// Seed of the run.
    pub seed: u64,
    /// Number of the fold, which is one division of the data into parts; `None` for the usual parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fold: Option<usize>,
    /// Commit of the program that trained; `None` without git.
    pub commit: Option<String>,
    /// Policy chosen on the validation part; the thresholds are chosen on the calibration part if that part allows a promise.
    pub policy: Policy,
    /// Promises of that policy; empty if the data has no calibration part that allows a promise, or if no sample may leave early.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub promises: Vec<Promise>,
    /// Name of the part on which the figures were measured.
    pub part: &'static str,
    /// Figures of the part with every device.
    pub report: PartReport,
    /// Number of objects or scenes in the part; `None` if its samples share none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<usize>,
    /// True when the samples are frames of one recording, which depend on each other.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_recording: bool,
    /// Mean over the classes named in `balanced` of the accuracy of the given answers, without classes that have no samples; `None` if no
    /// such class has samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balanced_accuracy: Option<f64>,
    /// Right answers to the samples of each class named in `counted`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counted: Vec<Hits>,
    /// Expected calibration error of each exit; `None` for fewer than 1,000 samples with a view.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibration_error: Option<ExitValues>,
    /// Area under the ROC curve of each exit score at each exit before the last one, for the event "this exit wrong, the last exit right".
    pub auroc: Vec<ScoreAuroc>,
    /// Mean multiply-accumulates of a sample over all tiers.
    pub macs: f64,
    /// Figures with thresholds for other losses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_losses: Vec<LossFigures>,
    /// Figures with devices missing, for each set of missing devices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingFigures>,
    /// Right answers of each object or scene, by its number.
    #[serde(skip)]
    pub groups_right: BTreeMap<u32, GroupRight>,
}

/// Figures of the part with thresholds for another loss than the recipe's.
#[derive(Clone, Debug, Serialize)]
pub struct LossFigures {
    /// Points that all exits together may lose.
    pub loss_points: f64,
    /// Policy chosen for this loss.
    pub policy: Policy,
    /// Promises of that policy; empty if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub promises: Vec<Promise>,
    /// Figures with every device.
    pub report: PartReport,
}

/// Right answers among the samples of one object or scene.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupRight {
    /// Samples.
    pub samples: usize,
    /// Right answers under the policy.
    pub overall: usize,
    /// Right answers of each exit, over all samples of the group.
    pub exits: ByExit<usize>,
}

/// A value for each exit.
#[derive(Clone, Debug, Serialize)]
pub struct ExitValues(#[serde(with = "headwater_calibration::by_exit::plain")] pub ByExit<f64>);

/// Area under the ROC curve of one exit score at one exit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ScoreAuroc {
    /// The exit.
    pub exit: Exit,
    /// The exit score.
    pub rule: ExitRule,
    /// Area under the ROC curve, in `[0, 1]`.
    pub auroc: f64,
}

/// Figures of the part with some devices missing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MissingFigures {
    /// Slots that are missing.
    pub slots: Vec<u8>,
    /// Share of right answers under the policy.
    pub overall: f64,
    /// Share of right answers of each exit over all samples.
    #[serde(flatten, with = "headwater_calibration::by_exit::plain")]
    pub every: ByExit<f64>,
    /// Share of samples that leave at the first exit.
    pub first_share: f64,
}

impl RunFigures {
    /// The figures of a run.
    ///
    /// # Errors
    /// [`PolicyError`] for logits that are not finite.
    pub fn of(plan: &Plan, run: Run, logits: &RunLogits) -> Result<Self, PolicyError> {
        let row = &plan.rows[run.row];
        let manifest = manifest(&row.spec, logits.class_prior.clone());
        let body = DeviceBody::of(&manifest);
        let target = Target::from(row.recipe.exit);
        let policy = policy(plan, &target, logits)?;
        let report_under = |policy: &Policy, part: &EvaluatedPart| {
            PartReport::of(&part.logits, &part.samples, &logits.class_prior, policy, body)
        };
        let report = |part: &EvaluatedPart| report_under(&policy, part);
        let (_, all) = &logits.evaluated[0];
        let answers = answers(&all.logits, &all.samples, &logits.class_prior, &policy);
        let given: Vec<u16> = answers.iter().map(|answer| answer.assessment.class).collect();
        let costs = NetworkCost::of(&manifest).of_samples(&all.logits, &all.samples, &answers);
        let class =
            |name: &String| manifest.labels.iter().position(|label| label == name).unwrap_or_default() as u16;
        let balanced: Vec<u16> = plan.metrics.balanced.iter().map(class).collect();
        let labels = &all.samples.labels;
        let other_losses = plan.loss_points.iter().map(|loss_points| {
            let policy = self::policy(plan, &Target { loss: loss_points / 100.0, ..target }, logits)?;
            let (report, promises) = (report_under(&policy, all), policy.promises.clone());
            Ok(LossFigures { loss_points: *loss_points, report, policy, promises })
        });
        let other_losses = other_losses.collect::<Result<_, PolicyError>>()?;
        let counted = plan.metrics.counted.iter().map(|name| metrics::hits(&given, labels, class(name)));
        let missing =
            logits.evaluated[1..].iter().map(|(slots, part)| MissingFigures::of(*slots, &report(part)));
        Ok(Self {
            row: row.name.clone(),
            seed: run.seed,
            fold: run.fold,
            commit: logits.commit.clone(),
            part: plan.part().name(),
            report: report(all),
            groups: all.samples.group_count(),
            is_recording: logits.is_recording,
            balanced_accuracy: metrics::balanced_accuracy(&given, labels, &balanced),
            counted: counted.collect(),
            calibration_error: calibration_error(all, &policy),
            auroc: auroc(all, &candidates(&logits.validation.logits, &logits.validation.samples)?),
            macs: costs.into_iter().sum::<CostSum>().mean().macs,
            other_losses,
            missing: missing.collect(),
            groups_right: groups_right(all, &given, &logits.class_prior),
            promises: policy.promises.clone(),
            policy,
        })
    }
}

impl MissingFigures {
    fn of(slots: SlotSet, report: &PartReport) -> Self {
        let first_share = report.share.iter().next().map_or(0.0, |(_, share)| *share);
        Self {
            slots: slots.positions().collect(),
            overall: report.overall,
            every: report.every.clone(),
            first_share,
        }
    }
}

/// Right answers of each group, given the answers under the policy.
fn groups_right(part: &EvaluatedPart, given: &[u16], class_prior: &[f32]) -> BTreeMap<u32, GroupRight> {
    let EvaluatedPart { samples, logits } = part;
    let by_exit = logits.exits.map(|exit, _| logits.right(exit, samples, class_prior));
    let mut groups: BTreeMap<u32, GroupRight> = BTreeMap::new();
    for (sample, group) in samples.groups.iter().enumerate() {
        let counts = groups.entry(*group).or_default();
        counts.samples += 1;
        counts.overall += usize::from(given[sample] == samples.labels[sample]);
        for (exit, right) in by_exit.iter() {
            *counts.exits.get_or_insert_with(exit, usize::default) += usize::from(right[sample]);
        }
    }
    groups
}

fn policy(plan: &Plan, target: &Target, logits: &RunLogits) -> Result<Policy, PolicyError> {
    let fitted = Fitted::of(&logits.validation.logits, &logits.validation.samples, target)?;
    let part = logits.calibration.as_ref().ok_or_else(String::new);
    let part = part.and_then(|part| fitted.calibration_part(&part.logits, &part.samples));
    Ok(fitted.within(&fitted.limit(target, part), target, &plan.data.name))
}

fn calibration_error(part: &EvaluatedPart, policy: &Policy) -> Option<ExitValues> {
    let errors = part.logits.exits.iter().map(|(exit, _)| {
        let policy = ExitPolicy { rule: ExitRule::MaxProbability, ..policy.of(exit).clone() };
        let seen = (0..part.samples.len()).filter(|sample| !part.samples.seen[*sample].is_empty());
        let answers = seen.map(|sample| {
            let answer = policy.assess(part.logits.input(exit, sample, part.samples.seen[sample]));
            (answer.confidence, answer.class == part.samples.labels[sample])
        });
        Some((exit, metrics::calibration_error(&answers.collect::<Vec<_>>())?))
    });
    errors.collect::<Option<ByExit<f64>>>().map(ExitValues)
}

/// The area under the ROC curve of each exit score, with temperatures and weights from the validation part.
fn auroc(part: &EvaluatedPart, candidates: &Candidates) -> Vec<ScoreAuroc> {
    let EvaluatedPart { samples, logits } = part;
    let exits: Vec<Exit> = logits.exits.iter().map(|(exit, _)| exit).collect();
    let Some((&last, early)) = exits.split_last() else { return Vec::new() };
    let is_right = |exit, sample: usize| argmax(logits.of(exit, sample)) == samples.labels[sample];
    let of = |exit: Exit, policy: &ExitPolicy| {
        let seen = (0..samples.len()).filter(|sample| !samples.seen[*sample].is_empty());
        let scored = |sample: usize| {
            let score = policy.uncertainty(logits.input(exit, sample, samples.seen[sample]))?;
            Some((score, !is_right(exit, sample) && is_right(last, sample)))
        };
        let scores = seen.filter_map(scored).collect();
        Some(ScoreAuroc { exit, rule: policy.rule, auroc: metrics::auroc(scores)? })
    };
    let policies: Vec<&Policy> = [&candidates.first].into_iter().chain(&candidates.others).collect();
    early.iter().flat_map(|exit| policies.iter().filter_map(|policy| of(*exit, policy.of(*exit)))).collect()
}
