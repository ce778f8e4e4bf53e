//! ONNX Runtime, a library that is loaded when the program runs: faster than tract where it is to be had.
//!
//! It is looked for where configuration says, else where `ORT_DYLIB_PATH` says (the caller reads the environment), else where the
//! system keeps libraries. It lives once in a process: the first one that loads is used from then on.

mod section;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ort::environment::Environment;
use thiserror::Error;

use super::{Engine, EngineError, Section};
use crate::bundle::SectionBytes;
use section::OrtSection;

const NAME: &str = "ort";

/// Where systems keep it, besides where their loader looks by itself.
const USUAL_PLACES: [&str; 4] = [
    "libonnxruntime.so",
    "libonnxruntime.so.1",
    "/usr/local/lib/libonnxruntime.so",
    "/opt/onnxruntime/lib/libonnxruntime.so",
];

/// The one of this process; a second is refused.
static ENVIRONMENT: Mutex<Option<Environment>> = Mutex::new(None);

/// ONNX Runtime cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OrtError {
    /// The library that was named does not load, or is too old.
    #[error(
        "ONNX Runtime: {}: {reason}; expected the shared library of version 1.24 or later",
        path.display()
    )]
    Library {
        /// The file.
        path: PathBuf,
        /// What the loader says.
        reason: String,
    },
    /// None was named and none lies in the usual places.
    #[error("ONNX Runtime: found no library in {}", .0.join(", "))]
    NotFound(Vec<String>),
    /// It loaded and does not start.
    #[error("ONNX Runtime: {0}")]
    Start(String),
}

/// Runs sections in ONNX Runtime, each on one thread.
#[derive(Clone)]
pub struct OrtEngine {
    environment: Environment,
}

impl OrtEngine {
    /// Loads the library: the file named, or one from the usual places. Where one is loaded already, that one.
    ///
    /// # Errors
    /// [`OrtError`] with every place that was tried.
    pub fn load_library(named: Option<&Path>) -> Result<Self, OrtError> {
        let mut running = ENVIRONMENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(environment) = &*running {
            return Ok(Self { environment: environment.clone() });
        }
        let builder = match named {
            Some(path) => ort::init_from(path)
                .map_err(|error| OrtError::Library { path: path.to_owned(), reason: error.to_string() })?,
            None => USUAL_PLACES
                .iter()
                .find_map(|place| ort::init_from(place).ok())
                .ok_or_else(|| OrtError::NotFound(USUAL_PLACES.map(str::to_owned).to_vec()))?,
        };
        let started = builder.with_name("headwater").with_telemetry(false).build();
        let environment = started.map_err(|error| OrtError::Start(error.to_string()))?;
        *running = Some(environment.clone());
        Ok(Self { environment })
    }
}

impl Engine for OrtEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn load(&self, section: &SectionBytes<'_>) -> Result<Box<dyn Section>, EngineError> {
        Ok(Box::new(OrtSection::load(&self.environment, section)?))
    }
}
