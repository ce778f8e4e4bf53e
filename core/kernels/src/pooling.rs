//! Max pooling of bits: an OR of the bits in each window, first across rows, then along each row.
//!
//! ```text
//! rows of a convolution      pooled across rows      pooled along rows
//!      (window 2, stride 2)
//!         0 1 0 0
//!         0 0 0 1       ->        0 1 0 1       ->        1 1
//!         1 0 0 0
//!         0 0 0 0       ->        1 0 0 0       ->        1 0
//! ```

use core::ops::Range;

use crate::bit_map::{low_bits, or_into};
use crate::shape::{Convp, Window, quotient, remainder};
use crate::threshold::Threshold;

/// The pooling of DDNN.
const DDNN_POOL: Window = Window { kernel: 3, stride: 2, pad: 1 };

/// Pooled rows whose window contains row `row` of the convolution; `height` is the number of pooled rows.
#[inline(always)]
pub(crate) fn pooled_rows(pool: Window, row: usize, height: usize) -> Range<usize> {
    let reach = row + pool.pad;
    let from = quotient((reach + 1).saturating_sub(pool.kernel) + pool.stride - 1, pool.stride);
    let to = (quotient(reach, pool.stride) + 1).min(height);
    from.min(to)..to
}

/// ORs a row of the convolution into pooled rows of one channel.
#[inline(always)]
pub(crate) fn pool_across(bits: &[u64], rows: Range<usize>, channel: &mut [u64]) {
    if let [bits] = bits {
        return or_into(*bits, &mut channel[rows]);
    }
    for row in channel[rows.start * bits.len()..rows.end * bits.len()].chunks_exact_mut(bits.len()) {
        row.iter_mut().zip(bits).for_each(|(row, bits)| *row |= bits);
    }
}

/// Pools each row of all filters along its columns, and inverts the rows of filters with a flipped threshold.
///
/// A pooled row has as many bits as the output has columns; the bits after them are zero.
#[inline(always)]
pub(crate) fn pool_rows(shape: Convp, thresholds: &[Threshold], row_words: usize, output: &mut [u64]) {
    let pooled = shape.pool.positions(shape.convolved().width);
    pool_along(shape.pool, pooled, row_words, output);
    let channels = output.chunks_exact_mut(output.len() / shape.filters);
    for (_, rows) in thresholds.iter().zip(channels).filter(|(threshold, _)| threshold.flipped) {
        invert(pooled, row_words, rows);
    }
}

/// Inverts the first `pooled` bits of each row; the bits after them stay zero.
#[inline(always)]
fn invert(pooled: usize, row_words: usize, rows: &mut [u64]) {
    if row_words == 1 {
        let inside = low_bits(pooled);
        return rows.iter_mut().for_each(|row| *row ^= inside);
    }
    for row in rows.chunks_exact_mut(row_words) {
        row.iter_mut().for_each(|word| *word = !*word);
        clear_from(pooled, row);
    }
}

/// Pools rows of `row_words` words into `pooled` bits each, in place.
#[inline(always)]
fn pool_along(pool: Window, pooled: usize, row_words: usize, rows: &mut [u64]) {
    let inside = low_bits(pooled);
    if pool.kernel == 1 && pool.stride == 1 {
        // A window of one column leaves the row as it is.
    } else if row_words > 1 && pool == DDNN_POOL {
        pool_long_ddnn(pooled, row_words, rows);
    } else if row_words > 1 || pooled.saturating_sub(1) * pool.stride >= 64 {
        for row in rows.chunks_exact_mut(row_words) {
            pool_long(pool, pooled, row);
            clear_from(pooled, row);
        }
    } else if pool == DDNN_POOL {
        // The pooling of DDNN is written out, without a loop over the window.
        rows.iter_mut().for_each(|row| *row = every(2, *row | *row << 1 | *row >> 1) & inside);
    } else {
        rows.iter_mut().for_each(|row| *row = every(pool.stride, pool_words(pool, [0, *row, 0])) & inside);
    }
}

/// Clears the bits of a row from index `length` on.
fn clear_from(length: usize, row: &mut [u64]) {
    if !length.is_multiple_of(64)
        && let Some(word) = row.get_mut(length / 64)
    {
        *word &= (1 << (length % 64)) - 1;
    }
    row.iter_mut().skip(length.div_ceil(64)).for_each(|word| *word = 0);
}

/// Collects the bits `0, stride, 2 * stride, ..` at the low end of a word.
#[inline(always)]
fn every(stride: usize, word: u64) -> u64 {
    match stride {
        1 => word,
        2 => {
            // Hacker's Delight, 7-4: each step joins neighbouring groups of bits into groups of twice the length.
            let mut w = word & 0x5555_5555_5555_5555;
            w = (w | w >> 1) & 0x3333_3333_3333_3333;
            w = (w | w >> 2) & 0x0f0f_0f0f_0f0f_0f0f;
            w = (w | w >> 4) & 0x00ff_00ff_00ff_00ff;
            w = (w | w >> 8) & 0x0000_ffff_0000_ffff;
            (w | w >> 16) & 0x0000_0000_ffff_ffff
        }
        _ => (0..64usize.div_ceil(stride)).fold(0, |all, x| all | (word >> (x * stride) & 1) << x),
    }
}

/// Pools rows of several words into `pooled` bits each, with the window [`DDNN_POOL`]. Every second bit is collected in one loop over the
/// words of all rows, which the compiler vectorizes.
#[inline(always)]
fn pool_long_ddnn(pooled: usize, row_words: usize, rows: &mut [u64]) {
    for row in rows.chunks_exact_mut(row_words) {
        let mut before = 0;
        for at in 0..row_words {
            let (word, after) = (row[at], row.get(at + 1).copied().unwrap_or(0));
            row[at] = word | word << 1 | before >> 63 | word >> 1 | after << 63;
            before = word;
        }
    }
    rows.iter_mut().for_each(|word| *word = every(2, *word));
    for row in rows.chunks_exact_mut(row_words) {
        for at in 0..row_words {
            let half = |at: usize| row.get(at).copied().unwrap_or(0);
            row[at] = half(2 * at) | half(2 * at + 1) << 32;
        }
        clear_from(pooled, row);
    }
}

/// Pools a row of several words into `length` bits.
fn pool_long(pool: Window, length: usize, row: &mut [u64]) {
    let mut before = 0;
    for at in 0..length.div_ceil(64) {
        let word = |at: usize| row.get(at).copied().unwrap_or(0);
        let mut pooled = 0;
        for part in 0..pool.stride {
            let from = at * pool.stride + part;
            // At stride 1 the word before `from` is already overwritten in `row`; `before` has the content that the word had.
            let last = if from > at { word(from - 1) } else { before };
            let any = pool_words(pool, [last, word(from), word(from + 1)]);
            // First bit of input word `from` whose column is a multiple of the stride; `pool_words` has applied the padding.
            let first = remainder(pool.stride - remainder(part * 64, pool.stride), pool.stride);
            pooled |= every(pool.stride, any >> first) << quotient(part * 64 + first, pool.stride);
        }
        before = word(at);
        row[at] = pooled;
    }
}

/// A word whose bit `x` is the OR of the bits `x - pad + (0..kernel)` of `word`, which lies between the words `before` and `after`.
fn pool_words(pool: Window, [before, word, after]: [u64; 3]) -> u64 {
    (0..pool.kernel).fold(0, |any, column| {
        let shifted = if column < pool.pad {
            let left = pool.pad - column;
            word << left | before >> (64 - left)
        } else {
            let right = column - pool.pad;
            // Two shifts, because one shift by 64 would overflow.
            word >> right | after << 1 << (63 - right)
        };
        any | shifted
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    fn pack(bits: &[bool]) -> Vec<u64> {
        let mut row = vec![0; bits.len().div_ceil(64)];
        for (x, &bit) in bits.iter().enumerate() {
            row[x / 64] |= u64::from(bit) << (x % 64);
        }
        row
    }

    fn any_window() -> impl Strategy<Value = Window> {
        let any = (1usize..9, 1usize..6).prop_flat_map(|(kernel, stride)| {
            (0..kernel).prop_map(move |pad| Window { kernel, stride, pad })
        });
        prop_oneof![3 => any, 1 => Just(DDNN_POOL)]
    }

    proptest! {
        #[test]
        fn pooling_along_a_row_is_an_or_of_its_windows(
            bits in prop::collection::vec(any::<bool>(), 9..200), pool in any_window(), flipped in any::<bool>(),
        ) {
            let mut row = pack(&bits);
            row.resize(row.len().max(pool.positions(bits.len()).div_ceil(64)), 0);
            let (words, pooled) = (row.len(), pool.positions(bits.len()));
            pool_along(pool, pooled, words, &mut row);
            if flipped {
                invert(pooled, words, &mut row);
            }
            let expected: Vec<bool> = (0..pooled)
                .map(|x| {
                    let (from, to) = pool.inside(x, bits.len());
                    (from..to).any(|column| bits[x * pool.stride + column - pool.pad]) != flipped
                })
                .collect();
            let mut expected = pack(&expected);
            expected.resize(row.len(), 0);
            prop_assert_eq!(row, expected);
        }

        #[test]
        fn pooling_across_rows_is_an_or_of_the_rows_of_a_window(
            rows in prop::collection::vec(any::<u64>(), 9..40), pool in any_window(),
        ) {
            let mut pooled = vec![0; pool.positions(rows.len())];
            for (row, &bits) in rows.iter().enumerate() {
                let into = pooled_rows(pool, row, pooled.len());
                pool_across(&[bits], into, &mut pooled);
            }
            for (y, pooled) in pooled.iter().enumerate() {
                let (from, to) = pool.inside(y, rows.len());
                let expected = (from..to).fold(0, |any, row| any | rows[y * pool.stride + row - pool.pad]);
                prop_assert_eq!(*pooled, expected);
            }
        }
    }
}
