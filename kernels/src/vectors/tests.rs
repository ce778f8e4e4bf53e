//! Every path's operations against the portable ones.

use proptest::prelude::*;
use std::vec::Vec;

use super::{BLOCK, Counts, HALF, LANES, LooksUp, Popcounts, Portable, Vectors, WORDS};

/// Inputs of one round of all operations.
#[derive(Clone, Debug)]
struct Case {
    rows: Vec<[i16; LANES]>,
    from: i16,
    words: [u64; 4],
    tables: [[i16; HALF]; 2],
    places: [[u8; LANES]; 2],
    counts: Counts,
    below: [[i16; HALF]; 2],
    counted: [[u64; WORDS]; 3],
    most: i64,
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
    // Sums of counted bits lie near what they may be at most.
    let counted =
        (prop::array::uniform2(prop::array::uniform8(any::<u64>())), prop::array::uniform8(0u64..64));
    (rows, -500i16..500, words, looked_up, (counted, -10i64..100)).prop_map(
        |(rows, from, words, (tables, places, counts, below), (([a, b], sums), most))| Case {
            rows,
            from,
            words,
            tables,
            places,
            counts,
            below,
            counted: [a, b, sums],
            most,
        },
    )
}

/// What the operations of sums give.
#[inline(always)]
fn sums<V: Vectors>(v: V, case: &Case) -> u32 {
    let sums = case.rows.iter().fold(v.no_sums(), |sums, row| v.add_row(sums, row));
    v.sums_at_least(sums, case.from)
}

/// What the operations of bytes give: counts, bits, bytes.
type OfBytes = (Vec<Counts>, Vec<[u64; 2]>, Vec<[u8; LANES]>);

#[inline(always)]
fn bytes<V: LooksUp>(v: V, case: &Case) -> OfBytes {
    let [a, b] = [0, 1].map(|i| v.look_up(v.table(&case.tables[i]), &case.places[i]));
    let (mut counts, mut bits) = (Vec::new(), Vec::new());
    // Bytes come out as counts, and as bits where counts are large.
    for bytes in [
        a,
        b,
        v.add_bytes(a, b),
        v.add_pairs(a, b),
        v.high_halves(a, v.low_halves()),
        v.low_halves(),
        v.no_bytes(),
    ] {
        for (both, second) in [(bytes, v.no_bytes()), (a, bytes)] {
            let sums = v.counts(both, second, &case.counts);
            let mut written = [[7; HALF]; 4];
            v.put_counts(sums, &mut written);
            counts.push(written);
            let [first, second] = v.above(sums, case.below.each_ref());
            bits.extend([v.bits(&[first]), v.bits(&[first, second]), v.bits(&[second, first, second])]);
            bits.push(v.bits(&[second, second, first, first]));
        }
    }
    let mut written = [7; BLOCK];
    v.number(case.words, &mut written);
    let mut written = written.as_chunks().0.to_vec();
    let mut lanes = [7; LANES];
    if let Some(bytes) = case.places[0].first_chunk() {
        v.put_twice(bytes, &case.tables[1], &mut lanes);
    }
    written.push(lanes);
    (counts, bits, written)
}

/// What the operations of words give: words, bits.
type OfWords = (Vec<[u64; WORDS]>, u8);

#[inline(always)]
fn words<P: Popcounts>(p: P, case: &Case) -> OfWords {
    let [a, b, sums] = [0, 1, 2].map(|i| p.words(&case.counted[i]));
    let set = p.where_set(case.places[0][0], case.words[0]);
    let sums = p.add_different(p.add_different(sums, a, case.words[1], b), set, case.words[2], a);
    let mut written = Vec::new();
    for words in [a, set, p.or(a, set), p.transposed(b), sums] {
        let mut to = [7; WORDS];
        p.put(words, &mut to);
        written.push(to);
    }
    (written, p.at_most(sums, case.most))
}

type All = (u32, OfBytes, OfWords);

#[inline(always)]
fn all<V: Vectors>(v: V, case: &Case) -> All {
    (sums(v, case), bytes(v.looks_up(), case), words(v.popcounts(), case))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(case: &Case) -> All {
    all(super::Avx2::here(), case)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512vpopcntdq")]
fn avx512(case: &Case) -> All {
    all(super::Avx512::here(), case)
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
            prop_assert_eq!(&found, &expected);
        }
        #[cfg(target_arch = "x86_64")]
        if crate::Path::available().any(|path| path.name() == "avx512") {
            // SAFETY: the line above.
            #[expect(unsafe_code, reason = "calls a function with instructions that were detected")]
            let found = unsafe { avx512(&case) };
            prop_assert_eq!(&found, &expected);
        }
        #[cfg(target_arch = "aarch64")]
        prop_assert_eq!(all(super::Neon, &case), expected);
    }
}
