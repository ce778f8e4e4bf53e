//! Float convolution.

use serde::{Deserialize, Serialize};

use super::{BlockCost, BlockKind, BlockMisfit, FloatActivation, Window, len, number, slide};

/// `kind = "conv"`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ConvSpec {
    /// Output channels.
    pub filters: usize,
    /// Kernel size: pixels of a side.
    #[serde(default = "number::<3>")]
    pub kernel: usize,
    /// Stride.
    #[serde(default = "number::<1>")]
    pub stride: usize,
    /// Zero padding.
    #[serde(default = "number::<1>")]
    pub pad: usize,
    /// Groups of channels: a filter reads the input channels of its group alone. As many as channels: a depthwise convolution.
    #[serde(default = "number::<1>", skip_serializing_if = "is_one")]
    pub groups: usize,
    /// Batch norm after the convolution; a bias when false.
    #[serde(default = "default_true", skip_serializing_if = "is_true")]
    pub norm: bool,
    /// Activation after the batch norm or bias.
    #[serde(default = "relu", skip_serializing_if = "is_relu")]
    pub activation: FloatActivation,
}

impl ConvSpec {
    /// Window of the convolution.
    pub fn window(&self) -> Window {
        Window { kernel: self.kernel, stride: self.stride, pad: self.pad }
    }
}

impl BlockKind for ConvSpec {
    fn output(&self, input: [usize; 3], _classes: usize) -> Result<[usize; 3], BlockMisfit> {
        if ![input[0], self.filters].iter().all(|channels| channels.is_multiple_of(self.groups)) {
            let expected = format!("groups that divide {} channels and {} filters", input[0], self.filters);
            return Err(BlockMisfit::new(expected, &self.groups));
        }
        let [h, w] = slide(self.window(), input)?;
        Ok([self.filters, h, w])
    }

    fn cost(&self, input: [usize; 3], output: [usize; 3]) -> BlockCost {
        let taps = (input[0] / self.groups * self.kernel * self.kernel) as u64;
        let channels = output[0] as u64;
        let offsets = if self.norm { 2 * channels } else { channels };
        BlockCost { parameters: taps * channels + offsets, macs: taps * len(output), intermediate: 0 }
    }
}

fn default_true() -> bool {
    true
}

fn relu() -> FloatActivation {
    FloatActivation::Relu
}

fn is_one(value: &usize) -> bool {
    *value == 1
}

fn is_true(value: &bool) -> bool {
    *value
}

fn is_relu(value: &FloatActivation) -> bool {
    *value == FloatActivation::Relu
}
