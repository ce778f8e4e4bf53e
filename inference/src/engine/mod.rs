//! Engines: what runs a section.
//!
//! An [`Engine`] turns a section of a bundle into a [`Section`], which runs batches. Every engine takes pixels or floats and
//! gives floats or packed bits, as the section's manifest says, so callers do not know which engine runs.

mod error;
mod input;
#[cfg(feature = "ort")]
mod onnx_runtime;
mod outputs;
mod packed;
#[cfg(feature = "tract")]
mod tract;

use crate::bundle::SectionBytes;

pub use error::EngineError;
pub use input::Input;
#[cfg(feature = "ort")]
pub use onnx_runtime::{OrtEngine, OrtError};
pub use outputs::Outputs;
pub use packed::PackedEngine;
#[cfg(feature = "tract")]
pub use tract::TractEngine;

/// How far a float of a batched run may be from the same sample run alone, in any engine: absolute for values up to 1,
/// relative above.
///
/// Engines may pick another matrix kernel for another batch, and kernels differ in the order of their sums; a sum of some
/// thousand `f32` terms keeps about six digits whatever the order. `TractEngine` and `PackedEngine` give the same bits.
pub const BATCHED_TOLERANCE: f32 = 1e-5;

/// Loads sections.
pub trait Engine: Send + Sync {
    /// Its word in metrics and reports.
    fn name(&self) -> &'static str;

    /// Makes a section ready to run.
    ///
    /// # Errors
    /// When the form of the section that this engine runs is not there, cannot be read, or its inputs and outputs are not
    /// those of the manifest.
    fn load(&self, section: &SectionBytes<'_>) -> Result<Box<dyn Section>, EngineError>;
}

/// A section that is ready to run. One thread at a time.
pub trait Section: Send {
    /// Runs `batch` samples; `outputs` holds what they gave, until the next run.
    ///
    /// # Shapes
    /// - `input`: `[batch, input shape]`
    /// - floats of `outputs`: `[batch, output shape]`; bits: `[batch, ceil(elements / 8)]`
    ///
    /// # Errors
    /// [`EngineError::Input`] when `input` has another length or kind; [`EngineError::Run`] when the engine fails.
    fn run(&mut self, batch: usize, input: Input<'_>, outputs: &mut Outputs) -> Result<(), EngineError>;

    /// Whether a run of one sample is over before it could have been handed to another thread and back.
    fn is_brief(&self) -> bool {
        false
    }
}
