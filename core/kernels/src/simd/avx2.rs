//! The operations in AVX2.

#![expect(unsafe_code, reason = "intrinsics; an `Avx2` exists only where the processor has them")]

use core::arch::x86_64::{
    __m256i, _mm_loadu_si128, _mm256_add_epi8, _mm256_add_epi16, _mm256_and_si256, _mm256_andnot_si256,
    _mm256_avg_epu8, _mm256_blendv_epi8, _mm256_broadcastsi128_si256, _mm256_cmpeq_epi8, _mm256_cmpgt_epi16,
    _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_or_si256, _mm256_packs_epi16, _mm256_permute2x128_si256,
    _mm256_permute4x64_epi64, _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi64x, _mm256_setr_epi64x,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_slli_epi16, _mm256_srli_epi16, _mm256_storeu_si256,
    _mm256_sub_epi16,
};

use super::{ByteLookup, ByteLookupCode, Counts, HALF, LANES, Simd};

/// Proof that the processor has AVX2: only code compiled for AVX2 can make a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

impl Avx2 {
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(crate) fn new() -> Self {
        Self(())
    }
}

/// Two vectors of 16 sums.
type Sums = [__m256i; 2];
const _: () = assert!(size_of::<Sums>() == size_of::<[i16; LANES]>());

// SAFETY, for every block below: `self` proves that the instructions exist. Every pointer is that of an array as long as the vector,
// as asserted above. Loads and stores may be unaligned.
impl Simd for Avx2 {
    const HAS_BYTE_LOOKUP: bool = true;
    type Sums = Sums;

    #[inline(always)]
    fn with_byte_lookup(self, code: impl ByteLookupCode) {
        code.run(self);
    }

    #[inline(always)]
    fn zero_sums(self) -> Sums {
        [self.zero_bytes(); 2]
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
    fn sums_at_least(self, [low, high]: Sums, min: i16) -> u32 {
        unsafe {
            let min = _mm256_set1_epi16(min);
            // Packing works on halves of vectors, so the quarters are in the order 0, 2, 1, 3, which the permutation undoes.
            let below = _mm256_packs_epi16(_mm256_cmpgt_epi16(min, low), _mm256_cmpgt_epi16(min, high));
            !(_mm256_movemask_epi8(_mm256_permute4x64_epi64::<0b11_01_10_00>(below)).cast_unsigned())
        }
    }
}

impl ByteLookup for Avx2 {
    type Bytes = __m256i;
    type Counts = [__m256i; 4];

    #[inline(always)]
    fn zero_bytes(self) -> __m256i {
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    fn load_table(self, bytes: &[i16; HALF]) -> __m256i {
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn look_up(self, table: __m256i, indices: &[u8; LANES]) -> __m256i {
        unsafe { _mm256_shuffle_epi8(table, _mm256_loadu_si256(indices.as_ptr().cast())) }
    }

    #[inline(always)]
    fn add_bytes(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_add_epi8(a, b) }
    }

    #[inline(always)]
    fn add_pairs(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_add_epi16(a, b) }
    }

    #[inline(always)]
    fn nibble_mask(self) -> __m256i {
        // Without `black_box` the compiler would load the constant again in each pass of a loop.
        core::hint::black_box(unsafe { _mm256_set1_epi8(0x0f) })
    }

    #[inline(always)]
    fn high_nibbles(self, a: __m256i, nibble_mask: __m256i) -> __m256i {
        // AVX2 shifts no single bytes: the mask removes the bits that come from the byte above.
        unsafe { _mm256_and_si256(_mm256_srli_epi16::<4>(a), nibble_mask) }
    }

    #[inline(always)]
    fn add_high_nibbles(self, a: __m256i, b: __m256i, nibble_mask: __m256i) -> __m256i {
        unsafe {
            // Half the sum of two multiples of 16 is a multiple of 8, so a shift by 3 brings no bits of the byte above.
            let (a, b) = (_mm256_andnot_si256(nibble_mask, a), _mm256_andnot_si256(nibble_mask, b));
            _mm256_srli_epi16::<3>(_mm256_avg_epu8(a, b))
        }
    }

    #[inline(always)]
    fn add_counts(self, both: __m256i, second: __m256i, before: &Counts) -> [__m256i; 4] {
        unsafe {
            let first = _mm256_sub_epi16(both, _mm256_slli_epi16::<4>(second));
            let low = _mm256_set1_epi16(0xff);
            let mut counts = [
                _mm256_and_si256(first, low),
                _mm256_srli_epi16::<8>(first),
                _mm256_and_si256(second, low),
                _mm256_srli_epi16::<8>(second),
            ];
            for (counts, before) in counts.iter_mut().zip(before) {
                *counts = _mm256_add_epi16(*counts, _mm256_loadu_si256(before.as_ptr().cast()));
            }
            counts
        }
    }

    #[inline(always)]
    fn store_counts(self, counts: [__m256i; 4], to: &mut Counts) {
        for (counts, to) in counts.into_iter().zip(to) {
            unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), counts) }
        }
    }

    #[inline(always)]
    fn above(self, counts: [__m256i; 4], bounds: [&[i16; HALF]; 2]) -> [__m256i; 2] {
        let mut above = [self.zero_bytes(); 2];
        let (counts, _) = counts.as_chunks::<2>();
        for ((above, [even, odd]), bounds) in above.iter_mut().zip(counts).zip(bounds) {
            unsafe {
                let bounds = _mm256_loadu_si256(bounds.as_ptr().cast());
                let (even, odd) = (_mm256_cmpgt_epi16(*even, bounds), _mm256_cmpgt_epi16(*odd, bounds));
                *above = _mm256_blendv_epi8(even, odd, _mm256_set1_epi16(0xff00u16.cast_signed()));
            }
        }
        above
    }

    #[inline(always)]
    fn lane_bits<const X: usize>(self, vectors: &[__m256i; X]) -> [u64; 2] {
        let mut bits = [0; 2];
        let (pairs, rest) = vectors.as_chunks::<2>();
        unsafe {
            for (pair, [low, high]) in pairs.iter().enumerate() {
                let halves = [
                    _mm256_permute2x128_si256::<0x20>(*low, *high),
                    _mm256_permute2x128_si256::<0x31>(*low, *high),
                ];
                for (bits, half) in bits.iter_mut().zip(halves) {
                    *bits |= u64::from(_mm256_movemask_epi8(half).cast_unsigned()) << (2 * HALF * pair);
                }
            }
            for vector in rest {
                let both = u64::from(_mm256_movemask_epi8(*vector).cast_unsigned());
                bits[0] |= (both & 0xffff) << (2 * HALF * pairs.len());
                bits[1] |= (both >> HALF) << (2 * HALF * pairs.len());
            }
        }
        bits
    }

    #[inline(always)]
    fn interleave(self, words: [u64; 4], numbers: &mut [u8; 64]) {
        unsafe {
            // Lane `i` takes bit `i % 8` of byte `i / 8` of its half of the word.
            let ones = 0x0101_0101_0101_0101;
            let bytes = _mm256_setr_epi64x(0, ones, 2 * ones, 3 * ones);
            let bits = _mm256_set1_epi64x(0x8040_2010_0804_0201u64.cast_signed());
            let mut halves = [self.zero_bytes(); 2];
            for (bit, word) in words.into_iter().enumerate() {
                let word = _mm256_set1_epi64x(word.cast_signed());
                let high = _mm256_add_epi8(bytes, _mm256_set1_epi8(4));
                for (half, bytes) in halves.iter_mut().zip([bytes, high]) {
                    let is_set =
                        _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(word, bytes), bits), bits);
                    *half = _mm256_or_si256(*half, _mm256_and_si256(is_set, _mm256_set1_epi8(1 << bit)));
                }
            }
            for (half, numbers) in halves.into_iter().zip(numbers.as_chunks_mut::<LANES>().0) {
                _mm256_storeu_si256(numbers.as_mut_ptr().cast(), half);
            }
        }
    }

    #[inline(always)]
    fn store_twice(self, bytes: &[u8; HALF], mask: &[i16; HALF], to: &mut [u8; LANES]) {
        unsafe {
            let twice = _mm256_broadcastsi128_si256(_mm_loadu_si128(bytes.as_ptr().cast()));
            let mask = _mm256_loadu_si256(mask.as_ptr().cast());
            _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm256_or_si256(twice, mask));
        }
    }
}
