//! Out-of-fold logits: of each train sample from a network that was trained without its fold. Temperatures, rule and thresholds come from
//! them where the validation part is too small.

use std::fmt;
use std::io;

use serde::Serialize;

use super::{Folds, RunFolder};
use crate::data::Samples;
use crate::evaluation::{PartLogits, evaluate};
use crate::experiment::Experiment;
use crate::logits_file::{self, PartFile};
use crate::promise::path::Step;
use crate::scale_out::Communicator;
use crate::scale_out::message::Reader;
use crate::training::{Diverged, Event, Trainer};
use crate::wire_coding::WireCoding;

/// Name of the file in a run folder.
const FILE: &str = "out-of-fold.hwlogits";

/// Trains a network for each fold with the recipe and seed of the experiment, and evaluates the fold: logits of all train samples, in their order.
/// Each rank trains some of the folds, each as one process does, and every rank must come here. `notify` gets the number of the fold, from 0,
/// and the events of its training. Nothing is chosen on the fold: it only watches.
///
/// # Errors
/// [`Diverged`] names the step of a fold.
pub fn train(
    experiment: &Experiment,
    ranks: &dyn Communicator,
    train: &Samples,
    folds: &Folds,
    mut notify: impl FnMut(u32, &Event<'_>),
) -> Result<PartLogits, Diverged> {
    let rank_of = |fold| fold as usize % ranks.ranks();
    let mut message = Vec::new();
    for fold in (0..folds.count()).filter(|fold| rank_of(*fold) == ranks.rank()) {
        let (kept, fold_samples) = (train.subset(&folds.kept(fold)), train.subset(&folds.left_out(fold)));
        let mut trainer = Trainer::new(experiment, &kept, &fold_samples, None);
        trainer.run(|event| {
            ranks.is_working();
            notify(fold, &event);
            Ok::<(), Diverged>(())
        })?;
        let state = &mut trainer.checkpoint.state;
        // The fold stands for unseen data: nothing is fitted on it.
        state.coding = WireCoding::fit(experiment, state, &kept, &kept);
        evaluate(experiment, state, &fold_samples).put(&mut message);
    }
    // Others may train a fold more.
    ranks.wait_for_all();
    let all = ranks.all_gather(&message);
    let mut readers: Vec<Reader<'_>> = all.iter().map(|message| Reader(message)).collect();
    let (mut logits, mut order) = (PartLogits::default(), Vec::new());
    for fold in 0..folds.count() {
        logits.append(PartLogits::read(&mut readers[rank_of(fold)]));
        order.extend(folds.left_out(fold));
    }
    let mut row = vec![0; order.len()];
    order.iter().enumerate().for_each(|(at, sample)| row[*sample] = at);
    Ok(logits.subset(&row))
}

/// Writes the logits of the train samples of a run into its folder.
///
/// # Errors
/// Writing failed.
pub fn write(folder: &RunFolder, run: &str, samples: &Samples, logits: &PartLogits) -> io::Result<()> {
    logits_file::write(&folder.file(FILE), run, samples, logits).map_err(io::Error::other)
}

/// The train samples of a run with their out-of-fold logits; `None` where its folder has none.
///
/// # Errors
/// The file cannot be read, is damaged, or belongs to another run.
pub fn read(folder: &RunFolder, run: &str) -> io::Result<Option<PartFile>> {
    let found = is_in(folder).then(|| logits_file::read(&folder.file(FILE), run));
    found.transpose().map_err(io::Error::other)
}

/// Whether a run folder has the logits.
pub fn is_in(folder: &RunFolder) -> bool {
    folder.file(FILE).exists()
}

/// Origin of temperatures, rule and thresholds: `thresholds` of `report.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThresholdOrigin {
    /// Logits that were used, in words.
    pub from: String,
    /// Samples.
    pub samples: usize,
    /// Groups that they form where samples share a scene or an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<usize>,
    /// Share of these samples with the last exit right and the given answer wrong, as measured: without a correction for the choice.
    pub lost: f64,
    /// Share of these samples with the last exit wrong and the given answer right.
    pub won: f64,
}

/// Part whose logits thresholds are fitted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FittedPart {
    /// The validation part, with the logits of the network itself.
    Validation,
    /// The train part, with out-of-fold logits.
    OutOfFold,
}

impl ThresholdOrigin {
    /// The origin of thresholds from the samples of a part; `step` is the step that was taken, `None` where no sample leaves early.
    pub fn new(part: FittedPart, samples: &Samples, step: Option<&Step>) -> Self {
        let (count, groups) = (samples.len(), samples.group_count());
        let kind = match part {
            FittedPart::Validation => "logits",
            FittedPart::OutOfFold => "out-of-fold logits",
        };
        let of = match part {
            FittedPart::Validation => "validation",
            FittedPart::OutOfFold => "training",
        };
        let in_groups = groups.map_or_else(String::new, |groups| format!(" in {groups} groups"));
        let from = format!("{kind} of {count} {of} samples{in_groups}");
        let (lost, won) = step.map_or((0.0, 0.0), |step| (step.lost, step.won));
        Self { from, samples: count, groups, lost, won }
    }

    /// The origin of thresholds that let no sample leave early, since a calibration part of `samples` speaks against every step.
    #[must_use]
    pub fn rejected_by(self, samples: usize) -> Self {
        let from = format!(
            "{}; no sample leaves early, since {samples} calibration samples speak against every step",
            self.from
        );
        Self { from, lost: 0.0, won: 0.0, ..self }
    }

    /// The origin of thresholds among which a calibration part of `samples` chose.
    #[must_use]
    pub fn chosen_by(self, samples: usize) -> Self {
        Self { from: format!("{}, among which {samples} calibration samples chose", self.from), ..self }
    }

    /// The origin of thresholds that were measured although there is a calibration part.
    #[must_use]
    pub fn without_promise(self, obstacle: &str) -> Self {
        Self { from: format!("{}; no promise: {obstacle}", self.from), ..self }
    }
}

impl fmt::Display for ThresholdOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thresholds from {}", self.from)
    }
}
