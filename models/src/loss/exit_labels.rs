//! Cross-entropy of every exit against the labels.

use super::{TermInputs, Total};

pub(super) fn add(inputs: &TermInputs<'_>, total: &mut Total) {
    for (exit, logits) in inputs.exits() {
        let weights = inputs.sample_weights(inputs.recipe.weight(exit));
        total.add(logits, &inputs.labels, &weights, 1.0);
    }
}
