//! Binary weights over bits, counted word by word: eight pixels at once, with an instruction that counts the bits of eight words.
//!
//! 64 channels of a pixel are a word, so a convolution window covers few words: nine for a window of 3x3 over 64 channels.
//! Equal bits multiply to +1 and different bits to -1, so a sum is the number of taps less twice the differing bits. The words of
//! eight pixels stay in registers while all filters pass: three instructions (exclusive or, bit count, addition) for 512 products.
//!
//! ```text
//! input, contiguous    [channel, pixel]  transposed to  [channel word, pixel]: bit i is channel i
//! vector               the words of 8 neighbouring pixels
//! patch of 8 pixels    a vector for each channel word and kernel position
//! ```
//!
//! One ternary-logic instruction does the exclusive or and masks padded taps. Half of the padded taps count as differing from the
//! start, so that one comparison serves all pixels.
//!
//! Below 48 channels words are partly empty and take as long as full ones. Such blocks are left to [`Lookups`](super::lookups::Lookups).

mod run;
mod transpose;

use super::{Block, BlockKernel, BlockRun, InputLayout, WeightBits};
use crate::bit_map::BitLayout;
use crate::code_path::CodePath;
use crate::memory::{Needs, Scratch, Weights};
use crate::pixel_words::{self, PixelPadding, PixelWords, WORD_PIXELS};
use crate::shape::{Convp, InputKind};
use crate::simd::{Simd, WORDS};

/// Largest number of words of a patch that are counted in one pass over the filters: these words and their masks stay in registers.
const MAX_PASS_WORDS: usize = 9;
/// Vectors for the 64 pixels whose output bits make one word; a vector has the channel words of 8 pixels.
const WORD_VECTORS: usize = WORD_PIXELS / WORDS;
/// Number of channels of a pixel whose bits make one word.
const WORD_CHANNELS: usize = 64;
/// Words of a cache line.
const LINE_WORDS: usize = 8;
/// Fewest channels for which this kernel is faster than lookups (docs/results/kernels.md).
const MIN_CHANNELS: usize = 48;

pub(super) struct Popcounts;

impl BlockKernel for Popcounts {
    const INPUT: InputLayout = InputLayout::Contiguous;

    fn supports(shape: Convp, input: InputKind, path: CodePath) -> bool {
        path.has_word_popcount()
            && shape.input.channels >= MIN_CHANNELS
            && pixel_words::supports(shape, input, path)
    }

    #[inline(always)]
    fn needs(shape: Convp) -> Needs {
        let sizes = Sizes::of(shape);
        let buffers = sizes.transposed() + (2 * sizes.patch + shape.filters) * WORDS + shape.filters;
        Needs {
            weights: sizes.weights() + sizes.padding() + 2 * shape.filters,
            words: buffers + LINE_WORDS,
            bytes: shape.filters * WORD_VECTORS,
            ..Needs::default()
        }
    }

    fn output(shape: Convp) -> BitLayout {
        PixelWords::of(shape).output
    }

    /// Writes the words of [`Prepared`].
    fn prepare(shape: Convp, weights: WeightBits<'_>, prepared: &mut Weights<'_>) {
        let (sizes, area) = (Sizes::of(shape), shape.conv.kernel * shape.conv.kernel);
        let (words, rest) = prepared.words.split_at_mut(sizes.weights());
        fill_weights(&sizes, weights, words);
        let (offsets, rest) = rest.split_at_mut(area);
        for (position, offset) in offsets.iter_mut().enumerate() {
            let (ky, kx) = (position / shape.conv.kernel, position % shape.conv.kernel);
            *offset = (ky * sizes.pixels.pitch + kx) as u64;
        }
        let (inside, rest) = rest.split_at_mut(sizes.pixels.words * area);
        let (padded, rest) = rest.split_at_mut(sizes.pixels.words * (sizes.digits + 1));
        fill_padding(&sizes, inside, padded);
        let (max_even, max_odd) = rest.split_at_mut(shape.filters);
        for ((even, odd), threshold) in max_even.iter_mut().zip(max_odd).zip(&*prepared.thresholds) {
            // `max` is the limit of twice the differing bits plus the padded taps. Half of an odd number of padded taps is rounded down,
            // so the limit is one less for pixels with such a number.
            let max = i64::from(shape.taps() as i32 - threshold.from);
            *even = (max >> 1).cast_unsigned();
            *odd = ((max - 1) >> 1).cast_unsigned();
        }
    }

    #[inline(always)]
    fn run<S: Simd>(simd: S, block: &Block<'_>, scratch: &mut Scratch<'_>, output: &mut [u64]) {
        simd.with_word_popcount(BlockRun { block, scratch, output });
    }
}

/// Sizes of a block's patches and weights.
#[derive(Clone, Copy)]
struct Sizes {
    pixels: PixelWords,
    /// Number of words that the channels of one pixel take.
    channel_words: usize,
    /// Number of words of a patch, rounded up to a multiple of `pass_words`.
    patch: usize,
    /// Number of words of a patch that are counted in one pass over the filters.
    pass_words: usize,
    /// Binary digits of the number of taps, which the number of padded taps never exceeds.
    digits: usize,
    /// Number of words of 64 pixels before the first pixel of the map.
    leading_words: usize,
    /// Number of words of 64 pixels of the whole map, with the pixels that kernels see before and after the map.
    map_words: usize,
}

impl Sizes {
    #[inline(always)]
    fn of(shape: Convp) -> Self {
        let (pixels, kernel) = (PixelWords::of(shape), shape.conv.kernel);
        let channel_words = shape.input.channels.div_ceil(WORD_CHANNELS);
        let patch = kernel * kernel * channel_words;
        let pass_words = patch.div_ceil(patch.div_ceil(MAX_PASS_WORDS));
        let leading_words = pixels.leading_padding().div_ceil(WORD_PIXELS);
        // Whole words of pixels are read.
        let read = (pixels.words + leading_words) * WORD_PIXELS + (kernel - 1) * (pixels.pitch + 1);
        let written = leading_words * WORD_PIXELS + shape.input.height * pixels.pitch;
        Self {
            pixels,
            channel_words,
            patch: patch.next_multiple_of(pass_words),
            pass_words,
            digits: (usize::BITS - shape.taps().leading_zeros()) as usize,
            leading_words,
            map_words: (if read > written { read } else { written }).div_ceil(WORD_PIXELS),
        }
    }

    const fn kernel_area(&self) -> usize {
        self.pixels.shape.conv.kernel * self.pixels.shape.conv.kernel
    }

    /// Number of words that the weights of all filters take.
    const fn weights(&self) -> usize {
        self.pixels.shape.filters * self.patch
    }

    /// Words of [`Padding`].
    const fn padding(&self) -> usize {
        self.kernel_area() + self.pixels.words * (self.kernel_area() + self.digits + 1)
    }

    /// Words of the transposed map.
    const fn transposed(&self) -> usize {
        self.channel_words * self.map_words * WORD_PIXELS
    }
}

fn fill_weights(sizes: &Sizes, weights: WeightBits<'_>, words: &mut [u64]) {
    let (shape, area) = (sizes.pixels.shape, sizes.kernel_area());
    words.fill(0);
    for filter in 0..shape.filters {
        for (position, channel) in (0..area * shape.input.channels).map(|tap| (tap % area, tap / area)) {
            let (word, bit) = (channel / WORD_CHANNELS * area + position, channel % WORD_CHANNELS);
            let (pass, of_pass) = (word / sizes.pass_words, word % sizes.pass_words);
            let index = (pass * shape.filters + filter) * sizes.pass_words + of_pass;
            words[index] |= u64::from(weights.is_positive(filter, channel * area + position)) << bit;
        }
    }
}

fn fill_padding(sizes: &Sizes, inside: &mut [u64], padded: &mut [u64]) {
    let (kernel, digits) = (sizes.pixels.shape.conv.kernel, sizes.digits + 1);
    inside.fill(0);
    padded.fill(0);
    sizes.pixels.each_pixel(|PixelPadding { pixel, rows, columns, padded_taps }| {
        let (word, bit) = (pixel / WORD_PIXELS, 1 << (pixel % WORD_PIXELS));
        for ky in rows {
            for kx in columns.clone() {
                inside[(word * kernel + ky) * kernel + kx] |= bit;
            }
        }
        for (digit, mask) in padded[word * digits..][..digits].iter_mut().enumerate() {
            *mask |= if padded_taps >> digit & 1 == 1 { bit } else { 0 };
        }
    });
}

/// Prepared weights.
///
/// ```text
/// weights [pass, filter, word of the pass] | padding | max_even [filter] | max_odd [filter]
/// ```
struct Prepared<'a> {
    weights: &'a [u64],
    padding: Padding<'a>,
    /// Largest number of differing bits and half of the padded taps with which the sum reaches the threshold, at pixels with an even number
    /// of padded taps.
    max_even: &'a [u64],
    /// The same limit at pixels with an odd number of padded taps, half of which is rounded down.
    max_odd: &'a [u64],
}

/// Kernel positions and padding.
///
/// ```text
/// offsets [position] | inside [word of pixels, position] | padded [word of pixels, binary digit]
/// ```
struct Padding<'a> {
    /// Distance, in pixels, of each kernel position from kernel position (0, 0).
    offsets: &'a [u64],
    /// Bit `i` is 1 if the kernel position of pixel `i` lies on the map.
    inside: &'a [u64],
    /// Bit `i` is the binary digit of the number of padded taps of pixel `i`.
    padded: &'a [u64],
}

impl<'a> Prepared<'a> {
    #[inline(always)]
    fn of(sizes: &Sizes, words: &'a [u64]) -> Self {
        let (weights, rest) = words.split_at(sizes.weights());
        let (padding, max) = rest.split_at(sizes.padding());
        let (offsets, padding) = padding.split_at(sizes.kernel_area());
        let (inside, padded) = padding.split_at(sizes.pixels.words * sizes.kernel_area());
        let (max_even, max_odd) = max.split_at(sizes.pixels.shape.filters);
        Self { weights, padding: Padding { offsets, inside, padded }, max_even, max_odd }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_kernel::tests::{any_block, check};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn popcounts_equal_the_reference(case in any_block(InputKind::Bits, 48..200, 1..20)) {
            check::<Popcounts>(&case)?;
        }
    }
}
