//! The operations in plain Rust.

use super::{BLOCK, Counting, Counts, HALF, LANES, LooksUp, Popcounts, Vectors, WORDS};

/// Whatever the program was compiled for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

impl Vectors for Portable {
    const COUNTING: Counting = Counting::Slices;
    type LooksUp = Self;
    type Popcounts = Self;
    type Sums = [i16; LANES];

    #[inline(always)]
    fn looks_up(self) -> Self {
        self
    }

    #[inline(always)]
    fn popcounts(self) -> Self {
        self
    }

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
}

impl LooksUp for Portable {
    type Bytes = [u8; LANES];
    type Counts = Counts;

    #[inline(always)]
    fn no_bytes(self) -> Self::Bytes {
        [0; LANES]
    }

    #[inline(always)]
    fn table(self, bytes: &[i16; HALF]) -> Self::Bytes {
        lanes(*bytes)
    }

    #[inline(always)]
    fn look_up(self, table: Self::Bytes, places: &[u8; LANES]) -> Self::Bytes {
        core::array::from_fn(|lane| {
            let place = places[lane];
            if place < 0x80 { table[lane / HALF * HALF + usize::from(place % 16)] } else { 0 }
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
    fn low_halves(self) -> Self::Bytes {
        [0x0f; LANES]
    }

    #[inline(always)]
    fn high_halves(self, a: Self::Bytes, _: Self::Bytes) -> Self::Bytes {
        a.map(|a| a / 16)
    }

    #[inline(always)]
    fn counts(self, both: Self::Bytes, second: Self::Bytes, before: &Counts) -> Counts {
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
    fn put_counts(self, counts: Counts, to: &mut Counts) {
        *to = counts;
    }

    #[inline(always)]
    fn above(self, counts: Counts, below: [&[i16; HALF]; 2]) -> [Self::Bytes; 2] {
        core::array::from_fn(|filter| {
            core::array::from_fn(|lane| {
                let is_above = counts[2 * filter + lane % 2][lane / 2] > below[filter][lane / 2];
                if is_above { u8::MAX } else { 0 }
            })
        })
    }

    #[inline(always)]
    fn bits<const X: usize>(self, lanes: &[Self::Bytes; X]) -> [u64; 2] {
        core::array::from_fn(|half| {
            let of_half = lanes.iter().flat_map(|lanes| &lanes[half * HALF..][..HALF]);
            of_half.enumerate().fold(0, |bits, (place, &lane)| bits | u64::from(lane == u8::MAX) << place)
        })
    }

    #[inline(always)]
    fn number(self, words: [u64; 4], numbers: &mut [u8; BLOCK]) {
        for (lane, number) in numbers.iter_mut().enumerate() {
            let [a, b, c, d] = words.map(|word| (word >> lane & 1) as u8);
            *number = a | b << 1 | c << 2 | d << 3;
        }
    }

    #[inline(always)]
    fn put_twice(self, bytes: &[u8; HALF], also: &[i16; HALF], lanes: &mut [u8; LANES]) {
        for (lane, (to, also)) in lanes.iter_mut().zip(self.table(also)).enumerate() {
            *to = bytes[lane % HALF] | also;
        }
    }
}

impl Popcounts for Portable {
    type Words = [u64; WORDS];

    #[inline(always)]
    fn words(self, words: &[u64; WORDS]) -> Self::Words {
        *words
    }

    #[inline(always)]
    fn where_set(self, lanes: u8, word: u64) -> Self::Words {
        core::array::from_fn(|lane| if lanes >> lane & 1 == 1 { word } else { 0 })
    }

    #[inline(always)]
    fn put(self, words: Self::Words, to: &mut [u64; WORDS]) {
        *to = words;
    }

    #[inline(always)]
    fn or(self, a: Self::Words, b: Self::Words) -> Self::Words {
        core::array::from_fn(|lane| a[lane] | b[lane])
    }

    #[inline(always)]
    fn transposed(self, rows: Self::Words) -> Self::Words {
        let bit = |row: usize, column: usize| rows[row] >> column & 1;
        core::array::from_fn(|row| {
            let columns = (0..64).map(|column| bit(column % 8, column / 8 * 8 + row) << column);
            columns.fold(0, |all, bit| all | bit)
        })
    }

    #[inline(always)]
    fn add_different(self, sum: Self::Words, a: Self::Words, b: u64, kept: Self::Words) -> Self::Words {
        core::array::from_fn(|lane| sum[lane] + u64::from(((a[lane] ^ b) & kept[lane]).count_ones()))
    }

    #[inline(always)]
    fn at_most(self, sums: Self::Words, most: i64) -> u8 {
        bits(sums.iter().map(|&sum| sum.cast_signed() <= most)) as u8
    }
}

#[inline(always)]
fn bits(values: impl Iterator<Item = bool>) -> u32 {
    values.enumerate().fold(0, |bits, (place, value)| bits | u32::from(value) << place)
}

/// Two lanes as one number, the lower lane its low byte.
#[inline(always)]
fn pairs(bytes: [u8; LANES]) -> [u16; HALF] {
    core::array::from_fn(|lane| u16::from_le_bytes([bytes[2 * lane], bytes[2 * lane + 1]]))
}

/// Numbers as two lanes each.
#[inline(always)]
fn lanes(numbers: [i16; HALF]) -> [u8; LANES] {
    core::array::from_fn(|lane| numbers[lane / 2].to_le_bytes()[lane % 2])
}
