//! The operations in AVX-512.

#![expect(unsafe_code, reason = "intrinsics; an `Avx512` exists only where the processor has them")]

use core::arch::x86_64::{
    __m512i, _mm512_add_epi16, _mm512_add_epi64, _mm512_cmpge_epi16_mask, _mm512_cmple_epi64_mask,
    _mm512_loadu_si512, _mm512_maskz_set1_epi64, _mm512_or_si512, _mm512_permutexvar_epi64,
    _mm512_popcnt_epi64, _mm512_rolv_epi64, _mm512_set1_epi16, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_storeu_si512, _mm512_ternarylogic_epi64,
};

use super::{Avx2, Counting, LANES, Popcounts, Vectors, WORDS};

/// Proof that the processor has AVX-512 with numbers of 16 bits and counts of bits, and AVX2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512(Avx2);

impl Avx512 {
    /// To be had only where the compiler knows that AVX-512 is there.
    #[inline]
    #[target_feature(enable = "avx2,avx512f,avx512bw,avx512vpopcntdq")]
    pub(crate) fn here() -> Self {
        Self(Avx2::here())
    }
}

const _: () = assert!(size_of::<__m512i>() == size_of::<[i16; LANES]>());
const _: () = assert!(size_of::<__m512i>() == size_of::<[u64; WORDS]>());

// SAFETY, for every block below: `self` says that the instructions exist, and what is read or written is an array as long as the
// vectors, as asserted above; loads and stores may be unaligned.
impl Vectors for Avx512 {
    const COUNTING: Counting = Counting::Popcounts;
    type LooksUp = Avx2;
    type Popcounts = Self;
    type Sums = __m512i;

    #[inline(always)]
    fn looks_up(self) -> Avx2 {
        self.0
    }

    #[inline(always)]
    fn popcounts(self) -> Self {
        self
    }

    #[inline(always)]
    fn no_sums(self) -> __m512i {
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    fn add_row(self, sums: __m512i, row: &[i16; LANES]) -> __m512i {
        unsafe { _mm512_add_epi16(sums, _mm512_loadu_si512(row.as_ptr().cast())) }
    }

    #[inline(always)]
    fn sums_at_least(self, sums: __m512i, from: i16) -> u32 {
        unsafe { _mm512_cmpge_epi16_mask(sums, _mm512_set1_epi16(from)) }
    }
}

/// A logic of three bits is a number of eight: what it gives for each that they can be.
const A: i32 = 0b1111_0000;
const B: i32 = 0b1100_1100;
const C: i32 = 0b1010_1010;
/// `(a ^ b) & c`.
const DIFFERENT: i32 = (A ^ B) & C;
/// `b` where `a` is set, and `c` elsewhere.
const CHOSEN: i32 = A & B | !A & C & 0xff;

impl Popcounts for Avx512 {
    type Words = __m512i;

    #[inline(always)]
    fn words(self, words: &[u64; WORDS]) -> __m512i {
        unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
    }

    #[inline(always)]
    fn where_set(self, lanes: u8, word: u64) -> __m512i {
        unsafe { _mm512_maskz_set1_epi64(lanes, word.cast_signed()) }
    }

    #[inline(always)]
    fn put(self, words: __m512i, to: &mut [u64; WORDS]) {
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), words) }
    }

    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    fn transposed(self, mut rows: __m512i) -> __m512i {
        // Squares beside the diagonal change places: what a row gets from the row of the other square is rotated into its place.
        for (side, low) in
            [(4, 0x0f0f_0f0f_0f0f_0f0f), (2, 0x3333_3333_3333_3333), (1, 0x5555_5555_5555_5555)]
        {
            let (mut other, mut by, mut kept) = ([0; WORDS], [0; WORDS], [0; WORDS]);
            for row in 0..WORDS {
                let is_upper = row & side == 0;
                other[row] = (row ^ side) as u64;
                by[row] = (if is_upper { side } else { 64 - side }) as u64;
                kept[row] = if is_upper { low } else { !low };
            }
            unsafe {
                let other = _mm512_permutexvar_epi64(self.words(&other), rows);
                let other = _mm512_rolv_epi64(other, self.words(&by));
                rows = _mm512_ternarylogic_epi64::<CHOSEN>(self.words(&kept), rows, other);
            }
        }
        rows
    }

    #[inline(always)]
    fn add_different(self, sum: __m512i, a: __m512i, b: u64, kept: __m512i) -> __m512i {
        unsafe {
            let different =
                _mm512_ternarylogic_epi64::<DIFFERENT>(_mm512_set1_epi64(b.cast_signed()), a, kept);
            _mm512_add_epi64(sum, _mm512_popcnt_epi64(different))
        }
    }

    #[inline(always)]
    fn at_most(self, sums: __m512i, most: i64) -> u8 {
        unsafe { _mm512_cmple_epi64_mask(sums, _mm512_set1_epi64(most)) }
    }
}
