//! The files of a run.
//!
//! ```text
//! RUN/spec.toml, recipe.toml   as used
//!     run.json                 identity, data, commit
//!     metrics.jsonl            one line per epoch
//!     checkpoint-*.hwck        the last two checkpoints
//!     out-of-fold.hwlogits         out-of-fold logits, where thresholds come from them
//!     bundle.hwb, report.json  after the last epoch
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::experiment::{Experiment, RunInfo};
use crate::number_file::write_whole;
use crate::recipe::Recipe;
use crate::spec::Spec;
use crate::training::EpochRecord;

/// A run folder.
#[derive(Clone, Debug)]
pub struct RunFolder {
    /// Path of the folder.
    pub path: PathBuf,
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
                        "{path} holds run {found} of another spec, recipe, seed or data (this one is {expected}); choose another folder, or remove that one",
                    ),
                ));
            }
            return Ok(folder);
        }
        folder.write("spec.toml", experiment.network.spec.text.as_bytes())?;
        let recipe = toml::to_string(&experiment.recipe).map_err(io::Error::other)?;
        folder.write("recipe.toml", recipe.as_bytes())?;
        folder.write("run.json", &serde_json::to_vec_pretty(&experiment.info)?)?;
        Ok(folder)
    }

    /// The experiment of the run.
    ///
    /// # Errors
    /// The first file that cannot be used, or a thread that the system refuses.
    pub fn experiment(&self) -> io::Result<Experiment> {
        let spec = Spec::read(&self.file("spec.toml")).map_err(io::Error::other)?;
        let recipe = Recipe::read(Some(&self.file("recipe.toml"))).map_err(io::Error::other)?;
        Experiment::new(spec, recipe, self.info()?).map_err(io::Error::other)
    }

    fn info(&self) -> io::Result<RunInfo> {
        let file = self.file("run.json");
        let info = fs::read(&file).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
        info.map_err(|error| io::Error::new(error.kind(), format!("reading {}: {error}", file.display())))
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
        write_whole(&self.file(name), bytes)
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
