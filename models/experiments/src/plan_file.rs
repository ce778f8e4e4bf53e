//! An experiment file as written, and the rows that it describes.

use std::path::{Path, PathBuf};

use headwater_samples::Part;
use headwater_toml_file::Mistake;
use serde::Deserialize;
use toml::{Table, Value};

use headwater_calibration::data::AbsentView;
use headwater_spec::Spec;
use headwater_spec::file_error::{self, FileError};
use headwater_training::recipe::Recipe;

/// Largest number of rows in an experiment, combinations of the axes and further rows together.
const MAX_ROWS: usize = 1000;

/// An experiment file, as written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanFile {
    pub(super) title: String,
    pub(super) about: String,
    network: PathBuf,
    recipe: Option<PathBuf>,
    pub(super) seeds: Vec<u64>,
    #[serde(default)]
    pub(super) part: EvaluatedPart,
    #[serde(default)]
    pub(super) loss_points: Vec<f64>,
    #[serde(default)]
    pub(super) missing: usize,
    pub(super) reference: Option<String>,
    pub(super) data: DataPlan,
    #[serde(default)]
    pub(super) metrics: MetricsPlan,
    #[serde(default)]
    pub(super) simple: SimplePlan,
    #[serde(default)]
    changes: Changes,
    #[serde(default)]
    axes: Vec<Axis>,
    #[serde(default)]
    rows: Vec<RowPlan>,
}

/// Part of the data whose figures a page shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum EvaluatedPart {
    /// Test part.
    #[default]
    Test,
    /// Validation part, to choose by; no run is measured on the test part.
    Validation,
}

impl From<EvaluatedPart> for Part {
    fn from(part: EvaluatedPart) -> Self {
        match part {
            EvaluatedPart::Test => Self::Test,
            EvaluatedPart::Validation => Self::Validation,
        }
    }
}

/// `[data]`: the data set of every row.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataPlan {
    /// Name of the data set.
    pub name: String,
    /// Folder or file of the data set below the folder of all data sets; empty for data without files.
    #[serde(default)]
    pub path: PathBuf,
    /// Number of folds, each another division of the data into parts; the usual parts when left out.
    pub folds: Option<usize>,
    /// Samples from the start of the train part; all when left out.
    pub limit_train: Option<usize>,
    /// Input for an absent view, in rows that state none.
    #[serde(default)]
    pub absent: AbsentView,
}

/// `[metrics]`: figures beside the accuracies.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsPlan {
    /// Classes whose mean accuracy is the balanced accuracy.
    pub balanced: Vec<String>,
    /// Classes too rare for a share: the page shows the number of right answers.
    pub counted: Vec<String>,
}

/// `[simple]`: baselines that need no network of several devices.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SimplePlan {
    /// Test samples whose nearest neighbour in raw pixels is looked for; 0 for none.
    pub nearest_neighbour: usize,
    /// Whether the classes are guessed by the presence pattern alone.
    pub presence_pattern: bool,
    /// Epochs of a plain float network on each camera alone; 0 for none.
    pub single_camera_epochs: u32,
}

/// Changes of a network spec and of a recipe: each table replaces the keys that it states.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Changes {
    network: Table,
    recipe: Table,
}

/// `[[axes]]`: values that are combined with the values of every other axis.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Axis {
    values: Vec<RowPlan>,
}

/// A row, or the part of a row that one axis gives.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RowPlan {
    name: String,
    network_file: Option<PathBuf>,
    recipe_file: Option<PathBuf>,
    absent: Option<AbsentView>,
    init: Option<PathBuf>,
    per_class: Option<usize>,
    #[serde(default)]
    network: Table,
    #[serde(default)]
    recipe: Table,
}

/// A row of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name in the table.
    pub name: String,
    /// The network.
    pub spec: Spec,
    /// The recipe; each run replaces its seed.
    pub recipe: Recipe,
    /// Input of the network for an absent view.
    pub absent: AbsentView,
    /// Run folder with whose weights each run begins, as written: relative to [`Plan::folder`](crate::plan::Plan::folder). `None` if the
    /// seed draws them.
    pub init: Option<PathBuf>,
    /// Train samples of each class, drawn by the seed of the run; `None` for all.
    pub per_class: Option<usize>,
}

impl Row {
    /// Name of the row's folder: lower-case letters, digits and hyphens.
    pub fn slug(&self) -> String {
        let words = self.name.split(|letter: char| !letter.is_ascii_alphanumeric());
        words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-").to_lowercase()
    }
}

impl PlanFile {
    /// Every combination of the axes, then the further rows; a single row if there are neither.
    ///
    /// # Errors
    /// [`FileError`]: a spec or recipe that does not fit, too many rows, or rows whose names are not distinct.
    pub(super) fn rows(&self, file: &Path, folder: &Path) -> Result<Vec<Row>, FileError> {
        if self.axes.iter().any(|axis| axis.values.is_empty()) {
            return Err(FileError::invalid(
                file,
                "axes: expected one value or more in each, found an axis with none",
            ));
        }
        let of_axes = match self.axes.is_empty() {
            true => Some(0),
            false => self.axes.iter().try_fold(1usize, |all, axis| all.checked_mul(axis.values.len())),
        };
        let count = of_axes.and_then(|count| count.checked_add(self.rows.len()));
        if count.is_none_or(|count| count > MAX_ROWS) {
            let found =
                count.map_or_else(|| "more than can be counted".to_owned(), |count| count.to_string());
            let message = format!(
                "rows: expected at most {MAX_ROWS}, combinations of the axes among them, found {found}"
            );
            return Err(FileError::invalid(file, message));
        }
        let mut planned = combined(&self.axes);
        planned.extend(self.rows.clone());
        if planned.is_empty() {
            planned.push(RowPlan { name: self.title.clone(), ..RowPlan::default() });
        }
        let rows: Vec<Row> =
            planned.iter().map(|row| self.row(file, folder, row)).collect::<Result<_, _>>()?;
        let twice = rows.iter().enumerate().find_map(|(at, row)| {
            let first = rows[..at].iter().find(|first| first.slug() == row.slug())?;
            Some([&first.name, &row.name])
        });
        if let Some(names) = twice {
            let message = format!("rows: expected names of different letters and digits, found {names:?}");
            return Err(FileError::invalid(file, message));
        }
        if let Some(row) = rows.iter().find(|row| row.slug().is_empty() || row.name.contains(['|', '\n'])) {
            let message = format!(
                "rows: expected names with a letter or digit of ASCII, and no `|` or line break, found {:?}",
                row.name
            );
            return Err(FileError::invalid(file, message));
        }
        Ok(rows)
    }

    fn row(&self, file: &Path, folder: &Path, row: &RowPlan) -> Result<Row, FileError> {
        let in_row = |text: String| FileError::invalid(file, format!("row {:?}: {text}", row.name));
        let spec_file = folder.join(row.network_file.as_ref().unwrap_or(&self.network));
        let changes = [&self.changes.network, &row.network];
        let text = file_error::read("spec", &spec_file).map_err(|error| in_row(error.to_string()))?;
        let text = changed(&spec_file, &text, changes)?;
        let spec = Spec::parse(&spec_file, &text).map_err(|error| in_row(in_changed(error, changes)))?;
        let recipe_file = row.recipe_file.as_ref().or(self.recipe.as_ref()).map(|name| folder.join(name));
        let (recipe_file, text) = match recipe_file {
            None => (PathBuf::from("default recipe"), headwater_training::recipe::DEFAULT.to_owned()),
            Some(file) => {
                let text = file_error::read("recipe", &file);
                (file.clone(), text.map_err(|error| in_row(error.to_string()))?)
            }
        };
        let changes = [&self.changes.recipe, &row.recipe];
        let text = changed(&recipe_file, &text, changes)?;
        let recipe = Recipe::parse(&recipe_file, &text);
        let recipe = recipe.map_err(|error| in_row(in_changed(error, changes)))?;
        recipe.check_for(&spec, &recipe_file).map_err(|error| in_row(in_changed(error, changes)))?;
        let absent = row.absent.unwrap_or(self.data.absent);
        let RowPlan { name, init, per_class, .. } = row.clone();
        Ok(Row { name, spec, recipe, absent, init, per_class })
    }
}

/// Every combination of one value of each axis; the last axis changes fastest.
fn combined(axes: &[Axis]) -> Vec<RowPlan> {
    let Some((first, others)) = axes.split_first() else { return Vec::new() };
    others.iter().fold(first.values.clone(), |rows, axis| {
        rows.iter().flat_map(|row| axis.values.iter().map(|value| row.with(value))).collect()
    })
}

impl RowPlan {
    fn with(&self, other: &Self) -> Self {
        let mut row = self.clone();
        row.name = format!("{}, {}", self.name, other.name);
        row.network_file = other.network_file.clone().or(row.network_file);
        row.recipe_file = other.recipe_file.clone().or(row.recipe_file);
        row.absent = other.absent.or(row.absent);
        row.init = other.init.clone().or(row.init);
        row.per_class = other.per_class.or(row.per_class);
        merge(&mut row.network, &other.network);
        merge(&mut row.recipe, &other.recipe);
        row
    }
}

/// The TOML text of a file after both tables of changes, applied one after the other.
fn changed(file: &Path, text: &str, changes: [&Table; 2]) -> Result<String, FileError> {
    if changes.iter().all(|changes| changes.is_empty()) {
        return Ok(text.to_owned());
    }
    let mut table: Table =
        headwater_toml_file::read(text).map_err(|mistakes| FileError::of(file, mistakes))?;
    changes.into_iter().for_each(|changes| merge(&mut table, changes));
    toml::to_string(&table).map_err(|error| FileError::invalid(file, error.to_string()))
}

/// Text of the mistakes in a file. With changes it has no line numbers, since they would belong to the changed text.
fn in_changed(error: FileError, changes: [&Table; 2]) -> String {
    match error {
        FileError::Invalid { file, mistakes } if changes.iter().any(|changes| !changes.is_empty()) => {
            let mistakes: Vec<_> = mistakes.iter().map(Mistake::reason).collect();
            format!("{} with the changes of the experiment: {}", file.display(), mistakes.join("; "))
        }
        error => error.to_string(),
    }
}

/// Replaces keys of `table` by the same keys of `changes`; keys of inner tables are replaced one by one.
fn merge(table: &mut Table, changes: &Table) {
    for (key, value) in changes {
        match (table.get_mut(key), value) {
            (Some(Value::Table(table)), Value::Table(changes)) => merge(table, changes),
            (_, value) => {
                table.insert(key.clone(), value.clone());
            }
        }
    }
}
