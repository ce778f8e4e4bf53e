//! Why a section does not load or run.

use thiserror::Error;

use crate::manifest::InputKind;

/// A section that does not load or run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EngineError {
    /// The section is not one the engine can read and prepare. Another export may help.
    #[error("section {section}: {engine} cannot load it: {reason}")]
    Load {
        /// The section.
        section: String,
        /// The engine.
        engine: &'static str,
        /// What the engine says.
        reason: String,
    },
    /// The ONNX is not the section that the manifest describes.
    #[error("section {section}: {what}: expected {expected}, found {found}")]
    Mismatch {
        /// The section.
        section: String,
        /// Which property.
        what: String,
        /// What the manifest says.
        expected: String,
        /// What the ONNX has.
        found: String,
    },
    /// The caller's input has another length or kind.
    #[error("section {section}: input of {batch} samples: expected {expected} {kind:?}, found {found}")]
    Input {
        /// The section.
        section: String,
        /// Samples.
        batch: usize,
        /// Kind that the manifest asks for.
        kind: InputKind,
        /// Elements expected.
        expected: usize,
        /// Elements and kind found.
        found: String,
    },
    /// The engine failed on a good input.
    #[error("section {section}: {engine} failed on {batch} samples: {reason}")]
    Run {
        /// The section.
        section: String,
        /// The engine.
        engine: &'static str,
        /// Samples.
        batch: usize,
        /// What the engine says.
        reason: String,
    },
}
