//! A section in ONNX Runtime: a session that takes any batch.

use ort::environment::Environment;
use ort::session::Session;
use ort::session::builder::GraphOptimizationLevel;
use ort::value::{TensorElementType, TensorRef, ValueType};

use super::NAME;
use crate::bundle::SectionBytes;
use crate::engine::input::Unit;
use crate::engine::{EngineError, Input, Outputs, Section};
use crate::manifest::SectionManifest;

pub(super) struct OrtSection {
    manifest: SectionManifest,
    session: Session,
    /// Shape of a batch; the first dimension is its size.
    shape: Vec<usize>,
    values: Vec<f32>,
    unit: Unit,
}

impl OrtSection {
    pub(super) fn load(environment: &Environment, section: &SectionBytes<'_>) -> Result<Self, EngineError> {
        let manifest = section.manifest;
        let session = start(environment, &section.onnx).map_err(|error| EngineError::Load {
            section: manifest.name.clone(),
            engine: NAME,
            reason: error.to_string(),
        })?;
        check_shapes(manifest, &session)?;
        Ok(Self {
            manifest: manifest.clone(),
            session,
            shape: std::iter::once(0).chain(manifest.input.shape.iter().copied()).collect(),
            values: Vec::new(),
            unit: Unit::new(),
        })
    }

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
        self.values.resize(input.len(), 0.0);
        self.unit.floats(input, &mut self.values);
        self.run_batch(batch, outputs).map_err(|error| EngineError::Run {
            section: self.manifest.name.clone(),
            engine: NAME,
            batch,
            reason: error.to_string(),
        })
    }
}

/// Starts a session on one thread: the services run one section on each core.
fn start(environment: &Environment, onnx: &[u8]) -> ort::Result<Session> {
    Session::builder(environment)?
        .with_optimization_level(GraphOptimizationLevel::Level3)?
        .with_intra_threads(1)?
        .with_inter_threads(1)?
        .commit_from_memory(onnx)
}

/// Checks the session against the manifest: floats, with the batch as first dimension.
fn check_shapes(manifest: &SectionManifest, session: &Session) -> Result<(), EngineError> {
    let check = |what: String, expected: String, found: String| {
        if expected == found {
            return Ok(());
        }
        Err(EngineError::Mismatch { section: manifest.name.clone(), what, expected, found })
    };
    let counts = [session.inputs().len(), session.outputs().len()];
    check(
        "numbers of inputs and outputs of its ONNX".into(),
        format!("{:?}", [1, manifest.outputs.len()]),
        format!("{counts:?}"),
    )?;
    let expected_outputs = manifest.outputs.iter().map(|output| (output.name.as_str(), &output.shape));
    let expected = std::iter::once(("input", &manifest.input.shape)).chain(expected_outputs);
    for ((name, shape), found) in expected.zip(session.inputs().iter().chain(session.outputs())) {
        check(
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
