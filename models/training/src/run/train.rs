//! Training in run folders, from the newest checkpoint: rank 0 writes the checkpoints; each rank writes the state that it alone
//! has into the run folder on its machine, which may be the same folder. A run of one process is a run of one rank.

use std::io;
use std::time::Instant;

use thiserror::Error;

use super::RunFolder;
use super::rank_file::RankFile;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::experiment::Experiment;
use crate::joint::{Diverged, Event, Trainer};
use crate::scale_out::{Communicator, RankState};
use headwater_calibration::data::Samples;

/// A run that cannot continue.
#[derive(Debug, Error)]
pub enum RunError {
    /// A file of the run cannot be written.
    #[error("run folder: {0}")]
    Io(#[from] io::Error),
    /// A view cannot be read.
    #[error("views: {0}")]
    View(io::Error),
    /// A checkpoint cannot be written, or belongs to another run.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The loss or a gradient is not finite, or the loss is too large.
    #[error(transparent)]
    Diverged(#[from] Diverged),
    /// There are checkpoints, but all are damaged, or no machine has a whole file of some rank.
    #[error("{0}")]
    Damaged(String),
}

/// Trains to the end of the recipe on all ranks, from the newest checkpoint of rank 0, and returns the last checkpoint with the state that
/// is exported. `train` and `validation` are the shards of this rank. Every rank must call this function.
///
/// # Errors
/// [`RunError`]: training diverged, a view cannot be read, or the folder cannot be written, has checkpoints of another run, or lacks the file of
/// a rank.
pub fn train(
    experiment: &Experiment,
    ranks: &dyn Communicator,
    folder: &RunFolder,
    [train, validation]: [&Samples; 2],
    mut notify: impl FnMut(&Event<'_>),
) -> Result<Checkpoint, RunError> {
    let identity = &experiment.info.identity;
    let mut skipped = Vec::new();
    let from = newest(experiment, ranks, folder, &mut skipped)?;
    if let Some((from, _)) = &from {
        notify(&Event::Resumed { progress: &from.progress, skipped: &skipped });
    }
    let seconds = from.as_ref().map_or(0.0, |(from, _)| from.progress.seconds);
    let mut trainer = Trainer::new(experiment, ranks, [train, validation], from);
    let started = Instant::now();
    trainer.run(|mut event| -> Result<(), RunError> {
        // No checkpoint has weights from a view that could not be read.
        train.check_read().and_then(|()| validation.check_read()).map_err(RunError::View)?;
        notify(&event);
        if let Event::Checkpoint(checkpoint, state) = &mut event {
            if let Some(state) = state {
                let step = checkpoint.progress.step;
                let file = RankFile { run: identity.clone(), step, rank: ranks.rank(), ranks: ranks.ranks() };
                file.write(&folder.path, state)?;
                // Waits until every rank has written its file, before the checkpoint that needs these files is written.
                ranks.all_gather(&[]);
            }
            if ranks.rank() == 0 {
                checkpoint.progress.seconds = seconds + started.elapsed().as_secs_f64();
                checkpoint.write(&folder.path, identity)?;
                folder.write_metrics(&checkpoint.progress.epochs)?;
            }
        }
        Ok(())
    })?;
    Ok(trainer.checkpoint.exported())
}

/// The newest checkpoint of rank 0 for which the files of all ranks exist on any machine, with the states in these files. `skipped`
/// gets the reasons why newer checkpoints are not used.
fn newest(
    experiment: &Experiment,
    ranks: &dyn Communicator,
    folder: &RunFolder,
    skipped: &mut Vec<String>,
) -> Result<Option<(Checkpoint, Vec<RankState>)>, RunError> {
    let identity = &experiment.info.identity;
    let has_states = ranks.ranks() > 1 && experiment.recipe.scale_out().has_rank_state();
    let (mut before, mut missing) = (u64::MAX, None);
    loop {
        let mut own = Vec::new();
        if ranks.rank() == 0 {
            let (found, errors) = Checkpoint::newest_before(&folder.path, identity, before)?;
            skipped.extend(errors.iter().map(ToString::to_string));
            match found {
                Some(found) => own = found.encode(identity),
                // A run must not begin anew in the folder of checkpoints that were skipped.
                None => {
                    if let (None, Some(reason)) = (&missing, skipped.first()) {
                        return Err(RunError::Damaged(format!(
                            "expected a whole checkpoint, found damaged ones only ({reason}); remove them to begin anew"
                        )));
                    }
                }
            }
        }
        let bytes = ranks.all_gather(&own).swap_remove(0);
        if bytes.is_empty() {
            return missing.map_or(Ok(None), Err);
        }
        let checkpoint = Checkpoint::decode(&folder.path, &bytes, identity)?;
        if !has_states {
            return Ok(Some((checkpoint, Vec::new())));
        }
        let step = checkpoint.progress.step;
        let count = checkpoint.progress.scale_out.ranks;
        match rank_states(ranks, folder, (identity, step), count) {
            Ok(states) => return Ok(Some((checkpoint, states))),
            Err(error) => {
                skipped.push(error.to_string());
                missing.get_or_insert(error);
                before = step;
            }
        }
    }
}

/// The states of all `before` ranks at a step; each state comes from the first present rank whose folder has the file.
fn rank_states(
    ranks: &dyn Communicator,
    folder: &RunFolder,
    (run, step): (&str, u64),
    before: usize,
) -> Result<Vec<RankState>, RunError> {
    let file = |rank| RankFile { run: run.to_owned(), step, rank, ranks: before };
    let of_rank = |rank| {
        let own = file(rank).read(&folder.path);
        let has = ranks.all_gather(&[u8::from(own.is_some())]);
        let sender = has.iter().position(|has| *has == [1])?;
        let message = own.filter(|_| sender == ranks.rank()).unwrap_or_default();
        file(rank).decode(&ranks.all_gather(&message)[sender])
    };
    let found: Vec<Option<RankState>> = (0..before).map(of_rank).collect();
    let missing: Vec<String> =
        (0..before).filter(|rank| found[*rank].is_none()).map(|rank| rank.to_string()).collect();
    if !missing.is_empty() {
        return Err(RunError::Damaged(format!(
            "checkpoint of step {step}: expected the files checkpoint-{step:09}-rank-R.hwrank of {before} ranks in the run folders, found no whole one of \
             rank {}; copy them from the machines of these ranks, or remove the checkpoints to begin anew",
            missing.join(", ")
        )));
    }
    Ok(found.into_iter().flatten().collect())
}
