//! An experiment: everything that determines a run.

use std::io;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::network::Network;
use crate::recipe::Recipe;
use crate::workers::Workers;
use headwater_protocol::hex;
use headwater_spec::Spec;

/// A network, its recipe and the identity of its data. Two experiments with equal identity end with the same weights.
pub struct Experiment {
    /// The recipe, with the seed.
    pub recipe: Recipe,
    /// Identity and origin of the run.
    pub info: RunInfo,
    /// The layers, with their spec.
    pub network: Network,
    /// The worker threads, as many as the recipe says.
    pub workers: Workers,
}

/// Identity and origin of a run, as stored in `run.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunInfo {
    /// SHA-256 over spec, recipe and data, first 16 hex digits.
    pub identity: String,
    /// Name of the data set, with its split if a split was chosen.
    pub data: String,
    /// Number of samples used from the start of the train part; `None` for all.
    pub limit_train: Option<usize>,
    /// Commit of the program's folder at the start of the run; `None` without git.
    pub commit: Option<String>,
    /// Fingerprint of the samples of all parts; `None` in runs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

impl Experiment {
    /// The experiment of a spec, a recipe and the identity of the run; starts the threads of the recipe.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn new(spec: Spec, recipe: Recipe, info: RunInfo) -> io::Result<Self> {
        let (network, workers) = (Network::new(spec), Workers::new(recipe.workers)?);
        Ok(Self { recipe, info, network, workers })
    }
}

impl RunInfo {
    /// A new run, whose identity follows from a spec, a recipe (with its seed) and data.
    pub fn new(spec: &Spec, recipe: &Recipe, data: String, limit_train: Option<usize>) -> Self {
        let recipe = serde_json::json!(recipe).to_string();
        let mut hash = Sha256::new();
        for part in [&spec.text, &recipe, &data, &format!("{limit_train:?}")] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let identity = hex(&hash.finalize()[..8]);
        Self { identity, data, limit_train, commit: None, fingerprint: None }
    }
}
