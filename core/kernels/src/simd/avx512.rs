//! The operations in AVX-512.

#![expect(unsafe_code, reason = "intrinsics; an `Avx512` exists only where the processor has them")]

use core::arch::x86_64::{
    __m512i, _mm512_add_epi16, _mm512_add_epi64, _mm512_cmpge_epi16_mask, _mm512_cmple_epi64_mask,
    _mm512_loadu_si512, _mm512_maskz_set1_epi64, _mm512_or_si512, _mm512_permutexvar_epi64,
    _mm512_popcnt_epi64, _mm512_rolv_epi64, _mm512_set1_epi16, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_storeu_si512, _mm512_ternarylogic_epi64,
};

use super::{Avx2, ByteLookupCode, LANES, Simd, WORDS, WordPopcount, WordPopcountCode};

/// Proof that the processor has AVX2, and AVX-512 with 16-bit numbers and bit counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512(Avx2);

impl Avx512 {
    #[inline]
    #[target_feature(enable = "avx2,avx512f,avx512bw,avx512vpopcntdq")]
    pub(crate) fn new() -> Self {
        Self(Avx2::new())
    }
}

const _: () = assert!(size_of::<__m512i>() == size_of::<[i16; LANES]>());
const _: () = assert!(size_of::<__m512i>() == size_of::<[u64; WORDS]>());

// SAFETY, for every block below: `self` proves that the instructions exist. Every pointer is that of an array as long as the vector,
// as asserted above. Loads and stores may be unaligned.
impl Simd for Avx512 {
    const HAS_BYTE_LOOKUP: bool = true;
    type Sums = __m512i;

    #[inline(always)]
    fn with_byte_lookup(self, code: impl ByteLookupCode) {
        code.run(self.0);
    }

    #[inline(always)]
    fn with_word_popcount(self, code: impl WordPopcountCode) {
        code.run(self);
    }

    #[inline(always)]
    fn zero_sums(self) -> __m512i {
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    fn add_row(self, sums: __m512i, row: &[i16; LANES]) -> __m512i {
        unsafe { _mm512_add_epi16(sums, _mm512_loadu_si512(row.as_ptr().cast())) }
    }

    #[inline(always)]
    fn sums_at_least(self, sums: __m512i, min: i16) -> u32 {
        unsafe { _mm512_cmpge_epi16_mask(sums, _mm512_set1_epi16(min)) }
    }
}

/// Truth tables of `a`, `b` and `c` themselves: bit `4 * a + 2 * b + c` of a truth table is the result for these three bits.
const A: i32 = 0b1111_0000;
const B: i32 = 0b1100_1100;
const C: i32 = 0b1010_1010;
/// Truth table of `(a ^ b) & c`.
const DIFFERING: i32 = (A ^ B) & C;
/// Truth table of `b` if `a` is set, else `c`.
const CHOSEN: i32 = A & B | !A & C & 0xff;

impl WordPopcount for Avx512 {
    type Words = __m512i;

    #[inline(always)]
    fn load(self, words: &[u64; WORDS]) -> __m512i {
        unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
    }

    #[inline(always)]
    fn broadcast_to(self, lanes: u8, word: u64) -> __m512i {
        unsafe { _mm512_maskz_set1_epi64(lanes, word.cast_signed()) }
    }

    #[inline(always)]
    fn store(self, words: __m512i, to: &mut [u64; WORDS]) {
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), words) }
    }

    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    fn transpose_bytes(self, mut rows: __m512i) -> __m512i {
        // Transposes 8 x 8 bits in three steps. Each step exchanges the blocks on both sides of the diagonal: of side 4, then 2, then 1.
        for (side, low) in
            [(4, 0x0f0f_0f0f_0f0f_0f0f), (2, 0x3333_3333_3333_3333), (1, 0x5555_5555_5555_5555)]
        {
            let (mut other, mut rotation, mut own) = ([0; WORDS], [0; WORDS], [0; WORDS]);
            for row in 0..WORDS {
                let is_upper = row & side == 0;
                other[row] = (row ^ side) as u64;
                rotation[row] = (if is_upper { side } else { 64 - side }) as u64;
                own[row] = if is_upper { low } else { !low };
            }
            unsafe {
                let other = _mm512_permutexvar_epi64(self.load(&other), rows);
                let other = _mm512_rolv_epi64(other, self.load(&rotation));
                rows = _mm512_ternarylogic_epi64::<CHOSEN>(self.load(&own), rows, other);
            }
        }
        rows
    }

    #[inline(always)]
    fn add_differing(self, sums: __m512i, a: __m512i, b: u64, mask: __m512i) -> __m512i {
        unsafe {
            let differing =
                _mm512_ternarylogic_epi64::<DIFFERING>(_mm512_set1_epi64(b.cast_signed()), a, mask);
            _mm512_add_epi64(sums, _mm512_popcnt_epi64(differing))
        }
    }

    #[inline(always)]
    fn at_most(self, sums: __m512i, max: i64) -> u8 {
        unsafe { _mm512_cmple_epi64_mask(sums, _mm512_set1_epi64(max)) }
    }
}
