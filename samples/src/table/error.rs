//! Why a table of files could not be read.

use std::path::PathBuf;

use crate::files::ReadError;
use crate::gathered::GatherError;
use crate::image_codec::CodecError;
use crate::numpy::ArrayError;

/// Why a table of files could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The folder or archive cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Its samples do not make a data set.
    #[error(transparent)]
    Gather(#[from] GatherError),
    /// No table.
    #[error("{}: expected a file labels.csv, found none", root.display())]
    Missing {
        /// Folder or archive.
        root: PathBuf,
    },
    /// A line that says something else than lines do.
    #[error("{}: labels.csv:{line}: expected {expected}, found {found}", root.display())]
    Line {
        /// Folder or archive.
        root: PathBuf,
        /// Line of the table, from 1.
        line: usize,
        /// What stands there.
        expected: String,
        /// What was found.
        found: String,
    },
    /// A file that the table names is not there.
    #[error("{}: `{file}`: expected this file, which labels.csv names in line {line}, found none", root.display())]
    NoFile {
        /// Folder or archive.
        root: PathBuf,
        /// Path in it.
        file: String,
        /// Line of the table.
        line: usize,
    },
    /// A member that stands in the archive twice, so that it is not clear which is meant.
    #[error("{}: `{file}`: expected one file of this name, found two", root.display())]
    Twice {
        /// Archive.
        root: PathBuf,
        /// Path in it.
        file: String,
    },
    /// An image that is none.
    #[error("{}: `{file}`: {source}", root.display())]
    Image {
        /// Folder or archive.
        root: PathBuf,
        /// Path in it.
        file: String,
        /// What is wrong.
        source: CodecError,
    },
    /// A raw tensor of another length or with other values.
    #[error("{}: `{file}`: {reason}", root.display())]
    Tensor {
        /// Folder or archive.
        root: PathBuf,
        /// Path in it.
        file: String,
        /// What is wrong.
        reason: ArrayError,
    },
    /// No view at all, so that nothing says what shape they have.
    #[error("{}: expected files in labels.csv, found none", root.display())]
    NoViews {
        /// Folder or archive.
        root: PathBuf,
    },
}
