//! Out-of-fold logits: the logits of each train sample come from a network that was trained without the sample's fold. A run with folds
//! chooses temperatures, rule and thresholds by out-of-fold logits in place of the validation part.

use std::io;

use super::evaluated_part::of_all_ranks;
use super::{Folds, RunFolder};
use crate::coding_fit::fitted_coding;
use crate::evaluation::evaluate;
use crate::experiment::Experiment;
use crate::joint::{Diverged, Event, Trainer};
use crate::scale_out::{Alone, Communicator};
use headwater_calibration::data::Samples;
use headwater_calibration::logits_file;
use headwater_calibration::part_logits::{EvaluatedPart, PartLogits};

/// Name of the file of out-of-fold logits in a run folder.
const FILE: &str = "out-of-fold.hwlogits";

/// End of the training of a fold before the last epoch of the recipe.
enum Stop {
    Diverged(Diverged),
    AfterEpoch,
}

impl From<Diverged> for Stop {
    fn from(error: Diverged) -> Self {
        Self::Diverged(error)
    }
}

/// Trains a network for each fold with the recipe and seed of the experiment, and evaluates the fold: logits of all train samples, in
/// their order. Each rank trains some of the folds alone, as one process does, and every rank must call this function. `notify` gets
/// the number of the fold, from 0, and the events of its training. The fold serves as validation part, and nothing is chosen on it: the
/// training of each fold ends after the epoch `last`, which the run exports; `None` for the last epoch of the recipe.
///
/// # Errors
/// [`Diverged`] names the step of a fold.
pub fn train(
    experiment: &Experiment,
    ranks: &dyn Communicator,
    train: &Samples,
    (folds, last): (&Folds, Option<u32>),
    mut notify: impl FnMut(u32, &Event<'_>),
) -> Result<PartLogits, Diverged> {
    let all = ranks.ranks();
    let of_rank = |rank: usize| (0..folds.count()).filter(move |fold| *fold as usize % all == rank);
    let samples_of =
        |rank: usize| -> Vec<usize> { of_rank(rank).flat_map(|fold| folds.left_out(fold)).collect() };
    let mut own = PartLogits::default();
    for fold in of_rank(ranks.rank()) {
        let (kept, fold_samples) = (train.subset(&folds.kept(fold)), train.subset(&folds.left_out(fold)));
        let mut trainer = Trainer::new(experiment, &Alone, [&kept, &fold_samples], None);
        let result = trainer.run(|event| {
            ranks.is_working();
            notify(fold, &event);
            match event {
                Event::Epoch(record) if Some(record.epoch) == last => Err(Stop::AfterEpoch),
                _ => Ok(()),
            }
        });
        if let Err(Stop::Diverged(error)) = result {
            return Err(error);
        }
        let state = &mut trainer.checkpoint.state;
        // The fold stands for unseen data, so the coding is fitted on the other folds.
        state.coding = fitted_coding(experiment, state, &kept, &kept);
        own.append(evaluate(experiment, state, &fold_samples));
    }
    // Other ranks may train one fold more.
    ranks.wait_for_all();
    let own = EvaluatedPart { samples: train.subset(&samples_of(ranks.rank())), logits: own };
    let mut logits = PartLogits::default();
    of_all_ranks(&own, ranks).into_iter().for_each(|found| logits.append(found.logits));
    let order: Vec<usize> = (0..all).flat_map(samples_of).collect();
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

/// The train samples of a run with their out-of-fold logits; `None` if the run folder has no such file.
///
/// # Errors
/// The file cannot be read, is damaged, or belongs to another run.
pub fn read(folder: &RunFolder, run: &str) -> io::Result<Option<EvaluatedPart>> {
    let found = is_in(folder).then(|| logits_file::read(&folder.file(FILE), run));
    found.transpose().map_err(io::Error::other)
}

/// True when a run folder has a file of out-of-fold logits.
pub fn is_in(folder: &RunFolder) -> bool {
    folder.file(FILE).exists()
}
