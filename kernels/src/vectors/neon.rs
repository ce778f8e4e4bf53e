//! The operations in NEON, which every 64-bit ARM has.

#![expect(unsafe_code, reason = "intrinsics; NEON is part of the target")]

use core::arch::aarch64::{
    int16x8_t, uint8x16_t, uint64x2_t, vaddq_s16, vaddv_u8, vandq_u8, vandq_u64, vbicq_u64, vcgeq_s16,
    vdupq_n_s16, vdupq_n_u64, veorq_u64, vget_high_u8, vget_low_u8, vld1q_s16, vld1q_u8, vld1q_u64,
    vmovn_high_u16, vmovn_u16, vorrq_u64, vst1q_u64,
};

use super::{LANES, Row, TILE_WORDS, Vectors};

/// Nothing to prove: the target has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neon;

/// One bit for each lane of eight.
const PLACES: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];

/// One bit a lane, of lanes that are all ones or all zeros.
#[inline(always)]
fn bits(low: uint8x16_t, high: uint8x16_t) -> u32 {
    // SAFETY: NEON is part of the target, and the array is as long as the vector.
    unsafe {
        let places = vld1q_u8(PLACES.as_ptr());
        let (low, high) = (vandq_u8(low, places), vandq_u8(high, places));
        let byte = |half| u32::from(vaddv_u8(half));
        byte(vget_low_u8(low))
            | byte(vget_high_u8(low)) << 8
            | byte(vget_low_u8(high)) << 16
            | byte(vget_high_u8(high)) << 24
    }
}

// SAFETY, for every block below: NEON is part of the target, and what is read or written is an array that is as long as the vectors it
// is taken in.
impl Vectors for Neon {
    type Sums = [int16x8_t; 4];
    type Bits = [uint64x2_t; 2];

    #[inline(always)]
    fn no_sums(self) -> Self::Sums {
        unsafe { [vdupq_n_s16(0); 4] }
    }

    #[inline(always)]
    fn add_row(self, mut sums: Self::Sums, row: &[i16; LANES]) -> Self::Sums {
        for (index, sum) in sums.iter_mut().enumerate() {
            *sum = unsafe { vaddq_s16(*sum, vld1q_s16(row.as_ptr().add(8 * index))) };
        }
        sums
    }

    #[inline(always)]
    fn sums_at_least(self, [a, b, c, d]: Self::Sums, from: i16) -> u32 {
        unsafe {
            let from = vdupq_n_s16(from);
            let (a, b, c, d) =
                (vcgeq_s16(a, from), vcgeq_s16(b, from), vcgeq_s16(c, from), vcgeq_s16(d, from));
            bits(vmovn_high_u16(vmovn_u16(a), b), vmovn_high_u16(vmovn_u16(c), d))
        }
    }

    #[inline(always)]
    fn no_bits(self) -> Self::Bits {
        unsafe { [vdupq_n_u64(0); 2] }
    }

    #[inline(always)]
    fn all_bits(self) -> Self::Bits {
        unsafe { [vdupq_n_u64(u64::MAX); 2] }
    }

    #[inline(always)]
    fn load(self, row: &Row) -> Self::Bits {
        unsafe { [vld1q_u64(row.as_ptr()), vld1q_u64(row.as_ptr().add(2))] }
    }

    #[inline(always)]
    fn store(self, [low, high]: Self::Bits, row: &mut Row) {
        unsafe {
            vst1q_u64(row.as_mut_ptr(), low);
            vst1q_u64(row.as_mut_ptr().add(2), high);
        }
    }

    #[inline(always)]
    fn moved(self, words: &[u64; TILE_WORDS + 1], by: u32) -> Self::Bits {
        let mut row = [0; TILE_WORDS];
        for (place, row) in row.iter_mut().enumerate() {
            // A shift by 64 is none.
            *row = words[place] >> by | words[place + 1] << 1 << (63 - by);
        }
        self.load(&row)
    }

    #[inline(always)]
    fn xor(self, a: Self::Bits, b: Self::Bits) -> Self::Bits {
        unsafe { [veorq_u64(a[0], b[0]), veorq_u64(a[1], b[1])] }
    }

    #[inline(always)]
    fn and(self, a: Self::Bits, b: Self::Bits) -> Self::Bits {
        unsafe { [vandq_u64(a[0], b[0]), vandq_u64(a[1], b[1])] }
    }

    #[inline(always)]
    fn or(self, a: Self::Bits, b: Self::Bits) -> Self::Bits {
        unsafe { [vorrq_u64(a[0], b[0]), vorrq_u64(a[1], b[1])] }
    }

    #[inline(always)]
    fn and_not(self, a: Self::Bits, b: Self::Bits) -> Self::Bits {
        unsafe { [vbicq_u64(a[0], b[0]), vbicq_u64(a[1], b[1])] }
    }
}
