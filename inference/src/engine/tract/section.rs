//! A section in tract: an optimised plan for one sample, with its input tensor.

use tract_onnx::data_resolver::ModelDataResolver;
use tract_onnx::prelude::*;
use tract_onnx::tract_core::model::{TypedSimplePlan, TypedSimpleState};

use super::{NAME, caught};
use crate::engine::input::Unit;
use crate::engine::{EngineError, Input, Outputs, Section};
use crate::manifest::SectionManifest;

pub(super) struct TractSection {
    manifest: SectionManifest,
    plan: Arc<TypedSimplePlan>,
    state: TypedSimpleState,
    /// Input tensor, `[1, input shape]`, used again in every run.
    input: Arc<Tensor>,
    unit: Unit,
}

impl TractSection {
    pub(super) fn load(manifest: &SectionManifest, onnx: &[u8]) -> Result<Self, EngineError> {
        let load_error = |reason: TractError| {
            // The alternate form has the whole chain of causes on one line.
            EngineError::Load { section: manifest.name.clone(), engine: NAME, reason: format!("{reason:#}") }
        };
        let model = caught(|| read(onnx)).map_err(load_error)?;
        check(manifest, || "number of inputs of its ONNX".into(), &1, &model.inputs.len())?;
        check(
            manifest,
            || "number of outputs of its ONNX".into(),
            &manifest.outputs.len(),
            &model.outputs.len(),
        )?;
        let shape = single(&manifest.input.shape);
        let model = caught(|| optimise(model, &shape)).map_err(load_error)?;
        for (i, output) in manifest.outputs.iter().enumerate() {
            let found = model.output_fact(i).map_err(load_error)?;
            let expected = f32::fact(single(&output.shape));
            let what = || format!("output {i} ({}) of its ONNX", output.name);
            let text = |fact: &TypedFact| format!("{:?} {:?}", fact.shape, fact.datum_type);
            check(manifest, what, &text(&expected), &text(found))?;
        }
        let made = caught(|| {
            let plan = model.into_runnable()?;
            let state = TypedSimpleState::new(&plan)?;
            let input = Tensor::zero::<f32>(&shape)?.into_arc_tensor();
            Ok(Self { manifest: manifest.clone(), plan, state, input, unit: Unit::new() })
        });
        made.map_err(load_error)
    }

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
        ran.map_err(failed).map_err(|reason| EngineError::Run {
            section: self.manifest.name.clone(),
            engine: NAME,
            batch,
            reason: format!("{reason:#}"),
        })
    }
}

fn read(mut onnx: &[u8]) -> TractResult<InferenceModel> {
    let onnx_engine = tract_onnx::Onnx {
        provider: Arc::new(NoExternalData),
        // Shapes in the file name the batch `N` or fix its size; the manifest has the shapes.
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

fn check<T: PartialEq + ToString>(
    manifest: &SectionManifest,
    what: impl FnOnce() -> String,
    expected: &T,
    found: &T,
) -> Result<(), EngineError> {
    if expected == found {
        return Ok(());
    }
    Err(EngineError::Mismatch {
        section: manifest.name.clone(),
        what: what(),
        expected: expected.to_string(),
        found: found.to_string(),
    })
}
