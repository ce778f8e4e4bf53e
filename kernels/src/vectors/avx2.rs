//! The operations in AVX2.

#![expect(unsafe_code, reason = "intrinsics; an `Avx2` exists only where the processor has them")]

use core::arch::x86_64::{
    __m256i, _mm_cvtsi32_si128, _mm_loadu_si128, _mm256_add_epi8, _mm256_add_epi16, _mm256_alignr_epi8,
    _mm256_and_si256, _mm256_andnot_si256, _mm256_blendv_epi8, _mm256_broadcastsi128_si256,
    _mm256_cmpeq_epi8, _mm256_cmpgt_epi16, _mm256_loadu_si256, _mm256_maddubs_epi16, _mm256_movemask_epi8,
    _mm256_or_si256, _mm256_packs_epi16, _mm256_permute2x128_si256, _mm256_permute4x64_epi64,
    _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_setr_epi64x,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_sll_epi64, _mm256_slli_epi16, _mm256_srl_epi64,
    _mm256_srli_epi16, _mm256_storeu_si256, _mm256_sub_epi8, _mm256_unpackhi_epi8, _mm256_unpacklo_epi8,
    _mm256_xor_si256,
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
    type Bytes = __m256i;
    type Lookup = __m256i;

    const LOOKS_UP: bool = true;

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
    fn no_bytes(self) -> __m256i {
        self.no_bits()
    }

    #[inline(always)]
    fn table(self, bytes: &[u8; 16]) -> __m256i {
        unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(bytes.as_ptr().cast())) }
    }

    #[inline(always)]
    fn look_up(self, table: __m256i, places: &[u8; LANES]) -> __m256i {
        unsafe { _mm256_shuffle_epi8(table, _mm256_loadu_si256(places.as_ptr().cast())) }
    }

    #[inline(always)]
    fn add_bytes(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_add_epi8(a, b) }
    }

    #[inline(always)]
    fn high_halves(self, a: __m256i) -> __m256i {
        // There is no shift of bytes: what comes from the byte above is cut off.
        unsafe { _mm256_and_si256(_mm256_srli_epi16::<4>(a), _mm256_set1_epi8(0x0f)) }
    }

    #[inline(always)]
    fn less_halves(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_sub_epi8(a, _mm256_and_si256(_mm256_slli_epi16::<4>(b), _mm256_set1_epi8(-16))) }
    }

    #[inline(always)]
    fn add_counts(self, bytes: __m256i, counts: &mut [i16; LANES]) {
        let halves = counts.as_mut_ptr().cast::<__m256i>();
        unsafe {
            let even = _mm256_and_si256(bytes, _mm256_set1_epi16(0xff));
            let odd = _mm256_srli_epi16::<8>(bytes);
            _mm256_storeu_si256(halves, _mm256_add_epi16(_mm256_loadu_si256(halves), even));
            let halves = halves.add(1);
            _mm256_storeu_si256(halves, _mm256_add_epi16(_mm256_loadu_si256(halves), odd));
        }
    }

    #[inline(always)]
    fn set_where_at_least(
        self,
        bytes: __m256i,
        bit: u8,
        counts: &[i16; LANES],
        least: &[i16; LANES],
    ) -> __m256i {
        let (counts, least) = (counts.as_ptr().cast::<__m256i>(), least.as_ptr().cast::<__m256i>());
        unsafe {
            let even = _mm256_cmpgt_epi16(_mm256_loadu_si256(least), _mm256_loadu_si256(counts));
            let odd = _mm256_cmpgt_epi16(_mm256_loadu_si256(least.add(1)), _mm256_loadu_si256(counts.add(1)));
            let below = _mm256_blendv_epi8(even, odd, _mm256_set1_epi16(0xff00u16.cast_signed()));
            _mm256_or_si256(bytes, _mm256_andnot_si256(below, _mm256_set1_epi8(bit.cast_signed())))
        }
    }

    #[inline(always)]
    fn bytes(self, bytes: __m256i) -> [u8; LANES] {
        let mut lanes = [0; LANES];
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), bytes) };
        lanes
    }

    #[inline(always)]
    fn pair_up(self, words: [u32; 4], by: i8, more: &[i16; LANES], pairs: &mut [i16; LANES]) {
        let (more, pairs) = (more.as_ptr().cast::<__m256i>(), pairs.as_mut_ptr().cast::<__m256i>());
        unsafe {
            // Lane `i` takes byte `i / 8` of the word, and of that bit `i % 8`.
            let ones = 0x0101_0101_0101_0101;
            let bytes = _mm256_setr_epi64x(0, ones, 2 * ones, 3 * ones);
            let bits = _mm256_set1_epi64x(0x8040_2010_0804_0201u64.cast_signed());
            let mut first = _mm256_setzero_si256();
            for (place, word) in words.into_iter().enumerate() {
                let word = _mm256_shuffle_epi8(_mm256_set1_epi32(word.cast_signed()), bytes);
                let is_set = _mm256_cmpeq_epi8(_mm256_and_si256(word, bits), bits);
                first = _mm256_or_si256(first, _mm256_and_si256(is_set, _mm256_set1_epi8(1 << place)));
            }
            // Bytes move within halves of vectors, so the next half is laid beside each: the high one, and zeros.
            let next = _mm256_permute2x128_si256::<0x81>(first, first);
            let second = _mm256_alignr_epi8::<1>(next, first);
            let factors = _mm256_set1_epi16(i16::from(by) << 8 | 1);
            let low = _mm256_maddubs_epi16(_mm256_unpacklo_epi8(first, second), factors);
            let high = _mm256_maddubs_epi16(_mm256_unpackhi_epi8(first, second), factors);
            // Quarters come out as 0, 2, 1, 3.
            let sums =
                [_mm256_permute2x128_si256::<0x20>(low, high), _mm256_permute2x128_si256::<0x31>(low, high)];
            for (half, sums) in sums.into_iter().enumerate() {
                let sums = _mm256_add_epi16(_mm256_slli_epi16::<4>(sums), _mm256_loadu_si256(more.add(half)));
                _mm256_storeu_si256(pairs.add(half), sums);
            }
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
