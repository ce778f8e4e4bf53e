//! Cross-entropy and distillation of the device heads, where device heads are not exits (c, e, f).

use headwater_protocol::Exit;

use super::{TermInputs, Total};

pub(super) fn add(inputs: &TermInputs<'_>, total: &mut Total) {
    // A device that decides has the exit `device`, which the terms over exits cover.
    if inputs.output.exits.get(Exit::Device).is_some() {
        return;
    }
    let (recipe, classes) = (inputs.recipe, inputs.classes);
    let distillation = &recipe.distillation;
    for device in inputs.output.devices.iter().flatten() {
        let Some(scores) = device.flat_scores() else { continue };
        let targets = |of: &[f32]| -> Vec<f32> {
            device.rows.iter().flat_map(|row| &of[*row as usize * classes..][..classes]).copied().collect()
        };
        let weights = |weight: f32| vec![inputs.share() * weight; device.rows.len()];
        total.add(&scores, &targets(&inputs.labels), &weights(recipe.device), 1.0);
        if distillation.device > 0.0 {
            let weights = weights(distillation.device * recipe.distillation_scale());
            total.add(&scores, &targets(&inputs.soft_targets), &weights, distillation.temperature);
        }
    }
}
