//! Reasons why the service does not start, or stopped by itself.

use thiserror::Error;

/// Reason why the service does not start, or stopped by itself.
#[derive(Debug, Error)]
pub enum CloudError {
    /// Settings that cannot work, or files that the settings name and that cannot be used.
    #[error("configuration: {}", .0.join("; "))]
    Config(Vec<String>),
    /// The address of the service or of its admin port is not available.
    #[error("{0}")]
    Listen(std::io::Error),
    /// An engine or a section does not load, or a model thread does not start or has failed.
    #[error("model: {0}")]
    Model(String),
}
