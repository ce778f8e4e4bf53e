//! Where settings come from, before they are read.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use toml::Value as Toml;

/// Largest settings file that is read; those of a site have some kilobytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Command line, environment and file of a program.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: BTreeMap<String, OsString>,
    pub(crate) file: Option<String>,
}

impl Sources {
    /// The process's own. The file is the one that `--config` or its environment variable names.
    pub fn of_process() -> Self {
        let environment = std::env::vars_os();
        // A name that is no UTF-8 is the name of no setting.
        let environment = environment.filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        Self { arguments: std::env::args_os().collect(), environment: environment.collect(), file: None }
    }

    /// A settings file alone, as a program would read it: no arguments, no environment.
    pub fn of_file(path: &Path) -> Self {
        let arguments = ["program".into(), "--config".into(), path.into()];
        Self { arguments: arguments.into(), ..Self::default() }
    }

    /// The file's tables; empty without a file.
    pub(crate) fn table(&self, path: Option<PathBuf>) -> Result<toml::Table, String> {
        let (text, name) = match (&self.file, path) {
            (Some(text), _) => (text.clone(), String::new()),
            (None, Some(path)) => {
                let name = format!("{}: ", path.display());
                (read(&path).map_err(|reason| format!("{name}{reason}"))?, name)
            }
            (None, None) => return Ok(toml::Table::new()),
        };
        text.parse().map_err(|error: toml::de::Error| format!("{name}{error}"))
    }
}

fn read(path: &Path) -> Result<String, String> {
    let bytes = headwater_transport::read_bounded(path, MAX_FILE_BYTES)?;
    String::from_utf8(bytes).map_err(|error| {
        let found = error.utf8_error().valid_up_to();
        format!("expected text in UTF-8, found another byte after {found} bytes")
    })
}

/// Keys of nested tables in one map: `broker.address`.
pub(crate) fn flatten(table: toml::Table) -> BTreeMap<String, Toml> {
    let mut keys = BTreeMap::new();
    for (key, value) in table {
        match value {
            Toml::Table(inner) => {
                let inner = flatten(inner).into_iter();
                keys.extend(inner.map(|(name, value)| (format!("{key}.{name}"), value)));
            }
            value => _ = keys.insert(key, value),
        }
    }
    keys
}

/// A value as a flag would give the value: text without quotes, lists separated by commas.
pub(crate) fn as_text(value: &Toml) -> String {
    match value {
        Toml::String(text) => text.clone(),
        Toml::Array(values) => values.iter().map(as_text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// A text as a file would hold the text; numbers and booleans without quotes.
pub(crate) fn as_toml(text: &str) -> Toml {
    let number = text.parse::<i64>().ok().filter(|number| number.to_string() == text);
    match (number, text.parse::<bool>()) {
        (Some(number), _) => Toml::Integer(number),
        (None, Ok(boolean)) => Toml::Boolean(boolean),
        (None, Err(_)) => Toml::String(text.into()),
    }
}
