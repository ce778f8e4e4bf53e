//! A section in tract: its model, and a plan for each batch size in use.

use tract_onnx::data_resolver::ModelDataResolver;
use tract_onnx::prelude::*;

use super::plan::Plan;
use super::{BATCH_SIZES, NAME, caught, load_error};
use crate::engine::{EngineError, Input, Outputs, Section};
use crate::manifest::SectionManifest;

pub(super) struct TractSection {
    manifest: SectionManifest,
    model: InferenceModel,
    plans: [Option<Plan>; BATCH_SIZES.len()],
    /// `x / 255` for each pixel `x`, rounded as the division that training uses.
    scale: [f32; 256],
}

impl TractSection {
    pub(super) fn load(manifest: &SectionManifest, onnx: &[u8]) -> Result<Self, EngineError> {
        let model = caught(|| read(onnx)).map_err(|reason| load_error(manifest, &reason))?;
        check_count(manifest, "number of inputs", 1, model.inputs.len())?;
        check_count(manifest, "number of outputs", manifest.outputs.len(), model.outputs.len())?;
        let scale = std::array::from_fn(|pixel| pixel as f32 / 255.0);
        let mut section = Self { manifest: manifest.clone(), model, plans: Default::default(), scale };
        // A single sample now, so that a section which does not fit is refused at load.
        section.plan(BATCH_SIZES.len() - 1)?;
        Ok(section)
    }

    /// The plan for `BATCH_SIZES[index]`, made if need be.
    fn plan(&mut self, index: usize) -> Result<&mut Plan, EngineError> {
        let place = &mut self.plans[index];
        let plan = match place.take() {
            Some(plan) => plan,
            None => Plan::new(&self.manifest, &self.model, BATCH_SIZES[index])?,
        };
        Ok(place.insert(plan))
    }

    fn check_input(&self, batch: usize, input: &Input<'_>) -> Result<(), EngineError> {
        let expected = batch.saturating_mul(self.manifest.input_len());
        if input.kind() == self.manifest.input.kind && input.len() == expected {
            return Ok(());
        }
        Err(EngineError::Input {
            section: self.manifest.name.clone(),
            batch,
            kind: self.manifest.input.kind,
            expected,
            found: format!("{} {:?}", input.len(), input.kind()),
        })
    }
}

impl Section for TractSection {
    fn run(&mut self, batch: usize, input: Input<'_>, outputs: &mut Outputs) -> Result<(), EngineError> {
        self.check_input(batch, &input)?;
        outputs.start(&self.manifest);
        let elements = self.manifest.input_len();
        let mut done = 0;
        while done < batch {
            let left = batch - done;
            let index = BATCH_SIZES.iter().position(|&size| size <= left).expect("the last size is 1");
            let size = BATCH_SIZES[index];
            let range = done * elements..(done + size) * elements;
            let scale = self.scale;
            let plan = self.plan(index)?;
            let ran = caught(|| {
                plan.run(
                    |values| match input {
                        Input::Pixels(pixels) => {
                            for (value, &pixel) in values.iter_mut().zip(&pixels[range]) {
                                *value = scale[usize::from(pixel)];
                            }
                        }
                        Input::Floats(floats) => values.copy_from_slice(&floats[range]),
                    },
                    outputs,
                )
            });
            if let Err(reason) = ran {
                // Whatever state the failure left is not used again.
                self.plans[index] = None;
                return Err(EngineError::Run {
                    section: self.manifest.name.clone(),
                    engine: NAME,
                    batch: size,
                    reason: format!("{reason:#}"),
                });
            }
            done += size;
        }
        Ok(())
    }
}

fn read(mut onnx: &[u8]) -> TractResult<InferenceModel> {
    let onnx_engine = tract_onnx::Onnx {
        provider: Arc::new(NoExternalData),
        // Shapes inside the file name the batch `N` or fix it; ours come from the manifest.
        ignore_value_info: true,
        ..tract_onnx::onnx()
    };
    onnx_engine.model_for_read(&mut onnx)
}

/// ONNX may name other files for its tensors. A section is one piece: nothing outside the bundle is read.
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

fn check_count(
    manifest: &SectionManifest,
    what: &str,
    expected: usize,
    found: usize,
) -> Result<(), EngineError> {
    if expected == found {
        return Ok(());
    }
    Err(EngineError::Mismatch {
        section: manifest.name.clone(),
        what: what.into(),
        expected: expected.to_string(),
        found: found.to_string(),
    })
}
