//! `headwater-train export`.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use super::dataset::Dataset;
use super::output::print;
use super::saved::Saved;
use super::train::export;
use super::{Failure, part_report};

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
    /// Runs the command.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let Saved { folder, experiment, checkpoint } = Saved::open(&self.run)?;
        let parts = self.dataset.open_for(&experiment.network.spec)?;
        let finished = export(&folder, &experiment, &checkpoint, &parts, self.dataset.identity())?;
        std::fs::write(&self.out, &finished.exported.bytes)
            .with_context(|| format!("writing {}", self.out.display()))?;
        let figures = part_report::both(&finished);
        print(&format!("{figures}{}: {} bytes\n", self.out.display(), finished.exported.bytes.len()))
    }
}
