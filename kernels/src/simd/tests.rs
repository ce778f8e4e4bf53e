//! The operations of every code path against the portable ones.

use proptest::prelude::*;
use std::vec::Vec;

use super::{ByteLookup, Counts, HALF, LANES, Portable, Simd, WORDS, WordPopcount};
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
    // Sums lie near `max`.
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

/// Results of the operations on sums.
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
    // Counts show all bytes; comparisons with bounds show large counts as bits.
    for bytes in [
        a,
        b,
        ops.add_bytes(a, b),
        ops.add_pairs(a, b),
        ops.high_nibbles(a, ops.nibble_mask()),
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

struct AllOperations<'a>(&'a Case);

impl PathCode for AllOperations<'_> {
    type Output = (u32, BytesResult, WordsResult);

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Self::Output {
        let Self(case) = self;
        let bytes = simd.byte_lookup().map_or_else(|| bytes(Portable, case), |ops| bytes(ops, case));
        let words = simd.word_popcount().map_or_else(|| words(Portable, case), |ops| words(ops, case));
        (sums(simd, case), bytes, words)
    }
}

proptest! {
    #[test]
    fn every_code_path_does_what_the_portable_operations_do(case in any_case()) {
        let expected = CodePath::PORTABLE.run(AllOperations(&case));
        for path in CodePath::available() {
            prop_assert_eq!(&path.run(AllOperations(&case)), &expected, "{}", path.name());
        }
    }
}
