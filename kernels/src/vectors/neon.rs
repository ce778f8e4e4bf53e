//! The operations in NEON, which every 64-bit ARM has.

#![expect(unsafe_code, reason = "intrinsics; NEON is part of the target")]

use core::arch::aarch64::{
    int16x8_t, uint8x16_t, uint64x2_t, vaddq_s16, vaddq_u8, vaddv_u8, vandq_u8, vandq_u16, vandq_u64,
    vbicq_u64, vbslq_u16, vcgeq_s16, vdupq_n_s16, vdupq_n_u8, vdupq_n_u16, vdupq_n_u64, veorq_u64,
    vget_high_u8, vget_low_u8, vld1q_s16, vld1q_u8, vld1q_u64, vmovn_high_u16, vmovn_u16, vorrq_u64,
    vqtbl1q_u8, vreinterpretq_s16_u16, vreinterpretq_u8_u16, vreinterpretq_u16_u8, vshlq_n_u8, vshrq_n_u8,
    vshrq_n_u16, vst1q_s16, vst1q_u8, vst1q_u64, vsubq_u8,
};

use super::{LANES, Portable, Row, TILE_WORDS, Vectors};

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
    type Bytes = [uint8x16_t; 2];
    type Lookup = uint8x16_t;

    const LOOKS_UP: bool = true;

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
    fn no_bytes(self) -> Self::Bytes {
        unsafe { [vdupq_n_u8(0); 2] }
    }

    #[inline(always)]
    fn table(self, bytes: &[u8; 16]) -> Self::Lookup {
        unsafe { vld1q_u8(bytes.as_ptr()) }
    }

    #[inline(always)]
    fn look_up(self, table: Self::Lookup, places: &[u8; LANES]) -> Self::Bytes {
        // A place past the table gives zero.
        unsafe {
            let (low, high) = (vld1q_u8(places.as_ptr()), vld1q_u8(places.as_ptr().add(16)));
            [vqtbl1q_u8(table, low), vqtbl1q_u8(table, high)]
        }
    }

    #[inline(always)]
    fn add_bytes(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        unsafe { [vaddq_u8(a[0], b[0]), vaddq_u8(a[1], b[1])] }
    }

    #[inline(always)]
    fn high_halves(self, a: Self::Bytes) -> Self::Bytes {
        unsafe { [vshrq_n_u8::<4>(a[0]), vshrq_n_u8::<4>(a[1])] }
    }

    #[inline(always)]
    fn less_halves(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        unsafe { [vsubq_u8(a[0], vshlq_n_u8::<4>(b[0])), vsubq_u8(a[1], vshlq_n_u8::<4>(b[1]))] }
    }

    #[inline(always)]
    fn add_counts(self, bytes: Self::Bytes, counts: &mut [i16; LANES]) {
        for (half, bytes) in bytes.into_iter().enumerate() {
            unsafe {
                let pairs = vreinterpretq_u16_u8(bytes);
                let (even, odd) = (vandq_u16(pairs, vdupq_n_u16(0xff)), vshrq_n_u16::<8>(pairs));
                for (parity, add) in [even, odd].into_iter().enumerate() {
                    let place = counts.as_mut_ptr().add(16 * parity + 8 * half);
                    vst1q_s16(place, vaddq_s16(vld1q_s16(place), vreinterpretq_s16_u16(add)));
                }
            }
        }
    }

    #[inline(always)]
    fn set_where_at_least(
        self,
        mut bytes: Self::Bytes,
        bit: u8,
        counts: &[i16; LANES],
        least: &[i16; LANES],
    ) -> Self::Bytes {
        for (half, bytes) in bytes.iter_mut().enumerate() {
            unsafe {
                let mut reach = [vdupq_n_u16(0); 2];
                for (parity, reach) in reach.iter_mut().enumerate() {
                    let at = 16 * parity + 8 * half;
                    *reach = vcgeq_s16(vld1q_s16(counts.as_ptr().add(at)), vld1q_s16(least.as_ptr().add(at)));
                }
                let reach = vreinterpretq_u8_u16(vbslq_u16(vdupq_n_u16(0xff), reach[0], reach[1]));
                *bytes = vorrq_u8(*bytes, vandq_u8(reach, vdupq_n_u8(bit)));
            }
        }
        bytes
    }

    #[inline(always)]
    fn bytes(self, bytes: Self::Bytes) -> [u8; LANES] {
        let mut lanes = [0; LANES];
        unsafe {
            vst1q_u8(lanes.as_mut_ptr(), bytes[0]);
            vst1q_u8(lanes.as_mut_ptr().add(16), bytes[1]);
        }
        lanes
    }

    #[inline(always)]
    fn pair_up(self, words: [u32; 4], by: i8, more: &[i16; LANES], pairs: &mut [i16; LANES]) {
        Portable.pair_up(words, by, more, pairs);
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
