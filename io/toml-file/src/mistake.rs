//! A mistake in a TOML file.

use std::fmt::{self, Display};
use std::path::Path;

/// A mistake in a TOML file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistake {
    /// Line of the key, or of the table that lacks the key, from 1; `None` for a key that is missing at the top, and if the
    /// line is not known.
    pub line: Option<usize>,
    /// Key with its tables, such as `device.count` or `row[1].name`; empty for a text that is no TOML.
    pub key: String,
    /// Expected and found, in one line.
    pub text: String,
}

impl Mistake {
    /// A mistake that concerns a key, without a line.
    pub fn of_key(key: impl Into<String>, text: impl Into<String>) -> Self {
        Self { line: None, key: key.into(), text: text.into() }
    }

    /// A mistake that concerns a key in a line.
    pub fn at(line: usize, key: impl Into<String>, text: impl Into<String>) -> Self {
        Self { line: Some(line), ..Self::of_key(key, text) }
    }

    /// The mistake as text, behind the name of its file and the line.
    pub fn in_file(&self, file: &Path) -> String {
        let line = self.line.map(|line| format!(":{line}")).unwrap_or_default();
        format!("{}{line}: {}", file.display(), self.reason())
    }

    /// The mistake without its place in the file.
    pub fn reason(&self) -> String {
        match self.key.as_str() {
            "" => self.text.clone(),
            key => format!("{key}: {}", self.text),
        }
    }
}

impl Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        f.write_str(&self.reason())
    }
}
