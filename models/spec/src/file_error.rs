//! Errors of the TOML files that a user writes.

use std::path::{Path, PathBuf};

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
    /// Not TOML, an unknown or missing key, or values that do not fit; the message names key, expected and found.
    #[error("{}{}: {message}", file.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
    Invalid {
        /// The file.
        file: PathBuf,
        /// Line, from 1; `None` when the message has the line.
        line: Option<usize>,
        /// Every mistake found.
        message: String,
    },
}

impl FileError {
    /// Mistakes in a file, whose message has the lines where there are some.
    pub fn invalid(file: &Path, message: impl Into<String>) -> Self {
        Self::Invalid { file: file.to_owned(), line: None, message: message.into() }
    }
}

/// Reads a file of a kind that the message names.
///
/// # Errors
/// [`FileError::Unreadable`].
pub fn read(kind: &'static str, file: &Path) -> Result<String, FileError> {
    std::fs::read_to_string(file).map_err(|source| FileError::Unreadable {
        kind,
        file: file.to_owned(),
        source,
    })
}
