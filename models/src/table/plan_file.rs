//! An experiment file as written, and the rows that it describes.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::{Table, Value};

use super::plan::{DataPlan, EvaluatedPart, MetricsPlan, Row, SimplePlan, invalid};
use crate::data::AbsentView;
use crate::file_error::{self, FileError};
use crate::recipe::Recipe;
use crate::spec::Spec;

/// Rows of an experiment, at most.
const MAX_ROWS: usize = 1000;

/// An experiment file, as written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanFile {
    pub(super) title: String,
    pub(super) about: String,
    network: PathBuf,
    #[serde(default)]
    recipe: Option<PathBuf>,
    pub(super) seeds: Vec<u64>,
    #[serde(default)]
    pub(super) part: EvaluatedPart,
    #[serde(default)]
    pub(super) loss_points: Vec<f64>,
    #[serde(default)]
    pub(super) missing: usize,
    #[serde(default)]
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

/// Changes of a network spec and of a recipe: tables that replace the keys they state.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Changes {
    network: Table,
    recipe: Table,
}

/// `[[axes]]`: values that are combined with those of every other axis.
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
    #[serde(default)]
    network_file: Option<PathBuf>,
    #[serde(default)]
    recipe_file: Option<PathBuf>,
    #[serde(default)]
    absent: Option<AbsentView>,
    #[serde(default)]
    network: Table,
    #[serde(default)]
    recipe: Table,
}

impl PlanFile {
    /// Every combination of the axes, then the further rows; one row where there are neither.
    ///
    /// # Errors
    /// [`FileError`]: a spec or recipe that does not fit, too many rows, or names that do not tell them apart.
    pub(super) fn rows(&self, file: &Path, folder: &Path) -> Result<Vec<Row>, FileError> {
        let count = self.axes.iter().try_fold(1usize, |all, axis| all.checked_mul(axis.values.len()));
        if count.is_none_or(|count| count > MAX_ROWS) {
            let found =
                count.map_or_else(|| "more than can be counted".to_owned(), |count| count.to_string());
            return Err(invalid(
                file,
                format!("axes: expected at most {MAX_ROWS} combinations, found {found}"),
            ));
        }
        let mut planned = combined(&self.axes);
        planned.extend(self.rows.clone());
        if planned.is_empty() {
            planned.push(RowPlan { name: self.title.clone(), ..RowPlan::default() });
        }
        let rows: Vec<Row> =
            planned.iter().map(|row| self.row(file, folder, row)).collect::<Result<_, _>>()?;
        if let Some(twice) =
            (1..rows.len()).find(|at| rows[..*at].iter().any(|row| row.slug() == rows[*at].slug()))
        {
            let first = rows.iter().find(|row| row.slug() == rows[twice].slug()).unwrap_or(&rows[twice]);
            let names = [&first.name, &rows[twice].name];
            return Err(invalid(
                file,
                format!("rows: expected names of different letters and digits, found {names:?}"),
            ));
        }
        if let Some(row) = rows.iter().find(|row| row.slug().is_empty() || row.name.contains(['|', '\n'])) {
            let message = format!(
                "rows: expected names with a letter or digit of ASCII, and no `|` or line break, found {:?}",
                row.name
            );
            return Err(invalid(file, message));
        }
        Ok(rows)
    }

    fn row(&self, file: &Path, folder: &Path, row: &RowPlan) -> Result<Row, FileError> {
        let in_row = |text: String| invalid(file, format!("row {:?}: {text}", row.name));
        let spec_file = folder.join(row.network_file.as_ref().unwrap_or(&self.network));
        let changes = [&self.changes.network, &row.network];
        let text = changed(&spec_file, &file_error::read("spec", &spec_file)?, changes)?;
        let spec = Spec::parse(&spec_file, &text).map_err(|error| in_row(error.to_string()))?;
        let recipe_file = row.recipe_file.as_ref().or(self.recipe.as_ref()).map(|name| folder.join(name));
        let (recipe_file, text) = match recipe_file {
            None => (PathBuf::from("default recipe"), crate::recipe::DEFAULT.to_owned()),
            Some(file) => (file.clone(), file_error::read("recipe", &file)?),
        };
        let text = changed(&recipe_file, &text, [&self.changes.recipe, &row.recipe])?;
        let recipe = Recipe::parse(&recipe_file, &text).map_err(|error| in_row(error.to_string()))?;
        recipe.check_for(&spec, &recipe_file).map_err(|error| in_row(error.to_string()))?;
        let absent = row.absent.unwrap_or(self.data.absent);
        Ok(Row { name: row.name.clone(), spec, recipe, absent })
    }
}

/// Every combination of one value of each axis; the last axis changes fastest.
fn combined(axes: &[Axis]) -> Vec<RowPlan> {
    let mut rows: Vec<RowPlan> = Vec::new();
    for axis in axes {
        if rows.is_empty() {
            rows.clone_from(&axis.values);
            continue;
        }
        rows = rows.iter().flat_map(|row| axis.values.iter().map(|value| row.with(value))).collect();
    }
    rows
}

impl RowPlan {
    fn with(&self, other: &Self) -> Self {
        let mut row = self.clone();
        row.name = format!("{}, {}", self.name, other.name);
        row.network_file = other.network_file.clone().or(row.network_file);
        row.recipe_file = other.recipe_file.clone().or(row.recipe_file);
        row.absent = other.absent.or(row.absent);
        merge(&mut row.network, &other.network);
        merge(&mut row.recipe, &other.recipe);
        row
    }
}

/// The TOML text of a file with changes, one after the other.
fn changed(file: &Path, text: &str, changes: [&Table; 2]) -> Result<String, FileError> {
    if changes.iter().all(|changes| changes.is_empty()) {
        return Ok(text.to_owned());
    }
    let mut table: Table = toml::from_str(text).map_err(|error| invalid(file, error.to_string()))?;
    changes.into_iter().for_each(|changes| merge(&mut table, changes));
    toml::to_string(&table).map_err(|error| invalid(file, error.to_string()))
}

/// Replaces keys of a table by those of another, table by table.
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
