//! A run folder as commands take it: what was asked for, and the newest checkpoint.

use std::path::{Path, PathBuf};

use anyhow::Context;
use headwater_models::network::Network;
use headwater_models::recipe::Recipe;
use headwater_models::run::{RunFolder, RunInfo};
use headwater_models::spec::Spec;
use headwater_models::training::Checkpoint;

use super::Failure;

/// A run, finished or not.
pub(crate) struct Saved {
    pub(crate) folder: RunFolder,
    pub(crate) spec: Spec,
    pub(crate) recipe: Recipe,
    pub(crate) info: RunInfo,
    pub(crate) network: Network,
    pub(crate) at: Checkpoint,
}

impl Saved {
    /// Reads it; checkpoints that are damaged are named and passed over.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let folder = RunFolder { path: PathBuf::from(path) };
        let spec = Spec::read(&folder.file("spec.toml")).map_err(Failure::usage)?;
        let recipe = Recipe::read(Some(&folder.file("recipe.toml"))).map_err(Failure::usage)?;
        let info = folder.file("run.json");
        let info: RunInfo = std::fs::read(&info)
            .map_err(anyhow::Error::from)
            .and_then(|bytes| Ok(serde_json::from_slice(&bytes)?))
            .with_context(|| format!("reading {}", info.display()))
            .map_err(Failure::usage)?;
        let (checkpoint, passed_over) = Checkpoint::newest(&folder.path, &info.identity)?;
        passed_over.iter().for_each(|error| eprintln!("warning: {error}"));
        let at =
            checkpoint.with_context(|| format!("{}: expected a checkpoint, found none", path.display()))?;
        let network = Network::new(&spec);
        Ok(Self { folder, spec, recipe, info, network, at })
    }
}
