//! Maps of bits in words, and the two memory layouts that they have.
//!
//! ```text
//! a map of 2 channels, 2 rows, 3 columns; bit 0 of a word on the left
//!
//! contiguous    channel 0      channel 1
//!               aaa bbb        ccc ddd          one word: aaabbbcccddd000..
//!
//! rows          aaa000..                        one word (or more) for each row
//!               bbb000..
//!               ccc000..
//!               ddd000..
//! ```

use crate::shape::Map;

/// Memory layout of a map of bits `[channels, height, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BitLayout {
    /// All bits without gaps; bits after the last one are zero.
    Contiguous,
    /// Each row in this many separate words; bits past the width are zero.
    Rows(usize),
}

impl BitLayout {
    /// Words of a map.
    pub(crate) const fn words(self, map: Map) -> usize {
        match self {
            Self::Contiguous => map.len().div_ceil(64),
            Self::Rows(words) => map.channels * map.height * words,
        }
    }
}

/// Copies a contiguous map into rows of [`Map::row_words`] words each.
#[inline(always)]
pub(crate) fn into_rows(map: Map, contiguous: &[u64], rows: &mut [u64]) {
    let row_words = map.row_words();
    let rows = &mut rows[..map.channels * map.height * row_words];
    // Most maps have widths that divide 64.
    match map.width {
        8 => return split_words::<8>(contiguous, rows),
        16 => return split_words::<4>(contiguous, rows),
        32 => return split_words::<2>(contiguous, rows),
        _ => {}
    }
    for (row, words) in rows.chunks_exact_mut(row_words).enumerate() {
        for (index, word) in words.iter_mut().enumerate() {
            let column = index * 64;
            *word = bits_at(contiguous, row * map.width + column) & low_bits(map.width - column);
        }
    }
}

/// Cuts each word into `ROWS` rows.
#[inline(always)]
fn split_words<const ROWS: usize>(contiguous: &[u64], rows: &mut [u64]) {
    for (word, rows) in contiguous.iter().zip(rows.chunks_mut(ROWS)) {
        for (index, row) in rows.iter_mut().enumerate() {
            *row = word >> (64 / ROWS * index) & low_bits(64 / ROWS);
        }
    }
}

/// Copies rows of `row_words` words each into a contiguous map.
#[inline(always)]
pub(crate) fn into_contiguous(map: Map, rows: &[u64], row_words: usize, contiguous: &mut [u64]) {
    let width = map.width;
    let contiguous = &mut contiguous[..map.len().div_ceil(64)];
    let rows = &rows[..map.channels * map.height * row_words];
    if row_words == 1 {
        return match width {
            8 => join_words::<8>(rows, contiguous),
            16 => join_words::<4>(rows, contiguous),
            32 => join_words::<2>(rows, contiguous),
            _ => join_short_rows(width, rows, contiguous),
        };
    }
    contiguous.fill(0);
    for (row, words) in rows.chunks_exact(row_words).enumerate() {
        for (index, &word) in words.iter().take(width.div_ceil(64)).enumerate() {
            or_bits_at(contiguous, row * width + index * 64, word);
        }
    }
}

/// Joins `ROWS` rows into each word.
#[inline(always)]
fn join_words<const ROWS: usize>(rows: &[u64], contiguous: &mut [u64]) {
    let join = |rows: &[u64]| rows.iter().rev().fold(0, |word, row| word << (64 / ROWS) | row);
    let (rows, rest) = rows.as_chunks::<ROWS>();
    let (last, whole) = (contiguous.len() - 1, rows.len().min(contiguous.len()));
    for (word, rows) in contiguous.iter_mut().zip(rows) {
        *word = join(rows);
    }
    if whole == last {
        contiguous[last] = join(rest);
    }
}

/// Joins rows of at most 64 bits. A word is written once it is full.
#[inline(always)]
fn join_short_rows(width: usize, rows: &[u64], contiguous: &mut [u64]) {
    let (mut full, mut at) = (0, 0);
    for &word in rows {
        full |= word << (at % 64);
        if at % 64 + width >= 64 {
            contiguous[at / 64] = full;
            // Two shifts, because one shift by 64 would overflow.
            full = word >> 1 >> (63 - at % 64);
        }
        at += width;
    }
    if at % 64 != 0 {
        contiguous[at / 64] = full;
    }
}

/// Reads bytes into words, least significant byte first.
pub(crate) fn read_words(bytes: &[u8], words: &mut [u64]) {
    let (eights, rest) = bytes.as_chunks();
    for (word, bytes) in words.iter_mut().zip(eights) {
        *word = u64::from_le_bytes(*bytes);
    }
    if let Some(word) = words.get_mut(eights.len()) {
        let mut bytes = [0; 8];
        bytes[..rest.len()].copy_from_slice(rest);
        *word = u64::from_le_bytes(bytes);
    }
}

/// Writes the first `len` bits into bytes, least significant first; the bits after them in the last byte are zero.
pub(crate) fn write_bits(words: &[u64], len: usize, bytes: &mut [u8]) {
    let (eights, rest) = bytes.as_chunks_mut();
    for (bytes, word) in eights.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    if let Some(word) = words.get(eights.len()) {
        rest.copy_from_slice(&word.to_le_bytes()[..rest.len()]);
    }
    if let Some(last) = bytes.last_mut()
        && !len.is_multiple_of(8)
    {
        *last &= (1 << (len % 8)) - 1;
    }
}

/// A word whose `count` lowest bits are set; all bits for 64 and more.
#[inline(always)]
pub(crate) const fn low_bits(count: usize) -> u64 {
    if count < 64 { (1 << count) - 1 } else { u64::MAX }
}

/// The 64 bits that begin at a bit index. Bits past the last word are zero.
#[inline(always)]
pub(crate) fn bits_at(words: &[u64], from: usize) -> u64 {
    let (word, shift) = (from / 64, from % 64);
    let (low, high) = match words.get(word..) {
        Some([low, high, ..]) => (*low, *high),
        Some([low]) => (*low, 0),
        _ => (0, 0),
    };
    // Two shifts, because one shift by 64 would overflow.
    low >> shift | high << 1 << (63 - shift)
}

/// ORs a word into the 64 bits that begin at a bit index. Bits past the last word are dropped.
#[inline(always)]
pub(crate) fn or_bits_at(words: &mut [u64], at: usize, bits: u64) {
    let (word, shift) = (at / 64, at % 64);
    words[word] |= bits << shift;
    if let Some(next) = words.get_mut(word + 1) {
        // Two shifts, because one shift by 64 would overflow.
        *next |= bits >> 1 >> (63 - shift);
    }
}

/// ORs a word into each of a few words. The usual cases, one word and two words, have no loop.
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
