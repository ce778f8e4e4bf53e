//! The check byte: CRC-8/AUTOSAR, polynomial 0x2F, start 0xFF, inverted at the end, most significant bit first.

const POLYNOMIAL: u8 = 0x2f;

/// The CRC remainder of each byte.
const REMAINDERS: [u8; 256] = remainders();

/// Check byte of a packed map.
pub(crate) fn check_byte(map: &[u8]) -> u8 {
    !map.iter().fold(0xff, |remainder: u8, byte| REMAINDERS[usize::from(remainder ^ byte)])
}

const fn remainders() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte: u8 = 0;
    loop {
        let mut remainder = byte;
        let mut bit = 0;
        while bit < 8 {
            let out = remainder >> 7;
            remainder = (remainder << 1) ^ (out * POLYNOMIAL);
            bit += 1;
        }
        table[byte as usize] = remainder;
        if byte == u8::MAX {
            return table;
        }
        byte += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_catalogue_of_crcs_comes_out() {
        assert_eq!(check_byte(b"123456789"), 0xdf);
    }
}
