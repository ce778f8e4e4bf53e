//! Numbers in as few bytes as they need: seven bits a byte, the lowest first; bit 7 is set in all bytes but the last one.

/// Bytes of the longest varint, which is the largest `u64`.
pub(crate) const MAX_VARINT_BYTES: usize = 10;

pub(crate) fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number from the front; `None` for a number that is cut off, above the largest `u64`, or in more bytes than necessary.
pub(crate) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for at in 0..MAX_VARINT_BYTES {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        let placed = bits << (7 * at);
        if placed >> (7 * at) != bits {
            return None;
        }
        value |= placed;
        if byte & 0x80 == 0 {
            return Some(value).filter(|_| byte != 0 || at == 0);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_overlong_overflowing_or_cut_off_number_is_refused() {
        for wrong in [
            &[0x80, 0][..],
            &[0x80],
            &[],
            &[0xff; 10],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
        ] {
            assert_eq!(take_varint(&mut &wrong[..]), None, "{wrong:02x?}");
        }
        let largest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(take_varint(&mut &largest[..]), Some(u64::MAX));
    }

    proptest! {
        #[test]
        fn a_number_has_one_form(value: u64, shift in 0..64u32) {
            let value = value >> shift;
            let mut bytes = Vec::new();
            put_varint(value, &mut bytes);
            let mut rest = &bytes[..];
            prop_assert_eq!(take_varint(&mut rest), Some(value));
            prop_assert!(rest.is_empty() && bytes.len() <= MAX_VARINT_BYTES);
        }

        #[test]
        fn bytes_of_a_number_are_those_that_it_is_written_as(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            let mut rest = &bytes[..];
            if let Some(value) = take_varint(&mut rest) {
                let mut again = Vec::new();
                put_varint(value, &mut again);
                prop_assert_eq!(&again[..], &bytes[..bytes.len() - rest.len()]);
            }
        }
    }
}
