//! Distillation: cross-entropy of the exits before the cloud against the cloud's soft targets.

use super::{TermInputs, Total};

pub(super) fn add(inputs: &TermInputs<'_>, total: &mut Total) {
    let distillation = &inputs.recipe.distillation;
    // The weight of the cloud itself is 0.
    for (exit, logits) in inputs.exits().filter(|(exit, _)| distillation.weight(*exit) > 0.0) {
        let weights = inputs.sample_weights(distillation.weight(exit) * inputs.recipe.distillation_scale());
        total.add(logits, &inputs.soft_targets, &weights, distillation.temperature);
    }
}
