//! The operations of every code path against definitions in plain Rust.

use proptest::prelude::*;
use std::vec::Vec;

use super::{ByteLookup, ByteLookupCode, Counts, HALF, LANES, Simd, WORDS, WordPopcount, WordPopcountCode};
use crate::code_path::{CodePath, PathCode};

/// Inputs of all operations.
#[derive(Clone, Debug)]
struct Case {
    rows: Vec<[i16; LANES]>,
    min: i16,
    words: [u64; 4],
    tables: [[i16; HALF]; 2],
    indices: [[u8; LANES]; 2],
    counts: Counts,
    bounds: [[i16; HALF]; 2],
    counted: [[u64; WORDS]; 3],
    max: i64,
}

fn any_case() -> impl Strategy<Value = Case> {
    let row = prop::array::uniform32(-3000i16..3000);
    let rows = prop::collection::vec(row, 0..10);
    let words = prop::array::uniform4(any::<u64>());
    let looked_up = (
        prop::array::uniform2(any::<[i16; HALF]>()),
        prop::array::uniform2(prop::array::uniform32(prop_oneof![8 => 0u8..16, 1 => 0x80u8..])),
        prop::array::uniform4(prop::array::uniform16(0i16..8000)),
        prop::array::uniform2(prop::array::uniform16(-100i16..8000)),
    );
    // The sums are drawn near `max`, so that comparisons with `max` go either way.
    let counted =
        (prop::array::uniform2(prop::array::uniform8(any::<u64>())), prop::array::uniform8(0u64..64));
    (rows, -500i16..500, words, looked_up, (counted, -10i64..100)).prop_map(
        |(rows, min, words, (tables, indices, counts, bounds), (([a, b], sums), max))| Case {
            rows,
            min,
            words,
            tables,
            indices,
            counts,
            bounds,
            counted: [a, b, sums],
            max,
        },
    )
}

#[inline(always)]
fn sums<S: Simd>(simd: S, case: &Case) -> u32 {
    let sums = case.rows.iter().fold(simd.zero_sums(), |sums, row| simd.add_row(sums, row));
    simd.sums_at_least(sums, case.min)
}

/// Results of the operations on bytes: counts, bits, bytes.
type BytesResult = (Vec<Counts>, Vec<[u64; 2]>, Vec<[u8; LANES]>);

#[inline(always)]
fn bytes<L: ByteLookup>(ops: L, case: &Case) -> BytesResult {
    let [a, b] = [0, 1].map(|i| ops.look_up(ops.load_table(&case.tables[i]), &case.indices[i]));
    let (mut counts, mut bits) = (Vec::new(), Vec::new());
    // Counts show every byte of a vector; comparisons with bounds turn counts into bits.
    for bytes in [
        a,
        b,
        ops.add_bytes(a, b),
        ops.add_pairs(a, b),
        ops.high_nibbles(a, ops.nibble_mask()),
        ops.add_high_nibbles(a, b, ops.nibble_mask()),
        ops.nibble_mask(),
        ops.zero_bytes(),
    ] {
        for (both, second) in [(bytes, ops.zero_bytes()), (a, bytes)] {
            let sums = ops.add_counts(both, second, &case.counts);
            let mut written = [[7; HALF]; 4];
            ops.store_counts(sums, &mut written);
            counts.push(written);
            let [first, second] = ops.above(sums, case.bounds.each_ref());
            bits.extend([
                ops.lane_bits(&[first]),
                ops.lane_bits(&[first, second]),
                ops.lane_bits(&[second, first, second]),
                ops.lane_bits(&[second, second, first, first]),
            ]);
        }
    }
    let mut written = [7; 64];
    ops.interleave(case.words, &mut written);
    let mut written = written.as_chunks().0.to_vec();
    let mut lanes = [7; LANES];
    if let Some(bytes) = case.indices[0].first_chunk() {
        ops.store_twice(bytes, &case.tables[1], &mut lanes);
    }
    written.push(lanes);
    (counts, bits, written)
}

/// Results of the operations on words: words, bits.
type WordsResult = (Vec<[u64; WORDS]>, u8);

#[inline(always)]
fn words<P: WordPopcount>(ops: P, case: &Case) -> WordsResult {
    let [a, b, sums] = [0, 1, 2].map(|i| ops.load(&case.counted[i]));
    let set = ops.broadcast_to(case.indices[0][0], case.words[0]);
    let sums = ops.add_differing(sums, a, case.words[1], b);
    let sums = ops.add_differing(sums, set, case.words[2], a);
    let mut written = Vec::new();
    for words in [a, set, ops.or(a, set), ops.transpose_bytes(b), sums] {
        let mut to = [7; WORDS];
        ops.store(words, &mut to);
        written.push(to);
    }
    (written, ops.at_most(sums, case.max))
}

/// The operations on bytes and words in plain Rust.
#[derive(Clone, Copy)]
struct Definition;

impl ByteLookup for Definition {
    type Bytes = [u8; LANES];
    type Counts = Counts;

    fn zero_bytes(self) -> Self::Bytes {
        [0; LANES]
    }

    fn load_table(self, bytes: &[i16; HALF]) -> Self::Bytes {
        lanes(*bytes)
    }

    fn look_up(self, table: Self::Bytes, indices: &[u8; LANES]) -> Self::Bytes {
        core::array::from_fn(|lane| {
            let index = indices[lane];
            if index < 0x80 { table[lane / HALF * HALF + usize::from(index % 16)] } else { 0 }
        })
    }

    fn add_bytes(self, mut a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        a.iter_mut().zip(b).for_each(|(a, b)| *a = a.wrapping_add(b));
        a
    }

    fn add_pairs(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        let (a, b) = (pairs(a), pairs(b));
        core::array::from_fn(|lane| a[lane / 2].wrapping_add(b[lane / 2]).to_le_bytes()[lane % 2])
    }

    fn nibble_mask(self) -> Self::Bytes {
        [0x0f; LANES]
    }

    fn high_nibbles(self, a: Self::Bytes, _: Self::Bytes) -> Self::Bytes {
        a.map(|a| a / 16)
    }

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

    fn store_counts(self, counts: Counts, to: &mut Counts) {
        *to = counts;
    }

    fn above(self, counts: Counts, bounds: [&[i16; HALF]; 2]) -> [Self::Bytes; 2] {
        core::array::from_fn(|filter| {
            core::array::from_fn(|lane| {
                let is_above = counts[2 * filter + lane % 2][lane / 2] > bounds[filter][lane / 2];
                if is_above { u8::MAX } else { 0 }
            })
        })
    }

    fn lane_bits<const X: usize>(self, vectors: &[Self::Bytes; X]) -> [u64; 2] {
        core::array::from_fn(|half| {
            let lanes = vectors.iter().flat_map(|lanes| &lanes[half * HALF..][..HALF]);
            lanes.enumerate().fold(0, |bits, (bit, &lane)| bits | u64::from(lane == u8::MAX) << bit)
        })
    }

    fn store_twice(self, bytes: &[u8; HALF], mask: &[i16; HALF], to: &mut [u8; LANES]) {
        for (lane, (to, mask)) in to.iter_mut().zip(lanes(*mask)).enumerate() {
            *to = bytes[lane % HALF] | mask;
        }
    }
}

impl WordPopcount for Definition {
    type Words = [u64; WORDS];

    fn load(self, words: &[u64; WORDS]) -> Self::Words {
        *words
    }

    fn broadcast_to(self, lanes: u8, word: u64) -> Self::Words {
        core::array::from_fn(|lane| if lanes >> lane & 1 == 1 { word } else { 0 })
    }

    fn store(self, words: Self::Words, to: &mut [u64; WORDS]) {
        *to = words;
    }

    fn or(self, a: Self::Words, b: Self::Words) -> Self::Words {
        core::array::from_fn(|lane| a[lane] | b[lane])
    }

    fn transpose_bytes(self, rows: Self::Words) -> Self::Words {
        let bit = |row: usize, column: usize| rows[row] >> column & 1;
        core::array::from_fn(|row| {
            let columns = (0..64).map(|column| bit(column % 8, column / 8 * 8 + row) << column);
            columns.fold(0, |all, bit| all | bit)
        })
    }

    fn add_differing(self, sums: Self::Words, a: Self::Words, b: u64, mask: Self::Words) -> Self::Words {
        core::array::from_fn(|lane| sums[lane] + u64::from(((a[lane] ^ b) & mask[lane]).count_ones()))
    }

    fn at_most(self, sums: Self::Words, max: i64) -> u8 {
        bits(sums.iter().map(|&sum| sum.cast_signed() <= max))
    }
}

/// Collects values as bits, the first value as the lowest bit.
fn bits(values: impl Iterator<Item = bool>) -> u8 {
    values.enumerate().fold(0, |bits, (bit, value)| bits | u8::from(value) << bit)
}

/// Joins every two lanes into a 16-bit number; the lower lane is the low byte.
fn pairs(bytes: [u8; LANES]) -> [u16; HALF] {
    core::array::from_fn(|lane| u16::from_le_bytes([bytes[2 * lane], bytes[2 * lane + 1]]))
}

/// Splits each number into two lanes.
fn lanes(numbers: [i16; HALF]) -> [u8; LANES] {
    core::array::from_fn(|lane| numbers[lane / 2].to_le_bytes()[lane % 2])
}

struct BytesCode<'a>(&'a Case, &'a mut Option<BytesResult>);

impl ByteLookupCode for BytesCode<'_> {
    #[inline(always)]
    fn run<L: ByteLookup>(self, ops: L) {
        *self.1 = Some(bytes(ops, self.0));
    }
}

struct WordsCode<'a>(&'a Case, &'a mut Option<WordsResult>);

impl WordPopcountCode for WordsCode<'_> {
    #[inline(always)]
    fn run<P: WordPopcount>(self, ops: P) {
        *self.1 = Some(words(ops, self.0));
    }
}

struct AllOperations<'a>(&'a Case);

impl PathCode for AllOperations<'_> {
    /// Results on bytes and on words are `None` if the code path lacks the operations.
    type Output = (u32, Option<BytesResult>, Option<WordsResult>);

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Self::Output {
        let Self(case) = self;
        let (mut bytes, mut words) = (None, None);
        simd.with_byte_lookup(BytesCode(case, &mut bytes));
        simd.with_word_popcount(WordsCode(case, &mut words));
        (sums(simd, case), bytes, words)
    }
}

proptest! {
    #[test]
    fn every_code_path_does_what_the_definitions_say(case in any_case()) {
        let (expected_sums, ..) = CodePath::PORTABLE.run(AllOperations(&case));
        let (expected_bytes, expected_words) = (bytes(Definition, &case), words(Definition, &case));
        for path in CodePath::available() {
            let (sums, bytes, words) = path.run(AllOperations(&case));
            prop_assert_eq!(sums, expected_sums, "{}", path.name());
            prop_assert_eq!(bytes.is_some(), path.has_byte_lookup(), "{}", path.name());
            prop_assert_eq!(words.is_some(), path.has_word_popcount(), "{}", path.name());
            bytes.map_or(Ok(()), |bytes| { prop_assert_eq!(&bytes, &expected_bytes, "{}", path.name()); Ok(()) })?;
            words.map_or(Ok(()), |words| { prop_assert_eq!(&words, &expected_words, "{}", path.name()); Ok(()) })?;
        }
    }
}
