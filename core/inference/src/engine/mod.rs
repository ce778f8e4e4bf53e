//! Engines, which run sections.
//!
//! An [`Engine`] turns a section of a bundle into a [`Section`], which runs batches. The manifest says whether a section takes pixels or
//! floats and gives floats or packed bits, so every engine is called alike.

mod error;
mod input;
#[cfg(feature = "ort")]
mod onnx_runtime;
mod outputs;
mod packed;
#[cfg(feature = "tract")]
mod tract;

use std::path::Path;
use std::sync::Arc;

use crate::bundle::SectionBytes;

pub use error::EngineError;
pub use input::Input;
#[cfg(feature = "ort")]
pub use onnx_runtime::{OrtEngine, OrtError};
pub use outputs::Outputs;
pub use packed::PackedEngine;
#[cfg(feature = "tract")]
pub use tract::TractEngine;

/// Largest difference between a float of a batched run and of the same sample alone: absolute up to 1, relative above.
///
/// An engine may add the products of a matrix multiplication in another order for another batch size. A sum of some thousand `f32` terms
/// keeps about six digits in any order. `TractEngine` and `PackedEngine` give equal floats in every batch.
pub const BATCHED_TOLERANCE: f32 = 1e-5;

/// ONNX Runtime from the library `named`; with `None`, from the first default path with a library that loads.
///
/// # Errors
/// A text that says why ONNX Runtime does not load.
#[cfg(feature = "ort")]
pub fn onnx_runtime(named: Option<&Path>) -> Result<Arc<dyn Engine>, String> {
    let engine = OrtEngine::load_library(named);
    engine.map(|engine| Arc::new(engine) as _).map_err(|error| error.to_string())
}

/// Stands in for ONNX Runtime in builds without the feature `ort`.
///
/// # Errors
/// Always.
#[cfg(not(feature = "ort"))]
pub fn onnx_runtime(_: Option<&Path>) -> Result<Arc<dyn Engine>, String> {
    Err("ONNX Runtime: this program was built without it (feature `ort`)".into())
}

/// Loads sections.
pub trait Engine: Send + Sync {
    /// Name in metrics and reports.
    fn name(&self) -> &'static str;

    /// Makes a section ready to run.
    ///
    /// # Errors
    /// When the form of the section that this engine needs is missing or invalid, or does not fit the manifest.
    fn load(&self, section: &SectionBytes<'_>) -> Result<Box<dyn Section>, EngineError>;
}

/// Loads each section as the tiers do by default: packed where the section has that form, else in tract. Another engine may round a score
/// in the middle of two levels to the other level.
#[cfg(feature = "tract")]
#[derive(Clone, Copy, Debug, Default)]
pub struct PackedOrTract;

#[cfg(feature = "tract")]
impl Engine for PackedOrTract {
    fn name(&self) -> &'static str {
        "packed or tract"
    }

    fn load(&self, section: &SectionBytes<'_>) -> Result<Box<dyn Section>, EngineError> {
        match section.packed {
            Some(_) => PackedEngine.load(section),
            None => TractEngine::new().load(section),
        }
    }
}

/// A section that is ready to run, on one thread at a time.
pub trait Section: Send {
    /// Runs `batch` samples and writes their outputs.
    ///
    /// # Shapes
    /// - `input`: `[batch, input shape]`
    /// - floats of `outputs`: `[batch, output shape]`; bits: `[batch, ceil(elements / 8)]`
    ///
    /// # Errors
    /// [`EngineError::Input`] when `input` has another length or kind; [`EngineError::Run`] when the engine fails.
    fn run(&mut self, batch: usize, input: Input<'_>, outputs: &mut Outputs) -> Result<(), EngineError>;

    /// True when a run of one sample takes less time than handing the sample to another thread.
    fn is_brief(&self) -> bool {
        false
    }
}
