//! Max pool or average pool, of windows or of the whole map.

use serde::{Deserialize, Serialize};

use super::{BlockCost, BlockKind, BlockMisfit, FloatActivation, MAX_SIDE, Window, number, slide};

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
    /// Padding on each side, in pixels; a padding pixel is never the maximum, and does not count in an average.
    #[serde(default)]
    pub pad: usize,
    /// Pools each channel to one value, whatever the size of the map; there is no `size`, `stride` or `pad` then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub global: bool,
    /// The average of each window when true; otherwise its maximum.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub average: bool,
    /// Activation after the pool.
    #[serde(default, skip_serializing_if = "is_none")]
    pub activation: FloatActivation,
}

impl PoolSpec {
    /// Window of the pooling over `[channels, height, width]`. The window of a global pooling is one square that covers the whole map; a map
    /// that is not square gets padding.
    pub fn window(&self, [_, h, w]: [usize; 3]) -> Window {
        if !self.global {
            return Window { kernel: self.size, stride: self.stride, pad: self.pad };
        }
        let (side, pad) = (h.max(w), h.abs_diff(w));
        Window { kernel: side + pad, stride: side + pad, pad }
    }
}

impl BlockKind for PoolSpec {
    fn output(&self, input: [usize; 3], _classes: usize) -> Result<[usize; 3], BlockMisfit> {
        let [channels, h, w] = input;
        if self.global && (self.size, self.stride, self.pad) != (2, 2, 0) {
            return Err(BlockMisfit::new("no size, stride or pad beside global", &"one of them"));
        }
        let window = self.window(input);
        if self.global && window.kernel > MAX_SIDE {
            let expected = format!(
                "a map of at most {MAX_SIDE}x{MAX_SIDE} at a global pool, less if one side is longer"
            );
            return Err(BlockMisfit::new(expected, &format!("{h}x{w}")));
        }
        let [h, w] = slide(window, input)?;
        Ok([channels, h, w])
    }

    fn cost(&self, _input: [usize; 3], _output: [usize; 3]) -> BlockCost {
        BlockCost::default()
    }
}

fn is_none(value: &FloatActivation) -> bool {
    *value == FloatActivation::None
}
