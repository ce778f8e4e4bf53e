//! The engine ONNX Runtime, a shared library that is loaded at run time. It is faster than tract.
//!
//! The library comes from the configured path, else from `ORT_DYLIB_PATH` (the caller reads the environment), else from the system's
//! library folders. A process loads it once; later engines use the same one.

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

/// Paths of the library on common systems.
const DEFAULT_PATHS: [&str; 4] = [
    "libonnxruntime.so",
    "libonnxruntime.so.1",
    "/usr/local/lib/libonnxruntime.so",
    "/opt/onnxruntime/lib/libonnxruntime.so",
];

/// The environment of this process; ONNX Runtime allows one.
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
        /// Error of the loader.
        reason: String,
    },
    /// No library was named and none is at the default paths.
    #[error("ONNX Runtime: found no library in {}", .0.join(", "))]
    NotFound(Vec<String>),
    /// The library loaded and does not start.
    #[error("ONNX Runtime: {0}")]
    Start(String),
}

/// Runs sections in ONNX Runtime, each on one thread.
#[derive(Clone)]
pub struct OrtEngine {
    environment: Environment,
}

impl OrtEngine {
    /// Loads the named library, or one from the default paths. A library that is loaded already is used again.
    ///
    /// # Errors
    /// [`OrtError`] with every path that was tried.
    pub fn load_library(named: Option<&Path>) -> Result<Self, OrtError> {
        let mut running = ENVIRONMENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(environment) = &*running {
            return Ok(Self { environment: environment.clone() });
        }
        let builder = match named {
            Some(path) => ort::init_from(path)
                .map_err(|error| OrtError::Library { path: path.to_owned(), reason: error.to_string() })?,
            None => DEFAULT_PATHS
                .iter()
                .find_map(|path| ort::init_from(path).ok())
                .ok_or_else(|| OrtError::NotFound(DEFAULT_PATHS.map(str::to_owned).to_vec()))?,
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
