//! Dot product of ±1 vectors, 64 values a word.

/// Sum of `a[i] * b[i]` over the first `len` values of two packed ±1 vectors.
///
/// Equal bits multiply to +1 and different bits to -1, so the sum is `len - 2 * popcount(a xor b)`. Bits past `len` do not
/// count.
///
/// # Panics
/// If a vector has fewer than `len` bits, or `len` is above `i32::MAX`.
#[inline(always)]
pub fn dot(a: &[u64], b: &[u64], len: usize) -> i32 {
    let whole = len / 64;
    let rest = len % 64;
    let different: u32 = a[..whole].iter().zip(&b[..whole]).map(|(a, b)| (a ^ b).count_ones()).sum();
    let tail = if rest == 0 { 0 } else { ((a[whole] ^ b[whole]) << (64 - rest)).count_ones() };
    let len = i32::try_from(len).expect("a vector of at most i32::MAX values");
    // At most `len` bits differ, so the result lies in `-len..=len`.
    len - 2 * (different + tail) as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::reference;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    fn pack(values: &[bool]) -> Vec<u64> {
        let mut words = vec![0; values.len().div_ceil(64)];
        for (i, &value) in values.iter().enumerate() {
            words[i / 64] |= u64::from(value) << (i % 64);
        }
        words
    }

    #[test]
    fn bits_after_the_last_value_do_not_count() {
        assert_eq!(dot(&[u64::MAX], &[0b101], 3), 1);
    }

    proptest! {
        #[test]
        fn packed_dot_equals_reference(pairs in prop::collection::vec(any::<(bool, bool)>(), 0..300)) {
            let (a, b): (Vec<bool>, Vec<bool>) = pairs.into_iter().unzip();
            prop_assert_eq!(dot(&pack(&a), &pack(&b), a.len()), reference::dot(&a, &b));
        }
    }
}
