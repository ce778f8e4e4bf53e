//! The operations in plain Rust.

use super::{LANES, Row, TILE_WORDS, Vectors};

/// Whatever the program was compiled for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

impl Vectors for Portable {
    type Sums = [i16; LANES];
    type Bits = Row;

    #[inline(always)]
    fn no_sums(self) -> Self::Sums {
        [0; LANES]
    }

    #[inline(always)]
    fn add_row(self, mut sums: Self::Sums, row: &[i16; LANES]) -> Self::Sums {
        sums.iter_mut().zip(row).for_each(|(sum, add)| *sum += add);
        sums
    }

    #[inline(always)]
    fn sums_at_least(self, sums: Self::Sums, from: i16) -> u32 {
        bits(sums.iter().map(|&sum| sum >= from))
    }

    #[inline(always)]
    fn no_bits(self) -> Row {
        [0; TILE_WORDS]
    }

    #[inline(always)]
    fn all_bits(self) -> Row {
        [u64::MAX; TILE_WORDS]
    }

    #[inline(always)]
    fn load(self, row: &Row) -> Row {
        *row
    }

    #[inline(always)]
    fn store(self, bits: Row, row: &mut Row) {
        *row = bits;
    }

    #[inline(always)]
    fn moved(self, words: &[u64; TILE_WORDS + 1], by: u32) -> Row {
        let mut row = [0; TILE_WORDS];
        for (place, row) in row.iter_mut().enumerate() {
            // A shift by 64 is none.
            *row = words[place] >> by | words[place + 1] << 1 << (63 - by);
        }
        row
    }

    #[inline(always)]
    fn xor(self, mut a: Row, b: Row) -> Row {
        a.iter_mut().zip(b).for_each(|(a, b)| *a ^= b);
        a
    }

    #[inline(always)]
    fn and(self, mut a: Row, b: Row) -> Row {
        a.iter_mut().zip(b).for_each(|(a, b)| *a &= b);
        a
    }

    #[inline(always)]
    fn or(self, mut a: Row, b: Row) -> Row {
        a.iter_mut().zip(b).for_each(|(a, b)| *a |= b);
        a
    }

    #[inline(always)]
    fn and_not(self, mut a: Row, b: Row) -> Row {
        a.iter_mut().zip(b).for_each(|(a, b)| *a &= !b);
        a
    }
}

#[inline(always)]
fn bits(values: impl Iterator<Item = bool>) -> u32 {
    values.enumerate().fold(0, |bits, (place, value)| bits | u32::from(value) << place)
}
