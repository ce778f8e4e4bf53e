//! Operations in plain Rust.

use super::{LANES, Simd};

/// Plain Rust; the compiler uses the instructions of its target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

impl Simd for Portable {
    type Sums = [i16; LANES];

    #[inline(always)]
    fn zero_sums(self) -> Self::Sums {
        [0; LANES]
    }

    #[inline(always)]
    fn add_row(self, mut sums: Self::Sums, row: &[i16; LANES]) -> Self::Sums {
        sums.iter_mut().zip(row).for_each(|(sum, add)| *sum += add);
        sums
    }

    #[inline(always)]
    fn sums_at_least(self, sums: Self::Sums, min: i16) -> u32 {
        bits(sums.iter().map(|&sum| sum >= min))
    }
}

/// Collects values as bits, the first value as the lowest bit.
#[inline(always)]
fn bits(values: impl Iterator<Item = bool>) -> u32 {
    values.enumerate().fold(0, |bits, (bit, value)| bits | u32::from(value) << bit)
}
