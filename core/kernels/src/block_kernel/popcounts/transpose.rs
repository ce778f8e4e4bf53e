//! Transposition of a contiguous map: from bits of pixels, channel by channel, to words of channels, pixel by pixel.

use super::{Sizes, WORD_CHANNELS};
use crate::bit_map::{bits_at, low_bits};
use crate::pixel_words::WORD_PIXELS;
use crate::shape::Map;
use crate::simd::WordPopcount;

/// Transposes a map into `[channel word, pixel]`. Masks remove the words before, between and after the rows.
#[inline(always)]
pub(super) fn transpose<P: WordPopcount>(ops: P, sizes: &Sizes, contiguous: &[u64], transposed: &mut [u64]) {
    let Map { channels, height, width } = sizes.pixels.shape.input;
    let (map, pitch) = (height * width, sizes.pixels.pitch);
    for (index, transposed) in transposed.chunks_exact_mut(sizes.map_words * WORD_PIXELS).enumerate() {
        let (squares, _) = transposed[sizes.leading_words * WORD_PIXELS..].as_chunks_mut::<WORD_PIXELS>();
        let channels = index * WORD_CHANNELS..channels.min((index + 1) * WORD_CHANNELS);
        for (word, square) in squares.iter_mut().take((height * pitch).div_ceil(WORD_PIXELS)).enumerate() {
            let rows = square.iter_mut();
            if pitch != width {
                let bits = |channel| spread_rows(sizes, contiguous, channel, word * WORD_PIXELS);
                rows.zip(channels.clone()).for_each(|(row, channel)| *row = bits(channel));
            } else if map.is_multiple_of(WORD_PIXELS) {
                // Channels share no words, and neither layout has gaps between rows.
                let words = map / WORD_PIXELS;
                let of_word = contiguous[channels.start * words + word..].iter().step_by(words);
                rows.zip(of_word.take(channels.len())).for_each(|(row, word)| *row = *word);
            } else {
                // Without gaps between rows the map is one long row.
                let bits = |channel: usize| bits_at(contiguous, channel * map + word * WORD_PIXELS);
                rows.zip(channels.clone()).for_each(|(row, channel)| *row = bits(channel));
            }
            square[channels.len()..].fill(0);
            transpose_square(ops, square);
        }
    }
}

/// The 64 pixels of a channel from pixel `from` on, counted with gaps between rows; the gaps are zero.
fn spread_rows(sizes: &Sizes, contiguous: &[u64], channel: usize, from: usize) -> u64 {
    let (Map { height, width, .. }, pitch) = (sizes.pixels.shape.input, sizes.pixels.pitch);
    let mut bits = 0;
    for row in from / pitch..(from + WORD_PIXELS).div_ceil(pitch).min(height) {
        let (start, column) = (row * pitch, from.saturating_sub(row * pitch));
        if column < width {
            let at = (channel * height + row) * width + column;
            bits |= (bits_at(contiguous, at) & low_bits(width - column)) << (start + column - from);
        }
    }
    bits
}

/// Transposes a square of 64 by 64 bits: each step exchanges squares on both sides of the diagonal, of half the side of the step
/// before (Hacker's Delight, 7-3).
#[inline(always)]
fn transpose_square<P: WordPopcount>(ops: P, square: &mut [u64; 64]) {
    exchange::<32>(square, 0x0000_0000_ffff_ffff);
    exchange::<16>(square, 0x0000_ffff_0000_ffff);
    exchange::<8>(square, 0x00ff_00ff_00ff_00ff);
    for rows in square.as_chunks_mut().0 {
        ops.store(ops.transpose_bytes(ops.load(rows)), rows);
    }
}

/// Exchanges the squares of `SIDE` rows and columns on both sides of the diagonal. `low` has the columns whose number has the bit `SIDE`
/// clear.
#[inline(always)]
fn exchange<const SIDE: usize>(rows: &mut [u64; 64], low: u64) {
    for rows in rows.chunks_exact_mut(2 * SIDE) {
        let (upper, lower) = rows.split_at_mut(SIDE);
        for (upper, lower) in upper.iter_mut().zip(lower) {
            let exchanged = *upper & low | (*lower & low) << SIDE;
            *lower = *lower & !low | *upper >> SIDE & low;
            *upper = exchanged;
        }
    }
}
