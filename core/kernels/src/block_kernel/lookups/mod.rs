//! Binary weights over bits: products are counted by looking them up.
//!
//! Four channels of a pixel form a 4-bit number, the index into a table. Each table belongs to four weights of a filter: it says how
//! many of the four products are +1, for each of the 16 numbers. An instruction that shuffles bytes looks up 16 pixels at once in such
//! a table.
//!
//! ```text
//! a vector of 32 bytes     lower half: 16 bytes          upper half: 16 bytes
//! table of four weights    filter 0 in the low nibbles   filter 2 in the low nibbles
//! for four filters         filter 1 in the high nibbles  filter 3 in the high nibbles
//! ```
//!
//! One lookup and one addition count 256 products: 16 pixels, four channels, four filters. After three lookups the nibbles are nearly
//! full. Then the high nibbles are also summed separately. Bytes are added to 16-bit counts before they overflow.
//!
//! Tables are made when a section is loaded. Each run rearranges the input: first for each group of four channels one byte a pixel
//! (a plane), then for each word of 64 pixels the bytes that each kernel position sees (im2col). All filters read these bytes one
//! after the other. The result is a word of 64 pixels for each filter.
//!
//! A padded tap is neither +1 nor -1. With `p` padded taps and a bound `n` a pixel's bit is `2 * count + p >= n`, so half of `p` is
//! counted from the start. For odd `p` the half is rounded up if `n` is odd, and down if `n` is even: either leaves the result as it
//! is, since `2 * count + p` is odd.

mod prepare;
mod run;

use super::{Block, BlockKernel, BlockRun, InputLayout, WeightBits};
use crate::bit_map::BitLayout;
use crate::code_path::CodePath;
use crate::memory::{LookupVector, Needs, Scratch, Weights};
use crate::pixel_words::{self, PixelWords, WORD_PIXELS};
use crate::shape::{Convp, InputKind};
use crate::simd::{HALF, LANES, Simd};

/// Number of channels that one lookup counts.
const CHANNELS: usize = 4;
/// Number of filters whose counts one table holds.
const FILTERS: usize = 4;
/// Lookups before a nibble is full: `3 * 4 < 16`.
const TRIPLE: usize = 3;
/// Triples of lookups in one round of the inner loop.
const UNROLLED: usize = 2;
/// Rounds before a byte is full: `10 * 2 * 12 < 256`.
const MAX_ROUNDS: usize = 10;
/// Lookups of one round.
const ROUND_LOOKUPS: usize = TRIPLE * UNROLLED;
/// Number of vectors of 16 pixels that are counted together, as many as there are registers for their counts.
const WORD_VECTORS: usize = 4;
const _: () = assert!(WORD_VECTORS * HALF == WORD_PIXELS, "together they are a word");
/// Number of vectors of bounds for four filters: two vectors with the numbers that the counts of the first and the second filter of each
/// half must exceed, then two vectors with the parities of the bounds `n` of these filters.
const BOUNDS: usize = 4;
/// Index for a pixel outside the map: the lookup gives 0, whatever the lower bits of the index are.
const ABSENT: u8 = 0x80;
/// Bytes of a cache line.
const CACHE_LINE: usize = 64;

pub(super) struct Lookups;

impl BlockKernel for Lookups {
    const INPUT: InputLayout = InputLayout::Contiguous;

    fn supports(shape: Convp, input: InputKind, path: CodePath) -> bool {
        path.has_byte_lookup() && pixel_words::supports(shape, input, path)
    }

    #[inline(always)]
    fn needs(shape: Convp) -> Needs {
        let sizes = Sizes::of(shape);
        Needs {
            vectors: sizes.tables() + sizes.masks() + sizes.padded() + sizes.filter_groups * BOUNDS,
            bytes: sizes.planes() + sizes.rounds * ROUND_LOOKUPS * WORD_VECTORS * LANES + CACHE_LINE,
            sums: (1 + sizes.filter_groups) * WORD_VECTORS * 4 * HALF + CACHE_LINE / 2,
            words: sizes.filter_groups * FILTERS,
            ..Needs::default()
        }
    }

    fn output(shape: Convp) -> BitLayout {
        PixelWords::of(shape).output
    }

    fn prepare(shape: Convp, weights: WeightBits<'_>, prepared: &mut Weights<'_>) {
        prepare::prepare(&Sizes::of(shape), weights, prepared);
    }

    #[inline(always)]
    fn run<S: Simd>(simd: S, block: &Block<'_>, scratch: &mut Scratch<'_>, output: &mut [u64]) {
        simd.with_byte_lookup(BlockRun { block, scratch, output });
    }
}

/// Sizes of a block's tables and planes.
#[derive(Clone, Copy)]
struct Sizes {
    pixels: PixelWords,
    /// Groups of four channels; the last group may be incomplete.
    channel_groups: usize,
    /// Groups of four filters; the last group may be incomplete.
    filter_groups: usize,
    /// Rounds of the inner loop for a filter and a pixel. There is a lookup for each channel group and kernel position; the last
    /// round is filled up with lookups of nothing.
    rounds: usize,
    /// Largest number of rounds in a pass. After each pass bytes are added to 16-bit counts.
    pass_rounds: usize,
    /// Number of words at the top whose pixels may see padding above the map.
    top: usize,
    /// First word whose pixels may see padding below the map.
    bottom: usize,
    /// Number of words after which pixels lie in the same columns again, so that masks are shared; 0 if masks are not shared.
    period: usize,
    /// Bytes from the plane of a channel group to the next plane, at least 64.
    plane: usize,
}

impl Sizes {
    #[inline(always)]
    fn of(shape: Convp) -> Self {
        let (pixels, kernel) = (PixelWords::of(shape), shape.conv.kernel);
        let pitch = pixels.pitch;
        let channel_groups = shape.input.channels.div_ceil(CHANNELS);
        let rounds = (channel_groups * kernel * kernel).div_ceil(ROUND_LOOKUPS);
        let plane = shape.input.height * pitch;
        let top = (shape.conv.pad * pitch).div_ceil(WORD_PIXELS);
        let bottom = shape.convolved().height.saturating_sub(shape.conv.pad) * pitch / WORD_PIXELS;
        // The pitch divided by its greatest common divisor with 64.
        let (zeros, max_zeros) = (pitch.trailing_zeros(), WORD_PIXELS.trailing_zeros());
        let period = pitch >> if zeros < max_zeros { zeros } else { max_zeros };
        Self {
            pixels,
            channel_groups,
            filter_groups: shape.filters.div_ceil(FILTERS),
            rounds,
            // As few passes as possible, of about equal length: the work at the end of a pass is the same for every length.
            pass_rounds: rounds.div_ceil(rounds.div_ceil(MAX_ROUNDS)),
            top,
            bottom,
            period: if top + period < bottom { period } else { 0 },
            plane: if plane > WORD_PIXELS { plane } else { WORD_PIXELS },
        }
    }

    const fn kernel_area(&self) -> usize {
        self.pixels.shape.conv.kernel * self.pixels.shape.conv.kernel
    }

    /// Bytes of all planes, with room after the last: whole words of 64 pixels are read and written.
    const fn planes(&self) -> usize {
        let last_start = (self.pixels.shape.conv.kernel - 1) * (self.pixels.pitch + 1);
        let read = self.pixels.words * WORD_PIXELS + last_start;
        self.channel_groups * self.plane + read + self.pixels.leading_padding() + WORD_PIXELS
    }

    /// Number of padding patterns of words of 64 pixels. Words before `top` and from `bottom` on have a pattern each. Between them the
    /// patterns repeat every `period` words:
    ///
    /// ```text
    /// word      0 .. top    top .. bottom       bottom ..
    /// pattern   one each    0 1 2 0 1 2 0 1 2   one each     period 3
    /// ```
    const fn word_kinds(&self) -> usize {
        if self.period == 0 {
            self.pixels.words
        } else {
            self.top + self.period + self.pixels.words - self.bottom
        }
    }

    /// Index of the padding pattern of a word.
    const fn kind(&self, word: usize) -> usize {
        if self.period == 0 || word < self.top {
            word
        } else if word < self.bottom {
            self.top + (word - self.top) % self.period
        } else {
            self.top + self.period + word - self.bottom
        }
    }

    /// The first word that has the padding pattern `kind`.
    const fn first_word(&self, kind: usize) -> usize {
        if self.period == 0 || kind < self.top + self.period {
            kind
        } else {
            self.bottom + kind - self.top - self.period
        }
    }

    /// Number of vectors of all tables.
    const fn tables(&self) -> usize {
        self.filter_groups * self.rounds * ROUND_LOOKUPS
    }

    /// Number of vectors that mask padding: [`WORD_VECTORS`] for each padding pattern and kernel position.
    const fn masks(&self) -> usize {
        self.word_kinds() * self.kernel_area() * WORD_VECTORS
    }

    /// Number of vectors of padded taps: for each padding pattern and vector of pixels one for even pixels, then one for odd pixels.
    const fn padded(&self) -> usize {
        self.word_kinds() * WORD_VECTORS * 2
    }

    /// True if the shape makes the number of padded taps even at every pixel. Half of each number is then stored, otherwise the number.
    const fn is_padding_even(&self) -> bool {
        let shape = self.pixels.shape;
        shape.conv.pad == 0 || shape.input.channels.is_multiple_of(2)
    }
}

/// Prepared weights.
///
/// ```text
/// tables | masks | padded | bounds
/// ```
struct Prepared<'a> {
    tables: &'a [LookupVector],
    masks: &'a [LookupVector],
    padded: &'a [LookupVector],
    bounds: &'a [LookupVector],
}

impl<'a> Prepared<'a> {
    #[inline(always)]
    fn of(sizes: &Sizes, vectors: &'a [LookupVector]) -> Self {
        let (tables, rest) = vectors.split_at(sizes.tables());
        let (masks, rest) = rest.split_at(sizes.masks());
        let (padded, bounds) = rest.split_at(sizes.padded());
        Self { tables, masks, padded, bounds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_kernel::tests::{any_block, check};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lookups_equal_the_reference(case in any_block(InputKind::Bits, 1..140, 1..12)) {
            check::<Lookups>(&case)?;
        }

        #[test]
        fn lookups_over_large_maps_equal_the_reference(case in any_block(InputKind::Bits, 1..6, 20..80)) {
            check::<Lookups>(&case)?;
        }
    }
}
