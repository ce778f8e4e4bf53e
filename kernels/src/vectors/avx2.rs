//! The operations in AVX2.

#![expect(unsafe_code, reason = "intrinsics; an `Avx2` exists only where the processor has them")]

use core::arch::x86_64::{
    __m256i, _mm_cvtsi32_si128, _mm256_add_epi16, _mm256_and_si256, _mm256_andnot_si256, _mm256_cmpgt_epi16,
    _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_or_si256, _mm256_packs_epi16, _mm256_permute4x64_epi64,
    _mm256_set1_epi8, _mm256_set1_epi16, _mm256_setzero_si256, _mm256_sll_epi64, _mm256_srl_epi64,
    _mm256_storeu_si256, _mm256_xor_si256,
};

use super::{LANES, Row, TILE_WORDS, Vectors};

/// Proof that the processor has AVX2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// To be had only where the compiler knows that AVX2 is there.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(crate) fn here() -> Self {
        Self(())
    }
}

/// Two vectors of 16 sums.
type Sums = [__m256i; 2];
const _: () = assert!(size_of::<Sums>() == size_of::<[i16; LANES]>());
const _: () = assert!(size_of::<__m256i>() == size_of::<Row>());

// SAFETY, for every block below: `self` says that the instructions exist, and what is read or written is an array as long as the
// vectors, as asserted above; loads and stores may be unaligned.
impl Vectors for Avx2 {
    type Sums = Sums;
    type Bits = __m256i;

    #[inline(always)]
    fn no_sums(self) -> Sums {
        [self.no_bits(); 2]
    }

    #[inline(always)]
    fn add_row(self, [low, high]: Sums, row: &[i16; LANES]) -> Sums {
        let halves = row.as_ptr().cast::<__m256i>();
        unsafe {
            let (row_low, row_high) = (_mm256_loadu_si256(halves), _mm256_loadu_si256(halves.add(1)));
            [_mm256_add_epi16(low, row_low), _mm256_add_epi16(high, row_high)]
        }
    }

    #[inline(always)]
    fn sums_at_least(self, [low, high]: Sums, from: i16) -> u32 {
        unsafe {
            let from = _mm256_set1_epi16(from);
            // Packing works on halves of vectors, so quarters come out as 0, 2, 1, 3.
            let below = _mm256_packs_epi16(_mm256_cmpgt_epi16(from, low), _mm256_cmpgt_epi16(from, high));
            !(_mm256_movemask_epi8(_mm256_permute4x64_epi64::<0b11_01_10_00>(below)).cast_unsigned())
        }
    }

    #[inline(always)]
    fn no_bits(self) -> __m256i {
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    fn all_bits(self) -> __m256i {
        unsafe { _mm256_set1_epi8(-1) }
    }

    #[inline(always)]
    fn load(self, row: &Row) -> __m256i {
        unsafe { _mm256_loadu_si256(row.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, bits: __m256i, row: &mut Row) {
        unsafe { _mm256_storeu_si256(row.as_mut_ptr().cast(), bits) }
    }

    #[inline(always)]
    fn moved(self, words: &[u64; TILE_WORDS + 1], by: u32) -> __m256i {
        let words = words.as_ptr();
        unsafe {
            let (low, high) = (_mm256_loadu_si256(words.cast()), _mm256_loadu_si256(words.add(1).cast()));
            // A shift by 64 leaves zeros.
            let (right, left) = (_mm_cvtsi32_si128(by as i32), _mm_cvtsi32_si128(64 - by as i32));
            _mm256_or_si256(_mm256_srl_epi64(low, right), _mm256_sll_epi64(high, left))
        }
    }

    #[inline(always)]
    fn xor(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_xor_si256(a, b) }
    }

    #[inline(always)]
    fn and(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_and_si256(a, b) }
    }

    #[inline(always)]
    fn or(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_or_si256(a, b) }
    }

    #[inline(always)]
    fn and_not(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_andnot_si256(b, a) }
    }
}
