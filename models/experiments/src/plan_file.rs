//! The keys of an experiment file, and the rows that it describes.

use std::path::{Path, PathBuf};

use headwater_samples::data_set::PartsOrigin;
use headwater_samples::{Part, catalogue};
use headwater_toml_file::Mistake;
use serde::Deserialize;
use toml::{Table, Value};

use headwater_calibration::data::AbsentView;
use headwater_spec::file_error::{self, FileError};
use headwater_spec::{Spec, Unlabelled};
use headwater_training::recipe::Recipe;

/// Value of `network` and `network_file` for the spec that `headwater-train new` chooses. A row with this value and without a recipe takes
/// the recipe that `new` chooses.
const CHOSEN: &str = "new";
/// Largest number of rows in an experiment, combinations of the axes and further rows together.
const MAX_ROWS: usize = 1000;

/// An experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Name of the file without its ending.
    #[serde(skip)]
    pub name: String,
    /// Folder of the file.
    #[serde(skip)]
    pub folder: PathBuf,
    /// Headline of the page.
    pub title: String,
    /// Text below the headline.
    pub about: String,
    network: PathBuf,
    recipe: Option<PathBuf>,
    /// Seeds of each row.
    pub seeds: Vec<u64>,
    #[serde(default)]
    part: ShownPart,
    /// Losses in points, beside the loss of a row's recipe, for which thresholds are chosen too.
    #[serde(default)]
    pub loss_points: Vec<f64>,
    /// Largest number of devices that are missing in an evaluation.
    #[serde(default)]
    pub missing: usize,
    /// Name of the row that the other rows are compared with, run by run; `None` for no comparison.
    pub reference: Option<String>,
    /// Data of every row.
    pub data: DataPlan,
    /// Figures beside the accuracies.
    #[serde(default)]
    pub metrics: MetricsPlan,
    /// Baselines without a network of several devices.
    #[serde(default)]
    pub simple: SimplePlan,
    #[serde(default)]
    changes: Changes,
    #[serde(default)]
    axes: Vec<Axis>,
    #[serde(default, rename = "rows")]
    further_rows: Vec<RowPlan>,
    /// Rows of the table.
    #[serde(skip)]
    pub rows: Vec<Row>,
}

/// Part of the data whose figures a page shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ShownPart {
    /// Test part.
    #[default]
    Test,
    /// Validation part, to choose by; no run is measured on the test part.
    Validation,
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

impl DataPlan {
    /// Returns true when the folds are drawn from the files of the data set; false when the data set has fixed parts or is not known.
    pub(crate) fn folds_are_drawn(&self) -> bool {
        catalogue::find(&self.name).is_some_and(|info| info.parts == PartsOrigin::Files)
    }
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
    /// Number of test samples whose nearest neighbour in raw pixels is looked for; 0 for none.
    pub nearest_neighbour: usize,
    /// True for the baseline that guesses the class by the presence pattern alone.
    pub presence_pattern: bool,
    /// Epochs of a plain float network on each camera alone; 0 for none.
    pub single_camera_epochs: u32,
}

/// Changes of a network spec and of a recipe: each table replaces the keys that it states.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Changes {
    network: Table,
    recipe: Table,
}

/// `[[axes]]`: values that are combined with the values of every other axis.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Axis {
    values: Vec<RowPlan>,
}

/// A row, or the part of a row that one axis gives.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowPlan {
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
    /// Run folder with whose weights each run begins, as written: relative to [`Plan::folder`]. `None` if the seed draws them.
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

/// The parts of a spec and a recipe that follow from the data. The text of an error says why the data cannot be read.
pub trait FromData {
    /// Labels of the data, for a spec that leaves them out.
    ///
    /// # Errors
    /// The data cannot be read.
    fn labels(&self, data: &DataPlan, spec: &Unlabelled) -> Result<Vec<String>, String>;

    /// Texts of the spec and of the recipe that `headwater-train new` chooses.
    ///
    /// # Errors
    /// The data cannot be read.
    fn chosen(&self, data: &DataPlan) -> Result<[String; 2], String>;
}

impl Plan {
    /// Part of the data whose figures the page shows.
    pub fn part(&self) -> Part {
        match self.part {
            ShownPart::Test => Part::Test,
            ShownPart::Validation => Part::Validation,
        }
    }

    /// Every combination of the axes, then the further rows; a single row if there are neither.
    ///
    /// # Errors
    /// [`FileError`]: a spec or recipe that does not fit, too many rows, or rows whose names are not distinct.
    pub(super) fn described_rows(&self, file: &Path, data: &dyn FromData) -> Result<Vec<Row>, FileError> {
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
        let count = of_axes.and_then(|count| count.checked_add(self.further_rows.len()));
        if count.is_none_or(|count| count > MAX_ROWS) {
            let found =
                count.map_or_else(|| "more than can be counted".to_owned(), |count| count.to_string());
            let message = format!(
                "rows: expected at most {MAX_ROWS}, combinations of the axes among them, found {found}"
            );
            return Err(FileError::invalid(file, message));
        }
        let mut planned = combined(&self.axes);
        planned.extend(self.further_rows.clone());
        if planned.is_empty() {
            planned.push(RowPlan { name: self.title.clone(), ..RowPlan::default() });
        }
        let rows: Vec<Row> = planned.iter().map(|row| self.row(file, row, data)).collect::<Result<_, _>>()?;
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

    fn row(&self, file: &Path, row: &RowPlan, data: &dyn FromData) -> Result<Row, FileError> {
        let in_row = |text: String| FileError::invalid(file, format!("row {:?}: {text}", row.name));
        let named = row.network_file.as_ref().unwrap_or(&self.network);
        let changes = [&self.changes.network, &row.network];
        let (spec_file, text, chosen) = if named.as_os_str() == CHOSEN {
            if self.data.limit_train.is_some() {
                let text = "data.limit_train: expected none, since network \"new\" is chosen from the whole train part";
                return Err(in_row(text.to_owned()));
            }
            let [spec, recipe] = data.chosen(&self.data).map_err(in_row)?;
            (PathBuf::from("chosen spec"), spec, Some(recipe))
        } else {
            let file = self.folder.join(named);
            let text = file_error::read("spec", &file).map_err(|error| in_row(error.to_string()))?;
            (file, text, None)
        };
        let text = changed(&spec_file, &text, changes)?;
        let unlabelled = Spec::parse_without_labels(&spec_file, &text);
        let unlabelled = unlabelled.map_err(|error| in_row(in_changed(error, changes)))?;
        let labels = unlabelled.map_or_else(|| Ok(Vec::new()), |spec| data.labels(&self.data, &spec));
        let labels = labels.map_err(in_row)?;
        let spec = Spec::parse_with_labels(&spec_file, &text, &labels);
        let spec = spec.map_err(|error| in_row(in_changed(error, changes)))?;
        let recipe_file =
            row.recipe_file.as_ref().or(self.recipe.as_ref()).map(|name| self.folder.join(name));
        let (recipe_file, text) = match (recipe_file, chosen) {
            (None, Some(chosen)) => (PathBuf::from("chosen recipe"), chosen),
            (None, None) => (PathBuf::from("default recipe"), headwater_training::recipe::DEFAULT.to_owned()),
            (Some(file), _) => {
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

/// Text of the mistakes in a file. If there are changes, the text has no line numbers, since the lines are those of the changed text.
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
