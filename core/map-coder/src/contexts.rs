//! Contexts: the ten bits on which the probability of a bit depends.
//!
//! ```text
//!  same channel            same place in the channels before
//!        .  3  .
//!        4  2  5             6 (one before)  7  8  9 (four before)
//!  1  0  x
//! ```
//!
//! The number at a place is the bit of the context that has the value there; `x` is the bit being coded. Places outside the map are 0.
//! JBIG (ITU-T T.82) has such templates for maps of one channel.

use crate::MapShape;
use crate::rows::{bit, read_row};
use crate::shape::{RowWord, WORD_COLUMNS};

/// Number of contexts of each channel.
///
/// Bit 0 of a context is the value left of the coded one, bit 1 two to the left, bit 2 above, bit 3 two above, bit 4 above left, bit 5
/// above right, bits 6 to 9 the same place one to four channels before. Outside the map a value is 0.
pub const CONTEXTS: usize = 1024;

/// The bits near a word of a row that is coded. They are known before the first bit of that word.
pub(crate) struct NearRows {
    above: u64,
    /// For each column the value above left, and above right; the outermost values lie in the words before and after.
    above_left: u64,
    above_right: u64,
    two_above: u64,
    /// The rows at the same height one to four channels before; zero for channels before the first.
    before: [u64; 4],
    /// The two values to the left of the word: the nearer one is bit 0.
    left: usize,
}

impl NearRows {
    /// Reads the bits near a word that lies in `channel` and `row`.
    pub(crate) fn read(map: &[u8], shape: MapShape, [channel, row]: [usize; 2], word: RowWord) -> Self {
        let RowWord { start, column, width } = word;
        let plane = shape.height() * shape.width();
        let mut near =
            Self { above: 0, above_left: 0, above_right: 0, two_above: 0, before: [0; 4], left: 0 };
        for (before, back) in near.before.iter_mut().zip(1..=channel) {
            *before = read_row(map, start - back * plane, width);
        }
        if row >= 1 {
            let start = start - shape.width();
            near.above = read_row(map, start, width);
            (near.above_left, near.above_right) = (near.above << 1, near.above >> 1);
            if column > 0 {
                near.above_left |= u64::from(bit(map, start - 1));
            }
            if column + width < shape.width() {
                near.above_right |= u64::from(bit(map, start + width)) << (WORD_COLUMNS - 1);
            }
        }
        if row >= 2 {
            near.two_above = read_row(map, start - 2 * shape.width(), width);
        }
        if column > 0 {
            near.left = usize::from(bit(map, start - 1)) | usize::from(bit(map, start - 2)) << 1;
        }
        near
    }

    /// Goes through the columns of the word: `bit_of` gets the column in the word and the context, and returns the bit there. `visit`
    /// returns the word.
    #[inline]
    pub(crate) fn visit(&self, width: usize, mut bit_of: impl FnMut(usize, usize) -> bool) -> u64 {
        let mut row = 0;
        // The value to the left is bit 0, the one two to the left bit 1.
        let mut left = self.left;
        for start in (0..width).step_by(8) {
            for (column, near) in (start..width).zip(self.eight_columns(start)) {
                let bit = bit_of(column, usize::from(near) << 2 | left);
                row |= u64::from(bit) << column;
                left = (left << 1 | usize::from(bit)) & 3;
            }
        }
        row
    }

    /// Bits 2 to 9 of the contexts of eight columns, from `start` on.
    fn eight_columns(&self, start: usize) -> [u8; 8] {
        let Self { above, above_left, above_right, two_above, before: [one, two, three, four], .. } = *self;
        let rows = [above, two_above, above_left, above_right, one, two, three, four];
        let mut bits = 0;
        for (near, row) in rows.iter().enumerate() {
            bits |= (row >> start & 0xff) << (8 * near);
        }
        transpose(bits).to_le_bytes()
    }
}

/// Transposes 8x8 bits: bit `i` of byte `j` becomes bit `j` of byte `i`. Swaps blocks of 1, 2 and 4 bits across the diagonal.
fn transpose(mut bits: u64) -> u64 {
    for (shift, mask) in
        [(7, 0x00aa_00aa_00aa_00aa), (14, 0x0000_cccc_0000_cccc), (28, 0x0000_0000_f0f0_f0f0)]
    {
        let swapped = (bits ^ bits >> shift) & mask;
        bits ^= swapped ^ swapped << shift;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn transposing_exchanges_bytes_and_bits(bytes: [u8; 8]) {
            let transposed = transpose(u64::from_le_bytes(bytes)).to_le_bytes();
            for (i, row) in transposed.iter().enumerate() {
                for (j, column) in bytes.iter().enumerate() {
                    prop_assert_eq!(row >> j & 1, column >> i & 1);
                }
            }
        }
    }
}
