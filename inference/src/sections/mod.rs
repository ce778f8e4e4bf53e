//! The sections as the tiers use them: what a device runs, the local exit, what the cloud runs.

mod cloud;
mod device;
mod local;

use thiserror::Error;

use crate::aggregate::AggregateError;
use crate::bundle::{Bundle, BundleError};
use crate::engine::{Engine, EngineError, Section};

pub use cloud::CloudSection;
pub use device::{DeviceOutput, DeviceSection};
pub use local::LocalExit;

/// A section that cannot be made ready, or an input that does not fit it.
#[derive(Debug, Error)]
pub enum SectionError {
    /// The bundle does not have it.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The engine refuses or fails.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Nobody is present, or a buffer has the wrong length.
    #[error(transparent)]
    Aggregate(#[from] AggregateError),
    /// A sample of a batch in which no slot is present; the class prior answers those.
    #[error("sample {row} of the batch: expected at least one present slot, found none")]
    NoView {
        /// Position in the batch.
        row: usize,
    },
    /// An input of the wrong length.
    #[error("{what} of {batch} samples: expected {expected}, found {found}")]
    Length {
        /// Which input.
        what: &'static str,
        /// Samples.
        batch: usize,
        /// Elements expected.
        expected: usize,
        /// Elements found.
        found: usize,
    },
    /// Concatenation needs the section that follows it.
    #[error(
        "local exit: aggregation cc needs the section `local` of a bundle; without one only mp and ap work"
    )]
    NeedsSection,
}

fn load(bundle: &Bundle, name: &str, engine: &dyn Engine) -> Result<Box<dyn Section>, SectionError> {
    let section = bundle.section(name)?;
    Ok(engine.load(section.manifest, &section.onnx)?)
}

fn check_length(what: &'static str, batch: usize, expected: usize, found: usize) -> Result<(), SectionError> {
    if expected == found { Ok(()) } else { Err(SectionError::Length { what, batch, expected, found }) }
}
