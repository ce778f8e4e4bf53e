//! Every path's operations against the portable ones.

use proptest::prelude::*;
use std::vec::Vec;

use super::{LANES, Portable, Row, TILE_WORDS, Vectors};

/// Inputs of one round of all operations.
#[derive(Clone, Debug)]
struct Case {
    rows: Vec<[i16; LANES]>,
    from: i16,
    words: [u64; TILE_WORDS + 1],
    by: u32,
    other: Row,
    tables: [[u8; 16]; 2],
    places: [[u8; LANES]; 2],
    counts: [i16; LANES],
    least: [i16; LANES],
}

fn any_case() -> impl Strategy<Value = Case> {
    let row = prop::array::uniform32(-3000i16..3000);
    let rows = prop::collection::vec(row, 0..10);
    let words = prop::array::uniform5(any::<u64>());
    let looked_up = (
        prop::array::uniform2(any::<[u8; 16]>()),
        prop::array::uniform2(prop::array::uniform32(prop_oneof![8 => 0u8..16, 1 => Just(0x80)])),
        prop::array::uniform32(0i16..8000),
        prop::array::uniform32(-100i16..8000),
    );
    (rows, -500i16..500, words, 0u32..64, prop::array::uniform4(any::<u64>()), looked_up).prop_map(
        |(rows, from, words, by, other, (tables, places, counts, least))| Case {
            rows,
            from,
            words,
            by,
            other,
            tables,
            places,
            counts,
            least,
        },
    )
}

/// What the operations of rows give, in words that paths have in common.
#[inline(always)]
fn rows<V: Vectors>(v: V, case: &Case) -> (u32, Vec<Row>) {
    let sums = case.rows.iter().fold(v.no_sums(), |sums, row| v.add_row(sums, row));
    let (a, b) = (v.moved(&case.words, case.by), v.load(&case.other));
    let rows = [a, v.xor(a, b), v.and(a, b), v.or(a, b), v.and_not(a, b), v.no_bits(), v.all_bits()];
    let stored = rows.map(|bits| {
        let mut row = [7; TILE_WORDS];
        v.store(bits, &mut row);
        row
    });
    (v.sums_at_least(sums, case.from), stored.to_vec())
}

/// What the operations of bytes give.
#[inline(always)]
fn bytes<V: Vectors>(v: V, case: &Case) -> (Vec<[i16; LANES]>, Vec<[u8; LANES]>) {
    let [a, b] = [0, 1].map(|i| v.look_up(v.table(&case.tables[i]), &case.places[i]));
    let results = [
        a,
        b,
        v.add_bytes(a, b),
        v.high_halves(a),
        v.less_halves(a, b),
        v.no_bytes(),
        v.set_where_at_least(a, case.places[0][0], &case.counts, &case.least),
    ];
    let counts = results.map(|bytes| {
        let mut counts = case.counts;
        v.add_counts(bytes, &mut counts);
        counts
    });
    let [w, x, y, z, ..] = case.words;
    let mut pairs = [7; LANES];
    v.pair_up([w, x, y, z].map(|word| word as u32), 17, &case.counts, &mut pairs);
    let mut counts = counts.to_vec();
    counts.push(pairs);
    (counts, results.map(|bytes| v.bytes(bytes)).to_vec())
}

type All = ((u32, Vec<Row>), (Vec<[i16; LANES]>, Vec<[u8; LANES]>));

#[inline(always)]
fn all<V: Vectors>(v: V, case: &Case) -> All {
    (rows(v, case), bytes(v, case))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(case: &Case) -> All {
    all(super::Avx2::here(), case)
}

proptest! {
    #[test]
    fn every_path_does_what_the_portable_operations_do(case in any_case()) {
        let expected = all(Portable, &case);
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the line above.
            #[expect(unsafe_code, reason = "calls a function with instructions that were detected")]
            let found = unsafe { avx2(&case) };
            prop_assert_eq!(found, expected);
        }
        #[cfg(target_arch = "aarch64")]
        prop_assert_eq!(all(super::Neon, &case), expected);
    }
}
