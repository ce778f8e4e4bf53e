//! A run folder for commands: the experiment and its newest checkpoint.

use std::path::Path;

use anyhow::Context;
use headwater_training::checkpoint::Checkpoint;
use headwater_training::experiment::Experiment;
use headwater_training::run::RunFolder;

use super::Failure;
use super::output::print_error;

/// A run, finished or not.
pub(crate) struct Saved {
    pub(crate) folder: RunFolder,
    pub(crate) experiment: Experiment,
    pub(crate) checkpoint: Checkpoint,
}

impl Saved {
    /// Reads a run folder; damaged checkpoints are named and skipped.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let folder = RunFolder { path: path.to_owned() };
        let experiment = folder.experiment().map_err(Failure::usage)?;
        let (checkpoint, skipped) = Checkpoint::newest(&folder.path, &experiment.info.identity)?;
        skipped.iter().for_each(|error| print_error(&format!("warning: {error}")));
        let checkpoint =
            checkpoint.with_context(|| format!("{}: expected a checkpoint, found none", path.display()))?;
        Ok(Self { folder, experiment, checkpoint })
    }
}
