//! Average pool.

use serde::{Deserialize, Serialize};

use super::{BlockCost, BlockKind, BlockMisfit, Window, number, slide};

/// `kind = "avg_pool"`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AvgPoolSpec {
    /// Pooling window size: pixels of a side.
    #[serde(default = "number::<2>")]
    pub size: usize,
    /// Stride.
    #[serde(default = "number::<2>")]
    pub stride: usize,
    /// Padding; padding has no part in a mean.
    #[serde(default)]
    pub pad: usize,
}

impl AvgPoolSpec {
    /// Window of the pooling.
    pub fn window(&self) -> Window {
        Window { kernel: self.size, stride: self.stride, pad: self.pad }
    }
}

impl BlockKind for AvgPoolSpec {
    fn output(&self, input: [usize; 3], _classes: usize) -> Result<[usize; 3], BlockMisfit> {
        let [h, w] = slide(self.window(), input)?;
        Ok([input[0], h, w])
    }

    fn cost(&self, _input: [usize; 3], _output: [usize; 3]) -> BlockCost {
        BlockCost::default()
    }
}
