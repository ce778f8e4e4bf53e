//! The experiment file: rows, each a network and a recipe, for some seeds and folds.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::{Path, PathBuf};

use headwater_protocol::{Slot, SlotSet};
use headwater_toml_file::{Mistake, with_lines};
use serde::Deserialize;

pub use crate::plan_file::{DataPlan, FromData, MetricsPlan, Plan, Row, SimplePlan};
use headwater_calibration::data::AbsentView;
use headwater_samples::catalogue;
use headwater_spec::file_error::{self, FileError};
use headwater_training::experiment::RunInfo;
use headwater_training::recipe::Recipe;

/// Largest number of sets of missing devices in an experiment: each set costs an evaluation of every run.
const MAX_SETS: u128 = 1_000;

/// One run of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Index of the row in [`Plan::rows`].
    pub row: usize,
    /// Seed of weights, order and augmentation.
    pub seed: u64,
    /// Number of the fold, which is one division of the data into parts; `None` for the usual parts.
    pub fold: Option<usize>,
}

/// A file that lists experiments for one page.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Collection {
    /// Headline of the page.
    pub title: String,
    /// Text below the headline.
    pub about: String,
    /// Files of the experiments.
    pub experiments: Vec<PathBuf>,
}

impl Collection {
    /// Reads a file with the key `experiments`; `None` for a file without this key and for a file that is not TOML.
    ///
    /// # Errors
    /// [`FileError`]: unreadable, other keys than those of a collection, no experiment, or two experiments whose files have one name.
    pub fn read(file: &Path) -> Result<Option<Self>, FileError> {
        let text = file_error::read("experiment", file)?;
        if !text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("experiments")) {
            return Ok(None);
        }
        let read: Self =
            headwater_toml_file::read(&text).map_err(|mistakes| FileError::of(file, mistakes))?;
        // Runs and figures of an experiment lie under the name of its file.
        let names: BTreeSet<_> = read.experiments.iter().map(|experiment| experiment.file_stem()).collect();
        if names.is_empty() || names.len() < read.experiments.len() {
            let found = &read.experiments;
            let message = format!("experiments: expected files, each of another name, found {found:?}");
            return Err(FileError::invalid(file, message));
        }
        let folder = file.parent().unwrap_or(Path::new(""));
        let experiments = read.experiments.iter().map(|experiment| folder.join(experiment)).collect();
        Ok(Some(Self { experiments, ..read }))
    }
}

impl Plan {
    /// Reads an experiment file, and the spec and recipe files that it names. `data` gives labels that a spec leaves out, and the spec and recipe of
    /// `network = "new"`.
    ///
    /// # Errors
    /// [`FileError`]: unreadable, every mistake in the file, the mistakes in the first spec or recipe that does not fit, or data that cannot
    /// be read.
    pub fn read(file: &Path, data: &dyn FromData) -> Result<Self, FileError> {
        let text = file_error::read("experiment", file)?;
        let of_file = |mistakes| FileError::of(file, mistakes);
        let mut plan: Self = headwater_toml_file::read(&text).map_err(of_file)?;
        plan.name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        file.parent().unwrap_or(Path::new("")).clone_into(&mut plan.folder);
        plan.rows = plan.described_rows(file, data)?;
        let mistakes = with_lines(&text, mistakes(&plan));
        if mistakes.is_empty() { Ok(plan) } else { Err(of_file(mistakes)) }
    }

    /// Index of the row that the other rows are compared with; `None` if `reference` names no row.
    pub fn reference_row(&self) -> Option<usize> {
        let name = self.reference.as_ref()?;
        self.rows.iter().position(|row| row.name == *name)
    }

    /// Folds of the data; the usual parts, as a single `None`, if the experiment names no folds.
    pub fn folds(&self) -> Vec<Option<usize>> {
        self.data.folds.map_or_else(|| vec![None], |folds| (0..folds).map(Some).collect())
    }

    /// Every run, ordered by fold, then by row, then by seed.
    pub fn runs(&self) -> Vec<Run> {
        let of_fold = |fold: Option<usize>| {
            let of_row = move |row: usize| self.seeds.iter().map(move |seed| Run { row, seed: *seed, fold });
            (0..self.rows.len()).flat_map(of_row)
        };
        self.folds().into_iter().flat_map(of_fold).collect()
    }

    /// Sets of missing devices that are evaluated, from the empty set to the largest sets.
    pub fn patterns(&self, slots: usize) -> Vec<SlotSet> {
        let most = self.missing.min(slots.saturating_sub(1));
        (0..=most).flat_map(|count| combinations(slots, count)).collect()
    }

    /// The recipe and the identity of a run.
    pub fn identity(&self, run: Run) -> (Recipe, RunInfo) {
        let row = &self.rows[run.row];
        let recipe = Recipe { seed: run.seed, ..row.recipe.clone() };
        let mut data = self.data.name.clone();
        if !self.data.path.as_os_str().is_empty() {
            data += &format!(", at {}", self.data.path.display());
        }
        if let Some(fold) = run.fold {
            data += &format!(", fold {fold}");
            if let Some(folds) = self.data.folds.filter(|_| self.data.folds_are_drawn()) {
                data += &format!(" of {folds}");
            }
        }
        if row.absent == AbsentView::Black {
            data += ", absent views black";
        }
        if let Some(count) = row.per_class {
            data += &format!(", {count} train samples of each class");
        }
        if let Some(run) = &row.init {
            data += &format!(", begun with the weights of {}", run.display());
        }
        let info = RunInfo::new(&row.spec, &recipe, data, self.data.limit_train);
        (recipe, info)
    }
}

/// Sets of `count` of the first `slots` slots, in the order of their positions.
fn combinations(slots: usize, count: usize) -> Vec<SlotSet> {
    let mut sets = vec![(SlotSet::EMPTY, 0)];
    for _ in 0..count {
        let longer = |(set, next): (SlotSet, usize)| {
            Slot::first(slots).skip(next).map(move |slot| {
                let mut set = set;
                set.insert(slot);
                (set, slot.index() + 1)
            })
        };
        sets = sets.into_iter().flat_map(longer).collect();
    }
    sets.into_iter().map(|(set, _)| set).collect()
}

/// Mistakes in an experiment file: values that do not fit each other, or do not fit the rows.
fn mistakes(plan: &Plan) -> Vec<Mistake> {
    let rows = &plan.rows;
    let mut mistakes = Vec::new();
    let mut expect = |key: &str, holds: bool, expected: &str, found: &dyn Debug| {
        if !holds {
            mistakes.push(Mistake::of_key(key, format!("expected {expected}, found {found:?}")));
        }
    };
    let slots = rows.iter().map(|row| row.spec.network.slots()).min().unwrap_or_default();
    let is_possible = plan.missing < slots.max(1) && count_of_sets(slots, plan.missing) <= MAX_SETS;
    let expected = format!("less than the {slots} devices, and at most {MAX_SETS} sets of missing devices");
    expect("missing", is_possible, &expected, &plan.missing);
    if let Some(name) = &plan.reference {
        expect("reference", plan.reference_row().is_some(), "the name of a row", name);
    }
    let seeds: BTreeSet<u64> = plan.seeds.iter().copied().collect();
    let are_different = !seeds.is_empty() && seeds.len() == plan.seeds.len();
    expect("seeds", are_different, "one or more, each once", &plan.seeds);
    if let Some(folds) = plan.data.folds {
        // A name that is not in the catalogue is refused when the data is opened.
        let (possible, expected) = match catalogue::find(&plan.data.name) {
            Some(_) if plan.data.folds_are_drawn() => (3..=usize::MAX, "3 or more".to_owned()),
            Some(info) => {
                let none = "none, since the data has no folds".to_owned();
                (1..=info.folds, if info.folds == 0 { none } else { format!("1 to {}", info.folds) })
            }
            None => (1..=usize::MAX, "1 or more".to_owned()),
        };
        expect("data.folds", possible.contains(&folds), &expected, &folds);
    }
    expect("data.limit_train", plan.data.limit_train != Some(0), "1 or more", &0);
    expect("per_class", rows.iter().all(|row| row.per_class != Some(0)), "1 or more", &0);
    for (at, points) in plan.loss_points.iter().enumerate() {
        expect("loss_points", !plan.loss_points[..at].contains(points), "each once", points);
        expect("loss_points", (0.001..=99.0).contains(points), "0.001 to 99", points);
    }
    let labels = rows[0].spec.network.network.labels.get_ref();
    for name in plan.metrics.balanced.iter().chain(&plan.metrics.counted) {
        expect("metrics", labels.contains(name), &format!("one of {labels:?}"), name);
    }
    mistakes
}

/// Number of sets that have at most `most` of `slots` slots.
fn count_of_sets(slots: usize, most: usize) -> u128 {
    let mut sets = 1u128;
    let mut of_count = 1u128;
    for count in 1..=most {
        of_count = of_count * (slots - count + 1) as u128 / count as u128;
        sets += of_count;
    }
    sets
}

impl Run {
    /// Name in messages.
    pub fn name(self, plan: &Plan) -> String {
        let fold = self.fold.map(|fold| format!(", fold {fold}")).unwrap_or_default();
        format!("{}{fold}, seed {}", plan.rows[self.row].name, self.seed)
    }

    /// Folder of the run, below the folder of the experiment.
    pub fn folder(self, plan: &Plan) -> PathBuf {
        let fold = self.fold.map(|fold| format!("fold-{fold}-")).unwrap_or_default();
        Path::new("rows").join(plan.rows[self.row].slug()).join(format!("{fold}seed-{}", self.seed))
    }
}

#[cfg(test)]
mod tests {
    use headwater_protocol::Exit;
    use headwater_spec::Unlabelled;

    use super::*;

    const PLAN: &str = r#"
        title = "a table"
        about = "for a test"
        network = "network.toml"
        seeds = [1, 2]
        missing = 1
        reference = "f = 8, sum"
        data = { name = "drawn", folds = 2, absent = "black" }
        [changes.recipe]
        epochs = 3
        [[axes]]
        values = [
            { name = "f = 4", network = { device = { blocks = [{ kind = "convp", filters = 4 }] } } },
            { name = "f = 8", recipe = { loss = { exits = { local = 0.5 } } } },
        ]
        [[axes]]
        values = [{ name = "mean" }, { name = "sum", absent = "absent" }]
    "#;

    fn plan(text: &str) -> Result<Plan, FileError> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("network.toml"), include_str!("../../networks/ddnn-c.toml")).unwrap();
        let file = dir.path().join("a-table.toml");
        std::fs::write(&file, text).unwrap();
        Plan::read(&file, &NoData)
    }

    /// Data that cannot be read; a spec and recipe can be chosen for it.
    struct NoData;

    impl FromData for NoData {
        fn labels(&self, _: &DataPlan, _: &Unlabelled) -> Result<Vec<String>, String> {
            Err("no data is read".to_owned())
        }

        fn chosen(&self, _: &DataPlan) -> Result<[String; 2], String> {
            let spec = include_str!("../../networks/ddnn-c.toml");
            Ok([spec.replace("\"ddnn-c\"", "\"chosen\""), "epochs = 77".to_owned()])
        }
    }

    #[test]
    fn a_chosen_row_has_the_chosen_spec_and_recipe_with_its_changes() {
        let text = r#"
            title = "T"
            about = "A"
            network = "network.toml"
            seeds = [1]
            data = { name = "drawn" }
            [[rows]]
            name = "untouched"
            network_file = "new"
            [[rows]]
            name = "shorter"
            network_file = "new"
            recipe = { epochs = 5 }
            [[rows]]
            name = "by hand"
        "#;
        let rows = plan(text).unwrap().rows;
        let epochs: Vec<u32> = rows.iter().map(|row| row.recipe.epochs).collect();
        assert_eq!(epochs, [77, 5, Recipe::read(None).unwrap().epochs]);
        let specs: Vec<&str> = rows.iter().map(|row| row.spec.network.network.name.as_str()).collect();
        assert_eq!(specs, ["chosen", "chosen", "ddnn-c"]);
        let error = plan(&text.replace("\"drawn\"", "\"drawn\", limit_train = 9")).unwrap_err().to_string();
        assert!(error.contains("row \"untouched\": data.limit_train: expected none"), "{error}");
    }

    #[test]
    fn labels_among_the_changes_are_those_of_the_network_and_no_data_is_read() {
        let labels = "[changes.network.network]\nlabels = [\"a\", \"b\"]\n[changes.recipe]";
        let text = PLAN.replace("[changes.recipe]", labels);
        let dir = tempfile::tempdir().unwrap();
        let network = include_str!("../../networks/ddnn-c.toml").lines();
        let network: Vec<&str> = network.filter(|line| !line.starts_with("labels = ")).collect();
        std::fs::write(dir.path().join("network.toml"), network.join("\n")).unwrap();
        let file = dir.path().join("a-table.toml");
        std::fs::write(&file, text).unwrap();
        let plan = Plan::read(&file, &NoData).unwrap();
        assert!(plan.rows.iter().all(|row| row.spec.network.classes() == 2));
        std::fs::write(&file, PLAN).unwrap();
        let error = Plan::read(&file, &NoData).unwrap_err().to_string();
        assert!(error.contains("no data is read"), "{error}");
    }

    #[test]
    fn a_collection_names_its_experiments_from_its_own_folder() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("all.toml");
        std::fs::write(&file, "title = \"T\"\nabout = \"A\"\nexperiments = [\"a/b.toml\"]").unwrap();
        let read = Collection::read(&file).unwrap().unwrap();
        assert_eq!(read.experiments, [dir.path().join("a/b.toml")]);
        std::fs::write(&file, "experiments = []\nseeds = [1]").unwrap();
        let error = Collection::read(&file).unwrap_err().to_string();
        assert!(error.contains("seeds") && error.contains("title"), "{error}");
        for experiments in ["[]", "[\"a/b.toml\", \"b.toml\"]"] {
            let text = format!("title = \"T\"\nabout = \"A\"\nexperiments = {experiments}");
            std::fs::write(&file, text).unwrap();
            let error = Collection::read(&file).unwrap_err().to_string();
            assert!(error.contains("experiments: expected files, each of another name"), "{error}");
        }
        std::fs::write(&file, PLAN).unwrap();
        assert!(Collection::read(&file).unwrap().is_none());
    }

    #[test]
    fn rows_are_all_combinations_of_the_axes_with_their_changes() {
        let plan = plan(PLAN).unwrap();
        let names: Vec<&str> = plan.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["f = 4, mean", "f = 4, sum", "f = 8, mean", "f = 8, sum"]);
        assert_eq!((plan.name.as_str(), plan.reference_row()), ("a-table", Some(3)));
        assert!(plan.rows.iter().all(|row| row.recipe.epochs == 3));
        let filters = plan.rows.iter().map(|row| row.spec.shapes.features.channels).collect::<Vec<_>>();
        assert_eq!(filters, [4, 4, 8, 8]);
        assert_eq!(
            plan.rows.iter().map(|row| row.recipe.loss.weight(Exit::LOCAL)).collect::<Vec<_>>(),
            [1.0, 1.0, 0.5, 0.5]
        );
        let absent = plan.rows.iter().map(|row| row.absent).collect::<Vec<_>>();
        assert_eq!(absent, [AbsentView::Black, AbsentView::Absent, AbsentView::Black, AbsentView::Absent]);
    }

    #[test]
    fn every_row_runs_with_every_seed_in_every_fold_and_each_run_has_its_own_identity() {
        let plan = plan(PLAN).unwrap();
        let runs = plan.runs();
        assert_eq!(runs.len(), 4 * 2 * 2);
        let mut identities: Vec<String> = runs.iter().map(|run| plan.identity(*run).1.identity).collect();
        let mut folders: Vec<PathBuf> = runs.iter().map(|run| run.folder(&plan)).collect();
        assert_eq!(folders[0], Path::new("rows/f-4-mean/fold-0-seed-1"));
        identities.sort();
        identities.dedup();
        assert_eq!(identities.len(), runs.len());
        folders.sort();
        folders.dedup();
        assert_eq!(folders.len(), runs.len());
    }

    #[test]
    fn a_fold_that_is_drawn_is_another_run_where_the_number_of_folds_is_another() {
        let [three, nine] = [3, 9].map(|folds| {
            let data = format!("\"table\", folds = {folds}");
            let plan = plan(&PLAN.replace("\"drawn\", folds = 2", &data)).unwrap();
            plan.identity(plan.runs()[0]).1.identity
        });
        assert_ne!(three, nine);
    }

    #[test]
    fn a_run_that_begins_with_another_is_the_same_from_whichever_folder_its_plan_is_read() {
        let file = Path::new("../../experiments/from-what-was-learnt.toml");
        let [plan, again] =
            [file.to_owned(), file.canonicalize().unwrap()].map(|file| Plan::read(&file, &NoData).unwrap());
        assert!(plan.rows.iter().any(|row| row.init.is_some()));
        for run in plan.runs() {
            assert_eq!(plan.identity(run), again.identity(run));
        }
    }

    #[test]
    fn patterns_are_all_sets_of_up_to_so_many_missing_devices() {
        let mut plan = plan(PLAN).unwrap();
        let patterns =
            |plan: &Plan| plan.patterns(6).iter().map(|missing| missing.bits()).collect::<Vec<_>>();
        assert_eq!(patterns(&plan), [0, 1, 2, 4, 8, 16, 32]);
        plan.missing = 2;
        assert_eq!(patterns(&plan).len(), 1 + 6 + 15);
    }

    #[test]
    fn the_shares_of_every_experiment_are_the_steps_that_its_published_table_had() {
        // For each experiment: samples of the train part, and the different pairs of steps of a run and of its warm-up among the rows.
        let published = [
            ("before-few-photos", 1750, vec![(2200, 56)]),
            ("eth80-coded-f16", 160, vec![(500, 0), (500, 200)]),
            ("eth80-coded-f4", 160, vec![(500, 0), (500, 200)]),
            ("eth80-ddnn", 160, vec![(500, 0), (100, 0), (500, 200)]),
            ("fashion-6cam-coded", 50_000, vec![(6256, 200)]),
            ("fashion-6cam-ddnn", 50_000, vec![(7820, 0), (7820, 200)]),
            ("fashion-6cam-few-bytes", 50_000, vec![(6256, 200)]),
            ("from-what-was-learnt", 1080, vec![(5440, 139)]),
            ("quick", 1000, vec![(16, 0)]),
            ("recipe-ablation", 15_000, vec![(936, 200)]),
            ("recipe-ablation-eth80", 160, vec![(500, 200)]),
            ("street-coded", 869, vec![(280, 140)]),
            ("street-ddnn", 869, vec![(700, 0), (100, 0), (700, 200)]),
            ("street-sent-channels", 869, vec![(280, 140)]),
        ];
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
        let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
        let files = files.filter(|file| file.is_file() && Collection::read(file).unwrap().is_none());
        let mut plans: Vec<Plan> = files.map(|file| Plan::read(&file, &NoData).unwrap()).collect();
        for name in ["newcomer", "views"] {
            let file = folder.join(name).with_extension("toml");
            for file in Collection::read(&file).unwrap().unwrap().experiments {
                Plan::read(&file, &NoData).unwrap();
            }
        }
        plans.sort_by(|a, b| a.name.cmp(&b.name));
        assert!(plans.iter().map(|plan| plan.name.as_str()).eq(published.iter().map(|(name, ..)| *name)));
        for (plan, (name, samples, expected)) in plans.iter().zip(published) {
            let mut found = Vec::new();
            for recipe in plan.rows.iter().map(|row| &row.recipe) {
                let steps = recipe.steps(samples);
                let row = (steps, recipe.optimiser.warm_up_steps(steps));
                if !found.contains(&row) {
                    found.push(row);
                }
            }
            assert_eq!(found, expected, "{name}");
            let first = plan.rows.iter().map(|row| row.recipe.cloud_first_epochs()).max().unwrap();
            assert_eq!(first, if name == "recipe-ablation-eth80" { 1 } else { 0 }, "{name}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (from, to, expected) in [
            (
                "reference = \"f = 8, sum\"",
                "reference = \"f = 9\"",
                "reference: expected the name of a row, found \"f = 9\"",
            ),
            ("seeds = [1, 2]", "seeds = []", "seeds: expected one or more, each once, found []"),
            (
                "epochs = 3",
                "epochs = 0",
                "row \"f = 4, mean\": default recipe with the changes of the experiment: epochs: expected 1 to",
            ),
            ("name = \"sum\"", "name = \"mean\"", "expected names of different letters and digits"),
            ("seeds = [1, 2]", "seeds = [3, 3]", "each once, found [3, 3]"),
            ("folds = 2", "folds = 0", "data.folds: expected 1 or more, found 0"),
            ("\"drawn\", folds = 2", "\"eth80\", folds = 10", "data.folds: expected 1 to 9, found 10"),
            ("\"drawn\", folds = 2", "\"table\", folds = 2", "data.folds: expected 3 or more, found 2"),
            ("\"drawn\", folds = 2", "\"mnist\", folds = 2", "data.folds: expected none, since"),
            ("name = \"mean\"", "name = \"mean\", per_class = 0", "per_class: expected 1 or more, found 0"),
            ("missing = 1", "mising = 1", "mising: no such key; did you mean `missing`?"),
            ("missing = 1", "loss_points = [0.0]", "loss_points: expected 0.001 to 99, found 0"),
            ("missing = 1", "loss_points = [0.5, 0.5]", "loss_points: expected each once, found 0.5"),
            ("missing = 1", "part = \"train\"", "part: expected \"test\" or \"validation\", found \"train\""),
            ("filters = 4", "filters = 0", "network.toml with the changes of the experiment: device"),
            (
                "{ name = \"mean\" }, { name = \"sum\", absent = \"absent\" }",
                "",
                "axes: expected one value or more",
            ),
        ] {
            let error = plan(&PLAN.replace(from, to).replace("reference = \"f = 8, sum\"", "")).map(|_| ());
            let error =
                if from.starts_with("reference") { plan(&PLAN.replace(from, to)).map(|_| ()) } else { error };
            let error = error.unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
        let error = plan(&(PLAN.to_owned() + &"[[rows]]\nname = \"further\"\n".repeat(1000))).unwrap_err();
        assert!(error.to_string().contains("rows: expected at most 1000"), "{error}");
    }
}
