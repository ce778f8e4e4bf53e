//! Max pool.

use serde::{Deserialize, Serialize};

use super::{BlockCost, BlockKind, BlockMisfit, FloatActivation, Window, number, slide};

/// The keys of a block with `kind = "pool"`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PoolSpec {
    /// Pooling window size: pixels of a side.
    #[serde(default = "number::<2>")]
    pub size: usize,
    /// Stride in pixels, on both axes.
    #[serde(default = "number::<2>")]
    pub stride: usize,
    /// Padding on each side, in pixels; a padding pixel is never the maximum.
    #[serde(default)]
    pub pad: usize,
    /// Activation after the pool.
    #[serde(default, skip_serializing_if = "is_none")]
    pub activation: FloatActivation,
}

impl PoolSpec {
    /// Window of the pooling.
    pub fn window(&self) -> Window {
        Window { kernel: self.size, stride: self.stride, pad: self.pad }
    }
}

impl BlockKind for PoolSpec {
    fn output(&self, input: [usize; 3], _classes: usize) -> Result<[usize; 3], BlockMisfit> {
        let [h, w] = slide(self.window(), input)?;
        Ok([input[0], h, w])
    }

    fn cost(&self, _input: [usize; 3], _output: [usize; 3]) -> BlockCost {
        BlockCost::default()
    }
}

fn is_none(value: &FloatActivation) -> bool {
    *value == FloatActivation::None
}
