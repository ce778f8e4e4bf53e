//! Errors in the TOML files that a user writes: specs, recipes and experiments.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use headwater_toml_file::Mistake;
use thiserror::Error;

/// A spec, recipe or experiment file that cannot be used.
#[derive(Debug, Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("reading the {kind} {}: {source}", file.display())]
    Unreadable {
        /// Kind of the file in the message, such as `spec`.
        kind: &'static str,
        /// The file.
        file: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Not TOML, unknown or missing keys, or values that do not fit; one line per mistake with key, expected and found.
    #[error("{}", lines(file, mistakes))]
    Invalid {
        /// The file.
        file: PathBuf,
        /// Every mistake found.
        mistakes: Vec<Mistake>,
    },
}

impl FileError {
    /// The error for one mistake that belongs to no key.
    pub fn invalid(file: &Path, message: impl Into<String>) -> Self {
        Self::of(file, vec![Mistake::of_key("", message)])
    }

    /// The error for all mistakes in a file.
    pub fn of(file: &Path, mistakes: Vec<Mistake>) -> Self {
        Self::Invalid { file: file.to_owned(), mistakes }
    }
}

fn lines(file: &Path, mistakes: &[Mistake]) -> String {
    mistakes.iter().map(|mistake| mistake.in_file(file)).collect::<Vec<_>>().join("\n")
}

/// Longest file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Reads a file of at most 1 MiB; `kind` names the file in the error message.
///
/// # Errors
/// [`FileError::Unreadable`]: no such file, not UTF-8, or more than 1 MiB.
pub fn read(kind: &'static str, file: &Path) -> Result<String, FileError> {
    let mut text = String::new();
    let read = File::open(file).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
    match read {
        Ok(bytes) if bytes as u64 <= MAX_BYTES => Ok(text),
        Ok(_) => Err(io::Error::other("expected at most 1 MiB, found more; is it the right file?")),
        Err(error) => Err(error),
    }
    .map_err(|source| FileError::Unreadable { kind, file: file.to_owned(), source })
}
