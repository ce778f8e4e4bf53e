//! Transposition of rows: the channels of a pixel become neighbours.

use crate::bit_map::or_bits_at;
use crate::block_kernel::BlockInput;
use crate::shape::Convp;

/// Words of a transposed row with its padding, and one more to read past the end of a run.
pub(super) const fn row_words(shape: Convp) -> usize {
    ((shape.input.width + 2 * shape.conv.pad) * shape.input.channels).div_ceil(64) + 1
}

/// Transposes rows `[channel, row, column]` into `[row, column, channel]`, with zeros as padding on both sides of a row.
#[inline(always)]
pub(super) fn transpose(shape: Convp, input: BlockInput<'_>, rows: &mut [u64]) {
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
