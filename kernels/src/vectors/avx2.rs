//! The operations in AVX2.

#![expect(unsafe_code, reason = "intrinsics; an `Avx2` exists only where the processor has them")]

use core::arch::x86_64::{
    __m256i, _mm_loadu_si128, _mm256_add_epi8, _mm256_add_epi16, _mm256_and_si256, _mm256_blendv_epi8,
    _mm256_broadcastsi128_si256, _mm256_cmpeq_epi8, _mm256_cmpgt_epi8, _mm256_cmpgt_epi16,
    _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_or_si256, _mm256_packs_epi16, _mm256_permute4x64_epi64,
    _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_setr_epi64x,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_slli_epi16, _mm256_srai_epi16, _mm256_storeu_si256,
};

use super::{LANES, Vectors};

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

/// Two vectors of 16 sums: of rows the first and the second half, of bytes those at even and at odd places.
type Sums = [__m256i; 2];
const _: () = assert!(size_of::<Sums>() == size_of::<[i16; LANES]>());
const _: () = assert!(size_of::<__m256i>() == LANES);

// SAFETY, for every block below: `self` says that the instructions exist, and what is read or written is an array as long as the
// vectors, as asserted above; loads and stores may be unaligned.
impl Vectors for Avx2 {
    type Sums = Sums;
    type Bytes = __m256i;

    const LOOKS_UP: bool = true;

    #[inline(always)]
    fn no_sums(self) -> Sums {
        [self.no_bytes(); 2]
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
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    fn load(self, bytes: &[u8; LANES]) -> __m256i {
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, bytes: __m256i, into: &mut [u8; LANES]) {
        unsafe { _mm256_storeu_si256(into.as_mut_ptr().cast(), bytes) }
    }

    #[inline(always)]
    fn spread(self, bytes: __m256i, bits: u32, value: u8) -> __m256i {
        // Eight copies of each byte of `bits`, then one bit of each copy.
        const COPIES: [i64; 4] = [0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303];
        const BITS: i64 = 0x8040_2010_0804_0201_u64.cast_signed();
        unsafe {
            let copies = _mm256_setr_epi64x(COPIES[0], COPIES[1], COPIES[2], COPIES[3]);
            let copied = _mm256_shuffle_epi8(_mm256_set1_epi32(bits.cast_signed()), copies);
            let places = _mm256_set1_epi64x(BITS);
            let is_set = _mm256_cmpeq_epi8(_mm256_and_si256(copied, places), places);
            let value = _mm256_set1_epi8(value.cast_signed());
            _mm256_or_si256(bytes, _mm256_and_si256(is_set, value))
        }
    }

    #[inline(always)]
    fn table(self, table: &[i8; 16]) -> __m256i {
        unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast())) }
    }

    #[inline(always)]
    fn look_up(self, table: __m256i, indices: __m256i) -> __m256i {
        unsafe { _mm256_shuffle_epi8(table, indices) }
    }

    #[inline(always)]
    fn add(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_add_epi8(a, b) }
    }

    #[inline(always)]
    fn bytes_at_least(self, bytes: __m256i, from: i8) -> u32 {
        unsafe { !(_mm256_movemask_epi8(_mm256_cmpgt_epi8(_mm256_set1_epi8(from), bytes)).cast_unsigned()) }
    }

    #[inline(always)]
    fn widen(self, [even, odd]: Sums, bytes: __m256i) -> Sums {
        unsafe {
            let even_bytes = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(bytes));
            let odd_bytes = _mm256_srai_epi16::<8>(bytes);
            [_mm256_add_epi16(even, even_bytes), _mm256_add_epi16(odd, odd_bytes)]
        }
    }

    #[inline(always)]
    fn widened_at_least(self, [even, odd]: Sums, from: i16) -> u32 {
        unsafe {
            let from = _mm256_set1_epi16(from);
            let (even, odd) = (_mm256_cmpgt_epi16(from, even), _mm256_cmpgt_epi16(from, odd));
            let odd_places = _mm256_set1_epi16(0xff00_u16.cast_signed());
            !(_mm256_movemask_epi8(_mm256_blendv_epi8(even, odd, odd_places)).cast_unsigned())
        }
    }
}
