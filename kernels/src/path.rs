//! Which instructions a section is run with.
//!
//! The kernels are written once, in plain Rust over blocks of lanes; a path compiles them anew with more instructions allowed,
//! and replaces the one step that compilers do badly: comparing lanes and gathering the results as bits.

use crate::section::{Section, Temporaries};
use crate::tables::{LANES, Lanes};

/// Instructions to run with. Every path gives the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Portable,
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    Avx2,
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    Avx512,
}

impl Path {
    /// Whatever the program was compiled for.
    pub const PORTABLE: Self = Self(Kind::Portable);

    /// The paths that this processor can run, slowest first; without the feature `std` the portable one alone.
    pub fn available() -> impl DoubleEndedIterator<Item = Self> {
        [Some(Self::PORTABLE), detect::avx2(), detect::avx512()].into_iter().flatten()
    }

    /// The fastest path that this processor can run.
    pub fn best() -> Self {
        Self::available().next_back().unwrap_or(Self::PORTABLE)
    }

    /// Its word in reports.
    pub const fn name(self) -> &'static str {
        match self.0 {
            Kind::Portable => "portable",
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            Kind::Avx2 => "avx2",
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            Kind::Avx512 => "avx512",
        }
    }

    pub(crate) fn run(
        self,
        section: &Section<'_>,
        pixels: &[u8],
        memory: Temporaries<'_>,
        scores: &mut [i32],
        features: &mut [u8],
    ) {
        match self.0 {
            Kind::Portable => {
                let lanes = Lanes { zero: [0; LANES], add, at_least };
                section.run_with(pixels, memory, scores, features, &lanes);
            }
            // SAFETY: a `Path` of this kind exists only where `available` has found its instructions.
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            #[expect(unsafe_code, reason = "calls a function with instructions that were detected")]
            Kind::Avx2 => unsafe { x86::avx2(section, pixels, memory, scores, features) },
            // SAFETY: as above.
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            #[expect(unsafe_code, reason = "calls a function with instructions that were detected")]
            Kind::Avx512 => unsafe { x86::avx512(section, pixels, memory, scores, features) },
        }
    }
}

/// What the processor can do.
mod detect {
    use super::Path;

    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    pub(super) fn avx2() -> Option<Path> {
        use std::arch::is_x86_feature_detected as has;
        let all = has!("avx2") && has!("popcnt") && has!("bmi1") && has!("bmi2") && has!("lzcnt");
        all.then_some(Path(super::Kind::Avx2))
    }

    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    pub(super) fn avx512() -> Option<Path> {
        use std::arch::is_x86_feature_detected as has;
        avx2()?;
        let all = has!("avx512f") && has!("avx512bw") && has!("avx512vl") && has!("avx512vpopcntdq");
        all.then_some(Path(super::Kind::Avx512))
    }

    #[cfg(not(all(target_arch = "x86_64", feature = "std")))]
    pub(super) fn avx2() -> Option<Path> {
        None
    }

    #[cfg(not(all(target_arch = "x86_64", feature = "std")))]
    pub(super) fn avx512() -> Option<Path> {
        None
    }
}

type Sums = [i16; LANES];

#[inline(always)]
fn add(mut sums: Sums, row: &Sums) -> Sums {
    sums.iter_mut().zip(row).for_each(|(sum, add)| *sum += add);
    sums
}

#[inline(always)]
fn at_least(sums: Sums, from: i16) -> u32 {
    sums.iter().enumerate().fold(0, |bits, (place, &sum)| bits | u32::from(sum >= from) << place)
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod x86 {
    use core::arch::x86_64::{
        __m256i, _mm256_add_epi16, _mm256_cmpgt_epi16, _mm256_loadu_si256, _mm256_movemask_epi8,
        _mm256_packs_epi16, _mm256_permute4x64_epi64, _mm256_set1_epi16, _mm256_setzero_si256,
    };

    use super::{LANES, Lanes, Section, Sums, Temporaries};

    #[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
    pub(super) fn avx2(
        section: &Section<'_>,
        pixels: &[u8],
        memory: Temporaries<'_>,
        scores: &mut [i32],
        features: &mut [u8],
    ) {
        section.run_with(pixels, memory, scores, features, &lanes());
    }

    #[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt,avx512f,avx512bw,avx512vl,avx512vpopcntdq")]
    pub(super) fn avx512(
        section: &Section<'_>,
        pixels: &[u8],
        memory: Temporaries<'_>,
        scores: &mut [i32],
        features: &mut [u8],
    ) {
        section.run_with(pixels, memory, scores, features, &lanes());
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn lanes() -> Lanes<Halves, impl Fn(Halves, &Sums) -> Halves, impl Fn(Halves, i16) -> u32> {
        Lanes {
            zero: [_mm256_setzero_si256(); 2],
            add: |sums, row: &Sums| add(sums, row),
            at_least: |sums, from| at_least(sums, from),
        }
    }

    /// The two halves of a block.
    type Halves = [__m256i; 2];
    const _: () = assert!(size_of::<Halves>() == size_of::<[i16; LANES]>());

    #[inline]
    #[target_feature(enable = "avx2")]
    #[expect(unsafe_code, reason = "loads from an array")]
    fn add([low, high]: Halves, row: &Sums) -> Halves {
        let halves = row.as_ptr().cast::<__m256i>();
        // SAFETY: the array is as long as two vectors, as asserted above, and the load may be unaligned.
        let (row_low, row_high) = unsafe { (_mm256_loadu_si256(halves), _mm256_loadu_si256(halves.add(1))) };
        [_mm256_add_epi16(low, row_low), _mm256_add_epi16(high, row_high)]
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn at_least([low, high]: Halves, from: i16) -> u32 {
        let from = _mm256_set1_epi16(from);
        // Packing works on halves of vectors, so quarters come out as 0, 2, 1, 3.
        let below = _mm256_packs_epi16(_mm256_cmpgt_epi16(from, low), _mm256_cmpgt_epi16(from, high));
        !(_mm256_movemask_epi8(_mm256_permute4x64_epi64::<0b11_01_10_00>(below)) as u32)
    }
}
