//! Why an array could not be read.

use std::io;
use std::path::PathBuf;

/// Bytes that are no array, or another one than is needed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {found}")]
pub struct ArrayError {
    /// What the reader takes, or the caller needs.
    pub expected: String,
    /// What is there.
    pub found: String,
}

impl ArrayError {
    /// An error of both sides.
    pub(crate) fn new(expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { expected: expected.into(), found: found.into() }
    }
}

/// Why a `.npz` could not be read.
#[derive(Debug, thiserror::Error)]
pub enum NumpyError {
    /// The file system refused.
    #[error("{}: cannot be read: {source}", path.display())]
    Io {
        /// File.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No zip, a damaged one, or one of a kind that is not read.
    #[error("{}: expected a .npz (a zip of .npy arrays, as numpy.savez writes it), found {found}; copy or download it again", path.display())]
    Zip {
        /// File.
        path: PathBuf,
        /// What is there.
        found: String,
    },
    /// No array of that name.
    #[error("{}: expected an array `{name}`, found {}", path.display(), found.join(", "))]
    NoArray {
        /// File.
        path: PathBuf,
        /// Name looked for.
        name: String,
        /// Names there are.
        found: Vec<String>,
    },
    /// An array of another kind than is read, or than the caller needs.
    #[error("{}: array `{name}`: {reason}", path.display())]
    Array {
        /// File.
        path: PathBuf,
        /// Name of the array.
        name: String,
        /// What is wrong with it.
        reason: ArrayError,
    },
}
