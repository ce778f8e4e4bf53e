//! The pixels of a block's input in words of 64: their order, their padding, and their output bits.
//!
//! Pixels are numbered row after row. The distance from one row to the next, the pitch, is the larger of the widths before and
//! after the convolution, so that a pixel of the output has the number of the first input pixel under its kernel:
//!
//! ```text
//! input 5 wide, output 3 wide (kernel 3, no padding), pitch 5; kernel position (1, 2) of output pixel 5 sees input pixel 12
//!
//!    input           output           x: unused
//!    0  1  2  3  4   0  1  2  x  x
//!    5  6  7  8  9   5  6  7  x  x    kernel position (ky, kx) of pixel p sees pixel p + ky * pitch + kx
//!   10 11 12 13 14  10 11 12  x  x
//! ```
//!
//! A padded tap sees padding, which is neither +1 nor -1. Half of a pixel's padded taps are counted from the start, so that one
//! comparison serves all pixels.

use core::ops::Range;

use crate::bit_map::{BitLayout, low_bits, or_bits_at, or_into};
use crate::code_path::CodePath;
use crate::pooling::pooled_rows;
use crate::shape::{Convp, InputKind, Map, Window};
use crate::threshold::Threshold;

/// Number of pixels in a word, one bit each.
pub(crate) const WORD_PIXELS: usize = 64;

/// Largest kernel side.
const MAX_KERNEL: usize = 16;

/// True if a block can be computed over words of pixels: the input is bits, the stride 1, the kernel at most 16, counts fit in 16 bits,
/// and the path is not of least memory.
pub(crate) fn supports(shape: Convp, input: InputKind, path: CodePath) -> bool {
    // The rearranged maps are larger than the input, so paths of least memory do not use them.
    input == InputKind::Bits
        && !path.is_low_memory()
        && shape.conv.stride == 1
        && shape.conv.kernel <= MAX_KERNEL
        && shape.taps() < i16::MAX as usize
}

/// Sizes and output layout of a block whose pixels lie in words.
#[derive(Clone, Copy)]
pub(crate) struct PixelWords {
    pub(crate) shape: Convp,
    /// Distance in pixels from the start of one row to the start of the next.
    pub(crate) pitch: usize,
    /// Number of words of 64 output pixels.
    pub(crate) words: usize,
    /// Memory layout of the output: contiguous if there is no pooling and rows have no unused pixels.
    pub(crate) output: BitLayout,
    /// Rows and columns after the convolution, and rows after the pooling.
    height: usize,
    width: usize,
    pooled_height: usize,
}

/// An output pixel, and the kernel rows and columns that lie on the map at this pixel.
pub(crate) struct PixelPadding {
    pub(crate) pixel: usize,
    pub(crate) rows: Range<usize>,
    pub(crate) columns: Range<usize>,
    /// Number of taps that see padding.
    pub(crate) padded_taps: usize,
}

impl PixelWords {
    #[inline(always)]
    pub(crate) fn of(shape: Convp) -> Self {
        let Map { height, width, .. } = shape.convolved();
        let pitch = shape.input.width.max(width);
        let no_pooling = Window { kernel: 1, stride: 1, pad: 0 };
        let is_contiguous = shape.pool == no_pooling && pitch == width;
        let output = if is_contiguous { BitLayout::Contiguous } else { BitLayout::Rows(shape.row_words()) };
        let words = (height * pitch).div_ceil(WORD_PIXELS);
        Self { shape, pitch, words, output, height, width, pooled_height: shape.pool.positions(height) }
    }

    /// Number of pixels after the convolution, unused pixels between rows included.
    pub(crate) const fn len(&self) -> usize {
        self.height * self.pitch
    }

    /// Number of padding pixels before the first pixel of the map.
    pub(crate) const fn leading_padding(&self) -> usize {
        self.shape.conv.pad * (self.pitch + 1)
    }

    /// Calls `visit` for each output pixel, except for the unused pixels between rows.
    pub(crate) fn each_pixel(&self, mut visit: impl FnMut(PixelPadding)) {
        let Convp { input, conv, .. } = self.shape;
        for y in 0..self.height {
            let (top, bottom) = conv.inside(y, input.height);
            for x in 0..self.width {
                let (left, right) = conv.inside(x, input.width);
                let seen = (bottom - top) * (right - left) * input.channels;
                visit(PixelPadding {
                    pixel: y * self.pitch + x,
                    rows: top..bottom,
                    columns: left..right,
                    padded_taps: self.shape.taps() - seen,
                });
            }
        }
    }

    /// Writes the output bits of the 64 pixels of word `word`; `bits` has at least one word for each filter.
    ///
    /// Output in rows is pooled across rows, but not yet inverted. Contiguous output is inverted for filters with a flipped threshold.
    #[inline(always)]
    pub(crate) fn write(&self, word: usize, bits: &[u64], thresholds: &[Threshold], output: &mut [u64]) {
        match self.output {
            BitLayout::Contiguous => self.write_contiguous(word, bits, thresholds, output),
            BitLayout::Rows(row_words) => self.write_rows(word, bits, row_words, output),
        }
    }

    #[inline(always)]
    fn write_contiguous(&self, word: usize, bits: &[u64], thresholds: &[Threshold], output: &mut [u64]) {
        let used = low_bits(self.len() - word * WORD_PIXELS);
        let bits = bits.iter().zip(thresholds);
        let bits = bits.map(|(bits, threshold)| if threshold.flipped { !bits & used } else { bits & used });
        if self.len().is_multiple_of(WORD_PIXELS) {
            // No two filters share a word of the output.
            for (bits, map) in bits.zip(output.chunks_exact_mut(self.words)) {
                map[word] = bits;
            }
            return;
        }
        for (filter, bits) in bits.enumerate() {
            or_bits_at(output, filter * self.len() + word * WORD_PIXELS, bits);
        }
    }

    /// ORs the bits of 64 pixels into the pooled rows whose windows contain these pixels.
    #[inline(always)]
    fn write_rows(&self, word: usize, bits: &[u64], row_words: usize, output: &mut [u64]) {
        let Self { height, width, pooled_height, .. } = *self;
        let (first, end) = (word * WORD_PIXELS, (word + 1) * WORD_PIXELS);
        for y in first / self.pitch..end.div_ceil(self.pitch).min(height) {
            // The word may hold only a part of the row. The part begins at `column` of the row and at bit `from` of the word.
            let (start, column) = (y * self.pitch, first.saturating_sub(y * self.pitch));
            if column >= width {
                continue;
            }
            let from = (start + column) - first;
            let used = low_bits((width - column).min(WORD_PIXELS - from));
            let Range { start: top, end: bottom } = pooled_rows(self.shape.pool, y, pooled_height);
            let filters = bits.iter().zip(output.chunks_exact_mut(pooled_height * row_words));
            if row_words == 1 {
                let filters = filters.map(|(bits, map)| ((bits >> from & used) << column, map));
                // A row mostly belongs to one or two pooled rows; both cases are written out.
                match bottom - top {
                    1 => filters.for_each(|(bits, map)| map[top] |= bits),
                    2 => filters.for_each(|(bits, map)| or_into(bits, &mut map[top..top + 2])),
                    _ => filters.for_each(|(bits, map)| or_into(bits, &mut map[top..bottom])),
                }
                continue;
            }
            for (bits, map) in filters {
                // Rows are indexed: chunks would divide by `row_words` for each filter.
                for row in top..bottom {
                    or_bits_at(&mut map[row * row_words..][..row_words], column, bits >> from & used);
                }
            }
        }
    }
}
