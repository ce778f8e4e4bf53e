//! `headwater-train export`.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use headwater_models::network::Network;
use headwater_models::recipe::Recipe;
use headwater_models::run::{Held, RunFolder, RunInfo};
use headwater_models::spec::Spec;
use headwater_models::training::{Checkpoint, Workers};
use headwater_samples::fashion_6cam::Part;

use super::Failure;
use super::dataset::Dataset;
use super::outcome;
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
        let folder = RunFolder { path: self.run.clone() };
        let spec = Spec::read(&folder.file("spec.toml")).map_err(Failure::usage)?;
        let recipe = Recipe::read(Some(&folder.file("recipe.toml"))).map_err(Failure::usage)?;
        let info = folder.file("run.json");
        let info: RunInfo = std::fs::read(&info)
            .map_err(anyhow::Error::from)
            .and_then(|bytes| Ok(serde_json::from_slice(&bytes)?))
            .with_context(|| format!("reading {}", info.display()))
            .map_err(Failure::usage)?;
        let parts = self.dataset.open()?;
        fits(&spec, &parts)?;
        let (checkpoint, passed_over) = Checkpoint::newest(&folder.path, &info.identity)?;
        passed_over.iter().for_each(|error| eprintln!("warning: {error}"));
        let at = checkpoint
            .with_context(|| format!("{}: expected a checkpoint, found none", self.run.display()))?;
        let workers = Workers::new(recipe.workers).context("starting the workers")?;
        let network = Network::new(&spec);
        let validation = parts.part(Part::Validation, None, recipe.workers);
        let test = parts.part(Part::Test, None, recipe.workers);
        let class_prior = parts.prior(Part::Train, info.limit_train);
        let held = Held { validation: &validation, test: &test, class_prior };
        let finished = ship(&folder, (&spec, &recipe, &info), (&network, &workers), &at, held)?;
        std::fs::write(&self.out, &finished.exported.bytes)
            .with_context(|| format!("writing {}", self.out.display()))?;
        outcome::print("validation", &finished.validation);
        outcome::print("test", &finished.test);
        println!("{}: {} bytes", self.out.display(), finished.exported.bytes.len());
        Ok(())
    }
}
