//! Binary weights over pixels, one sum after the other: for first blocks that [`SumTables`](super::SumTables) does not support.

use super::{Block, BlockKernel, InputLayout, WeightBits};
use crate::code_path::CodePath;
use crate::memory::{Needs, Scratch, Weights};
use crate::pooling::{pool_across, pooled_rows};
use crate::shape::{Convp, InputKind};
use crate::simd::Simd;

pub(super) struct Direct;

impl BlockKernel for Direct {
    const INPUT: InputLayout = InputLayout::Pixels;

    fn supports(_: Convp, input: InputKind, _: CodePath) -> bool {
        input == InputKind::Pixels
    }

    #[inline(always)]
    fn needs(shape: Convp) -> Needs {
        Needs { weights: shape.filters * filter_words(shape), words: shape.row_words(), ..Needs::default() }
    }

    /// Copies the weights, `[filters, taps]`, each filter in separate words.
    fn prepare(shape: Convp, weights: WeightBits<'_>, prepared: &mut Weights<'_>) {
        prepared.words.fill(0);
        for (filter, words) in prepared.words.chunks_exact_mut(filter_words(shape)).enumerate() {
            for tap in 0..shape.taps() {
                words[tap / 64] |= u64::from(weights.is_positive(filter, tap)) << (tap % 64);
            }
        }
    }

    #[inline(always)]
    fn run<S: Simd>(_: S, block: &Block<'_>, scratch: &mut Scratch<'_>, output: &mut [u64]) {
        convolve(block, scratch.words, output);
    }
}

/// Words of the weights of one filter.
const fn filter_words(shape: Convp) -> usize {
    shape.taps().div_ceil(64)
}

fn convolve(block: &Block<'_>, row: &mut [u64], output: &mut [u64]) {
    let shape = block.shape;
    let map_words = output.len() / shape.filters;
    let bits = &mut row[..map_words / shape.output().height];
    let filters = block.words.chunks_exact(filter_words(shape)).zip(block.thresholds);
    for ((weights, threshold), map) in filters.zip(output.chunks_exact_mut(map_words)) {
        for y in 0..shape.convolved().height {
            bits.fill(0);
            for x in 0..shape.convolved().width {
                let bit = sum_at(shape, block.input.pixels, weights, (y, x)) >= threshold.from;
                bits[x / 64] |= u64::from(bit) << (x % 64);
            }
            pool_across(bits, pooled_rows(shape.pool, y, shape.output().height), map);
        }
    }
}

/// Sum of the convolution at a row and column.
fn sum_at(shape: Convp, pixels: &[u8], weights: &[u64], (y, x): (usize, usize)) -> i32 {
    let (map, conv) = (shape.input, shape.conv);
    let ((top, bottom), (left, right)) = (conv.inside(y, map.height), conv.inside(x, map.width));
    let mut sum = 0;
    for channel in 0..map.channels {
        for ky in top..bottom {
            let row = (channel * map.height + y * conv.stride + ky - conv.pad) * map.width;
            for kx in left..right {
                let tap = (channel * conv.kernel + ky) * conv.kernel + kx;
                let pixel = i32::from(pixels[row + x * conv.stride + kx - conv.pad]);
                sum += if weights[tap / 64] >> (tap % 64) & 1 == 1 { pixel } else { -pixel };
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_kernel::tests::{any_block, check};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn direct_sums_equal_the_reference(case in any_block(InputKind::Pixels, 1..5, 1..70)) {
            check::<Direct>(&case)?;
        }
    }
}
