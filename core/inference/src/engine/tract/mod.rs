//! The engine tract, in pure Rust.
//!
//! A batch runs sample by sample, with one plan made at load. tract's own batches are mostly slower, because their matrices do not fit
//! into the cache.
//! Measured on the shipped network, a sample of the cloud section takes 204 us alone, 577 us in a batch of 4 and 854 us in a batch of 32;
//! a sample of the device section takes 75, 69 and 162 us. Answers are also equal to the last bit for every batch size.
//!
//! tract may panic on broken ONNX. Panics at load and at run are caught and become errors; the panic hook still prints them. A build with
//! `panic = "abort"` cannot catch them.

#[cfg(test)]
mod tests;

use tract_onnx::data_resolver::ModelDataResolver;
use tract_onnx::prelude::*;
use tract_onnx::tract_core::model::{TypedSimplePlan, TypedSimpleState};

use super::input::Unit;
use super::{Engine, EngineError, Input, Outputs, Section};
use crate::bundle::SectionBytes;
use crate::manifest::SectionManifest;

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
        let manifest = section.manifest;
        // The form `{:#}` has the whole chain of causes on one line.
        let load_error = |reason: TractError| EngineError::load(manifest, NAME, format!("{reason:#}"));
        let model = caught(|| read(&section.onnx)).map_err(load_error)?;
        let check = |what: String, expected: &dyn ToString, found: &dyn ToString| {
            EngineError::check(manifest, what, expected.to_string(), found.to_string())
        };
        check("number of inputs of its ONNX".into(), &1, &model.inputs.len())?;
        check("number of outputs of its ONNX".into(), &manifest.outputs.len(), &model.outputs.len())?;
        let shape = single(&manifest.input.shape);
        let model = caught(|| optimise(model, &shape)).map_err(load_error)?;
        for (i, output) in manifest.outputs.iter().enumerate() {
            let found = model.output_fact(i).map_err(load_error)?;
            let expected = f32::fact(single(&output.shape));
            let text = |fact: &TypedFact| format!("{:?} {:?}", fact.shape, fact.datum_type);
            check(format!("output {i} ({}) of its ONNX", output.name), &text(&expected), &text(found))?;
        }
        let made = caught(|| {
            let plan = model.into_runnable()?;
            let state = TypedSimpleState::new(&plan)?;
            let input = Tensor::zero::<f32>(&shape)?.into_arc_tensor();
            Ok(TractSection { manifest: manifest.clone(), plan, state, input, unit: Unit::new() })
        });
        Ok(Box::new(made.map_err(load_error)?))
    }
}

/// An optimised plan for one sample, with its input tensor.
struct TractSection {
    manifest: SectionManifest,
    plan: Arc<TypedSimplePlan>,
    state: TypedSimpleState,
    /// Input tensor, `[1, input shape]`, used again in every run.
    input: Arc<Tensor>,
    unit: Unit,
}

impl TractSection {
    fn run_sample(&mut self, sample: Input<'_>, outputs: &mut Outputs) -> TractResult<()> {
        if Arc::get_mut(&mut self.input).is_none() {
            // An output that is the input itself may still hold the tensor.
            self.input = Tensor::zero::<f32>(self.input.shape())?.into_arc_tensor();
        }
        let input =
            Arc::get_mut(&mut self.input).ok_or_else(|| TractError::msg("input tensor still in use"))?;
        let mut view = input.try_as_plain_ram_mut()?;
        let values = view.as_slice_mut::<f32>()?;
        self.unit.floats(sample, values);
        let results = self.state.run(tvec!(TValue::from_const(self.input.clone())))?;
        for (i, result) in results.iter().enumerate() {
            outputs.append(i, result.try_as_plain_ram()?.as_slice::<f32>()?);
        }
        Ok(())
    }
}

impl Section for TractSection {
    fn run(&mut self, batch: usize, input: Input<'_>, outputs: &mut Outputs) -> Result<(), EngineError> {
        input.check(&self.manifest, batch)?;
        outputs.start(&self.manifest);
        let elements = self.manifest.input_len();
        let ran = caught(|| {
            (0..batch).try_for_each(|sample| {
                self.run_sample(input.part(sample * elements..(sample + 1) * elements), outputs)
            })
        });
        // The state of a failed run is not used again.
        let failed = |reason: TractError| match caught(|| TypedSimpleState::new(&self.plan)) {
            Ok(fresh) => {
                self.state = fresh;
                reason
            }
            Err(again) => reason.context(format!("and starting over failed: {again:#}")),
        };
        ran.map_err(failed)
            .map_err(|reason| EngineError::run(&self.manifest, NAME, batch, format!("{reason:#}")))
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

fn read(mut onnx: &[u8]) -> TractResult<InferenceModel> {
    let onnx_engine = tract_onnx::Onnx {
        provider: Arc::new(NoExternalData),
        // The file leaves the size of a batch open (`N`) or fixes it. The manifest has the shapes, so the file's shapes are ignored.
        ignore_value_info: true,
        ..tract_onnx::onnx()
    };
    onnx_engine.model_for_read(&mut onnx)
}

fn optimise(mut model: InferenceModel, shape: &[usize]) -> TractResult<TypedModel> {
    model.set_input_fact(0, f32::fact(shape).into())?;
    model.into_optimized()
}

/// Refuses ONNX that names other files for its tensors: nothing outside the bundle is read.
struct NoExternalData;

impl ModelDataResolver for NoExternalData {
    fn read_bytes_from_path(
        &self,
        _: &mut Vec<u8>,
        path: &std::path::Path,
        _: usize,
        _: Option<usize>,
    ) -> TractResult<()> {
        Err(TractError::msg(format!(
            "tensors must be inside the file, found a reference to {}",
            path.display()
        )))
    }
}

/// Shape of a batch of one.
fn single(shape: &[usize]) -> Vec<usize> {
    std::iter::once(1).chain(shape.iter().copied()).collect()
}
