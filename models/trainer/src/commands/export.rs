//! `headwater-train export`.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use headwater_calibration::number_file::write_whole;
use headwater_inference::bundle::Bundle;
use headwater_training::run::{EvaluationParts, RunFolder, out_of_fold};
use headwater_training::scale_out::Alone;
use headwater_training::training_weights;

use super::dataset::Dataset;
use super::measured::Measured;
use super::output::print;
use super::saved::{TrainedRun, trained};
use super::train::folds;
use super::{Failure, usage};

/// Arguments of `export`.
#[derive(Args)]
pub(crate) struct Export {
    /// Run folder, finished or not: the newest checkpoint is exported, or the best epoch so far where the recipe asks for it. A run that takes its
    /// thresholds from folds must have finished: they are trained after its last epoch. Or a bundle that was
    /// exported --with-training-weights: its thresholds are chosen anew, and it keeps these weights.
    #[arg(value_name = "RUN|BUNDLE")]
    run: PathBuf,
    /// File of the bundle, beside `RUN/bundle.hwb`. Needed with BUNDLE, which is not overwritten unasked.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Put the weights as trained into the bundle, for `train --init`, `parity` and `export` where the run folder is not at hand. No tier
    /// reads them; the bundle grows by four bytes for each parameter.
    #[arg(long)]
    with_training_weights: bool,
    #[command(flatten)]
    dataset: Dataset,
}

impl Export {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let (is_run, shown) = (self.run.is_dir(), self.run.display());
        // A bundle counts as a run folder without files.
        let folder = RunFolder { path: self.run.clone() };
        if !is_run && self.out.is_none() {
            return usage(format!(
                "{shown}: expected --out with a bundle, the file for the one with new thresholds, found none"
            ));
        }
        let out = self.out.clone().unwrap_or_else(|| folder.file("bundle.hwb"));
        let TrainedRun { experiment, mut checkpoint } = trained(&self.run)?;
        let lock = is_run.then(|| folder.lock().map_err(Failure::usage));
        let _lock = lock.transpose()?;
        let (expected, found) = (&experiment.info.data, self.dataset.identity());
        if *expected != found {
            return usage(format!(
                "{shown}: expected the data of the run, {expected}, found {found}: thresholds and figures of other data are not those of this run; give \
                 the --data, --fold and --split of its training"
            ));
        }
        let data = self.dataset.open_for(&experiment.network.spec)?;
        if folds(&experiment, &data).is_some() && !out_of_fold::is_in(&folder) {
            return usage(format!(
                "{shown}: expected out-of-fold.hwlogits, from which this run takes its thresholds, found none; give the run folder, or its `headwater-train train` again"
            ));
        }
        let named = (&data, self.dataset.identity());
        let parts = EvaluationParts::load(&folder, &experiment, &Alone, &mut checkpoint.state, named)?;
        let mut measured = Measured::of(&experiment, &checkpoint, &parts, &data)?;
        if is_run {
            measured = measured.write(&folder)?;
        }
        let mut bytes = measured.finished.exported.bytes.clone();
        if self.with_training_weights || !is_run {
            let weights = training_weights::encode(&experiment, &checkpoint).context("training weights")?;
            bytes = Bundle::from_bytes(&bytes)?.with_training_weights(&weights)?;
        }
        write_whole(&out, &bytes).with_context(|| format!("writing {}", out.display()))?;
        print(&format!("{}{}: {} bytes\n", measured.figures(), out.display(), bytes.len()))?;
        measured.print_warnings();
        Ok(())
    }
}
