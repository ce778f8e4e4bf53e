//! A network for commands: a run folder, or a bundle file.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Context;
use headwater_training::checkpoint::Checkpoint;
use headwater_training::experiment::Experiment;
use headwater_training::run::RunFolder;
use headwater_training::training_weights;

use super::output::print_error;
use super::{Failure, open_bundle, usage};

/// A run folder or a bundle, as given to a command.
pub(crate) enum Saved {
    /// A run, finished or not.
    Run(RunFolder),
    /// Any other path: a bundle.
    Bundle(PathBuf),
}

/// A run with the weights that are exported.
pub(crate) struct TrainedRun {
    pub(crate) experiment: Experiment,
    pub(crate) checkpoint: Checkpoint,
}

impl Saved {
    /// Tells a run folder from a bundle; nothing is read yet.
    pub(crate) fn open(path: &Path) -> Self {
        let path = path.to_owned();
        if path.is_dir() { Self::Run(RunFolder { path }) } else { Self::Bundle(path) }
    }

    /// File of the bundle, in a run folder that of the finished run.
    pub(crate) fn bundle_file(&self) -> Result<PathBuf, Failure> {
        match self {
            Self::Bundle(file) => Ok(file.clone()),
            Self::Run(folder) if folder.file("bundle.hwb").exists() => Ok(folder.file("bundle.hwb")),
            Self::Run(folder) => usage(format!(
                "{}: expected a finished run with bundle.hwb, found none; give its `headwater-train train` again, or write the bundle of its newest \
                 checkpoint with `headwater-train export`",
                folder.path.display()
            )),
        }
    }

    /// The trained weights: of a run folder those of the newest checkpoint, where damaged ones are named and skipped.
    pub(crate) fn trained(&self) -> Result<TrainedRun, Failure> {
        match self {
            Self::Run(folder) => {
                let experiment = folder.experiment().map_err(Failure::usage)?;
                let (checkpoint, skipped) = Checkpoint::newest(&folder.path, &experiment.info.identity)?;
                skipped.iter().for_each(|error| print_error(&format!("warning: {error}")));
                let checkpoint = checkpoint.with_context(|| {
                    format!("{}: expected a checkpoint, found none", folder.path.display())
                })?;
                Ok(TrainedRun { experiment, checkpoint: checkpoint.exported() })
            }
            Self::Bundle(file) => {
                let bundle = open_bundle(file)?;
                let weights = bundle.training_weights().with_context(|| file.display().to_string());
                let Some(weights) = weights.map_err(Failure::usage)? else {
                    return usage(format!(
                        "{}: expected a run folder, or a bundle exported with --with-training-weights, found a bundle without: the clipped weights of \
                         binary layers are in no other; give the run folder, or export it so from there",
                        file.display()
                    ));
                };
                let read = training_weights::decode(weights);
                let (experiment, checkpoint) =
                    read.with_context(|| format!("{}: training weights", file.display()))?;
                Ok(TrainedRun { experiment, checkpoint })
            }
        }
    }

    /// Keeps other commands out of a run folder until the file is closed; a bundle needs no lock.
    pub(crate) fn lock(&self) -> Result<Option<File>, Failure> {
        match self {
            Self::Run(folder) => folder.lock().map(Some).map_err(Failure::usage),
            Self::Bundle(_) => Ok(None),
        }
    }

    /// The run folder, or for a bundle a folder without any file.
    pub(crate) fn folder(&self) -> RunFolder {
        match self {
            Self::Run(folder) => folder.clone(),
            Self::Bundle(file) => RunFolder { path: file.clone() },
        }
    }
}
