//! An experiment: everything that determines a run.

use std::io;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::layers::State;
use crate::network::Network;
use crate::recipe::{ExportedEpoch, Recipe};
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
    /// Weights before the first step that come from another run; `None` if they are drawn by the seed.
    pub(crate) initial: Option<State>,
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
    /// Origin of the first weights; `None` if they are drawn by the seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<InitInfo>,
}

/// Origin of first weights that come from another run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InitInfo {
    /// Identity of the other run.
    pub run: String,
    /// Name of the data of the other run.
    pub data: String,
    /// SHA-256 of all first weights, first 16 hex digits.
    pub weights: String,
    /// Layers with the weights of the other run.
    pub taken: Vec<String>,
    /// Layers that were made anew.
    pub new: Vec<String>,
    /// Layers whose weights do not change.
    pub frozen: Vec<String>,
    /// True when the other run has learnt no sample of the validation, calibration and test parts of this run.
    pub kept_apart: bool,
}

impl Experiment {
    /// The experiment of a spec, a recipe and the identity of the run; starts the threads of the recipe.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn new(spec: Spec, recipe: Recipe, info: RunInfo) -> io::Result<Self> {
        let (network, workers) = (Network::new(spec), Workers::new(recipe.workers)?);
        Ok(Self { recipe, info, network, workers, initial: None })
    }

    /// The experiment of a run that was stored, from its spec and recipe.
    ///
    /// # Errors
    /// Spec or recipe have changed since the run began, or the system refuses a thread.
    pub fn stored(spec: Spec, recipe: Recipe, info: RunInfo) -> io::Result<Self> {
        let found = RunInfo::new(&spec, &recipe, info.data.clone(), info.limit_train);
        let found = found.started_from(info.init.clone());
        if found.identity == info.identity {
            return Self::new(spec, recipe, info);
        }
        Err(io::Error::other(format!(
            "expected spec and recipe of run {}, found those of run {}: they were changed since; put them back, or train again",
            info.identity, found.identity
        )))
    }

    /// The weights before the first step.
    pub fn first_state(&self) -> State {
        self.initial.clone().unwrap_or_else(|| self.network.layout.initial(self.recipe.seed))
    }
}

impl RunInfo {
    /// A new run, whose identity follows from a spec, a recipe (with its seed) and data.
    pub fn new(spec: &Spec, recipe: &Recipe, data: String, limit_train: Option<usize>) -> Self {
        let mut keys = serde_json::json!(recipe);
        // Runs that export the last epoch keep the identity that they had before recipes named the exported epoch.
        let is_last = recipe.checkpoint.export == ExportedEpoch::Last;
        if let Some(table) = keys["checkpoint"].as_object_mut().filter(|_| is_last) {
            table.remove("export");
        }
        let recipe = keys.to_string();
        let identity = hash_of(&[&spec.text, &recipe, &data, &format!("{limit_train:?}")]);
        Self { identity, data, limit_train, ..Self::default() }
    }

    /// The run with these first weights, on which its identity then depends.
    #[must_use]
    pub fn started_from(mut self, init: Option<InitInfo>) -> Self {
        if let Some(InitInfo { weights, frozen, kept_apart, .. }) = &init {
            let (frozen, kept_apart) = (frozen.join(","), kept_apart.to_string());
            self.identity = hash_of(&[&self.identity, weights, &frozen, &kept_apart]);
        }
        self.init = init;
        self
    }

    /// True when the run `other` has learnt no sample on which this run is measured: both runs have the same samples in the same parts, and
    /// the first weights of `other` are drawn, or of a run that was kept apart from these parts.
    pub fn is_apart_from(&self, other: &Self) -> bool {
        let has_same_parts = self.fingerprint.is_some() && self.fingerprint == other.fingerprint;
        has_same_parts && other.init.as_ref().is_none_or(|init| init.kept_apart)
    }
}

impl InitInfo {
    /// The reason, in words, for which no promise may be made on the calibration part; `None` if the other run was kept apart.
    pub fn promise_obstacle(&self) -> Option<String> {
        (!self.kept_apart).then(|| {
            format!(
                "weights of a run on {}, which may have learnt these samples; state --kept-apart in training where it has not",
                self.data
            )
        })
    }
}

/// SHA-256 over texts, first 16 hex digits.
fn hash_of(texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    hex(&hash.finalize()[..8])
}
