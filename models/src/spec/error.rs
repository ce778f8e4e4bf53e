//! What can be wrong with a spec.

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
        /// Why.
        source: std::io::Error,
    },
    /// Not TOML, or a key that is missing, unknown or of another type.
    #[error("{}:{line}: {message}", file.display())]
    Syntax {
        /// The file.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What the parser says.
        message: String,
    },
    /// The parts do not fit together.
    #[error("{}:{line}: {what}: expected {expected}, found {found}", file.display())]
    Misfit {
        /// The file.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Which part.
        what: String,
        /// What would fit.
        expected: String,
        /// What is there.
        found: String,
    },
}
