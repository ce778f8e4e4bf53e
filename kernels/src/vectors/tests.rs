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
}

fn any_case() -> impl Strategy<Value = Case> {
    let row = prop::array::uniform32(-3000i16..3000);
    let rows = prop::collection::vec(row, 0..10);
    let words = prop::array::uniform5(any::<u64>());
    (rows, -500i16..500, words, 0u32..64, prop::array::uniform4(any::<u64>()))
        .prop_map(|(rows, from, words, by, other)| Case { rows, from, words, by, other })
}

/// What each operation gives, in words that paths have in common.
#[inline(always)]
fn all<V: Vectors>(v: V, case: &Case) -> (u32, Vec<Row>) {
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

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(case: &Case) -> (u32, Vec<Row>) {
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
