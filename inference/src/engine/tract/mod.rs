//! The engine in pure Rust: tract.
//!
//! tract plans for one batch size at a time, so a section keeps a plan for each of [`BATCH_SIZES`], made when it is first
//! needed (the one for a single sample at load), and splits a batch greedily into them.
//!
//! tract may panic on ONNX that is broken in ways it does not expect. Panics are caught at load and at run and become
//! errors; the panic hook still prints them. A build with `panic = "abort"` cannot do that: there a section whose
//! ONNX matches its hash but not its promise ends the process at load.

mod plan;
mod section;
#[cfg(test)]
mod tests;

use tract_onnx::prelude::*;

use super::{Engine, EngineError, Section};
use crate::manifest::SectionManifest;
use section::TractSection;

/// Batch sizes that a plan is made for, largest first.
const BATCH_SIZES: [usize; 6] = [32, 16, 8, 4, 2, 1];

/// How far a float of a batched run may be from the same sample run alone, absolute for values up to 1, relative above.
///
/// tract picks its matrix kernel by the shape of the whole batch, and kernels differ in the order of their sums. A sum of
/// some thousand `f32` terms keeps about six digits whatever the order.
pub const BATCHED_TOLERANCE: f32 = 1e-5;

const NAME: &str = "tract";

/// Runs sections in tract.
#[derive(Clone, Copy, Debug, Default)]
pub struct TractEngine;

impl TractEngine {
    /// The engine; it has no settings.
    pub fn new() -> Self {
        Self
    }
}

impl Engine for TractEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn load(&self, section: &SectionManifest, onnx: &[u8]) -> Result<Box<dyn Section>, EngineError> {
        Ok(Box::new(TractSection::load(section, onnx)?))
    }
}

fn load_error(section: &SectionManifest, reason: &TractError) -> EngineError {
    // The alternate form has the whole chain of causes on one line.
    EngineError::Load { section: section.name.clone(), engine: NAME, reason: format!("{reason:#}") }
}

/// Runs `work`, a panic of it becoming an error.
fn caught<T>(work: impl FnOnce() -> TractResult<T>) -> TractResult<T> {
    // What a panic leaves behind is dropped by the callers, so nothing half-done is seen.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text =
            panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(TractError::msg(format!("panicked: {}", text.unwrap_or("without a message"))))
    })
}
