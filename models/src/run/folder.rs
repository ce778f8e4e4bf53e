//! The files of a run.
//!
//! `spec.toml` and `recipe.toml` as used, `run.json` (what was asked for, commit), `metrics.jsonl` (a line an epoch),
//! `checkpoint-*.hwck`, then `bundle.hwb` and `report.json`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::recipe::Recipe;
use crate::spec::Spec;
use crate::training::EpochRecord;

/// What a run was asked to do; two runs with equal identity end with the same weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunInfo {
    /// SHA-256 over spec, recipe and data, first 16 hex digits.
    pub identity: String,
    /// Data set.
    pub data: String,
    /// At most so many samples of the train part.
    pub limit_train: Option<usize>,
    /// Commit of the program's folder when the run began, if it could be told.
    pub commit: Option<String>,
}

/// A run folder.
#[derive(Clone, Debug)]
pub struct RunFolder {
    /// Where it is.
    pub path: PathBuf,
}

impl RunInfo {
    /// What identifies a run of that spec, recipe (with its seed) and data.
    pub fn new(
        spec: &Spec,
        recipe: &Recipe,
        data: &str,
        limit_train: Option<usize>,
        commit: Option<String>,
    ) -> Self {
        let recipe = serde_json::json!(recipe).to_string();
        let mut hash = Sha256::new();
        for part in [&spec.text, &recipe, data, &format!("{limit_train:?}")] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let identity = hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        Self { identity, data: data.to_owned(), limit_train, commit }
    }
}

impl RunFolder {
    /// Makes the folder, or opens it when it holds the same run.
    ///
    /// # Errors
    /// Writing failed, or the folder holds another run (`AlreadyExists`).
    pub fn open(path: &Path, spec: &Spec, recipe: &Recipe, info: &RunInfo) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        let folder = Self { path: path.to_owned() };
        let run = folder.file("run.json");
        if run.exists() {
            let found: RunInfo = serde_json::from_slice(&fs::read(&run)?).map_err(io::Error::other)?;
            if found.identity != info.identity {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    format!(
                        "{} holds run {} of another spec, recipe, seed or data (this one is {}); choose another --out",
                        path.display(),
                        found.identity,
                        info.identity
                    ),
                ));
            }
            return Ok(folder);
        }
        folder.write("spec.toml", spec.text.as_bytes())?;
        folder.write("recipe.toml", toml::to_string(recipe).map_err(io::Error::other)?.as_bytes())?;
        folder.write("run.json", &serde_json::to_vec_pretty(info)?)?;
        Ok(folder)
    }

    /// Path of a file of the run.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a whole file, so that it is either the old or the new one after a kill.
    ///
    /// # Errors
    /// Writing failed.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let partial = self.file(&format!("{name}.partial"));
        let mut file = fs::File::create(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(partial, self.file(name))
    }

    /// Writes `metrics.jsonl`.
    ///
    /// # Errors
    /// Writing failed.
    pub fn write_metrics(&self, epochs: &[EpochRecord]) -> io::Result<()> {
        let mut lines = Vec::new();
        for epoch in epochs {
            serde_json::to_writer(&mut lines, epoch)?;
            lines.push(b'\n');
        }
        self.write("metrics.jsonl", &lines)
    }
}
