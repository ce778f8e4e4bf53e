//! The operations in plain Rust.

use super::{LANES, Row, TILE_WORDS, Vectors, count_lane};

/// Whatever the program was compiled for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

impl Vectors for Portable {
    type Sums = [i16; LANES];
    type Bits = Row;
    type Bytes = [u8; LANES];
    type Lookup = [u8; 16];

    const LOOKS_UP: bool = false;

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
    fn no_bytes(self) -> Self::Bytes {
        [0; LANES]
    }

    #[inline(always)]
    fn table(self, bytes: &[u8; 16]) -> Self::Lookup {
        *bytes
    }

    #[inline(always)]
    fn look_up(self, table: Self::Lookup, places: &[u8; LANES]) -> Self::Bytes {
        places.map(|place| if place < 0x80 { table[usize::from(place % 16)] } else { 0 })
    }

    #[inline(always)]
    fn add_bytes(self, mut a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        a.iter_mut().zip(b).for_each(|(a, b)| *a = a.wrapping_add(b));
        a
    }

    #[inline(always)]
    fn high_halves(self, a: Self::Bytes) -> Self::Bytes {
        a.map(|a| a / 16)
    }

    #[inline(always)]
    fn less_halves(self, mut a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        a.iter_mut().zip(b).for_each(|(a, b)| *a = a.wrapping_sub(b.wrapping_mul(16)));
        a
    }

    #[inline(always)]
    fn add_counts(self, bytes: Self::Bytes, counts: &mut [i16; LANES]) {
        for (lane, byte) in bytes.into_iter().enumerate() {
            counts[count_lane(lane)] += i16::from(byte);
        }
    }

    #[inline(always)]
    fn set_where_at_least(
        self,
        mut bytes: Self::Bytes,
        bit: u8,
        counts: &[i16; LANES],
        least: &[i16; LANES],
    ) -> Self::Bytes {
        for (lane, byte) in bytes.iter_mut().enumerate() {
            let at = count_lane(lane);
            *byte |= if counts[at] >= least[at] { bit } else { 0 };
        }
        bytes
    }

    #[inline(always)]
    fn bytes(self, bytes: Self::Bytes) -> [u8; LANES] {
        bytes
    }

    #[inline(always)]
    fn pair_up(self, words: [u32; 4], by: i8, more: &[i16; LANES], pairs: &mut [i16; LANES]) {
        let number = |lane: usize| {
            let bits = words.map(|word| u64::from(word) >> lane & 1);
            (bits[0] | bits[1] << 1 | bits[2] << 2 | bits[3] << 3) as i16
        };
        for (lane, (pair, more)) in pairs.iter_mut().zip(more).enumerate() {
            *pair = 16 * (number(lane) + i16::from(by) * number(lane + 1)) + more;
        }
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
