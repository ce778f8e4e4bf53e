//! Feature bits on the wire: CHW order as in ONNX, least significant bit first, 1 = +1, tail bits zero.

/// Bytes that `bits` feature bits take: rounded up to whole bytes.
pub const fn packed_len(bits: usize) -> usize {
    bits.div_ceil(8)
}

/// Whether the bits after the last feature bit are zero, as they must be.
pub fn tail_is_clear(bytes: &[u8], bits: usize) -> bool {
    match (bits % 8, bytes.last()) {
        (0, _) | (_, None) => true,
        (used, Some(last)) => last >> used == 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_bits_must_be_zero() {
        assert!(tail_is_clear(&[0xff], 8));
        assert!(tail_is_clear(&[0b0000_0111], 3));
        assert!(!tail_is_clear(&[0b0000_1111], 3));
        assert!(tail_is_clear(&[], 0));
        assert_eq!([0, 1, 8, 9].map(packed_len), [0, 1, 1, 2]);
    }
}
