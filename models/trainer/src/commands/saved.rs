//! A network for commands: a run folder, or a bundle file.

use std::path::{Path, PathBuf};

use anyhow::Context;
use headwater_training::checkpoint::Checkpoint;
use headwater_training::experiment::Experiment;
use headwater_training::run::RunFolder;
use headwater_training::training_weights;

use super::output::print_error;
use super::{Failure, open_bundle, usage};

/// A run with the weights that are exported.
pub(crate) struct TrainedRun {
    pub(crate) experiment: Experiment,
    pub(crate) checkpoint: Checkpoint,
}

/// File of the bundle at a path, which is a bundle, or the folder of a finished run.
pub(crate) fn bundle_file(path: &Path) -> Result<PathBuf, Failure> {
    let file = if path.is_dir() { path.join("bundle.hwb") } else { path.to_owned() };
    if path.is_dir() && !file.exists() {
        return usage(format!(
            "{}: expected a finished run with bundle.hwb, found none; give its `headwater-train train` again, or write the bundle of its newest \
             checkpoint with `headwater-train export`",
            path.display()
        ));
    }
    Ok(file)
}

/// The trained weights at a path: of a bundle, or of the newest checkpoint of a run folder, where damaged ones are named and skipped.
pub(crate) fn trained(path: &Path) -> Result<TrainedRun, Failure> {
    let shown = path.display();
    if path.is_dir() {
        let experiment = RunFolder { path: path.to_owned() }.experiment().map_err(Failure::usage)?;
        let (checkpoint, skipped) = Checkpoint::newest(path, &experiment.info.identity)?;
        skipped.iter().for_each(|error| print_error(&format!("warning: {error}")));
        let checkpoint =
            checkpoint.with_context(|| format!("{shown}: expected a checkpoint, found none"))?.exported();
        return Ok(TrainedRun { experiment, checkpoint });
    }
    let bundle = open_bundle(path)?;
    let weights = bundle.training_weights().with_context(|| shown.to_string()).map_err(Failure::usage)?;
    let Some(weights) = weights else {
        return usage(format!(
            "{shown}: expected a run folder, or a bundle exported with --with-training-weights, found a bundle without: the clipped weights of \
             binary layers are in no other; give the run folder, or export it so from there"
        ));
    };
    let read = training_weights::decode(weights);
    let (experiment, checkpoint) = read.with_context(|| format!("{shown}: training weights"))?;
    Ok(TrainedRun { experiment, checkpoint })
}
