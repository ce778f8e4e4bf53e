//! The instructions that a section runs with.
//!
//! The kernels are written once over [`Simd`]. Each code path compiles them for its own set of instructions, and has its own version of
//! the few operations that compilers translate badly.

use crate::simd::{Portable, Simd};

/// A set of instructions, and whether a section takes the least time or the least memory. All code paths compute the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodePath {
    instructions: Instructions,
    is_low_memory: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instructions {
    Portable,
    Neon,
    Avx2,
    Avx512,
}

/// Code that is compiled once for each set of instructions.
pub(crate) trait PathCode {
    type Output;

    /// Runs the code. Implementations are `#[inline(always)]`, so that they are compiled with the instructions of `S`.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

impl CodePath {
    /// The path with the instructions that the program was compiled for.
    pub const PORTABLE: Self = Self { instructions: Instructions::Portable, is_low_memory: false };

    /// The same instructions, with the least memory for weights and scratch instead of the least time.
    #[must_use]
    pub const fn low_memory(self) -> Self {
        Self { is_low_memory: true, ..self }
    }

    pub(crate) const fn is_low_memory(self) -> bool {
        self.is_low_memory
    }

    /// The code paths of least time that this processor can run, slowest first. Instructions beyond the target's need the feature `std`.
    pub fn available() -> impl DoubleEndedIterator<Item = Self> {
        use Instructions::{Avx2, Avx512, Neon, Portable};
        let all = [Portable, Neon, Avx2, Avx512].into_iter();
        let available = all.filter(|instructions| match instructions {
            Portable => true,
            Neon => cfg!(target_arch = "aarch64"),
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            Avx2 => x86::has_avx2(),
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            Avx512 => x86::has_avx512(),
            // Other processors lack these instructions; without `std` a program cannot detect them.
            #[cfg(not(all(target_arch = "x86_64", feature = "std")))]
            Avx2 | Avx512 => false,
        });
        available.map(|instructions| Self { instructions, ..Self::PORTABLE })
    }

    /// The fastest code path that this processor can run.
    pub fn best() -> Self {
        Self::available().next_back().unwrap_or(Self::PORTABLE)
    }

    /// Name of the instructions, for reports. The path of least memory has the same name.
    pub const fn name(self) -> &'static str {
        match self.instructions {
            Instructions::Portable => "portable",
            Instructions::Neon => "neon",
            Instructions::Avx2 => "avx2",
            Instructions::Avx512 => "avx512",
        }
    }

    /// True if one instruction looks up many bytes (`pshufb`, NEON `tbl`).
    pub(crate) fn has_byte_lookup(self) -> bool {
        self.instructions != Instructions::Portable
    }

    /// True if one instruction counts the bits of eight words (VPOPCNTDQ).
    pub(crate) fn has_word_popcount(self) -> bool {
        self.instructions == Instructions::Avx512
    }

    /// Runs code with these instructions.
    #[inline(always)]
    pub(crate) fn run<C: PathCode>(self, code: C) -> C::Output {
        match self.instructions {
            #[cfg(target_arch = "aarch64")]
            Instructions::Neon => code.run(crate::simd::Neon),
            // SAFETY: `available` is the only source of these two, and has detected their instructions.
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            #[expect(unsafe_code, reason = "calls a function with instructions that were detected")]
            Instructions::Avx2 => unsafe { x86::run_avx2(code) },
            // SAFETY: as above.
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            #[expect(unsafe_code, reason = "calls a function with instructions that were detected")]
            Instructions::Avx512 => unsafe { x86::run_avx512(code) },
            _ => code.run(Portable),
        }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod x86 {
    use std::arch::is_x86_feature_detected as has;

    use super::PathCode;
    use crate::simd::{Avx2, Avx512};

    pub(super) fn has_avx2() -> bool {
        has!("avx2") && has!("popcnt") && has!("bmi1") && has!("bmi2") && has!("lzcnt")
    }

    pub(super) fn has_avx512() -> bool {
        has_avx2() && has!("avx512f") && has!("avx512bw") && has!("avx512vl") && has!("avx512vpopcntdq")
    }

    #[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
    pub(super) fn run_avx2<C: PathCode>(code: C) -> C::Output {
        code.run(Avx2::new())
    }

    #[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt,avx512f,avx512bw,avx512vl,avx512vpopcntdq")]
    pub(super) fn run_avx512<C: PathCode>(code: C) -> C::Output {
        code.run(Avx512::new())
    }
}
