//! The operations in NEON, which every 64-bit ARM has.

#![expect(unsafe_code, reason = "intrinsics; NEON is part of the target")]

use core::arch::aarch64::{
    int16x8_t, uint8x16_t, vaddq_s16, vaddq_u8, vaddv_u8, vaddw_high_s8, vaddw_s8, vandq_u8, vcgeq_s8,
    vcgeq_s16, vcombine_u8, vdup_n_u8, vdupq_n_s8, vdupq_n_s16, vdupq_n_u8, vget_high_u8, vget_low_s8,
    vget_low_u8, vld1q_s16, vld1q_u8, vmovn_high_u16, vmovn_u16, vorrq_u8, vqtbl1q_u8, vreinterpretq_s8_u8,
    vst1q_u8, vtstq_u8,
};

use super::{LANES, Vectors};

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

// SAFETY, for every block below: NEON is part of the target, and what is read or written is an array of `LANES` elements, taken in vectors
// of 16 bytes.
impl Vectors for Neon {
    type Sums = [int16x8_t; 4];
    type Bytes = [uint8x16_t; 2];

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
    fn load(self, bytes: &[u8; LANES]) -> Self::Bytes {
        unsafe { [vld1q_u8(bytes.as_ptr()), vld1q_u8(bytes.as_ptr().add(16))] }
    }

    #[inline(always)]
    fn store(self, [low, high]: Self::Bytes, into: &mut [u8; LANES]) {
        unsafe {
            vst1q_u8(into.as_mut_ptr(), low);
            vst1q_u8(into.as_mut_ptr().add(16), high);
        }
    }

    #[inline(always)]
    fn spread(self, mut bytes: Self::Bytes, bits: u32, value: u8) -> Self::Bytes {
        let [a, b, c, d] = bits.to_le_bytes();
        for (bytes, [low, high]) in bytes.iter_mut().zip([[a, b], [c, d]]) {
            unsafe {
                // Eight copies of each byte, then one bit of each copy.
                let copied = vcombine_u8(vdup_n_u8(low), vdup_n_u8(high));
                let is_set = vtstq_u8(copied, vld1q_u8(PLACES.as_ptr()));
                *bytes = vorrq_u8(*bytes, vandq_u8(is_set, vdupq_n_u8(value)));
            }
        }
        bytes
    }

    #[inline(always)]
    fn table(self, table: &[i8; 16]) -> Self::Bytes {
        unsafe { [vld1q_u8(table.as_ptr().cast()); 2] }
    }

    #[inline(always)]
    fn look_up(self, [table, _]: Self::Bytes, indices: Self::Bytes) -> Self::Bytes {
        // An index past the table gives 0, so one with its highest bit set does.
        indices.map(|indices| unsafe { vqtbl1q_u8(table, indices) })
    }

    #[inline(always)]
    fn add(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        unsafe { [vaddq_u8(a[0], b[0]), vaddq_u8(a[1], b[1])] }
    }

    #[inline(always)]
    fn bytes_at_least(self, [low, high]: Self::Bytes, from: i8) -> u32 {
        unsafe {
            let from = vdupq_n_s8(from);
            bits(vcgeq_s8(vreinterpretq_s8_u8(low), from), vcgeq_s8(vreinterpretq_s8_u8(high), from))
        }
    }

    #[inline(always)]
    fn widen(self, [a, b, c, d]: Self::Sums, [low, high]: Self::Bytes) -> Self::Sums {
        unsafe {
            let (low, high) = (vreinterpretq_s8_u8(low), vreinterpretq_s8_u8(high));
            [
                vaddw_s8(a, vget_low_s8(low)),
                vaddw_high_s8(b, low),
                vaddw_s8(c, vget_low_s8(high)),
                vaddw_high_s8(d, high),
            ]
        }
    }

    #[inline(always)]
    fn widened_at_least(self, sums: Self::Sums, from: i16) -> u32 {
        self.sums_at_least(sums, from)
    }
}
