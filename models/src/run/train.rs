//! Trains in a run folder, from its newest checkpoint.

use std::io;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::RunFolder;
use crate::data::Samples;
use crate::network::Network;
use crate::recipe::Recipe;
use crate::training::{Checkpoint, CheckpointError, EpochRecord, Event, Progress, Trainer, Workers};

/// A run that could not go on.
#[derive(Debug, Error)]
pub enum RunError {
    /// A file of the run could not be written.
    #[error("run folder: {0}")]
    Io(#[from] io::Error),
    /// A checkpoint could not be written or is of another run.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

/// What the caller may show.
pub enum Notice<'n> {
    /// The run goes on from there; checkpoints that were passed over.
    Resumed(&'n Progress, &'n [CheckpointError]),
    /// A step ended.
    Step {
        /// Where the run stands.
        progress: &'n Progress,
        /// Steps in an epoch.
        steps_per_epoch: u32,
        /// Time since this start.
        elapsed: Duration,
        /// Steps since this start.
        steps: u64,
    },
    /// An epoch ended.
    Epoch(&'n EpochRecord),
}

/// Trains to the end of the recipe and returns the last checkpoint.
///
/// # Errors
/// [`RunError`] when the folder cannot be written or holds checkpoints of another run.
pub fn train(
    folder: &RunFolder,
    identity: &str,
    (network, recipe, workers): (&Network, &Recipe, &Workers),
    (train, validation): (&Samples, &Samples),
    mut notice: impl FnMut(Notice<'_>),
) -> Result<Checkpoint, RunError> {
    let (from, passed_over) = Checkpoint::newest(&folder.path, identity)?;
    if let Some(from) = &from {
        notice(Notice::Resumed(&from.progress, &passed_over));
    }
    let mut trainer = Trainer::new((network, recipe, workers), (train, validation), from);
    let started = Instant::now();
    let (first_step, seconds) = (trainer.at.progress.step, trainer.at.progress.seconds);
    trainer.run(|event| -> Result<(), RunError> {
        match event {
            Event::Step { progress, steps_per_epoch } => notice(Notice::Step {
                progress,
                steps_per_epoch,
                elapsed: started.elapsed(),
                steps: progress.step - first_step,
            }),
            Event::Epoch(record) => notice(Notice::Epoch(record)),
            Event::Checkpoint(checkpoint) => {
                checkpoint.progress.seconds = seconds + started.elapsed().as_secs_f64();
                checkpoint.write(&folder.path, identity)?;
                folder.write_metrics(&checkpoint.progress.epochs)?;
            }
        }
        Ok(())
    })?;
    Ok(trainer.at)
}
