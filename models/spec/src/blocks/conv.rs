//! Float convolution.

use serde::{Deserialize, Serialize};

use super::{BlockCost, BlockKind, BlockMisfit, FloatActivation, Window, len, number, slide};

/// The keys of a block with `kind = "conv"`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ConvSpec {
    /// Output channels.
    pub filters: usize,
    /// Kernel size: pixels of a side.
    #[serde(default = "number::<3>")]
    pub kernel: usize,
    /// Stride in pixels, on both axes.
    #[serde(default = "number::<1>")]
    pub stride: usize,
    /// Zero padding on each side, in pixels.
    #[serde(default = "number::<1>")]
    pub pad: usize,
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
        let [h, w] = slide(self.window(), input)?;
        Ok([self.filters, h, w])
    }

    fn cost(&self, input: [usize; 3], output: [usize; 3]) -> BlockCost {
        let (channels, taps) = (output[0] as u64, (input[0] * self.kernel * self.kernel) as u64);
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

fn is_true(value: &bool) -> bool {
    *value
}

fn is_relu(value: &FloatActivation) -> bool {
    *value == FloatActivation::Relu
}
