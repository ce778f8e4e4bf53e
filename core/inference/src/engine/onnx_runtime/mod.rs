//! The engine ONNX Runtime, a shared library that is loaded at run time. It is faster than tract.
//!
//! The library comes from the configured path, else from `ORT_DYLIB_PATH` (the caller reads the environment), else from a list of
//! common paths. A process loads one library once; later engines use it too, whatever path they name.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ort::environment::Environment;
use ort::session::Session;
use ort::session::builder::GraphOptimizationLevel;
use ort::value::{TensorElementType, TensorRef, ValueType};
use thiserror::Error;

use super::input::Unit;
use super::{Engine, EngineError, Input, Outputs, Section};
use crate::bundle::SectionBytes;
use crate::manifest::SectionManifest;

const NAME: &str = "ort";

/// Paths of the library on common systems, tried in this order.
const DEFAULT_PATHS: [&str; 4] = [
    "libonnxruntime.so",
    "libonnxruntime.so.1",
    "/usr/local/lib/libonnxruntime.so",
    "/opt/onnxruntime/lib/libonnxruntime.so",
];

/// ONNX Runtime's environment; a process may have only one.
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
    /// No library was named, and none of these default paths has a library that loads.
    #[error("ONNX Runtime: found no library in {}", .0.join(", "))]
    NotFound(Vec<String>),
    /// The library loaded but does not start.
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
    /// [`OrtError`], with every path that was tried if no library loads.
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
        let manifest = section.manifest;
        let session = start(&self.environment, &section.onnx)
            .map_err(|error| EngineError::load(manifest, NAME, error.to_string()))?;
        check_shapes(manifest, &session)?;
        Ok(Box::new(OrtSection {
            manifest: manifest.clone(),
            session,
            shape: std::iter::once(0).chain(manifest.input.shape.iter().copied()).collect(),
            values: Vec::new(),
            unit: Unit::new(),
        }))
    }
}

/// A section in an ONNX Runtime session, which takes batches of any size.
struct OrtSection {
    manifest: SectionManifest,
    session: Session,
    /// Shape of the input; the first dimension is the batch size.
    shape: Vec<usize>,
    values: Vec<f32>,
    unit: Unit,
}

impl OrtSection {
    fn run_batch(&mut self, batch: usize, outputs: &mut Outputs) -> ort::Result<()> {
        self.shape[0] = batch;
        let input = TensorRef::from_array_view((&self.shape[..], &self.values[..]))?;
        let results = self.session.run(ort::inputs![input])?;
        for (index, (_, value)) in results.iter().enumerate() {
            let (_, values) = value.try_extract_tensor::<f32>()?;
            outputs.append(index, values);
        }
        Ok(())
    }
}

impl Section for OrtSection {
    fn run(&mut self, batch: usize, input: Input<'_>, outputs: &mut Outputs) -> Result<(), EngineError> {
        input.check(&self.manifest, batch)?;
        outputs.start(&self.manifest);
        if batch == 0 {
            return Ok(());
        }
        self.values.resize(input.elements(), 0.0);
        self.unit.floats(input, &mut self.values);
        self.run_batch(batch, outputs)
            .map_err(|error| EngineError::run(&self.manifest, NAME, batch, error.to_string()))
    }
}

/// Starts an ONNX Runtime session with one thread, because the services run one section on each core.
fn start(environment: &Environment, onnx: &[u8]) -> ort::Result<Session> {
    Session::builder(environment)?
        .with_optimization_level(GraphOptimizationLevel::Level3)?
        .with_intra_threads(1)?
        .with_inter_threads(1)?
        .commit_from_memory(onnx)
}

/// Checks the session against the manifest: number of inputs and outputs, all `f32`, and their shapes after the batch dimension.
fn check_shapes(manifest: &SectionManifest, session: &Session) -> Result<(), EngineError> {
    let counts = [session.inputs().len(), session.outputs().len()];
    EngineError::check(
        manifest,
        "numbers of inputs and outputs of its ONNX",
        format!("{:?}", [1, manifest.outputs.len()]),
        format!("{counts:?}"),
    )?;
    let expected_outputs = manifest.outputs.iter().map(|output| (output.name.as_str(), &output.shape));
    let expected = std::iter::once(("input", &manifest.input.shape)).chain(expected_outputs);
    for ((name, shape), found) in expected.zip(session.inputs().iter().chain(session.outputs())) {
        EngineError::check(
            manifest,
            format!("{name} of its ONNX"),
            format!("floats {shape:?} behind the batch"),
            if let ValueType::Tensor { ty: TensorElementType::Float32, shape, .. } = found.dtype() {
                format!("floats {:?} behind the batch", shape.get(1..).unwrap_or_default())
            } else {
                format!("{:?}", found.dtype())
            },
        )?;
    }
    Ok(())
}
