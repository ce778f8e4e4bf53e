//! Maps of bits, row by row: `[channels, height, words]`, each row in words of its own, bits past the width zero; and one stream of bits
//! without gaps.

use crate::shape::{Convp, Map, Window, quotient};

/// How the bits of a map `[channels, height, width]` lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One behind the other.
    Stream,
    /// Rows, in so many words each.
    Rows(usize),
}

impl Layout {
    /// Words of a row.
    pub(crate) const fn row_words(self) -> usize {
        match self {
            Self::Stream => 0,
            Self::Rows(words) => words,
        }
    }

    /// Words of what a block gives.
    pub(crate) const fn words(self, block: Convp) -> usize {
        let Map { channels, height, .. } = block.output();
        match self {
            Self::Stream => block.output().len().div_ceil(64),
            Self::Rows(words) => channels * height * words,
        }
    }
}

/// A stream to rows in as few words as they fit in.
#[inline(always)]
pub(crate) fn split(map: Map, stream: &[u64], rows: &mut [u64]) {
    let row_words = map.row_words();
    let rows = &mut rows[..map.channels * map.height * row_words];
    // Rows that words are made of are what maps mostly have.
    match map.width {
        8 => return split_words::<8>(stream, rows),
        16 => return split_words::<4>(stream, rows),
        32 => return split_words::<2>(stream, rows),
        _ => {}
    }
    for (row, words) in rows.chunks_exact_mut(row_words).enumerate() {
        for (place, word) in words.iter_mut().enumerate() {
            let left = map.width - place * 64;
            *word = bits_at(stream, row * map.width + place * 64) & low_bits(left);
        }
    }
}

/// So many rows a word.
#[inline(always)]
fn split_words<const ROWS: usize>(stream: &[u64], rows: &mut [u64]) {
    for (word, rows) in stream.iter().zip(rows.chunks_mut(ROWS)) {
        for (at, row) in rows.iter_mut().enumerate() {
            *row = word >> (64 / ROWS * at) & low_bits(64 / ROWS);
        }
    }
}

/// Rows to one stream.
#[inline(always)]
pub(crate) fn join(shape: Map, rows: &[u64], row_words: usize, stream: &mut [u64]) {
    let Map { channels, height, width } = shape;
    let stream = &mut stream[..shape.len().div_ceil(64)];
    let rows = &rows[..channels * height * row_words];
    if row_words == 1 {
        match width {
            8 => return join_words::<8>(rows, stream),
            16 => return join_words::<4>(rows, stream),
            32 => return join_words::<2>(rows, stream),
            _ => {}
        }
    }
    stream.fill(0);
    let mut at = 0;
    if row_words == 1 {
        // Collected in a word that is written when it is full.
        let mut full = 0;
        for &word in rows {
            full |= word << (at % 64);
            if at % 64 + width >= 64 {
                stream[at / 64] = full;
                // A shift by 64 is none.
                full = word >> 1 >> (63 - at % 64);
            }
            at += width;
        }
        if at % 64 != 0 {
            stream[at / 64] = full;
        }
        return;
    }
    for row in rows.chunks_exact(row_words) {
        let mut left = width;
        for &word in row.iter().take(width.div_ceil(64)) {
            let length = left.min(64);
            let (place, shift) = (at / 64, at % 64);
            stream[place] |= word << shift;
            if shift + length > 64 {
                stream[place + 1] |= word >> (64 - shift);
            }
            at += length;
            left -= length;
        }
    }
}

/// So many rows a word.
#[inline(always)]
fn join_words<const ROWS: usize>(rows: &[u64], stream: &mut [u64]) {
    let one = |rows: &[u64]| rows.iter().rev().fold(0, |word, row| word << (64 / ROWS) | row);
    let (rows, rest) = rows.as_chunks::<ROWS>();
    let (last, whole) = (stream.len() - 1, rows.len().min(stream.len()));
    for (word, rows) in stream.iter_mut().zip(rows) {
        *word = one(rows);
    }
    if whole == last {
        stream[last] = one(rest);
    }
}

/// A word whose `count` lowest bits are set; all of them when there are no more.
#[inline(always)]
pub(crate) const fn low_bits(count: usize) -> u64 {
    if count < 64 { (1 << count) - 1 } else { u64::MAX }
}

/// The 64 bits that begin at a place; zero past the last word.
#[inline(always)]
pub(crate) fn bits_at(words: &[u64], from: usize) -> u64 {
    let (word, shift) = (from / 64, from % 64);
    let (low, high) = match words.get(word..) {
        Some([low, high, ..]) => (*low, *high),
        Some([low]) => (*low, 0),
        _ => (0, 0),
    };
    // A shift by 64 is none.
    low >> shift | high << 1 << (63 - shift)
}

/// The remainder beside [`quotient`].
#[inline(always)]
pub(crate) const fn remainder(number: usize, by: usize) -> usize {
    number - quotient(number, by) * by
}

/// The pooled rows whose window holds a convolved row: from, to (exclusive).
#[inline(always)]
pub(crate) fn pooled_rows(pool: Window, row: usize, pooled: usize) -> (usize, usize) {
    let reach = row + pool.pad;
    let from = quotient((reach + 1).saturating_sub(pool.kernel) + pool.stride - 1, pool.stride);
    let to = (quotient(reach, pool.stride) + 1).min(pooled);
    (from.min(to), to)
}

/// ORs one convolved row into pooled rows, `[height, words]` of one channel before the pooling along the row.
#[inline(always)]
pub(crate) fn pool_down(bits: &[u64], (from, to): (usize, usize), pooled: &mut [u64]) {
    if let [bits] = bits {
        return or_into(*bits, &mut pooled[from..to]);
    }
    for target in pooled[from * bits.len()..to * bits.len()].chunks_exact_mut(bits.len()) {
        target.iter_mut().zip(bits).for_each(|(target, bits)| *target |= bits);
    }
}

/// ORs a word into a few: written out for one and two, which is what a pooling has, so that no loop is made of it.
#[inline(always)]
pub(crate) fn or_into(bits: u64, words: &mut [u64]) {
    match words {
        [only] => *only |= bits,
        [first, second] => {
            *first |= bits;
            *second |= bits;
        }
        words => words.iter_mut().for_each(|word| *word |= bits),
    }
}

/// Pools rows of `width` bits, `row_words` each, along themselves and in place: what is left of each is `pool.positions(width)` bits,
/// turned round where `flipped`; the words past them are zero.
#[inline(always)]
pub(crate) fn pool_along(pool: Window, width: usize, flipped: bool, row_words: usize, rows: &mut [u64]) {
    let left = pool.positions(width);
    let turned = if flipped { u64::MAX } else { 0 };
    if pool.kernel == 1 && pool.stride == 1 {
        // Nothing is joined.
        if flipped {
            for row in rows.chunks_exact_mut(row_words) {
                row.iter_mut().for_each(|word| *word = !*word);
                clear_from(left, row);
            }
        }
        return;
    }
    if row_words == 1 && left.saturating_sub(1) * pool.stride < 64 {
        let kept = if left < 64 { (1 << left) - 1 } else { u64::MAX };
        // DDNN's pooling, without the loop over the window.
        let is_ddnn = pool == Window { kernel: 3, stride: 2, pad: 1 };
        for row in rows {
            let any = if is_ddnn { every(2, *row | *row << 1 | *row >> 1) } else { pool_word(pool, *row) };
            *row = (any ^ turned) & kept;
        }
        return;
    }
    for row in rows.chunks_exact_mut(row_words) {
        pool_long(pool, left, row);
        row.iter_mut().for_each(|word| *word ^= turned);
        clear_from(left, row);
    }
}

/// Sets the bits from `length` on to zero.
pub(crate) fn clear_from(length: usize, row: &mut [u64]) {
    if !length.is_multiple_of(64)
        && let Some(word) = row.get_mut(length / 64)
    {
        *word &= (1 << (length % 64)) - 1;
    }
    row.iter_mut().skip(length.div_ceil(64)).for_each(|word| *word = 0);
}

/// Bit `x` becomes the OR of the bits `x * stride - pad + (0..kernel)`.
fn pool_word(pool: Window, word: u64) -> u64 {
    let mut any = 0;
    for place in 0..pool.kernel {
        any |= if place < pool.pad {
            word.checked_shl((pool.pad - place) as u32).unwrap_or(0)
        } else {
            word.checked_shr((place - pool.pad) as u32).unwrap_or(0)
        };
    }
    every(pool.stride, any)
}

/// Bits `0, stride, 2 * stride, ..` next to each other.
#[inline(always)]
fn every(stride: usize, word: u64) -> u64 {
    match stride {
        1 => word,
        2 => {
            // Hacker's Delight, 7-4: each step joins neighbours that are twice as long.
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

/// As [`pool_word`], for rows of several words.
fn pool_long(pool: Window, left: usize, row: &mut [u64]) {
    let mut before = 0;
    for at in 0..left.div_ceil(64) {
        let word = |at: usize| row.get(at).copied().unwrap_or(0);
        let mut pooled = 0;
        for part in 0..pool.stride {
            let from = at * pool.stride + part;
            // Where the step is 1 the word before has been written over.
            let last = if from > at { word(from - 1) } else { before };
            let any = pool_words(pool, [last, word(from), word(from + 1)]);
            // The first place of this word that a window begins at, but for its padding.
            let first = remainder(pool.stride - remainder(part * 64, pool.stride), pool.stride);
            pooled |= every(pool.stride, any >> first) << quotient(part * 64 + first, pool.stride);
        }
        before = word(at);
        row[at] = pooled;
    }
}

/// Bit `x` becomes the OR of the bits `x - pad + (0..kernel)` of the word between two others.
fn pool_words(pool: Window, [before, word, after]: [u64; 3]) -> u64 {
    (0..pool.kernel).fold(0, |any, place| {
        // Shifts by 64 are none.
        let moved = if place < pool.pad {
            let left = pool.pad - place;
            word << left | before >> (64 - left)
        } else {
            let right = place - pool.pad;
            word >> right | after << 1 << (63 - right)
        };
        any | moved
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
        (1usize..9, 1usize..6)
            .prop_flat_map(|(kernel, stride)| (0..kernel).prop_map(move |pad| Window { kernel, stride, pad }))
    }

    proptest! {
        #[test]
        fn pooling_along_a_row_is_an_or_of_its_windows(
            bits in prop::collection::vec(any::<bool>(), 9..200), pool in any_window(), flipped in any::<bool>(),
        ) {
            let mut row = pack(&bits);
            row.resize(row.len().max(pool.positions(bits.len()).div_ceil(64)), 0);
            let words = row.len();
            pool_along(pool, bits.len(), flipped, words, &mut row);
            let expected: Vec<bool> = (0..pool.positions(bits.len()))
                .map(|x| {
                    let (from, to) = pool.inside(x, bits.len());
                    (from..to).any(|place| bits[x * pool.stride + place - pool.pad]) != flipped
                })
                .collect();
            let mut expected = pack(&expected);
            expected.resize(row.len(), 0);
            prop_assert_eq!(row, expected);
        }

        #[test]
        fn pooling_down_is_an_or_of_the_rows_of_a_window(
            rows in prop::collection::vec(any::<u64>(), 9..40), pool in any_window(),
        ) {
            let mut pooled = vec![0; pool.positions(rows.len())];
            for (row, &bits) in rows.iter().enumerate() {
                let into = pooled_rows(pool, row, pooled.len());
                pool_down(&[bits], into, &mut pooled);
            }
            for (y, pooled) in pooled.iter().enumerate() {
                let (from, to) = pool.inside(y, rows.len());
                let expected = (from..to).fold(0, |any, place| any | rows[y * pool.stride + place - pool.pad]);
                prop_assert_eq!(*pooled, expected);
            }
        }
    }
}
