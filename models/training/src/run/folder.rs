//! The files of a run.
//!
//! ```text
//! RUN/spec.toml, recipe.toml   as used
//!     run.json                 identity, data, commit
//!     lock                     held by the command at work
//!     resume.txt               how to go on with an unfinished run on ranks
//!     metrics.jsonl            one line per epoch
//!     checkpoint-*.hwck        the last two checkpoints, each with the best epoch so far if the run exports it
//!     checkpoint-*-rank-*.hwrank  what each rank alone has, beside a checkpoint
//!     out-of-fold.hwlogits     out-of-fold logits, if thresholds come from such logits
//!     bundle.hwb, report.json  after the last epoch
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::checkpoint::EpochRecord;
use crate::experiment::{Experiment, RunInfo};
use crate::recipe::Recipe;
use headwater_calibration::number_file::write_whole;
use headwater_spec::Spec;

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
    /// A file cannot be written or read, or the folder has another run or a run on other samples (`AlreadyExists`).
    pub fn create(path: &Path, experiment: &Experiment) -> io::Result<Self> {
        fs::create_dir_all(path)
            .map_err(|error| io::Error::new(error.kind(), format!("making {}: {error}", path.display())))?;
        let folder = Self { path: path.to_owned() };
        if folder.file("run.json").exists() {
            let (found, expected) = (folder.info()?, &experiment.info);
            let refused = |text: String| {
                Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{}: {text}", path.display())))
            };
            if found.identity != expected.identity {
                return refused(format!(
                    "expected run {}, found run {} of another spec, recipe, seed or data: {}; choose another folder, or remove that one",
                    expected.identity,
                    found.identity,
                    folder.differences(&found, experiment)
                ));
            }
            return match (&found.fingerprint, &expected.fingerprint) {
                (Some(found), Some(expected)) if found != expected => refused(format!(
                    "expected the samples with which the run began, {found}; found {expected}: the files of the data have changed; choose another \
                     folder, or remove that one"
                )),
                _ => Ok(folder),
            };
        }
        folder.write("spec.toml", experiment.network.spec.text.as_bytes())?;
        let recipe = toml::to_string(&experiment.recipe).map_err(io::Error::other)?;
        folder.write("recipe.toml", recipe.as_bytes())?;
        folder.write("run.json", &serde_json::to_vec_pretty(&experiment.info)?)?;
        Ok(folder)
    }

    /// Keeps other commands out of the run until the returned file is closed.
    ///
    /// # Errors
    /// Another command is at work on the run (`WouldBlock`), or the file cannot be made.
    pub fn lock(&self) -> io::Result<File> {
        lock(&self.path, "this run", "choose another folder")
    }

    /// The experiment of the run.
    ///
    /// # Errors
    /// The first file that cannot be used, a spec or recipe that changed since the run began, or a thread that the system refuses.
    pub fn experiment(&self) -> io::Result<Experiment> {
        let spec = Spec::read(&self.file("spec.toml")).map_err(io::Error::other)?;
        let recipe = Recipe::read(Some(&self.file("recipe.toml"))).map_err(io::Error::other)?;
        Experiment::stored(spec, recipe, self.info()?)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display())))
    }

    /// Differences between the run in the folder, `found`, and an experiment: first line of the spec, keys of the recipe, data, first weights.
    fn differences(&self, found: &RunInfo, experiment: &Experiment) -> String {
        let expected = &experiment.info;
        let read = |name: &str| fs::read_to_string(self.file(name)).unwrap_or_default();
        let mut all = Vec::new();
        let (spec, own_spec) = (read("spec.toml"), &experiment.network.spec.text);
        if spec != *own_spec {
            let same = spec.lines().zip(own_spec.lines()).take_while(|(there, here)| there == here);
            all.push(format!("spec.toml from line {} on", same.count() + 1));
        }
        let recipes = [read("recipe.toml"), toml::to_string(&experiment.recipe).unwrap_or_default()];
        let [there, here] = recipes.map(|text| keys_of("", &toml::from_str(&text).unwrap_or_default()));
        for key in there.keys().chain(here.keys()).collect::<BTreeSet<_>>() {
            let [there, here] = [&there, &here].map(|keys| keys.get(key).map_or("nothing", String::as_str));
            if there != here {
                all.push(format!("{key} (there {there}, here {here})"));
            }
        }
        if (&found.data, found.limit_train) != (&expected.data, expected.limit_train) {
            let text = |info: &RunInfo| match info.limit_train {
                None => info.data.clone(),
                Some(limit) => format!("{limit} samples of {}", info.data),
            };
            all.push(format!("the data (there {}, here {})", text(found), text(expected)));
        }
        // Equal first weights are no difference, whatever run they come from.
        let init =
            |info: &RunInfo| info.init.clone().map(|init| (init.weights, init.frozen, init.kept_apart));
        if init(found) != init(expected) {
            all.push("the first weights, or what is frozen (--init, --freeze, --kept-apart)".to_owned());
        }
        if all.is_empty() { "nothing that can be named".to_owned() } else { all.join(", ") }
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

/// Every key of a table with its value: `optimiser.warm_up`.
fn keys_of(prefix: &str, table: &toml::Table) -> BTreeMap<String, String> {
    let of_key = |(key, value): (&String, &toml::Value)| match value {
        toml::Value::Table(inner) => keys_of(&format!("{prefix}{key}."), inner),
        value => BTreeMap::from([(format!("{prefix}{key}"), value.to_string())]),
    };
    table.iter().flat_map(of_key).collect()
}

/// Keeps other commands out of a folder until the returned file is closed. The error message names `of`, the contents of the folder, and
/// `advice`.
///
/// # Errors
/// Another command is at work (`WouldBlock`), or the file cannot be made.
pub fn lock(folder: &Path, of: &str, advice: &str) -> io::Result<File> {
    let name = folder.join("lock");
    let at = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", name.display()));
    let file = File::create(&name).map_err(at)?;
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => io::Error::new(
            io::ErrorKind::WouldBlock,
            format!(
                "{}: expected no other command at work on {of}, found one; wait for it, or {advice}",
                folder.display()
            ),
        ),
        TryLockError::Error(error) => at(error),
    })?;
    Ok(file)
}
