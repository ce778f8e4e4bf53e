//! The files of a run.
//!
//! ```text
//! RUN/spec.toml, recipe.toml   as used
//!     run.json                 identity, data, commit
//!     metrics.jsonl            one line per epoch
//!     checkpoint-*.hwck        the last two checkpoints
//!     bundle.hwb, report.json  after the last epoch
//! ```

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rayon::ThreadPoolBuildError;
use thiserror::Error;

use crate::experiment::{Experiment, RunInfo};
use crate::file_error::FileError;
use crate::recipe::Recipe;
use crate::spec::Spec;
use crate::training::EpochRecord;

/// A run folder.
#[derive(Clone, Debug)]
pub struct RunFolder {
    /// Path of the folder.
    pub path: PathBuf,
}

/// A run folder that cannot be read.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The spec or the recipe cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// `run.json` cannot be read.
    #[error("reading {}: {source}", file.display())]
    Info {
        /// The file.
        file: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The system refuses a thread.
    #[error("starting the workers: {0}")]
    Workers(#[from] ThreadPoolBuildError),
}

impl RunFolder {
    /// Makes the folder of an experiment, or opens the folder when it has the same run.
    ///
    /// # Errors
    /// Writing failed, or the folder has another run (`AlreadyExists`).
    pub fn create(path: &Path, experiment: &Experiment) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        let folder = Self { path: path.to_owned() };
        if folder.file("run.json").exists() {
            let (found, expected) = (folder.info()?.identity, &experiment.info.identity);
            if found != *expected {
                let path = path.display();
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    format!(
                        "{path} holds run {found} of another spec, recipe, seed or data (this one is {expected}); choose another --out",
                    ),
                ));
            }
            return Ok(folder);
        }
        folder.write("spec.toml", experiment.spec.text.as_bytes())?;
        let recipe = toml::to_string(&experiment.recipe).map_err(io::Error::other)?;
        folder.write("recipe.toml", recipe.as_bytes())?;
        folder.write("run.json", &serde_json::to_vec_pretty(&experiment.info)?)?;
        Ok(folder)
    }

    /// The experiment of the run.
    ///
    /// # Errors
    /// [`OpenError`] with the first file that cannot be used.
    pub fn experiment(&self) -> Result<Experiment, OpenError> {
        let spec = Spec::read(&self.file("spec.toml"))?;
        let recipe = Recipe::read(Some(&self.file("recipe.toml")))?;
        let info = self.info().map_err(|source| OpenError::Info { file: self.file("run.json"), source })?;
        Ok(Experiment::resumed(spec, recipe, info)?)
    }

    fn info(&self) -> io::Result<RunInfo> {
        serde_json::from_slice(&fs::read(self.file("run.json"))?).map_err(io::Error::other)
    }

    /// Path of a file of the run.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a whole file; after a kill the file is either the old or the new one.
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
