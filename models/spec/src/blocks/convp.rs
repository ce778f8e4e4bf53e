//! DDNN's binary block: convolution, max pool, batch norm, sign.

use serde::{Deserialize, Serialize};

use super::{BlockCost, BlockKind, BlockMisfit, Window, number, slide};

/// The keys of a block with `kind = "convp"`; the defaults are DDNN's device block.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ConvpSpec {
    /// Output channels.
    pub filters: usize,
    /// Kernel size: pixels of a side.
    #[serde(default = "number::<3>")]
    pub kernel: usize,
    /// Stride of the convolution in pixels, on both axes.
    #[serde(default = "number::<1>")]
    pub stride: usize,
    /// Zero padding of the convolution on each side, in pixels.
    #[serde(default = "number::<1>")]
    pub pad: usize,
    /// Pooling window size: pixels of a side.
    #[serde(default = "number::<3>")]
    pub pool: usize,
    /// Stride of the pooling; 2 on devices, 1 in DDNN's cloud.
    #[serde(default = "number::<2>")]
    pub pool_stride: usize,
    /// Padding of the pooling on each side, in pixels; a padding pixel is never the maximum.
    #[serde(default = "number::<1>")]
    pub pool_pad: usize,
}

impl ConvpSpec {
    /// Window of the convolution.
    pub fn conv_window(&self) -> Window {
        Window { kernel: self.kernel, stride: self.stride, pad: self.pad }
    }

    /// Window of the pooling.
    pub fn pool_window(&self) -> Window {
        Window { kernel: self.pool, stride: self.pool_stride, pad: self.pool_pad }
    }
}

impl BlockKind for ConvpSpec {
    fn output(&self, input: [usize; 3], _classes: usize) -> Result<[usize; 3], BlockMisfit> {
        let [h, w] = slide(self.conv_window(), input)?;
        let [h, w] = slide(self.pool_window(), [self.filters, h, w])?;
        Ok([self.filters, h, w])
    }

    fn cost(&self, input: [usize; 3], [channels, ..]: [usize; 3]) -> BlockCost {
        let [_, h, w] = input.map(|side| self.conv_window().positions(side) as u64);
        let (channels, positions) = (channels as u64, h * w);
        let taps = (input[0] * self.kernel * self.kernel) as u64;
        BlockCost {
            parameters: taps * channels + 2 * channels,
            macs: taps * channels * positions,
            intermediate: channels * positions,
        }
    }

    fn ends_in_sign(&self) -> bool {
        true
    }
}
