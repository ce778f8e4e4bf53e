//! Errors of a spec.

use std::path::PathBuf;

use thiserror::Error;

/// A spec that cannot be used; the message names file, line, expected and found.
#[derive(Debug, Error)]
pub enum SpecError {
    /// The file cannot be read.
    #[error("reading the network spec {}: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// Not TOML, or a key that is missing, unknown or of another type.
    #[error("{}:{line}: {message}", file.display())]
    Syntax {
        /// The file.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Message of the parser.
        message: String,
    },
    /// The parts do not fit together.
    #[error("{}:{line}: {what}: expected {expected}, found {found}", file.display())]
    Misfit {
        /// The file.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The part.
        what: String,
        /// A value that fits.
        expected: String,
        /// The value found.
        found: String,
    },
}
