//! Why the service does not run.

use thiserror::Error;

/// Why the service does not start, or stopped by itself.
#[derive(Debug, Error)]
pub enum CloudError {
    /// Settings that do not fit each other, each with key, expected and found.
    #[error("configuration: {}", .0.join("; "))]
    Config(Vec<String>),
    /// The address of the service or of its admin port is not available.
    #[error("{0}")]
    Listen(std::io::Error),
    /// A bundle, an engine or a section does not load, or a model thread ended.
    #[error("model: {0}")]
    Model(String),
}
