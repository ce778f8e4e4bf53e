//! Fully connected layer.

use serde::{Deserialize, Serialize};

use super::{Activation, BlockCost, BlockKind, BlockMisfit, len};

/// The keys of a block with `kind = "fc"`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FcSpec {
    /// Outputs; the number of classes when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<usize>,
    /// 1-bit weights and batch norm when true; otherwise float weights, with batch norm before an activation, else a bias.
    #[serde(default)]
    pub binary: bool,
    /// Activation after the batch norm; `none` for scores and logits.
    #[serde(default)]
    pub activation: Activation,
}

impl FcSpec {
    /// Returns true when batch norm follows the layer; otherwise a bias follows.
    pub fn has_norm(&self) -> bool {
        self.binary || self.activation != Activation::None
    }
}

impl BlockKind for FcSpec {
    fn output(&self, _input: [usize; 3], classes: usize) -> Result<[usize; 3], BlockMisfit> {
        Ok([self.outputs.unwrap_or(classes), 1, 1])
    }

    fn cost(&self, input: [usize; 3], output: [usize; 3]) -> BlockCost {
        let (inputs, outputs) = (len(input), output[0] as u64);
        let offsets = if self.has_norm() { 2 * outputs } else { outputs };
        BlockCost { parameters: inputs * outputs + offsets, macs: inputs * outputs, intermediate: 0 }
    }

    fn ends_in_sign(&self) -> bool {
        self.activation == Activation::Sign
    }

    fn is_flat(&self) -> bool {
        true
    }

    fn instead_of_classes(&self, classes: usize) -> Option<String> {
        if self.activation != Activation::None {
            return Some("an activation".into());
        }
        self.outputs.filter(|outputs| *outputs != classes).map(|outputs| format!("{outputs} outputs"))
    }
}
