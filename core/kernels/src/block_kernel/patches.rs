//! Binary weights over bits, counted word by word: for blocks that no other kernel supports, and for the least memory.
//!
//! The map is transposed so that the channels of a pixel are neighbours. A kernel row then covers one run of bits, and a patch of the
//! map is one run for each kernel row. Equal bits multiply to +1 and different bits to -1, so the sum is
//! `taps - 2 * popcount(patch ^ weights)`.
//!
//! ```text
//! transposed row     pad | c0 c1 c2 | c0 c1 c2 | c0 c1 c2 | .. | pad       c0 to c2: channels of a pixel
//! run of a kernel row      [..........................]                    kernel 2 or 3 pixels wide, at pixel 0
//! patch              run of kernel row 0 | run of kernel row 1 | ..        each run in separate words
//! ```
//!
//! Padding contributes 0: rows outside the map are left out, and columns outside are masked.

use core::ops::Range;

use super::{Block, BlockInput, BlockKernel, InputLayout, WeightBits};
use crate::bit_map::{bits_at, low_bits, or_bits_at};
use crate::code_path::CodePath;
use crate::memory::{Needs, Scratch, Weights};
use crate::pooling::{pool_across, pooled_rows};
use crate::shape::{Convp, InputKind};
use crate::simd::Simd;
use crate::threshold::Threshold;

pub(super) struct Patches;

impl BlockKernel for Patches {
    const INPUT: InputLayout = InputLayout::Rows;

    fn supports(_: Convp, input: InputKind, _: CodePath) -> bool {
        input == InputKind::Bits
    }

    #[inline(always)]
    fn needs(shape: Convp) -> Needs {
        let rows = shape.input.height * row_words(shape);
        let patches = (shape.convolved().width + border(shape).count()) * patch_words(shape);
        Needs {
            weights: shape.filters * patch_words(shape),
            words: shape.row_words() + rows + patches,
            ..Needs::default()
        }
    }

    /// Copies the weights in the order of a patch: `[filters, kernel row, kernel column, channel]`.
    fn prepare(shape: Convp, weights: WeightBits<'_>, prepared: &mut Weights<'_>) {
        let (kernel, channels) = (shape.conv.kernel, shape.input.channels);
        prepared.words.fill(0);
        for (filter, words) in prepared.words.chunks_exact_mut(patch_words(shape)).enumerate() {
            for (ky, run) in words.chunks_exact_mut(run_words(shape)).enumerate() {
                for bit in 0..kernel * channels {
                    let (kx, channel) = (bit / channels, bit % channels);
                    let is_set = weights.is_positive(filter, (channel * kernel + ky) * kernel + kx);
                    run[bit / 64] |= u64::from(is_set) << (bit % 64);
                }
            }
        }
    }

    #[inline(always)]
    fn run<S: Simd>(_: S, block: &Block<'_>, scratch: &mut Scratch<'_>, output: &mut [u64]) {
        convolve(block, scratch.words, output);
    }
}

/// Words of a transposed row with its padding, and one more word, since reads go past the end of a run.
const fn row_words(shape: Convp) -> usize {
    ((shape.input.width + 2 * shape.conv.pad) * shape.input.channels).div_ceil(64) + 1
}

/// Words of the bits under a kernel row.
const fn run_words(shape: Convp) -> usize {
    (shape.conv.kernel * shape.input.channels).div_ceil(64)
}

/// Words of a patch, and of the weights of one filter.
const fn patch_words(shape: Convp) -> usize {
    shape.conv.kernel * run_words(shape)
}

/// Columns of the convolution at which the kernel reaches into the padding.
fn border(shape: Convp) -> impl Iterator<Item = usize> {
    let (conv, width) = (shape.conv, shape.input.width);
    (0..shape.convolved().width).filter(move |&x| {
        let start = x * conv.stride;
        start < conv.pad || start + conv.kernel > width + conv.pad
    })
}

#[inline(always)]
fn convolve(block: &Block<'_>, words: &mut [u64], output: &mut [u64]) {
    let shape = block.shape;
    let (convolved, patch_words) = (shape.convolved(), patch_words(shape));
    let (bits, rest) = words.split_at_mut(shape.row_words());
    let (rows, rest) = rest.split_at_mut(shape.input.height * row_words(shape));
    let (patches, masks) = rest.split_at_mut(convolved.width * patch_words);
    let masks = &mut masks[..border(shape).count() * patch_words];
    transpose(shape, block.input, rows);
    for (x, mask) in border(shape).zip(masks.chunks_exact_mut(patch_words)) {
        fill_mask(shape, x, mask);
    }
    let pooled_height = shape.output().height;
    let map_words = output.len() / shape.filters;
    for y in 0..convolved.height {
        let (top, bottom) = shape.conv.inside(y, shape.input.height);
        for (x, patch) in patches.chunks_exact_mut(patch_words).enumerate() {
            fill_patch(shape, rows, (y, x), top..bottom, patch);
        }
        let patch_row = PatchRow { shape, patches, masks, kernel_rows: top..bottom };
        let pooled = pooled_rows(shape.pool, y, pooled_height);
        let filters = block.words.chunks_exact(patch_words).zip(block.thresholds);
        for ((weights, threshold), map) in filters.zip(output.chunks_exact_mut(map_words)) {
            patch_row.compare(weights, *threshold, bits);
            pool_across(bits, pooled.clone(), map);
        }
    }
}

/// The patches of one row of the convolution.
struct PatchRow<'a> {
    shape: Convp,
    patches: &'a [u64],
    /// Masks of the patches whose kernel reaches into the padding on the left or right.
    masks: &'a [u64],
    /// Kernel rows that lie on the map.
    kernel_rows: Range<usize>,
}

impl PatchRow<'_> {
    /// Computes the bits of one filter in this row.
    #[inline(always)]
    fn compare(&self, weights: &[u64], threshold: Threshold, bits: &mut [u64]) {
        let (shape, words) = (self.shape, patch_words(self.shape));
        let inside = self.kernel_rows.start * run_words(shape)..self.kernel_rows.end * run_words(shape);
        // Largest number of -1 products with which a sum still reaches `threshold.from`.
        let max_differing = |columns: usize| {
            let taps = self.kernel_rows.len() * columns * shape.input.channels;
            (taps as i32 - threshold.from).div_euclid(2)
        };
        let max = max_differing(shape.conv.kernel);
        bits.fill(0);
        match (words, inside.len()) {
            (1, 1) => compare_unrolled::<1>(self.patches, weights, max, bits),
            (2, 2) => compare_unrolled::<2>(self.patches, weights, max, bits),
            (3, 3) => compare_unrolled::<3>(self.patches, weights, max, bits),
            (6, 6) => compare_unrolled::<6>(self.patches, weights, max, bits),
            (9, 9) => compare_unrolled::<9>(self.patches, weights, max, bits),
            (18, 18) => compare_unrolled::<18>(self.patches, weights, max, bits),
            _ => {
                for (x, patch) in self.patches.chunks_exact(words).enumerate() {
                    let differing = patch[inside.clone()].iter().zip(&weights[inside.clone()]);
                    let differing: u32 = differing.map(|(a, b)| (a ^ b).count_ones()).sum();
                    bits[x / 64] |= u64::from(differing as i32 <= max) << (x % 64);
                }
            }
        }
        for (x, mask) in border(shape).zip(self.masks.chunks_exact(words)) {
            let (left, right) = shape.conv.inside(x, shape.input.width);
            let patch = &self.patches[x * words..][inside.clone()];
            let differing = patch.iter().zip(&weights[inside.clone()]).zip(&mask[inside.clone()]);
            let differing: u32 = differing.map(|((a, b), mask)| ((a ^ b) & mask).count_ones()).sum();
            let bit = differing as i32 <= max_differing(right - left);
            bits[x / 64] = bits[x / 64] & !(1 << (x % 64)) | u64::from(bit) << (x % 64);
        }
    }
}

/// Sets bit `x` if patch `x` differs from the weights in at most `max` bits. The loop over the `N` words of a patch is unrolled.
#[inline(always)]
fn compare_unrolled<const N: usize>(patches: &[u64], weights: &[u64], max: i32, bits: &mut [u64]) {
    let Some(weights) = weights.first_chunk::<N>() else { return };
    let (patches, _) = patches.as_chunks::<N>();
    for (word, patches) in bits.iter_mut().zip(patches.chunks(64)) {
        for (x, patch) in patches.iter().enumerate() {
            let mut differing = 0;
            for i in 0..N {
                differing += (patch[i] ^ weights[i]).count_ones();
            }
            *word |= u64::from(differing as i32 <= max) << x;
        }
    }
}

/// Copies the runs under the kernel at a row and column, for the kernel rows on the map.
#[inline(always)]
fn fill_patch(
    shape: Convp,
    rows: &[u64],
    (y, x): (usize, usize),
    kernel_rows: Range<usize>,
    patch: &mut [u64],
) {
    let (words, bits) = (run_words(shape), shape.conv.kernel * shape.input.channels);
    let from = x * shape.conv.stride * shape.input.channels;
    for ky in kernel_rows {
        let y = y * shape.conv.stride + ky - shape.conv.pad;
        let row = &rows[y * row_words(shape)..][..row_words(shape)];
        let run = &mut patch[ky * words..][..words];
        for (index, run) in run.iter_mut().enumerate() {
            *run = bits_at(row, from + index * 64);
        }
        run[words - 1] &= low_bits(bits - (words - 1) * 64);
    }
}

/// Sets the bits of the kernel columns that lie on the map at column `x`, in every kernel row.
fn fill_mask(shape: Convp, x: usize, mask: &mut [u64]) {
    let (left, right) = shape.conv.inside(x, shape.input.width);
    mask.fill(0);
    for run in mask.chunks_exact_mut(run_words(shape)) {
        for bit in left * shape.input.channels..right * shape.input.channels {
            run[bit / 64] |= 1 << (bit % 64);
        }
    }
}

/// Transposes rows `[channel, row, column]` into `[row, column, channel]`, with zeros as padding on both sides of a row.
#[inline(always)]
fn transpose(shape: Convp, input: BlockInput<'_>, rows: &mut [u64]) {
    let map = shape.input;
    rows.fill(0);
    for (y, to) in rows.chunks_exact_mut(row_words(shape)).enumerate() {
        for channel in (0..map.channels).step_by(8) {
            let channels = (map.channels - channel).min(8);
            for x in (0..map.width).step_by(8) {
                let mut square = 0u64;
                for index in 0..channels {
                    let row = ((channel + index) * map.height + y) * input.row_words;
                    square |= (input.bits[row + x / 64] >> (x % 64) & 0xff) << (8 * index);
                }
                let square = transpose_square(square);
                for column in 0..(map.width - x).min(8) {
                    let at = (x + column + shape.conv.pad) * map.channels + channel;
                    or_bits_at(to, at, square >> (8 * column) & 0xff);
                }
            }
        }
    }
}

/// Transposes a square of 8 by 8 bits (Hacker's Delight, 7-3).
#[inline(always)]
const fn transpose_square(square: u64) -> u64 {
    let mut x = square;
    let mut t = (x ^ (x >> 7)) & 0x00aa_00aa_00aa_00aa;
    x ^= t ^ (t << 7);
    t = (x ^ (x >> 14)) & 0x0000_cccc_0000_cccc;
    x ^= t ^ (t << 14);
    t = (x ^ (x >> 28)) & 0x0000_0000_f0f0_f0f0;
    x ^ t ^ (t << 28)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_kernel::tests::{any_block, check};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn patches_equal_the_reference(case in any_block(InputKind::Bits, 1..140, 1..12)) {
            check::<Patches>(&case)?;
        }

        #[test]
        fn patches_over_large_maps_equal_the_reference(case in any_block(InputKind::Bits, 1..6, 20..80)) {
            check::<Patches>(&case)?;
        }
    }

    #[test]
    fn a_square_of_bits_is_transposed() {
        let square = 0x0123_4567_89ab_cdef;
        let transposed = transpose_square(square);
        for row in 0..8 {
            for column in 0..8 {
                assert_eq!(transposed >> (8 * column + row) & 1, square >> (8 * row + column) & 1);
            }
        }
    }
}
