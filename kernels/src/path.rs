//! Which instructions a section is run with.
//!
//! The kernels are written once over [`Vectors`](crate::vectors::Vectors); a path compiles them anew with more instructions allowed, and
//! brings its own of the few operations that compilers do badly.

use crate::section::{Section, Temporaries};
use crate::vectors::{Counting, Portable, Vectors};

/// Instructions to run with. Every path gives the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    kind: Kind,
    is_frugal: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Portable,
    #[cfg(target_arch = "aarch64")]
    Neon,
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    Avx2,
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    Avx512,
}

impl Path {
    /// Whatever the program was compiled for.
    pub const PORTABLE: Self = Self::of(Kind::Portable);

    const fn of(kind: Kind) -> Self {
        Self { kind, is_frugal: false }
    }

    /// The same instructions, run so that weights and temporaries take the least memory and not the least time.
    #[must_use]
    pub const fn frugal(self) -> Self {
        Self { is_frugal: true, ..self }
    }

    /// Whether memory goes before time.
    pub(crate) const fn is_frugal(self) -> bool {
        self.is_frugal
    }

    /// How it counts products of bits.
    pub(crate) const fn counting(self) -> Counting {
        match self.kind {
            Kind::Portable => Portable::COUNTING,
            #[cfg(target_arch = "aarch64")]
            Kind::Neon => crate::vectors::Neon::COUNTING,
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            Kind::Avx2 => crate::vectors::Avx2::COUNTING,
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            Kind::Avx512 => crate::vectors::Avx512::COUNTING,
        }
    }

    /// The paths that this processor can run, slowest first. Without the feature `std` what a processor can do beyond its target is not
    /// looked for.
    pub fn available() -> impl DoubleEndedIterator<Item = Self> {
        [Some(Self::PORTABLE), detect::neon(), detect::avx2(), detect::avx512()].into_iter().flatten()
    }

    /// The fastest path that this processor can run.
    pub fn best() -> Self {
        Self::available().next_back().unwrap_or(Self::PORTABLE)
    }

    /// Its word in reports.
    pub const fn name(self) -> &'static str {
        match self.kind {
            Kind::Portable => "portable",
            #[cfg(target_arch = "aarch64")]
            Kind::Neon => "neon",
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            Kind::Avx2 => "avx2",
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            Kind::Avx512 => "avx512",
        }
    }

    pub(crate) fn run(
        self,
        section: &Section<'_>,
        input: &[u8],
        memory: Temporaries<'_>,
        scores: &mut [i32],
        features: &mut [u8],
    ) {
        match self.kind {
            Kind::Portable => section.run_with(Portable, input, memory, scores, features),
            #[cfg(target_arch = "aarch64")]
            Kind::Neon => section.run_with(crate::vectors::Neon, input, memory, scores, features),
            // SAFETY: a `Path` of this kind exists only where `available` has found its instructions.
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            #[expect(unsafe_code, reason = "calls a function with instructions that were detected")]
            Kind::Avx2 => unsafe { x86::avx2(section, input, memory, scores, features) },
            // SAFETY: as above.
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            #[expect(unsafe_code, reason = "calls a function with instructions that were detected")]
            Kind::Avx512 => unsafe { x86::avx512(section, input, memory, scores, features) },
        }
    }
}

/// What the processor can do.
mod detect {
    use super::Path;

    pub(super) fn neon() -> Option<Path> {
        #[cfg(target_arch = "aarch64")]
        return Some(Path::of(super::Kind::Neon));
        #[cfg(not(target_arch = "aarch64"))]
        None
    }

    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    pub(super) fn avx2() -> Option<Path> {
        use std::arch::is_x86_feature_detected as has;
        let all = has!("avx2") && has!("popcnt") && has!("bmi1") && has!("bmi2") && has!("lzcnt");
        all.then_some(Path::of(super::Kind::Avx2))
    }

    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    pub(super) fn avx512() -> Option<Path> {
        use std::arch::is_x86_feature_detected as has;
        avx2()?;
        let all = has!("avx512f") && has!("avx512bw") && has!("avx512vl") && has!("avx512vpopcntdq");
        all.then_some(Path::of(super::Kind::Avx512))
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

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod x86 {
    use super::{Section, Temporaries};
    use crate::vectors::{Avx2, Avx512};

    #[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
    pub(super) fn avx2(
        section: &Section<'_>,
        input: &[u8],
        memory: Temporaries<'_>,
        scores: &mut [i32],
        features: &mut [u8],
    ) {
        section.run_with(Avx2::here(), input, memory, scores, features);
    }

    #[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt,avx512f,avx512bw,avx512vl,avx512vpopcntdq")]
    pub(super) fn avx512(
        section: &Section<'_>,
        input: &[u8],
        memory: Temporaries<'_>,
        scores: &mut [i32],
        features: &mut [u8],
    ) {
        section.run_with(Avx512::here(), input, memory, scores, features);
    }
}
