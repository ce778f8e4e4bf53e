//! `headwater-train train`.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use headwater_models::data::load;
use headwater_models::network::Network;
use headwater_models::recipe::Recipe;
use headwater_models::run::{RunFolder, RunInfo, train};
use headwater_models::spec::Spec;
use headwater_models::training::Workers;
use headwater_samples::fashion_6cam::Part;

use super::Failure;
use super::progress::Reporter;

/// Train a network.
#[derive(Args)]
pub(crate) struct Train {
    /// Network spec (TOML): devices, blocks, aggregation, cloud; see models/networks/.
    #[arg(long, value_name = "FILE")]
    network: PathBuf,
    /// Data set.
    #[arg(long, value_name = "NAME", default_value = "fashion-6cam")]
    data: String,
    /// Folder with the files of the data set (for fashion-6cam the four Fashion-MNIST files).
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Recipe (TOML); without it the one compiled in, models/recipes/default.toml.
    #[arg(long, value_name = "FILE")]
    recipe: Option<PathBuf>,
    /// Run folder; runs/<network name> without it. A folder with an unfinished run of the same spec, recipe, seed and data is resumed.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Epochs, instead of the recipe's: more is slower and better.
    #[arg(long, value_name = "N")]
    epochs: Option<u32>,
    /// Seed, instead of the recipe's.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Use the first N samples of the train part only.
    #[arg(long, value_name = "N")]
    limit_train: Option<usize>,
}

impl Train {
    /// Runs the command.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let spec = Spec::read(&self.network).map_err(Failure::usage)?;
        let mut recipe = Recipe::read(self.recipe.as_deref()).map_err(Failure::usage)?;
        recipe.epochs = self.epochs.unwrap_or(recipe.epochs);
        recipe.seed = self.seed.unwrap_or(recipe.seed);
        let parts = load(&self.data, &self.data_dir).map_err(Failure::usage)?;
        let out = self.out.clone().unwrap_or_else(|| PathBuf::from("runs").join(&spec.network.network.name));
        let info = RunInfo::new(&spec, &recipe, &self.data, self.limit_train, None);
        let folder = RunFolder::open(&out, &spec, &recipe, &info).map_err(Failure::usage)?;
        let workers = Workers::new(recipe.workers).context("starting the workers")?;
        let mut reporter = Reporter::new(recipe.epochs);
        reporter.line("making the views");
        let samples = parts.part(Part::Train, self.limit_train, recipe.workers);
        let validation = parts.part(Part::Validation, None, recipe.workers);
        let network = Network::new(&spec);
        reporter.line("training");
        train(&folder, &info.identity, (&network, &recipe, &workers), (&samples, &validation), |notice| {
            reporter.show(&notice);
        })?;
        Ok(())
    }
}
