//! The operations in plain Rust, which define them.

use super::{ByteLookup, Counts, HALF, LANES, Simd, WORDS, WordPopcount};

/// The instructions that the program was compiled for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

impl Simd for Portable {
    type ByteLookup = Self;
    type WordPopcount = Self;
    type Sums = [i16; LANES];

    #[inline(always)]
    fn zero_sums(self) -> Self::Sums {
        [0; LANES]
    }

    #[inline(always)]
    fn add_row(self, mut sums: Self::Sums, row: &[i16; LANES]) -> Self::Sums {
        sums.iter_mut().zip(row).for_each(|(sum, add)| *sum += add);
        sums
    }

    #[inline(always)]
    fn sums_at_least(self, sums: Self::Sums, min: i16) -> u32 {
        bits(sums.iter().map(|&sum| sum >= min))
    }
}

impl ByteLookup for Portable {
    type Bytes = [u8; LANES];
    type Counts = Counts;

    #[inline(always)]
    fn zero_bytes(self) -> Self::Bytes {
        [0; LANES]
    }

    #[inline(always)]
    fn load_table(self, bytes: &[i16; HALF]) -> Self::Bytes {
        lanes(*bytes)
    }

    #[inline(always)]
    fn look_up(self, table: Self::Bytes, indices: &[u8; LANES]) -> Self::Bytes {
        core::array::from_fn(|lane| {
            let index = indices[lane];
            if index < 0x80 { table[lane / HALF * HALF + usize::from(index % 16)] } else { 0 }
        })
    }

    #[inline(always)]
    fn add_bytes(self, mut a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        a.iter_mut().zip(b).for_each(|(a, b)| *a = a.wrapping_add(b));
        a
    }

    #[inline(always)]
    fn add_pairs(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        let (a, b) = (pairs(a), pairs(b));
        core::array::from_fn(|lane| a[lane / 2].wrapping_add(b[lane / 2]).to_le_bytes()[lane % 2])
    }

    #[inline(always)]
    fn nibble_mask(self) -> Self::Bytes {
        [0x0f; LANES]
    }

    #[inline(always)]
    fn high_nibbles(self, a: Self::Bytes, _: Self::Bytes) -> Self::Bytes {
        a.map(|a| a / 16)
    }

    #[inline(always)]
    fn add_counts(self, both: Self::Bytes, second: Self::Bytes, before: &Counts) -> Counts {
        let (both, second) = (pairs(both), pairs(second));
        let mut counts = *before;
        for lane in 0..HALF {
            let first = both[lane].wrapping_sub(second[lane].wrapping_mul(16));
            let bytes = [first % 256, first / 256, second[lane] % 256, second[lane] / 256];
            for (counts, byte) in counts.iter_mut().zip(bytes) {
                counts[lane] = counts[lane].wrapping_add(byte as i16);
            }
        }
        counts
    }

    #[inline(always)]
    fn store_counts(self, counts: Counts, to: &mut Counts) {
        *to = counts;
    }

    #[inline(always)]
    fn above(self, counts: Counts, bounds: [&[i16; HALF]; 2]) -> [Self::Bytes; 2] {
        core::array::from_fn(|filter| {
            core::array::from_fn(|lane| {
                let is_above = counts[2 * filter + lane % 2][lane / 2] > bounds[filter][lane / 2];
                if is_above { u8::MAX } else { 0 }
            })
        })
    }

    #[inline(always)]
    fn lane_bits<const X: usize>(self, vectors: &[Self::Bytes; X]) -> [u64; 2] {
        core::array::from_fn(|half| {
            let lanes = vectors.iter().flat_map(|lanes| &lanes[half * HALF..][..HALF]);
            lanes.enumerate().fold(0, |bits, (bit, &lane)| bits | u64::from(lane == u8::MAX) << bit)
        })
    }

    #[inline(always)]
    fn interleave(self, words: [u64; 4], numbers: &mut [u8; 64]) {
        for (lane, number) in numbers.iter_mut().enumerate() {
            let [a, b, c, d] = words.map(|word| (word >> lane & 1) as u8);
            *number = a | b << 1 | c << 2 | d << 3;
        }
    }

    #[inline(always)]
    fn store_twice(self, bytes: &[u8; HALF], mask: &[i16; HALF], to: &mut [u8; LANES]) {
        for (lane, (to, mask)) in to.iter_mut().zip(lanes(*mask)).enumerate() {
            *to = bytes[lane % HALF] | mask;
        }
    }
}

impl WordPopcount for Portable {
    type Words = [u64; WORDS];

    #[inline(always)]
    fn load(self, words: &[u64; WORDS]) -> Self::Words {
        *words
    }

    #[inline(always)]
    fn broadcast_to(self, lanes: u8, word: u64) -> Self::Words {
        core::array::from_fn(|lane| if lanes >> lane & 1 == 1 { word } else { 0 })
    }

    #[inline(always)]
    fn store(self, words: Self::Words, to: &mut [u64; WORDS]) {
        *to = words;
    }

    #[inline(always)]
    fn or(self, a: Self::Words, b: Self::Words) -> Self::Words {
        core::array::from_fn(|lane| a[lane] | b[lane])
    }

    #[inline(always)]
    fn transpose_bytes(self, rows: Self::Words) -> Self::Words {
        let bit = |row: usize, column: usize| rows[row] >> column & 1;
        core::array::from_fn(|row| {
            let columns = (0..64).map(|column| bit(column % 8, column / 8 * 8 + row) << column);
            columns.fold(0, |all, bit| all | bit)
        })
    }

    #[inline(always)]
    fn add_differing(self, sums: Self::Words, a: Self::Words, b: u64, mask: Self::Words) -> Self::Words {
        core::array::from_fn(|lane| sums[lane] + u64::from(((a[lane] ^ b) & mask[lane]).count_ones()))
    }

    #[inline(always)]
    fn at_most(self, sums: Self::Words, max: i64) -> u8 {
        bits(sums.iter().map(|&sum| sum.cast_signed() <= max)) as u8
    }
}

/// Collects values as bits, the first the lowest.
#[inline(always)]
fn bits(values: impl Iterator<Item = bool>) -> u32 {
    values.enumerate().fold(0, |bits, (bit, value)| bits | u32::from(value) << bit)
}

/// Joins each two lanes to a 16-bit number; the lower lane is the low byte.
#[inline(always)]
fn pairs(bytes: [u8; LANES]) -> [u16; HALF] {
    core::array::from_fn(|lane| u16::from_le_bytes([bytes[2 * lane], bytes[2 * lane + 1]]))
}

/// Splits each number into two lanes.
#[inline(always)]
fn lanes(numbers: [i16; HALF]) -> [u8; LANES] {
    core::array::from_fn(|lane| numbers[lane / 2].to_le_bytes()[lane % 2])
}
