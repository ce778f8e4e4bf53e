//! `headwater-train export`.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use headwater_calibration::number_file::write_whole;
use headwater_training::run::{EvaluationParts, out_of_fold};
use headwater_training::scale_out::Alone;

use super::dataset::Dataset;
use super::output::print;
use super::saved::Saved;
use super::train::{export, folds};
use super::{Failure, part_report, usage};

/// Arguments of `export`.
#[derive(Args)]
pub(crate) struct Export {
    /// Run folder, finished or not: the newest checkpoint is exported.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// File of the bundle; `RUN/bundle.hwb` is written too.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    dataset: Dataset,
}

impl Export {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let Saved { folder, experiment, mut checkpoint } = Saved::open(&self.run)?;
        let _lock = folder.lock().map_err(Failure::usage)?;
        let (expected, found) = (&experiment.info.data, self.dataset.identity());
        if *expected != found {
            return usage(format!(
                "{}: expected the data of the run, {expected}, found {found}: thresholds and figures of other data are not those of this run; give \
                 the --data, --fold and --split of its training",
                self.run.display()
            ));
        }
        let parts = self.dataset.open_for(&experiment.network.spec)?;
        if folds(&experiment, &parts).is_some() && !out_of_fold::is_in(&folder) {
            return usage(format!(
                "{}: expected out-of-fold.hwlogits, from which this run takes its thresholds, found none; give its `headwater-train train` again",
                self.run.display()
            ));
        }
        let data = (&parts, self.dataset.identity());
        let parts = EvaluationParts::load(&folder, &experiment, &Alone, &mut checkpoint.state, data)?;
        let finished = export(&folder, &experiment, &checkpoint, &parts)?;
        write_whole(&self.out, &finished.exported.bytes)
            .with_context(|| format!("writing {}", self.out.display()))?;
        let figures = part_report::both(&finished);
        print(&format!("{figures}{}: {} bytes\n", self.out.display(), finished.exported.bytes.len()))
    }
}
