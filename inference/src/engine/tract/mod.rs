//! The engine in pure Rust: tract.
//!
//! A batch is run sample by sample, with one plan made at load. Measured on the shipped network, batches are slower in
//! tract: its packed inputs fall out of the cache (cloud section 204 us a sample alone, 577 us in a batch of 4, 854 us in a
//! batch of 32; device section 75, 69 and 162 us). It also makes an answer the same to the last bit, whatever it is
//! batched with.
//!
//! tract may panic on ONNX that is broken in ways it does not expect. Panics are caught at load and at run and become
//! errors; the panic hook still prints them. A build with `panic = "abort"` cannot do that: there a section whose
//! ONNX matches its hash but not its promise ends the process at load.

mod section;
#[cfg(test)]
mod tests;

use tract_onnx::prelude::*;

use super::{Engine, EngineError, Section};
use crate::bundle::SectionBytes;
use section::TractSection;

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

    fn load(&self, section: &SectionBytes<'_>) -> Result<Box<dyn Section>, EngineError> {
        Ok(Box::new(TractSection::load(section.manifest, &section.onnx)?))
    }
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
