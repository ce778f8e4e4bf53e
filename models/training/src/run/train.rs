//! Trains in a run folder, from its newest checkpoint; after the last epoch chooses the policy, measures, and makes the bundle.

use std::io;
use std::time::Instant;

use headwater_inference::cost::{DeviceBody, LinkBytes};
use headwater_inference::policy::Policy;
use headwater_samples::Part;
use thiserror::Error;

use super::{EvaluatedPart, RunFolder, out_of_fold};
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::coding_fit::{FITTED_SAMPLES, fitted_coding};
use crate::experiment::Experiment;
use crate::export::parity::COMPARED_SAMPLES;
use crate::export::{ExportError, Exported, TrainedNetwork, export};
use crate::layers::State;
use crate::report::{PartReports, run_report};
use crate::scale_out::Communicator;
use crate::training::{Diverged, Event, Trainer};
use headwater_calibration::account::PartReport;
use headwater_calibration::data::{Parts, Samples};
use headwater_calibration::logits_file::PartFile;
use headwater_calibration::promise::Target;
use headwater_calibration::tuning::{Fitted, FittedPart, ThresholdOrigin};
use headwater_spec::manifest;

/// A run that cannot continue.
#[derive(Debug, Error)]
pub enum RunError {
    /// A file of the run cannot be written.
    #[error("run folder: {0}")]
    Io(#[from] io::Error),
    /// A checkpoint cannot be written, or belongs to another run.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The loss is no number any more.
    #[error(transparent)]
    Diverged(#[from] Diverged),
    /// There are checkpoints, all of them damaged.
    #[error("expected a whole checkpoint, found damaged ones only ({0}); remove them to begin anew")]
    AllDamaged(String),
    /// Files of ranks that belong to a checkpoint are on none of the machines.
    #[error(
        "checkpoint of step {step}: expected the files checkpoint-{step:09}-rank-R.hwrank of {ranks} ranks in the run folders, found no whole one of rank \
         {missing}; copy them from the machines of these ranks, or remove the checkpoints to begin anew"
    )]
    MissingRankFiles {
        /// Step of the checkpoint.
        step: u64,
        /// Ranks that wrote it.
        ranks: usize,
        /// Ranks without a file.
        missing: String,
    },
}

impl RunError {
    /// Refuses to begin a run anew over checkpoints that were skipped.
    pub(super) fn unless_new(skipped: &[String]) -> Result<(), Self> {
        skipped.first().map_or(Ok(()), |reason| Err(Self::AllDamaged(reason.clone())))
    }
}

/// Trains to the end of the recipe and returns the last checkpoint.
///
/// # Errors
/// [`RunError`] when the folder cannot be written or has checkpoints of another run.
pub fn train(
    experiment: &Experiment,
    folder: &RunFolder,
    train: &Samples,
    validation: &Samples,
    mut notify: impl FnMut(&Event<'_>),
) -> Result<Checkpoint, RunError> {
    let identity = &experiment.info.identity;
    let (from, skipped) = Checkpoint::newest(&folder.path, identity)?;
    let skipped: Vec<String> = skipped.iter().map(ToString::to_string).collect();
    match &from {
        Some(from) => notify(&Event::Resumed { progress: &from.progress, skipped: &skipped }),
        None => RunError::unless_new(&skipped)?,
    }
    let mut trainer = Trainer::new(experiment, train, validation, from);
    let started = Instant::now();
    let seconds = trainer.checkpoint.progress.seconds;
    trainer.run(|mut event| -> Result<(), RunError> {
        notify(&event);
        if let Event::Checkpoint(checkpoint, _) = &mut event {
            save(checkpoint, folder, identity, seconds + started.elapsed().as_secs_f64())?;
        }
        Ok(())
    })?;
    Ok(trainer.checkpoint)
}

/// Writes a checkpoint, and the figures of its epochs, after `seconds` of training.
pub(super) fn save(
    checkpoint: &mut Checkpoint,
    folder: &RunFolder,
    identity: &str,
    seconds: f64,
) -> Result<(), RunError> {
    checkpoint.progress.seconds = seconds;
    checkpoint.write(&folder.path, identity)?;
    Ok(folder.write_metrics(&checkpoint.progress.epochs)?)
}

/// The parts that are evaluated after training.
pub struct EvaluationParts {
    /// For choices, where there are no out-of-fold logits.
    pub validation: EvaluatedPart,
    /// Samples with their views, on which the bundle is compared with the trained network.
    pub compared: Samples,
    /// For the promise; empty where the data has no such part.
    pub calibration: EvaluatedPart,
    /// Why the calibration part allows no promise, in words; `None` where nothing speaks against one.
    pub promise_obstacle: Option<String>,
    /// For the report.
    pub test: EvaluatedPart,
    /// Name of the data set with its split, for the promise.
    pub data: String,
    /// Share of each class in the train part.
    pub class_prior: Vec<f32>,
    /// For choices.
    pub out_of_fold: Option<PartFile>,
}

impl EvaluationParts {
    /// Fits the coding of messages, and evaluates the parts of the data of the run in a folder; `data` is their name with the split. Every rank must come here.
    ///
    /// # Errors
    /// The out-of-fold logits of the run cannot be used.
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
        let part = |part| EvaluatedPart::over_ranks(experiment, state, ranks, (parts, part));
        Ok(Self {
            validation: part(Part::Validation),
            compared: parts.part(Part::Validation, Some(COMPARED_SAMPLES), experiment.recipe.workers),
            calibration: part(Part::Calibration),
            promise_obstacle: parts.data.promise_obstacle(),
            test: part(Part::Test),
            data,
            class_prior: parts.prior(Part::Train, experiment.info.limit_train),
            out_of_fold: out_of_fold::read(folder, &experiment.info.identity)?,
        })
    }
}

/// A trained network with its policy, measured and exported.
pub struct Finished {
    /// The bundle.
    pub exported: Exported,
    /// The policy that was chosen.
    pub policy: Policy,
    /// Figures of both parts under the policy.
    pub reports: PartReports,
}

/// Chooses the policy, with a promise where the calibration part allows one, measures validation and test part, writes the bundle.
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
    let (part, fitted_logits, samples) = match &parts.out_of_fold {
        Some(found) => (FittedPart::OutOfFold, &found.logits, &found.samples),
        None => (FittedPart::Validation, &validation.logits, &validation.samples),
    };
    let fitted = Fitted::of(fitted_logits, samples, &target)?;
    let calibration_samples = calibration.samples.len();
    let part_of_promise = match &parts.promise_obstacle {
        Some(obstacle) => Err(obstacle.clone()),
        None => fitted.calibration_part(&calibration.logits, &calibration.samples),
    };
    let limit = fitted.limit(&target, part_of_promise);
    let policy = fitted.within(&limit, &target, &parts.data);
    let thresholds = ThresholdOrigin::new(part, samples, &fitted, &limit);
    let report =
        |part: &EvaluatedPart| PartReport::of(&part.logits, &part.samples, class_prior, &policy, body);
    let reports =
        PartReports { validation: report(validation), test: report(test), calibration_samples, thresholds };
    let report = run_report(experiment, &checkpoint.progress, &LinkBytes::of(&manifest), &policy, &reports);
    let network = TrainedNetwork { layers: network, state: &checkpoint.state };
    let exported = export(&network, manifest, &policy, report, &parts.compared)?;
    Ok(Finished { exported, policy, reports })
}
