//! Reasons why an aggregator or a group does not start, or stopped.

use headwater_link::LinkError;
use thiserror::Error;

use crate::journal::JournalError;

/// Reason why an aggregator or a group does not start, or stopped by itself.
#[derive(Debug, Error)]
pub enum AggregatorError {
    /// All settings that cannot work, each with key, expected and found.
    #[error("configuration: {}", .0.join("; "))]
    Config(Vec<String>),
    /// An exit or an edge section of the bundle does not load.
    #[error("sections of the aggregator: {0}")]
    Section(String),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The settings of the link cannot work.
    #[error("link: {0}")]
    Link(#[from] LinkError),
    /// The admin listener cannot listen.
    #[error("admin.listen: {0}")]
    Admin(#[from] std::io::Error),
    /// An event loop ended by a fault of the program, a link ended, or the process cannot wait for signals.
    #[error("the aggregator stopped: {0}")]
    Stopped(String),
}

impl AggregatorError {
    #[expect(clippy::needless_pass_by_value, reason = "`map_err` gives the error by value")]
    pub(crate) fn section(reason: impl ToString) -> Self {
        Self::Section(reason.to_string())
    }

    /// One setting that cannot work.
    pub(crate) fn mistake(mistake: impl Into<String>) -> Self {
        Self::Config(vec![mistake.into()])
    }
}
