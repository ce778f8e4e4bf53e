//! Every path's operations against the portable ones.

use proptest::prelude::*;
use std::vec::Vec;

use super::{LANES, Portable, Vectors};

/// Inputs of one round of all operations.
#[derive(Clone, Debug)]
struct Case {
    rows: Vec<[i16; LANES]>,
    bytes: Vec<[u8; LANES]>,
    table: [i8; 16],
    bits: u32,
    value: u8,
    from: i16,
}

fn any_case() -> impl Strategy<Value = Case> {
    let row = prop::array::uniform32(-3000i16..3000);
    let rows = prop::collection::vec(row, 0..10);
    let bytes = prop::collection::vec(prop::array::uniform32(any::<u8>()), 1..10);
    let table = prop::array::uniform16(-4i8..=4);
    (rows, bytes, table, any::<u32>(), any::<u8>(), -500i16..500)
        .prop_map(|(rows, bytes, table, bits, value, from)| Case { rows, bytes, table, bits, value, from })
}

/// What each operation gives, in words and bytes that paths have in common.
#[inline(always)]
fn all<V: Vectors>(v: V, case: &Case) -> (Vec<u32>, Vec<[u8; LANES]>) {
    let sums = case.rows.iter().fold(v.no_sums(), |sums, row| v.add_row(sums, row));
    let table = v.table(&case.table);
    let mut found = v.no_bytes();
    let mut widened = v.no_sums();
    for bytes in &case.bytes {
        let bytes = v.load(bytes);
        found = v.add(found, v.look_up(table, bytes));
        widened = v.widen(widened, bytes);
    }
    let spread = v.spread(found, case.bits, case.value);
    let stored = [found, spread].map(|bytes| {
        let mut stored = [0; LANES];
        v.store(bytes, &mut stored);
        stored
    });
    let small = (case.from % 100) as i8;
    let words = [
        v.sums_at_least(sums, case.from),
        v.bytes_at_least(found, small),
        v.bytes_at_least(found, 0),
        v.widened_at_least(widened, case.from),
    ];
    (words.to_vec(), stored.to_vec())
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(case: &Case) -> (Vec<u32>, Vec<[u8; LANES]>) {
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
