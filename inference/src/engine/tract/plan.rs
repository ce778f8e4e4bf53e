//! An optimised plan for one batch size, with its input tensor.

use tract_onnx::prelude::*;
use tract_onnx::tract_core::model::TypedSimpleState;

use super::{caught, load_error};
use crate::engine::{EngineError, Outputs};
use crate::manifest::SectionManifest;

pub(super) struct Plan {
    state: TypedSimpleState,
    /// Handed to tract and taken back, so that runs do not allocate it. Shape `[batch, input shape]`.
    input: Arc<Tensor>,
}

impl Plan {
    /// Optimises `model` for `batch` samples and checks its outputs against the manifest.
    pub(super) fn new(
        manifest: &SectionManifest,
        model: &InferenceModel,
        batch: usize,
    ) -> Result<Self, EngineError> {
        let shape = batched(batch, &manifest.input.shape);
        let optimised = caught(|| {
            let mut model = model.clone();
            model.set_input_fact(0, f32::fact(&shape).into())?;
            model.into_optimized()
        });
        let model = optimised.map_err(|reason| load_error(manifest, &reason))?;
        check_outputs(manifest, &model, batch)?;
        let made = caught(|| {
            let state = TypedSimpleState::new(&model.into_runnable()?)?;
            Ok(Self { state, input: Tensor::zero::<f32>(&shape)?.into_arc_tensor() })
        });
        made.map_err(|reason| load_error(manifest, &reason))
    }

    /// Runs the batch that `fill` writes, and appends what it gives to `outputs`.
    pub(super) fn run(&mut self, fill: impl FnOnce(&mut [f32]), outputs: &mut Outputs) -> TractResult<()> {
        if Arc::get_mut(&mut self.input).is_none() {
            // An output that is the input itself may have kept it.
            self.input = Tensor::zero::<f32>(self.input.shape())?.into_arc_tensor();
        }
        let input =
            Arc::get_mut(&mut self.input).ok_or_else(|| TractError::msg("input tensor still in use"))?;
        fill(input.try_as_plain_ram_mut()?.as_slice_mut::<f32>()?);
        let results = self.state.run(tvec!(TValue::from_const(self.input.clone())))?;
        for (i, result) in results.iter().enumerate() {
            outputs.append(i, result.try_as_plain_ram()?.as_slice::<f32>()?);
        }
        Ok(())
    }
}

fn check_outputs(manifest: &SectionManifest, model: &TypedModel, batch: usize) -> Result<(), EngineError> {
    for (i, output) in manifest.outputs.iter().enumerate() {
        let fact = model.output_fact(i).map_err(|reason| load_error(manifest, &reason))?;
        let expected = f32::fact(batched(batch, &output.shape));
        if fact.datum_type != expected.datum_type || fact.shape != expected.shape {
            return Err(EngineError::Mismatch {
                section: manifest.name.clone(),
                what: format!("output {i} ({})", output.name),
                expected: format!("{:?} {:?}", expected.shape, expected.datum_type),
                found: format!("{:?} {:?}", fact.shape, fact.datum_type),
            });
        }
    }
    Ok(())
}

fn batched(batch: usize, shape: &[usize]) -> Vec<usize> {
    std::iter::once(batch).chain(shape.iter().copied()).collect()
}
