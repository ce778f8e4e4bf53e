//! After the last epoch: chooses the policy, measures, and makes the bundle.

use std::io;

use headwater_inference::cost::{DeviceBody, LinkBytes};
use headwater_inference::policy::{Confidence, Policy};
use headwater_samples::{NO_CLASS, Part};

use super::{RunFolder, evaluated_by_ranks, out_of_fold};
use crate::checkpoint::Checkpoint;
use crate::coding_fit::{FITTED_SAMPLES, fitted_coding};
use crate::experiment::Experiment;
use crate::export::parity::COMPARED_SAMPLES;
use crate::export::{ExportError, Exported, TrainedNetwork, export};
use crate::layers::State;
use crate::report::{PartReports, run_report};
use crate::scale_out::Communicator;
use crate::warnings::{self, TrainPart, Warning};
use headwater_calibration::account::{Claims, PartReport};
use headwater_calibration::data::{Parts, Samples, groups_with_class};
use headwater_calibration::part_logits::EvaluatedPart;
use headwater_calibration::promise::Target;
use headwater_calibration::promise::wrong::{ClaimPart, WrongTarget};
use headwater_calibration::tuning::claims::ClaimLimit;
use headwater_calibration::tuning::{Fitted, FittedPart, ThresholdOrigin, independent_units};
use headwater_spec::manifest;

/// The parts that are evaluated after training.
pub struct EvaluationParts {
    /// Validation part: for the choice of the policy, if there are no out-of-fold logits, and for the report.
    pub validation: EvaluatedPart,
    /// Samples with their views, on which the bundle is compared with the trained network.
    pub compared: Samples,
    /// Calibration part: for the promise; empty if the data has no such part.
    pub calibration: EvaluatedPart,
    /// The reason, in words, for which the calibration part allows no promise; `None` if there is no such reason.
    pub promise_obstacle: Option<String>,
    /// Test part: for the report.
    pub test: EvaluatedPart,
    /// Name of the data set with its split, for the promise.
    pub data: String,
    /// Share of each class in the train part.
    pub class_prior: Vec<f32>,
    /// Number of train samples that show a class.
    pub train_samples: usize,
    /// Number of independent train samples that show a class: samples of one group count as one.
    pub train_units: usize,
    /// Train samples with out-of-fold logits, for the choice of the policy; `None` if the run has no such logits.
    pub out_of_fold: Option<EvaluatedPart>,
}

impl EvaluationParts {
    /// Fits the coding of messages, and evaluates the parts of the data for the run in a folder; `data` is the name of the data set with
    /// its split. Every rank must call this function.
    ///
    /// # Errors
    /// The out-of-fold logits of the run cannot be used, or a view cannot be read.
    pub fn load(
        folder: &RunFolder,
        experiment: &Experiment,
        ranks: &dyn Communicator,
        state: &mut State,
        (parts, data): (&Parts, String),
    ) -> io::Result<Self> {
        let limit = |of: Option<usize>| Some(of.unwrap_or(usize::MAX).min(FITTED_SAMPLES));
        let fitted = |part, of| parts.part(part, limit(of), experiment.recipe.workers);
        let (train, validation) =
            (fitted(Part::Train, experiment.info.limit_train), fitted(Part::Validation, None));
        state.coding = fitted_coding(experiment, state, &train, &validation);
        drop((train, validation));
        let state = &*state;
        let limit_train = experiment.info.limit_train;
        let (labels, groups) =
            (parts.labels(Part::Train, limit_train), parts.groups(Part::Train, limit_train));
        let train_samples = labels.iter().filter(|label| **label != NO_CLASS).count();
        let part = |part| evaluated_by_ranks(experiment, state, ranks, (parts, part));
        let evaluated = Self {
            validation: part(Part::Validation),
            compared: parts.part(Part::Validation, Some(COMPARED_SAMPLES), experiment.recipe.workers),
            calibration: part(Part::Calibration),
            promise_obstacle: parts.data.promise_obstacle().or_else(|| init_obstacle(experiment)),
            test: part(Part::Test),
            data,
            class_prior: parts.prior(Part::Train, limit_train),
            train_samples,
            train_units: groups_with_class(&labels, &groups).unwrap_or(train_samples),
            out_of_fold: out_of_fold::read(folder, &experiment.info.identity)?,
        };
        parts.check_read()?;
        Ok(evaluated)
    }
}

/// The reason for which the first weights of a run allow no promise; `None` if there is no such reason.
fn init_obstacle(experiment: &Experiment) -> Option<String> {
    experiment.info.init.as_ref()?.promise_obstacle()
}

/// A trained network with its policy, measured and exported.
pub struct Finished {
    /// The bundle.
    pub exported: Exported,
    /// The policy that was chosen.
    pub policy: Policy,
    /// Figures of the validation and test parts under the policy.
    pub reports: PartReports,
    /// Findings that the figures do not show, each with advice.
    pub warnings: Vec<Warning>,
}

/// Chooses the policy, with a promise if the calibration part allows one; measures validation and test part; makes the bundle.
///
/// # Errors
/// [`ExportError`] when a number is out of range or an engine disagrees.
pub fn finish(
    experiment: &Experiment,
    checkpoint: &Checkpoint,
    parts: &EvaluationParts,
) -> Result<Finished, ExportError> {
    let EvaluationParts { validation, calibration, test, class_prior, .. } = parts;
    let network = &experiment.network;
    let manifest = manifest(&network.spec, class_prior.clone());
    let body = DeviceBody::of(&manifest);
    let target = Target::from(experiment.recipe.exit);
    let (part, fitted_on) = match &parts.out_of_fold {
        Some(found) => (FittedPart::OutOfFold, found),
        None => (FittedPart::Validation, validation),
    };
    let fitted = Fitted::of(&fitted_on.logits, &fitted_on.samples, &target)?;
    let calibration_samples = calibration.samples.len();
    let calibration_part = || fitted.calibration_part(&calibration.logits, &calibration.samples);
    let part_of_promise = parts.promise_obstacle.clone().map_or_else(calibration_part, Err);
    let limit = fitted.limit(&target, part_of_promise);
    let policy = fitted.within(&limit, &target, &parts.data);
    let wrong = experiment.recipe.exit.wrong.map(|percent| WrongTarget {
        wrong: percent / 100.0,
        confidence: target.confidence,
        settings: limit.settings_tested(fitted.path.len()),
    });
    let (policy, not_kept) = match wrong {
        Some(wrong) => with_claims(policy, wrong, fitted_on, parts),
        None => (policy, None),
    };
    let thresholds = ThresholdOrigin::new(part, &fitted_on.samples, &fitted, &limit);
    let report =
        |part: &EvaluatedPart| PartReport::of(&part.logits, &part.samples, class_prior, &policy, body);
    let reports =
        PartReports { validation: report(validation), test: report(test), calibration_samples, thresholds };
    let train = TrainPart { samples: parts.train_samples, units: parts.train_units, class_prior };
    let measured = (&validation.logits, &validation.samples);
    let mut warnings = warnings::of_run(experiment, &checkpoint.progress, train, measured, &policy);
    warnings.extend(init_obstacle(experiment).map(|obstacle| Warning {
        code: "init_data",
        text: format!("training began with {obstacle}: figures may be too good, and nothing is promised"),
    }));
    warnings.extend(not_kept);
    let mut report =
        run_report(experiment, &checkpoint.progress, &LinkBytes::of(&manifest), &policy, &reports);
    report["warnings"] = serde_json::json!(warnings);
    let network = TrainedNetwork { layers: network, state: &checkpoint.state };
    let exported = export(&network, manifest, &policy, report, &parts.compared)?;
    Ok(Finished { exported, policy, reports, warnings })
}

/// The policy with the least confidence of an answer at which the share of wrong answers keeps `target`. If no confidence keeps `target`,
/// the policy gives only answers of which an exit before the last one is sure, and a warning is returned. `fitted_on` are the samples on
/// which the thresholds were fitted.
fn with_claims(
    policy: Policy,
    target: WrongTarget,
    fitted_on: &EvaluatedPart,
    parts: &EvaluationParts,
) -> (Policy, Option<Warning>) {
    let claims = |part: &EvaluatedPart| Claims::of(&part.logits, &part.samples, &parts.class_prior, &policy);
    let units = || independent_units(&parts.calibration.samples);
    let units = parts.promise_obstacle.clone().map_or_else(units, Err);
    let part = units.map(|units| ClaimPart { masks: vec![claims(&parts.calibration)], units });
    match ClaimLimit::of(target, &claims(fitted_on), part) {
        Some(limit) => (limit.applied_to(policy, &parts.data, 0.0), None),
        None => {
            let text = format!(
                "exit.wrong: no least confidence keeps {} % wrong answers, so no answer is given but those that an exit before the last one is sure of; train \
                 longer, or with more photos, or ask for more wrong answers: `headwater-train tune --target \"wrong<=5\"`",
                100.0 * target.wrong
            );
            let policy = Policy { claim_above: Some(Confidence::ALL), ..policy };
            (policy, Some(Warning { code: "wrong_answers", text }))
        }
    }
}
