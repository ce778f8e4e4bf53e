//! Errors of the TOML files that a user writes.

use std::path::{Path, PathBuf};

use headwater_toml_file::Mistake;
use thiserror::Error;

/// A spec or a recipe that cannot be used.
#[derive(Debug, Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("reading the {kind} {}: {source}", file.display())]
    Unreadable {
        /// Kind of the file.
        kind: &'static str,
        /// The file.
        file: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// Not TOML, unknown or missing keys, or values that do not fit; one line each with key, expected and found.
    #[error("{}", lines(file, mistakes))]
    Invalid {
        /// The file.
        file: PathBuf,
        /// Every mistake found.
        mistakes: Vec<Mistake>,
    },
}

impl FileError {
    /// One mistake of a file.
    pub(crate) fn invalid(file: &Path, message: impl Into<String>) -> Self {
        Self::of(file, vec![Mistake::of_key("", message)])
    }

    /// Mistakes of a file.
    pub(crate) fn of(file: &Path, mistakes: Vec<Mistake>) -> Self {
        Self::Invalid { file: file.to_owned(), mistakes }
    }
}

fn lines(file: &Path, mistakes: &[Mistake]) -> String {
    mistakes.iter().map(|mistake| mistake.in_file(file)).collect::<Vec<_>>().join("\n")
}

/// Reads a file of a kind that the message names.
pub(crate) fn read(kind: &'static str, file: &Path) -> Result<String, FileError> {
    std::fs::read_to_string(file).map_err(|source| FileError::Unreadable {
        kind,
        file: file.to_owned(),
        source,
    })
}
