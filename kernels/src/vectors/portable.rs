//! The operations in plain Rust.

use super::{LANES, Vectors};

/// Whatever the program was compiled for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

impl Vectors for Portable {
    type Sums = [i16; LANES];
    type Bytes = [u8; LANES];

    const LOOKS_UP: bool = false;

    #[inline(always)]
    fn no_sums(self) -> Self::Sums {
        [0; LANES]
    }

    #[inline(always)]
    fn add_row(self, mut sums: Self::Sums, row: &[i16; LANES]) -> Self::Sums {
        sums.iter_mut().zip(row).for_each(|(sum, add)| *sum += add);
        sums
    }

    #[inline(always)]
    fn sums_at_least(self, sums: Self::Sums, from: i16) -> u32 {
        bits(sums.iter().map(|&sum| sum >= from))
    }

    #[inline(always)]
    fn no_bytes(self) -> Self::Bytes {
        [0; LANES]
    }

    #[inline(always)]
    fn load(self, bytes: &[u8; LANES]) -> Self::Bytes {
        *bytes
    }

    #[inline(always)]
    fn store(self, bytes: Self::Bytes, into: &mut [u8; LANES]) {
        *into = bytes;
    }

    #[inline(always)]
    fn spread(self, mut bytes: Self::Bytes, bits: u32, value: u8) -> Self::Bytes {
        for (place, byte) in bytes.iter_mut().enumerate() {
            *byte |= (bits >> place & 1) as u8 * value;
        }
        bytes
    }

    #[inline(always)]
    fn table(self, table: &[i8; 16]) -> Self::Bytes {
        core::array::from_fn(|place| table[place % 16].cast_unsigned())
    }

    #[inline(always)]
    fn look_up(self, table: Self::Bytes, indices: Self::Bytes) -> Self::Bytes {
        indices.map(|index| if index >> 7 == 0 { table[usize::from(index % 16)] } else { 0 })
    }

    #[inline(always)]
    fn add(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        core::array::from_fn(|place| a[place].wrapping_add(b[place]))
    }

    #[inline(always)]
    fn bytes_at_least(self, bytes: Self::Bytes, from: i8) -> u32 {
        bits(bytes.iter().map(|byte| byte.cast_signed() >= from))
    }

    #[inline(always)]
    fn widen(self, mut sums: Self::Sums, bytes: Self::Bytes) -> Self::Sums {
        sums.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum += i16::from(byte.cast_signed()));
        sums
    }

    #[inline(always)]
    fn widened_at_least(self, sums: Self::Sums, from: i16) -> u32 {
        self.sums_at_least(sums, from)
    }
}

#[inline(always)]
fn bits(values: impl Iterator<Item = bool>) -> u32 {
    values.enumerate().fold(0, |bits, (place, value)| bits | u32::from(value) << place)
}
