//! `headwater-train export`.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use headwater_models::run::Held;
use headwater_models::training::Workers;
use headwater_samples::Part;

use super::Failure;
use super::dataset::Dataset;
use super::outcome;
use super::saved::Saved;
use super::train::{fits, ship};

/// Arguments of `export`.
#[derive(Args)]
pub(crate) struct Export {
    /// Run folder, finished or not: the newest checkpoint is exported.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Where the bundle goes; `RUN/bundle.hwb` is written too.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    dataset: Dataset,
}

impl Export {
    /// Runs the command.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let saved = Saved::open(&self.run)?;
        let parts = self.dataset.open_for(&saved.spec)?;
        let Saved { folder, spec, recipe, info, network, at } = &saved;
        fits(spec, &parts)?;
        let workers = Workers::new(recipe.workers).context("starting the workers")?;
        let validation = parts.part(Part::Validation, None, recipe.workers);
        let test = parts.part(Part::Test, None, recipe.workers);
        let class_prior = parts.prior(Part::Train, info.limit_train);
        let held = Held { validation: &validation, test: &test, class_prior };
        let finished = ship(folder, (spec, recipe, info), (network, &workers), at, held)?;
        std::fs::write(&self.out, &finished.exported.bytes)
            .with_context(|| format!("writing {}", self.out.display()))?;
        outcome::print("validation", &finished.validation);
        outcome::print("test", &finished.test);
        println!("{}: {} bytes", self.out.display(), finished.exported.bytes.len());
        Ok(())
    }
}
