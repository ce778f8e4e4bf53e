//! After the last epoch: the policy, the figures of both parts, the bundle.

use headwater_inference::cost::{DeviceBody, LinkBytes};

use crate::data::Samples;
use crate::evaluation::evaluate;
use crate::experiment::Experiment;
use crate::export::{ExportError, Exported, TrainedNetwork, export, manifest};
use crate::report::{PartReport, PartReports, run_report};
use crate::training::Checkpoint;
use crate::tuning;

/// The parts that are evaluated after training.
pub struct EvaluationParts<'a> {
    /// For choices.
    pub validation: &'a Samples,
    /// For the report.
    pub test: &'a Samples,
    /// Share of each class in the train part.
    pub class_prior: Vec<f32>,
}

/// A trained network with its policy, measured and exported.
pub struct Finished {
    /// The bundle.
    pub exported: Exported,
    /// Figures of both parts under the policy.
    pub reports: PartReports,
}

/// Chooses the policy on the validation part, measures both parts, writes the bundle.
///
/// # Errors
/// [`ExportError`] when a number is out of range or an engine disagrees.
pub fn finish(
    experiment: &Experiment,
    checkpoint: &Checkpoint,
    parts: EvaluationParts<'_>,
) -> Result<Finished, ExportError> {
    let EvaluationParts { validation, test, class_prior } = parts;
    let (network, state) = (&experiment.network, &checkpoint.state);
    let manifest = manifest(&network.spec, class_prior.clone());
    let body = DeviceBody::of(&manifest);
    let logits = evaluate(experiment, state, validation);
    let policy = tuning::policy(&logits, validation, &class_prior, experiment.recipe.exit)?;
    let validation_report = PartReport::of(&logits, validation, &class_prior, &policy, body);
    let logits = evaluate(experiment, state, test);
    let test = PartReport::of(&logits, test, &class_prior, &policy, body);
    let reports = PartReports { validation: validation_report, test };
    let report = run_report(experiment, &checkpoint.progress, &LinkBytes::of(&manifest), &policy, &reports);
    let network = TrainedNetwork { layers: network, state };
    let exported = export(&network, manifest, &policy, report, validation)?;
    Ok(Finished { exported, reports })
}
