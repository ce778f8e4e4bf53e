//! Packing the signs of floats into bits, and back.

/// Bytes that `bits` bits take, rounded up.
pub const fn packed_len(bits: usize) -> usize {
    bits.div_ceil(8)
}

/// Packs the signs of `values`: bit `i % 8` of byte `i / 8` is 1 if `values[i] >= 0`. NaN packs as 0.
///
/// Bits after the last value are zero.
///
/// # Panics
/// Unless `out` has [`packed_len`]`(values.len())` bytes.
pub fn pack_signs(values: &[f32], out: &mut [u8]) {
    assert_eq!(out.len(), packed_len(values.len()), "pack_signs: bytes for {} values", values.len());
    let eights = values.chunks_exact(8);
    if !eights.remainder().is_empty()
        && let Some(last) = out.last_mut()
    {
        *last = pack_byte(eights.remainder());
    }
    for (byte, eight) in out.iter_mut().zip(eights) {
        *byte = pack_byte(eight);
    }
}

/// Writes +1 or -1 into `out` for each bit of `bits`; bits past `out.len()` are ignored.
///
/// # Panics
/// Unless `bits` has [`packed_len`]`(out.len())` bytes.
pub fn unpack_signs(bits: &[u8], out: &mut [f32]) {
    assert_eq!(bits.len(), packed_len(out.len()), "unpack_signs: bytes for {} values", out.len());
    for (&byte, values) in bits.iter().zip(out.chunks_mut(8)) {
        for (bit, value) in values.iter_mut().enumerate() {
            *value = f32::from((byte >> bit & 1) * 2) - 1.0;
        }
    }
}

fn pack_byte(values: &[f32]) -> u8 {
    values.iter().enumerate().fold(0, |byte, (bit, &value)| byte | u8::from(value >= 0.0) << bit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    #[track_caller]
    fn check_pack(values: &[f32], expected: &[u8]) {
        let mut out = vec![0xaa; packed_len(values.len())];
        pack_signs(values, &mut out);
        assert_eq!(out, expected);
    }

    #[test]
    fn the_first_value_is_the_least_significant_bit() {
        check_pack(&[1.0, -1.0, 1.0], &[0b101]);
        check_pack(&[-1.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0, 1.0, 1.0], &[0x80, 0x01]);
        check_pack(&[], &[]);
    }

    #[test]
    fn zero_of_either_sign_packs_as_plus_one_and_nan_as_minus_one() {
        check_pack(&[0.0, -0.0, f32::NAN, f32::NEG_INFINITY, f32::INFINITY, f32::MIN_POSITIVE], &[0b11_0011]);
    }

    #[test]
    #[should_panic(expected = "pack_signs: bytes for 9 values")]
    fn a_short_buffer_is_refused() {
        pack_signs(&[1.0; 9], &mut [0]);
    }

    proptest! {
        #[test]
        fn unpacking_gives_the_signs_and_tail_bits_are_zero(values in prop::collection::vec(-1.0f32..1.0, 0..300)) {
            let mut bits = vec![0xff; packed_len(values.len())];
            pack_signs(&values, &mut bits);
            let mut signs = vec![0.0; values.len()];
            unpack_signs(&bits, &mut signs);
            let expected: Vec<f32> = values.iter().map(|&v| if v >= 0.0 { 1.0 } else { -1.0 }).collect();
            prop_assert_eq!(signs, expected);
            if values.len() % 8 != 0 {
                prop_assert_eq!(bits[bits.len() - 1] >> (values.len() % 8), 0);
            }
        }
    }
}
