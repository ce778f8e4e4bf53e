//! Reports: the figures of a part, and the report of a run.

use headwater_inference::cost::{DeviceBody, LinkBytes};
use headwater_inference::policy::Policy;
use serde::Serialize;

use crate::account::PartAccount;
use crate::by_exit::ByExit;
use crate::checkpoint::Progress;
use crate::data::Samples;
use crate::experiment::Experiment;
use crate::part_logits::{ExitShares, PartLogits};
use crate::tuning::ThresholdOrigin;

/// Figures of a part of the data under a policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartReport {
    /// Samples.
    pub samples: usize,
    /// Share of correct answers of each device alone, over the samples seen.
    pub devices: Vec<f64>,
    /// Share of correct answers of each exit over all samples.
    #[serde(flatten, with = "crate::by_exit::plain")]
    pub every: ByExit<f64>,
    /// Share of correct answers when each sample leaves where the policy decides.
    pub overall: f64,
    /// Share of samples that leave at each exit; a sample without a view counts at the first exit.
    #[serde(flatten, with = "crate::by_exit::share")]
    pub share: ByExit<f64>,
    /// Share of correct answers among the samples that leave at each exit.
    #[serde(flatten, with = "crate::by_exit::accuracy")]
    pub accuracy: ByExit<f64>,
    /// Samples without a view, which the class prior answers.
    pub no_view: usize,
    /// Mean body bytes per device and sample, over slots with a view.
    pub body_bytes: f64,
}

impl PartReport {
    /// The figures of a part under `policy`.
    pub fn of(
        logits: &PartLogits,
        samples: &Samples,
        class_prior: &[f32],
        policy: &Policy,
        body: DeviceBody,
    ) -> Self {
        let account = PartAccount::of(logits, samples, class_prior, policy);
        let ExitShares { devices, exits: every } = ExitShares::of(logits, samples, class_prior);
        let count = samples.len();
        let share = |part: usize, of: usize| part as f64 / of.max(1) as f64;
        Self {
            samples: count,
            devices,
            every,
            overall: share(account.right(), count),
            share: account.exits.map(|_, left| share(left.samples, count)),
            accuracy: account.exits.map(|_, left| share(left.right, left.samples)),
            no_view: account.no_view,
            body_bytes: match account.unsure_map_bytes {
                None => body.mean(account.views, account.unsure_views),
                Some(bytes) => body.mean_of_coded(account.views, account.unsure_views, bytes as f64),
            },
        }
    }
}

/// Figures of both parts that are measured after training.
#[derive(Clone, Debug, PartialEq)]
pub struct PartReports {
    /// Validation part, from which the policy was chosen.
    pub validation: PartReport,
    /// Test part, evaluated after every choice.
    pub test: PartReport,
    /// Samples of the calibration part, which the weights have not seen.
    pub calibration_samples: usize,
    /// Origin of temperatures and rule, and of thresholds without a promise.
    pub thresholds: ThresholdOrigin,
}

/// `report.json`: the experiment, its costs, its policy, figures of both parts, and every epoch. `calibration_samples` is the size of the
/// part that was kept apart for a promise.
pub fn run_report(
    experiment: &Experiment,
    progress: &Progress,
    links: &LinkBytes,
    policy: &Policy,
    parts: &PartReports,
) -> serde_json::Value {
    let calibration_samples = parts.calibration_samples;
    let mut cost = serde_json::json!(experiment.network.spec.cost());
    cost["link"] = serde_json::json!({
        "scores": links.scores_bytes,
        "features": links.features_bytes,
        "raw": links.raw_view_bytes,
        "edge": links.edge_bytes,
    });
    serde_json::json!({
        "network": experiment.network.spec.network.network.name,
        "run": experiment.info,
        "calibration_samples": calibration_samples,
        "thresholds": parts.thresholds,
        "recipe": experiment.recipe,
        "cost": cost,
        "policy": policy,
        "validation": parts.validation,
        "test": parts.test,
        "seconds": progress.seconds,
        "epochs": progress.epochs,
        "scale_out": progress.scale_out,
    })
}
