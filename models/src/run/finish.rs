//! What follows the last epoch: thresholds, the test part, the bundle, the report.

use headwater_inference::policy::{Policy, PolicyError};
use serde::Serialize;
use thiserror::Error;

use crate::calibration::{DeviceBytes, Outcome, policy};
use crate::data::Samples;
use crate::evaluation::evaluate;
use crate::export::{ExportError, Exported, Shipped, export};
use crate::layers::State;
use crate::network::Network;
use crate::recipe::Recipe;
use crate::run::RunInfo;
use crate::spec::Spec;
use crate::training::{Progress, Workers};

/// A trained network that cannot be shipped.
#[derive(Debug, Error)]
pub enum FinishError {
    /// A fitted number is out of range.
    #[error("choosing the policy: {0}; the logits are probably not finite, lower the learning rate")]
    Policy(#[from] PolicyError),
    /// The bundle cannot be written.
    #[error(transparent)]
    Export(#[from] ExportError),
}

/// `report.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Report<'a> {
    /// Network name.
    pub network: &'a str,
    /// What was asked for.
    pub run: &'a RunInfo,
    /// Recipe as used.
    pub recipe: &'a Recipe,
    /// Parameters, multiply-accumulates, memory, bytes per link.
    pub cost: crate::spec::Cost,
    /// Thresholds and temperatures, from the validation part.
    pub policy: &'a Policy,
    /// Validation part under that policy.
    pub validation: Outcome,
    /// Test part under that policy; looked at after everything was chosen.
    pub test: Outcome,
    /// Seconds of training, over all starts.
    pub seconds: f64,
    /// Every epoch.
    pub epochs: &'a [crate::training::EpochRecord],
}

/// The parts that are looked at after training.
pub struct Held<'a> {
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
    /// Thresholds and temperatures.
    pub policy: Policy,
    /// Validation part under the policy.
    pub validation: Outcome,
    /// Test part under the policy.
    pub test: Outcome,
}

/// Chooses the policy on the validation part, measures both parts, writes the bundle.
///
/// # Errors
/// [`FinishError`] when a number is out of range or the engine disagrees.
pub fn finish(
    (spec, recipe, info): (&Spec, &Recipe, &RunInfo),
    (network, workers): (&Network, &Workers),
    (state, progress): (&State, &Progress),
    held: Held<'_>,
) -> Result<Finished, FinishError> {
    let bytes = DeviceBytes::of(spec.configuration(), spec.classes(), &spec.shapes.features);
    let prior = held.class_prior;
    let logits = evaluate(workers, network, state, held.validation);
    let policy = policy(&logits, held.validation, &prior, recipe.exit)?;
    let validation = Outcome::of(&logits, held.validation, &prior, &policy, bytes);
    let logits = evaluate(workers, network, state, held.test);
    let test = Outcome::of(&logits, held.test, &prior, &policy, bytes);
    let report = Report {
        network: &spec.network.network.name,
        run: info,
        recipe,
        cost: spec.cost(),
        policy: &policy,
        validation: validation.clone(),
        test: test.clone(),
        seconds: progress.seconds,
        epochs: &progress.epochs,
    };
    let report = serde_json::json!(report);
    let shipped = Shipped { policy: &policy, class_prior: prior, report };
    let exported = export(spec, network, state, shipped, held.validation)?;
    Ok(Finished { exported, policy, validation, test })
}
