//! One run of a table: trains, and writes the logits of the validation part, of the calibration part, and of the part that the page
//! shows under each set of missing devices.

use std::io;
use std::path::{Path, PathBuf};

use headwater_protocol::SlotSet;
use serde::{Deserialize, Serialize};

use crate::plan::{Plan, Run};
use headwater_calibration::data::{AbsentView, Parts, Samples, fingerprint_of_all};
use headwater_calibration::logits_file;
use headwater_calibration::number_file::write_whole;
use headwater_calibration::part_logits::EvaluatedPart;
use headwater_calibration::random::Random;
use headwater_samples::Part;
use headwater_training::checkpoint::Checkpoint;
use headwater_training::coding_fit::fitted_coding;
use headwater_training::evaluation::evaluate;
use headwater_training::experiment::{Experiment, RunInfo};
use headwater_training::joint::Event;
use headwater_training::run::{RunFolder, train};
use headwater_training::scale_out::Alone;
use headwater_training::transfer::start_from;

/// Random stream for the choice of the samples of each class.
const PER_CLASS: u64 = 9;

/// Parts of the data, loaded once for each group of runs that [`groups`] gives.
pub struct LoadedParts {
    /// Train part.
    pub train: Samples,
    /// Validation part.
    pub validation: Samples,
    /// Calibration part; empty if the data has no such part, if the data allows no promise, or if the page shows the validation part: a
    /// comparison of recipes on the calibration part would void the promise of the recipe that is then chosen.
    pub calibration: Samples,
    /// Part whose figures the page shows, without samples of nothing.
    pub evaluated: Samples,
    /// True when the samples are frames of one recording.
    pub is_recording: bool,
    /// Fingerprint of all parts.
    pub fingerprint: String,
}

/// Logits of a finished run.
#[derive(Clone, Debug)]
pub struct RunLogits {
    /// Commit of the program that trained; `None` without git.
    pub commit: Option<String>,
    /// Share of each class in the train part.
    pub class_prior: Vec<f32>,
    /// True when the samples are frames of one recording.
    pub is_recording: bool,
    /// Validation part.
    pub validation: EvaluatedPart,
    /// Calibration part; `None` if no thresholds are chosen on such a part.
    pub calibration: Option<EvaluatedPart>,
    /// Part whose figures the page shows, for each set of missing devices; the empty set is first.
    pub evaluated: Vec<(SlotSet, EvaluatedPart)>,
}

impl LoadedParts {
    /// Loads all parts; views are computed on `threads` threads unless the data set keeps them.
    pub fn load(parts: &Parts, plan: &Plan, absent: AbsentView, threads: usize) -> Self {
        let part = |part, limit| Samples { absent, ..parts.part(part, limit, threads) };
        let is_kept_apart = plan.part() == Part::Validation || parts.data.promise_obstacle().is_some();
        Self {
            train: part(Part::Train, plan.data.limit_train),
            validation: part(Part::Validation, None),
            calibration: part(Part::Calibration, is_kept_apart.then_some(0)),
            evaluated: part(plan.part(), None).with_class(),
            is_recording: parts.data.is_recording(),
            fingerprint: fingerprint_of_all(parts, plan.data.limit_train),
        }
    }
}

/// Contents of the marker file of a finished run; `files` are the names of its files of logits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Done {
    /// Share of each class in the train part.
    class_prior: Vec<f32>,
    /// True when the samples are frames of one recording.
    is_recording: bool,
    files: Vec<String>,
}

/// Folder of the logits inside the folder of a run.
struct LogitsFolder(PathBuf);

impl LogitsFolder {
    /// The file of a part with the devices `missing` left out; the usual file of the part if none is missing.
    fn without(&self, part: Part, missing: SlotSet) -> PathBuf {
        let slots: Vec<String> = missing.positions().map(|slot| slot.to_string()).collect();
        let without = if slots.is_empty() { String::new() } else { format!("-without-{}", slots.join("-")) };
        self.0.join(format!("{}{without}.hwlogits", part.name()))
    }

    /// The marker of a finished run. It is written last, so that all files exist if the marker exists.
    fn done(&self) -> PathBuf {
        self.0.join("done.json")
    }

    /// The marker of a finished run; `None` if the marker is missing or damaged.
    fn read_done(&self) -> Option<Done> {
        let done: Done = serde_json::from_slice(&std::fs::read(self.done()).ok()?).ok()?;
        let is_share = |share: &f32| (0.0..=1.0).contains(share);
        done.class_prior.iter().all(is_share).then_some(done)
    }
}

/// Returns true when the run's folder below `folder` has all files of this run.
pub fn is_done(plan: &Plan, run: Run, folder: &Path) -> bool {
    let folder = folder.join(run.folder(plan));
    let is_same = recorded(plan, run, &folder).is_ok();
    let files = LogitsFolder(folder.join("logits"));
    let slots = plan.rows[run.row].spec.network.slots();
    is_same
        && files.read_done().is_some_and(|done| done.files.iter().all(|file| files.0.join(file).exists()))
        && plan.patterns(slots).into_iter().all(|missing| files.without(plan.part(), missing).exists())
}

/// Contents of `run.json` in the folder of a run; an error if the folder has another run or none.
fn recorded(plan: &Plan, run: Run, folder: &Path) -> io::Result<RunInfo> {
    let info: RunInfo = serde_json::from_slice(&std::fs::read(folder.join("run.json"))?)?;
    let expected = plan.identity(run).1.started_from(info.init.clone()).identity;
    if info.identity == expected && info.init.is_some() == plan.rows[run.row].init.is_some() {
        return Ok(info);
    }
    let text = format!("{}: expected run {expected}, found run {}", folder.display(), info.identity);
    Err(io::Error::other(text))
}

/// Trains a run below `folder` to its end, from its newest checkpoint, and writes its logits.
///
/// # Errors
/// Training failed, or the folder cannot be written or has another run.
pub fn complete(
    plan: &Plan,
    run: Run,
    (folder, commit): (&Path, Option<String>),
    parts: &LoadedParts,
    notify: impl FnMut(&Event<'_>),
) -> io::Result<()> {
    let (recipe, info) = plan.identity(run);
    let info = RunInfo { commit, fingerprint: Some(parts.fingerprint.clone()), ..info };
    let row = &plan.rows[run.row];
    let spec = row.spec.clone();
    headwater_training::memory::check(&spec, &recipe).map_err(io::Error::other)?;
    let mut experiment = Experiment::new(spec, recipe, info)?;
    if let Some(other) = &row.init {
        begin_with(&mut experiment, &plan.folder.join(other))?;
    }
    let drawn = row.per_class.map(|count| of_each_class(&parts.train, count, run.seed));
    let train_part = drawn.as_ref().unwrap_or(&parts.train);
    let folder = RunFolder::create(&folder.join(run.folder(plan)), &experiment)?;
    let mut checkpoint = train(&experiment, &Alone, &folder, [train_part, &parts.validation], notify)
        .map_err(io::Error::other)?;
    let state = &mut checkpoint.state;
    state.coding = fitted_coding(&experiment, state, train_part, &parts.validation);
    let files = LogitsFolder(folder.file("logits"));
    std::fs::create_dir_all(&files.0)?;
    let identity = &experiment.info.identity;
    let mut names = Vec::new();
    let mut write = |file: &Path, samples: &Samples| {
        let logits = evaluate(&experiment, &checkpoint.state, samples);
        names.push(file_name(file));
        logits_file::write(file, &named(identity, file), samples, &logits).map_err(io::Error::other)
    };
    // If the page shows the validation part, the loop below writes the file of this part with no device missing.
    if plan.part() != Part::Validation {
        write(&files.without(Part::Validation, SlotSet::EMPTY), &parts.validation)?;
    }
    let may_promise = experiment.info.init.as_ref().is_none_or(|init| init.kept_apart);
    if may_promise && !parts.calibration.is_empty() {
        write(&files.without(Part::Calibration, SlotSet::EMPTY), &parts.calibration)?;
    }
    let mut evaluated = parts.evaluated.clone();
    for missing in plan.patterns(evaluated.slots) {
        evaluated.seen = parts.evaluated.seen.iter().map(|seen| *seen - missing).collect();
        write(&files.without(plan.part(), missing), &evaluated)?;
    }
    parts.evaluated.check_read()?;
    let done = Done { class_prior: train_part.prior(), is_recording: parts.is_recording, files: names };
    write_whole(&files.done(), &serde_json::to_vec(&done)?)
}

/// Lets an experiment begin with the weights of a run folder.
fn begin_with(experiment: &mut Experiment, run: &Path) -> io::Result<()> {
    let at = |error: String| io::Error::other(format!("init {}: {error}", run.display()));
    let other = RunFolder { path: run.to_owned() }.experiment().map_err(|error| at(error.to_string()))?;
    let (checkpoint, _) = Checkpoint::newest(run, &other.info.identity).map_err(io::Error::other)?;
    let checkpoint = checkpoint.ok_or_else(|| at("expected a checkpoint, found none".to_owned()))?.exported();
    let is_apart = experiment.info.is_apart_from(&other.info);
    let started = start_from(experiment, (&other, &checkpoint.state), &[], is_apart);
    started.map(drop).map_err(|error| at(error.to_string()))
}

/// `count` samples of each class, drawn by the seed; all of a class that has fewer. The order of `samples` is kept.
fn of_each_class(samples: &Samples, count: usize, seed: u64) -> Samples {
    let mut left = vec![count; samples.classes];
    let mut takes = |sample: &usize| {
        let left = left.get_mut(usize::from(samples.labels[*sample])).filter(|left| **left > 0);
        left.map(|left| *left -= 1).is_some()
    };
    let order = Random::new(seed, &[PER_CLASS]).permutation(samples.len());
    let mut chosen: Vec<usize> =
        order.into_iter().map(|sample| sample as usize).filter(|sample| takes(sample)).collect();
    chosen.sort_unstable();
    samples.subset(&chosen)
}

/// Identity of one file of a run. It contains the file's name, so that no file of a run is taken for another.
fn named(identity: &str, file: &Path) -> String {
    format!("{identity} {}", file_name(file))
}

fn file_name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn read_named(file: &Path, identity: &str) -> io::Result<EvaluatedPart> {
    logits_file::read(file, &named(identity, file)).map_err(io::Error::other)
}

/// Reads the logits of a finished run below `folder`.
///
/// # Errors
/// A file is missing, damaged or of another run.
pub fn read(plan: &Plan, run: Run, folder: &Path) -> io::Result<RunLogits> {
    let folder = folder.join(run.folder(plan));
    let info = recorded(plan, run, &folder)?;
    let files = LogitsFolder(folder.join("logits"));
    let Done { class_prior, is_recording, files: names } = files.read_done().ok_or_else(|| {
        io::Error::other(format!("{}: expected the end of a run, found none", files.done().display()))
    })?;
    let validation = read_named(&files.without(Part::Validation, SlotSet::EMPTY), &info.identity)?;
    let calibration = files.without(Part::Calibration, SlotSet::EMPTY);
    let has_calibration = names.contains(&file_name(&calibration));
    let calibration = has_calibration.then(|| read_named(&calibration, &info.identity)).transpose()?;
    let patterns = plan.patterns(validation.samples.slots).into_iter();
    let of_missing =
        |missing| Ok((missing, read_named(&files.without(plan.part(), missing), &info.identity)?));
    let evaluated = patterns.map(of_missing).collect::<io::Result<_>>()?;
    Ok(RunLogits { commit: info.commit, class_prior, is_recording, validation, calibration, evaluated })
}

/// Groups of runs with the same fold, preprocessing, number of slots and input for an absent view. The runs of a group read the same
/// views, so that parts are loaded once for each group.
pub fn groups(plan: &Plan, runs: &[Run]) -> Vec<Vec<Run>> {
    let views = |run: Run| {
        let row = &plan.rows[run.row];
        (run.fold, row.absent, row.spec.network.slots(), row.spec.network.preprocessing())
    };
    let mut groups: Vec<Vec<Run>> = Vec::new();
    for run in runs.iter().copied() {
        match groups.iter_mut().find(|group| views(group[0]) == views(run)) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use headwater_spec::Spec;
    use headwater_training::recipe::Recipe;

    use super::*;

    #[test]
    fn a_run_knows_with_which_other_it_began_and_is_apart_from_it_only_with_equal_parts() {
        let parts = Parts::drawn(16, 8, 4);
        let [train_part, validation] = [Part::Train, Part::Validation].map(|part| parts.part(part, None, 1));
        let spec = Spec::read(Path::new("../networks/ddnn-c.toml")).unwrap();
        let recipe = Recipe { epochs: 1, batch: 8, ..Recipe::read(None).unwrap() };
        let experiment = |fingerprint: &str| {
            let info = RunInfo::new(&spec, &recipe, "drawn".to_owned(), None);
            let info = RunInfo { fingerprint: Some(fingerprint.to_owned()), ..info };
            Experiment::new(spec.clone(), recipe.clone(), info).unwrap()
        };
        let (dir, other) = (tempfile::tempdir().unwrap(), experiment("equal"));
        let folder = RunFolder::create(&dir.path().join("run"), &other).unwrap();
        train(&other, &Alone, &folder, [&train_part, &validation], |_| ()).unwrap();
        for (fingerprint, kept_apart) in [("equal", true), ("another", false)] {
            let mut begun = experiment(fingerprint);
            begin_with(&mut begun, &folder.path).unwrap();
            let init = begun.info.init.unwrap();
            assert_eq!((init.run, init.kept_apart), (other.info.identity.clone(), kept_apart));
            assert_ne!(begun.info.identity, other.info.identity);
        }
    }

    #[test]
    fn each_class_gives_as_many_samples_as_are_asked_for_and_other_seeds_others() {
        let train = Parts::drawn(200, 4, 4).part(Part::Train, None, 1);
        let counts = |samples: &Samples| {
            let of_class = |class| samples.labels.iter().filter(|label| **label == class).count();
            (0..train.classes as u16).map(of_class).collect::<Vec<_>>()
        };
        let [first, again, other] = [1, 1, 2].map(|seed| of_each_class(&train, 3, seed));
        assert_eq!(counts(&first), counts(&train).into_iter().map(|count| count.min(3)).collect::<Vec<_>>());
        assert_eq!(first, again);
        assert_ne!(first, other);
    }
}
