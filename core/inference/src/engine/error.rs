//! Errors of engines.

use thiserror::Error;

use crate::manifest::{InputKind, SectionManifest};

/// A section that does not load or run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EngineError {
    /// A section that the engine cannot load. Another export may help.
    #[error("section {section}: {engine} cannot load it: {reason}")]
    Load {
        /// The section.
        section: String,
        /// The engine.
        engine: &'static str,
        /// Error of the engine.
        reason: String,
    },
    /// A section that does not fit its manifest.
    #[error("section {section}: {what}: expected {expected}, found {found}")]
    Mismatch {
        /// The section.
        section: String,
        /// The property.
        what: String,
        /// Value in the manifest.
        expected: String,
        /// Value in the section.
        found: String,
    },
    /// An input of another length or kind than the section takes.
    #[error("section {section}: input of {batch} samples: expected {expected} {kind:?}, found {found}")]
    Input {
        /// The section.
        section: String,
        /// Number of samples.
        batch: usize,
        /// Expected kind.
        kind: InputKind,
        /// Elements expected.
        expected: usize,
        /// Elements and kind found.
        found: String,
    },
    /// A run that failed on a valid input.
    #[error("section {section}: {engine} failed on {batch} samples: {reason}")]
    Run {
        /// The section.
        section: String,
        /// The engine.
        engine: &'static str,
        /// Number of samples.
        batch: usize,
        /// Error of the engine.
        reason: String,
    },
}

impl EngineError {
    pub(super) fn load(section: &SectionManifest, engine: &'static str, reason: String) -> Self {
        Self::Load { section: section.name.clone(), engine, reason }
    }

    #[cfg(any(feature = "tract", feature = "ort"))]
    pub(super) fn run(section: &SectionManifest, engine: &'static str, batch: usize, reason: String) -> Self {
        Self::Run { section: section.name.clone(), engine, batch, reason }
    }

    /// Refuses a section in which a property differs from the section's manifest.
    pub(super) fn check(
        section: &SectionManifest,
        what: impl Into<String>,
        expected: String,
        found: String,
    ) -> Result<(), Self> {
        if expected == found {
            return Ok(());
        }
        Err(Self::Mismatch { section: section.name.clone(), what: what.into(), expected, found })
    }
}
