//! The engine tract, in pure Rust.
//!
//! A batch runs sample by sample, with one plan made at load. Batches are slower in tract, because its packed inputs leave the cache.
//! Measured on the shipped network, a sample of the cloud section takes 204 us alone, 577 us in a batch of 4 and 854 us in one of 32;
//! of the device section 75, 69 and 162 us. Answers are also equal to the last bit in every batch.
//!
//! tract may panic on broken ONNX. Panics at load and at run are caught and become errors; the panic hook still prints them. A build with
//! `panic = "abort"` cannot catch them.

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
    /// The engine. It has no settings.
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

/// Runs `work`; a panic becomes an error.
fn caught<T>(work: impl FnOnce() -> TractResult<T>) -> TractResult<T> {
    // The callers drop everything that a panic may have left half done.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text =
            panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(TractError::msg(format!("panicked: {}", text.unwrap_or("without a message"))))
    })
}
