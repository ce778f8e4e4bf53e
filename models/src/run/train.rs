//! Trains in a run folder, from its newest checkpoint.

use std::io;
use std::time::Instant;

use thiserror::Error;

use super::RunFolder;
use crate::data::Samples;
use crate::experiment::Experiment;
use crate::training::{Checkpoint, CheckpointError, Event, Trainer};

/// A run that cannot continue.
#[derive(Debug, Error)]
pub enum RunError {
    /// A file of the run cannot be written.
    #[error("run folder: {0}")]
    Io(#[from] io::Error),
    /// A checkpoint cannot be written, or belongs to another run.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
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
    if let Some(from) = &from {
        notify(&Event::Resumed { progress: &from.progress, skipped: &skipped });
    }
    let mut trainer = Trainer::new(experiment, train, validation, from);
    let started = Instant::now();
    let seconds = trainer.checkpoint.progress.seconds;
    trainer.run(|mut event| -> Result<(), RunError> {
        notify(&event);
        if let Event::Checkpoint(checkpoint) = &mut event {
            checkpoint.progress.seconds = seconds + started.elapsed().as_secs_f64();
            checkpoint.write(&folder.path, identity)?;
            folder.write_metrics(&checkpoint.progress.epochs)?;
        }
        Ok(())
    })?;
    Ok(trainer.checkpoint)
}
