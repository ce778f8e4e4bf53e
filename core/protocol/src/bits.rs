//! Feature bits on the wire, in CHW order as in ONNX. A bit of 1 stands for +1, a bit of 0 for -1.
//!
//! ```text
//! bit of a byte   7  6  5  4  3  2  1  0
//! byte 0          f7 f6 f5 f4 f3 f2 f1 f0
//! last byte       0  0  0  0  0  f10 f9 f8    bits after the last feature are zero
//! ```

/// Number of bytes that `bits` feature bits take.
pub const fn packed_len(bits: usize) -> usize {
    bits.div_ceil(8)
}

/// True if the bits after the last feature bit are zero.
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
