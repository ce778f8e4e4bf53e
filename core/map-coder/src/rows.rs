//! Rows of a packed map as words of up to 64 columns: bit `x` of a word is the value `x` columns after the first column of the word.

pub(crate) fn bit(map: &[u8], at: usize) -> bool {
    map[at / 8] >> (at % 8) & 1 == 1
}

/// The word of `width` bits, 1 to 64, that begins at bit `start` of the map; bits from `width` on are zero.
pub(crate) fn read_row(map: &[u8], start: usize, width: usize) -> u64 {
    let rest = &map[start / 8..];
    // A word of 64 bits lies in up to nine bytes.
    let nine = rest.first_chunk().copied().unwrap_or_else(|| {
        let mut nine = [0; 9];
        nine[..rest.len()].copy_from_slice(rest);
        nine
    });
    let [b0, b1, b2, b3, b4, b5, b6, b7, last] = nine;
    let shift = start % 8;
    let word = u64::from_le_bytes([b0, b1, b2, b3, b4, b5, b6, b7]);
    let row = word >> shift | u64::from(last) << 1 << (63 - shift);
    row & u64::MAX >> (64 - width)
}

/// Writes a word of `width` bits into a map; the bits of the map at that place must be zero.
pub(crate) fn write_row(map: &mut [u8], start: usize, width: usize, row: u64) {
    let shift = start % 8;
    let bytes = (u128::from(row) << shift).to_le_bytes();
    for (byte, part) in map[start / 8..].iter_mut().zip(bytes).take((shift + width).div_ceil(8)) {
        *byte |= part;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_are_the_bits_of_the_map(map: [u8; 40], start in 0usize..256, width in 1usize..=64) {
            let row = read_row(&map, start, width);
            let bit = |x: usize| x < width && map[(start + x) / 8] >> ((start + x) % 8) & 1 == 1;
            prop_assert!((0..64).all(|x| (row >> x & 1 == 1) == bit(x)));
            let used = start + width;
            prop_assert_eq!(read_row(&map[..used.div_ceil(8)], start, width), row);
            let mut written = [0; 40];
            write_row(&mut written[..used.div_ceil(8)], start, width, row);
            let written_bit = |at: usize| written[at / 8] >> (at % 8) & 1 == 1;
            prop_assert!((0..320).all(|at| written_bit(at) == (at >= start && bit(at - start))));
        }
    }
}
