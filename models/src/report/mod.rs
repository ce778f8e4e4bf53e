//! Reports: the figures of a part, and the report of a run.

mod part;

use headwater_inference::cost::LinkBytes;
use headwater_inference::policy::Policy;

use crate::experiment::Experiment;
use crate::training::Progress;

pub use part::PartReport;

/// Figures of both parts that are measured after training.
#[derive(Clone, Debug, PartialEq)]
pub struct PartReports {
    /// Validation part, from which the policy was chosen.
    pub validation: PartReport,
    /// Test part, evaluated after every choice.
    pub test: PartReport,
}

/// `report.json`: the experiment, its costs, its policy, figures of both parts, and every epoch.
pub fn run_report(
    experiment: &Experiment,
    progress: &Progress,
    links: &LinkBytes,
    policy: &Policy,
    parts: &PartReports,
) -> serde_json::Value {
    let mut cost = serde_json::json!(experiment.spec.cost());
    cost["link"] = serde_json::json!({
        "scores": links.scores_bytes,
        "features": links.features_bytes,
        "raw": links.raw_view_bytes,
        "edge": links.edge_bytes,
    });
    serde_json::json!({
        "network": experiment.spec.network.network.name,
        "run": experiment.info,
        "recipe": experiment.recipe,
        "cost": cost,
        "policy": policy,
        "validation": parts.validation,
        "test": parts.test,
        "seconds": progress.seconds,
        "epochs": progress.epochs,
    })
}
