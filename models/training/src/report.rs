//! The report of a run.

use headwater_inference::cost::LinkBytes;
use headwater_inference::policy::Policy;

use crate::checkpoint::{EpochRecord, Progress};
use crate::experiment::Experiment;
use headwater_calibration::account::PartReport;
use headwater_calibration::tuning::ThresholdOrigin;

/// Figures of the validation and test parts, measured after training.
#[derive(Clone, Debug, PartialEq)]
pub struct PartReports {
    /// Validation part, on which rule and temperatures were chosen unless there are out-of-fold logits.
    pub validation: PartReport,
    /// Test part, evaluated after every choice.
    pub test: PartReport,
    /// Number of samples of the calibration part, which training does not use.
    pub calibration_samples: usize,
    /// Origin of temperatures and rule, and of thresholds without a promise.
    pub thresholds: ThresholdOrigin,
}

/// The contents of `report.json`: the experiment, its costs and policy, figures of the validation and test parts, and every epoch.
pub fn run_report(
    experiment: &Experiment,
    progress: &Progress,
    links: &LinkBytes,
    policy: &Policy,
    parts: &PartReports,
) -> serde_json::Value {
    let mut cost = serde_json::json!(experiment.network.spec.cost());
    cost["link"] = serde_json::json!({
        "scores": links.scores_bytes,
        "features": links.features_bytes,
        "raw": links.raw_view_bytes,
        "edge": links.edge_bytes,
    });
    let (exported, epochs) = (progress.exported(), &progress.epochs);
    // Without validation samples that show a class there is no loss, and the shares say nothing.
    let is_measured = |record: &&EpochRecord| record.validation_loss.is_some();
    let by_score = |one: &&EpochRecord, other: &&EpochRecord| one.score().total_cmp(&other.score());
    let highest = epochs.iter().filter(is_measured).max_by(by_score);
    serde_json::json!({
        "network": experiment.network.spec.network.network.name,
        "run": experiment.info,
        "calibration_samples": parts.calibration_samples,
        "thresholds": parts.thresholds,
        "recipe": experiment.recipe,
        "cost": cost,
        "policy": policy,
        "promises": policy.promises,
        "validation": parts.validation,
        "test": parts.test,
        "exported_epoch": {
            "epoch": exported.map(|record| record.epoch),
            "score": exported.filter(is_measured).map(EpochRecord::score),
            "highest_score": highest.map(EpochRecord::score),
            "highest_epoch": highest.map(|record| record.epoch),
            "last_epoch": epochs.last().map(|record| record.epoch),
        },
        "seconds": progress.seconds,
        "epochs": progress.epochs,
        "scale_out": Some(progress.scale_out).filter(|progress| progress.ranks > 1),
    })
}
