//! Binary weights over bits, counted in bit slices: a word holds one binary digit of the counts of many pixels.
//!
//! The products of one tap over a tile of 256 pixels are a row of bits. A full adder of logical instructions adds three such rows and
//! gives two: sums and carries (carry-save adders, as in the population count of Harley and Seal). A count is then as many rows as it has
//! binary digits.
//!
//! ```text
//! pixel        0 1 2 3 ..  255
//! digit 0      1 0 1 1     0        count of pixel 0: 5
//! digit 1      0 1 1 0     0        count of pixel 1: 2
//! digit 2      1 0 0 0     1
//! ```
//!
//! Three taps with three signs have only eight sums, so the sums and carries of each group of three taps are made once for all
//! filters. A filter adds one of the eight sums for each group: about 3.5 logical operations on rows of 256 bits a tap. Every
//! processor has these operations; counting the bits of words takes three instructions for 64 products.
//!
//! The pixels of a channel follow one another, row after row, so a tap sees the map shifted by some bits. Masks remove the pixels
//! beyond the end of a row or outside the map. Half of a pixel's padded taps count as +1 from the start, so that one comparison
//! serves all pixels.

mod adders;
mod tile;

use super::sum_tables::group_signs;
use super::{Block, BlockKernel, InputLayout, WeightBits};
use crate::bit_map::{bits_at, low_bits, or_bits_at, or_into};
use crate::code_path::CodePath;
use crate::memory::{Needs, Scratch, Weights};
use crate::pixel_words::{self, PixelPadding, PixelWords};
use crate::pooling::{pool_across, pooled_rows};
use crate::shape::{Convp, InputKind, Map};
use crate::simd::Simd;
use adders::{
    GROUP, MAX_DIGITS, MIN_DIGITS, NO_BITS, SIGNS, SUMS_WORDS, TILE, TILE_WORDS, count_up, reaches,
};
use tile::{TileMasks, fill_sums};

/// Number of groups of three taps that are counted in one round.
const ROUND_GROUPS: usize = 8;
/// Words of a cache line.
const LINE_WORDS: usize = 8;

pub(super) struct BitSlices;

impl BlockKernel for BitSlices {
    const INPUT: InputLayout = InputLayout::Rows;

    fn supports(shape: Convp, input: InputKind, path: CodePath) -> bool {
        !path.has_byte_lookup() && pixel_words::supports(shape, input, path)
    }

    #[inline(always)]
    fn needs(shape: Convp) -> Needs {
        let sizes = Sizes::of(shape);
        let maps = shape.input.channels * sizes.channel_words + shape.filters * sizes.filter_words;
        Needs {
            weights: (2 * shape.conv.kernel + sizes.digits + 1) * sizes.mask_words,
            signs: shape.filters * sizes.groups,
            words: shape.row_words() + maps + sizes.groups * SUMS_WORDS + LINE_WORDS,
            ..Needs::default()
        }
    }

    /// Writes the signs of each group, one byte a group: `[filters, channel, kernel row, group]`, and the masks of [`TileMasks`].
    fn prepare(shape: Convp, weights: WeightBits<'_>, prepared: &mut Weights<'_>) {
        let sizes = Sizes::of(shape);
        let (kernel, channels) = (shape.conv.kernel, shape.input.channels);
        prepared.signs.fill(0);
        for (filter, signs) in prepared.signs.chunks_exact_mut(sizes.groups).enumerate() {
            for (index, signs) in signs.iter_mut().enumerate().take(channels * kernel * sizes.row_groups) {
                let (row, group) = (index / sizes.row_groups, index % sizes.row_groups);
                *signs = group_signs(weights, filter, (group * GROUP..kernel).map(|kx| row * kernel + kx));
            }
        }
        prepared.words.fill(0);
        let mut set = |mask: usize, pixel: usize| {
            prepared.words[mask * sizes.mask_words + pixel / 64] |= 1 << (pixel % 64);
        };
        sizes.pixels.each_pixel(|PixelPadding { pixel, rows, columns, padded_taps }| {
            rows.for_each(|ky| set(ky, pixel));
            columns.for_each(|kx| set(kernel + kx, pixel));
            for digit in (0..=sizes.digits).filter(|digit| padded_taps >> digit & 1 == 1) {
                set(2 * kernel + digit, pixel);
            }
        });
    }

    #[inline(always)]
    fn run<S: Simd>(_: S, block: &Block<'_>, scratch: &mut Scratch<'_>, output: &mut [u64]) {
        // Code paths with lookups never choose this kernel; the condition keeps it from being compiled for them.
        if !S::HAS_BYTE_LOOKUP {
            convolve(block, scratch, output);
        }
    }
}

/// Sizes of a block's tiles and masks.
#[derive(Clone, Copy)]
struct Sizes {
    pixels: PixelWords,
    /// Number of groups of three taps in a kernel row; the last group may have fewer.
    row_groups: usize,
    /// Number of groups of three taps in a filter, rounded up to a multiple of [`ROUND_GROUPS`].
    groups: usize,
    tiles: usize,
    /// Binary digits of a count.
    digits: usize,
    /// Words of one channel, with the padding before the first row, up to the last bit that a tile reads.
    channel_words: usize,
    /// Words of one filter's output bits, plus one spare word: unaligned reads touch the next word.
    filter_words: usize,
    /// Words of one mask.
    mask_words: usize,
}

impl Sizes {
    #[inline(always)]
    fn of(shape: Convp) -> Self {
        let (pixels, kernel) = (PixelWords::of(shape), shape.conv.kernel);
        let row_groups = kernel.div_ceil(GROUP);
        let tiles = pixels.len().div_ceil(TILE);
        let digits = (usize::BITS - shape.taps().leading_zeros()) as usize;
        let read = tiles * TILE + (kernel - 1) * (pixels.pitch + 1);
        let written = pixels.leading_padding() + shape.input.height * pixels.pitch;
        Self {
            pixels,
            row_groups,
            groups: (shape.input.channels * kernel * row_groups).next_multiple_of(ROUND_GROUPS),
            tiles,
            digits: if digits > MIN_DIGITS { digits } else { MIN_DIGITS },
            channel_words: (if read > written { read } else { written }).div_ceil(64) + 2,
            filter_words: tiles * TILE_WORDS + 1,
            mask_words: tiles * TILE_WORDS,
        }
    }
}

#[inline(always)]
fn convolve(block: &Block<'_>, scratch: &mut Scratch<'_>, output: &mut [u64]) {
    let (shape, sizes) = (block.shape, Sizes::of(block.shape));
    let (row, rest) = scratch.words.split_at_mut(shape.row_words());
    let (channels, rest) = rest.split_at_mut(shape.input.channels * sizes.channel_words);
    let (filters, sums) = rest.split_at_mut(shape.filters * sizes.filter_words);
    // Alignment, so that no row of the sums crosses a cache line.
    let unaligned = sums.as_ptr().align_offset(size_of::<[u64; LINE_WORDS]>()).min(LINE_WORDS);
    let (rows, _) = sums[unaligned..].as_chunks_mut::<TILE_WORDS>();
    let (rows, _) = rows.as_chunks_mut::<2>();
    let (sums, _) = rows.as_chunks_mut::<SIGNS>();
    let sums = &mut sums[..sizes.groups];

    match block.input.row_words {
        // In most maps a row is one word; the loops over the words of a row are then compiled away.
        1 => fill_channels(&sizes, block.input.bits, 1, channels),
        row_words => fill_channels(&sizes, block.input.bits, row_words, channels),
    }
    let masks = TileMasks::of(&sizes, block.words);
    for tile in 0..sizes.tiles {
        fill_sums(&sizes, channels, &masks, tile, sums);
        // `start` is the number of padded taps in binary digits. Half of the padded taps count as +1, so the lowest digit is worth a half.
        let mut start = [NO_BITS; MAX_DIGITS + 1];
        for (start, padded) in start.iter_mut().zip(masks.padded.chunks_exact(sizes.mask_words)) {
            *start = *tile::row_at(padded, tile);
        }
        let signs = block.signs.chunks_exact(sizes.groups).zip(block.thresholds);
        for ((signs, threshold), bits) in signs.zip(filters.chunks_exact_mut(sizes.filter_words)) {
            // The sum of products is twice `count` less the number of taps; `count` has the +1 products and half of the padded taps.
            let [half, mut count @ ..] = start;
            count_up(sizes.digits, sums, signs, &mut count);
            let reached = reaches(threshold.from + shape.taps() as i32, half, &count[..sizes.digits]);
            if let Some(words) = bits[tile * TILE_WORDS..].first_chunk_mut() {
                *words = reached;
            }
        }
    }
    take_rows(&sizes, filters, row, output);
}

/// Writes the rows of each channel one after the other, at the pitch of the pixels, after the leading padding.
#[inline(always)]
fn fill_channels(sizes: &Sizes, bits: &[u64], row_words: usize, to: &mut [u64]) {
    let Map { channels, height, width } = sizes.pixels.shape.input;
    to.fill(0);
    let maps = bits.chunks_exact(height * row_words).take(channels);
    let first = sizes.pixels.leading_padding();
    for (map, to) in maps.zip(to.chunks_exact_mut(sizes.channel_words)) {
        for (y, row) in map.chunks_exact(row_words).enumerate() {
            for (index, &word) in row.iter().enumerate().take(width.div_ceil(64)) {
                or_bits_at(to, first + y * sizes.pixels.pitch + index * 64, word);
            }
        }
    }
}

/// Cuts the bits of all filters into rows, and pools across rows.
#[inline(always)]
fn take_rows(sizes: &Sizes, filters: &[u64], row: &mut [u64], output: &mut [u64]) {
    let shape = sizes.pixels.shape;
    let (convolved, pooled_height) = (shape.convolved(), shape.output().height);
    let map_words = output.len() / shape.filters;
    for y in 0..convolved.height {
        let (from, rows) = (y * sizes.pixels.pitch, pooled_rows(shape.pool, y, pooled_height));
        let maps = output.chunks_exact_mut(map_words);
        for (bits, map) in filters.chunks_exact(sizes.filter_words).zip(maps) {
            if row.len() == 1 {
                or_into(bits_at(bits, from) & low_bits(convolved.width), &mut map[rows.clone()]);
                continue;
            }
            for (index, word) in row.iter_mut().enumerate() {
                let used = low_bits(convolved.width.saturating_sub(index * 64));
                *word = bits_at(bits, from + index * 64) & used;
            }
            pool_across(row, rows.clone(), map);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_kernel::tests::{any_block, check};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bit_slices_equal_the_reference(case in any_block(InputKind::Bits, 1..140, 1..12)) {
            check::<BitSlices>(&case)?;
        }

        #[test]
        fn bit_slices_over_large_maps_equal_the_reference(case in any_block(InputKind::Bits, 1..6, 20..80)) {
            check::<BitSlices>(&case)?;
        }
    }
}
