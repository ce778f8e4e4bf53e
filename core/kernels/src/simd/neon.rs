//! The operations in NEON, which every 64-bit ARM has.

#![expect(unsafe_code, reason = "intrinsics; NEON is part of the target")]

use core::arch::aarch64::{
    int16x8_t, uint8x16_t, vaddq_s16, vaddq_u8, vaddq_u16, vaddv_u8, vandq_u8, vandq_u16, vbslq_u16,
    vcgeq_s16, vcgtq_s16, vdupq_n_s16, vdupq_n_u8, vdupq_n_u16, vget_high_u8, vget_low_u8, vld1q_s16,
    vld1q_u8, vmovn_high_u16, vmovn_u16, vorrq_u8, vqtbl1q_u8, vreinterpretq_s16_u16, vreinterpretq_u8_u16,
    vreinterpretq_u16_u8, vshlq_n_u16, vshrq_n_u8, vshrq_n_u16, vst1q_s16, vst1q_u8, vsubq_u16,
};

use super::{ByteLookup, ByteLookupCode, Counts, HALF, LANES, Simd};

/// NEON needs no proof: the target has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neon;

/// The bit of each lane in a byte of eight lanes.
const LANE_BITS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];

/// Collects lanes as bits; each lane is all ones or all zeros.
#[inline(always)]
fn bits(low: uint8x16_t, high: uint8x16_t) -> u32 {
    // SAFETY: NEON is part of the target, and the array is as long as the vector.
    unsafe {
        let lane_bits = vld1q_u8(LANE_BITS.as_ptr());
        let (low, high) = (vandq_u8(low, lane_bits), vandq_u8(high, lane_bits));
        let byte = |half| u32::from(vaddv_u8(half));
        byte(vget_low_u8(low))
            | byte(vget_high_u8(low)) << 8
            | byte(vget_low_u8(high)) << 16
            | byte(vget_high_u8(high)) << 24
    }
}

// SAFETY, for every block below: NEON is part of the target, and every pointer is that of an array as long as the vectors.
impl Simd for Neon {
    const HAS_BYTE_LOOKUP: bool = true;
    type Sums = [int16x8_t; 4];

    #[inline(always)]
    fn with_byte_lookup(self, code: impl ByteLookupCode) {
        code.run(self);
    }

    #[inline(always)]
    fn zero_sums(self) -> Self::Sums {
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
    fn sums_at_least(self, [a, b, c, d]: Self::Sums, min: i16) -> u32 {
        unsafe {
            let min = vdupq_n_s16(min);
            let (a, b, c, d) = (vcgeq_s16(a, min), vcgeq_s16(b, min), vcgeq_s16(c, min), vcgeq_s16(d, min));
            bits(vmovn_high_u16(vmovn_u16(a), b), vmovn_high_u16(vmovn_u16(c), d))
        }
    }
}

impl ByteLookup for Neon {
    type Bytes = [uint8x16_t; 2];
    type Counts = [[int16x8_t; 2]; 4];

    #[inline(always)]
    fn zero_bytes(self) -> Self::Bytes {
        unsafe { [vdupq_n_u8(0); 2] }
    }

    #[inline(always)]
    fn load_table(self, bytes: &[i16; HALF]) -> Self::Bytes {
        let bytes = bytes.as_ptr().cast::<u8>();
        unsafe { [vld1q_u8(bytes), vld1q_u8(bytes.add(HALF))] }
    }

    #[inline(always)]
    fn look_up(self, table: Self::Bytes, indices: &[u8; LANES]) -> Self::Bytes {
        // An index past the table gives zero.
        unsafe {
            let (low, high) = (vld1q_u8(indices.as_ptr()), vld1q_u8(indices.as_ptr().add(HALF)));
            [vqtbl1q_u8(table[0], low), vqtbl1q_u8(table[1], high)]
        }
    }

    #[inline(always)]
    fn add_bytes(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        unsafe { [vaddq_u8(a[0], b[0]), vaddq_u8(a[1], b[1])] }
    }

    #[inline(always)]
    fn add_pairs(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        let add = |a, b| unsafe {
            vreinterpretq_u8_u16(vaddq_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)))
        };
        [add(a[0], b[0]), add(a[1], b[1])]
    }

    #[inline(always)]
    fn nibble_mask(self) -> Self::Bytes {
        unsafe { [vdupq_n_u8(0x0f); 2] }
    }

    #[inline(always)]
    fn high_nibbles(self, a: Self::Bytes, _: Self::Bytes) -> Self::Bytes {
        unsafe { [vshrq_n_u8::<4>(a[0]), vshrq_n_u8::<4>(a[1])] }
    }

    #[inline(always)]
    fn add_counts(self, both: Self::Bytes, second: Self::Bytes, before: &Counts) -> Self::Counts {
        let mut counts = [[unsafe { vdupq_n_s16(0) }; 2]; 4];
        for half in 0..2 {
            unsafe {
                let (both, second) = (vreinterpretq_u16_u8(both[half]), vreinterpretq_u16_u8(second[half]));
                let first = vsubq_u16(both, vshlq_n_u16::<4>(second));
                let low = vdupq_n_u16(0xff);
                let bytes = [
                    vandq_u16(first, low),
                    vshrq_n_u16::<8>(first),
                    vandq_u16(second, low),
                    vshrq_n_u16::<8>(second),
                ];
                for ((counts, before), bytes) in counts.iter_mut().zip(before).zip(bytes) {
                    let before = vld1q_s16(before.as_ptr().add(half * 8));
                    counts[half] = vaddq_s16(before, vreinterpretq_s16_u16(bytes));
                }
            }
        }
        counts
    }

    #[inline(always)]
    fn store_counts(self, counts: Self::Counts, to: &mut Counts) {
        for ([low, high], to) in counts.into_iter().zip(to) {
            unsafe {
                vst1q_s16(to.as_mut_ptr(), low);
                vst1q_s16(to.as_mut_ptr().add(8), high);
            }
        }
    }

    #[inline(always)]
    fn above(self, counts: Self::Counts, bounds: [&[i16; HALF]; 2]) -> [Self::Bytes; 2] {
        let mut above = [self.zero_bytes(); 2];
        for (filter, above) in above.iter_mut().enumerate() {
            let (even, odd) = (counts[2 * filter], counts[2 * filter + 1]);
            for half in 0..2 {
                unsafe {
                    let bounds = vld1q_s16(bounds[filter].as_ptr().add(half * 8));
                    let (even, odd) = (vcgtq_s16(even[half], bounds), vcgtq_s16(odd[half], bounds));
                    above[half] = vreinterpretq_u8_u16(vbslq_u16(vdupq_n_u16(0xff), even, odd));
                }
            }
        }
        above
    }

    #[inline(always)]
    fn lane_bits<const X: usize>(self, vectors: &[Self::Bytes; X]) -> [u64; 2] {
        let mut halves = [0; 2];
        for (vector, [low, high]) in vectors.iter().enumerate() {
            let both = u64::from(bits(*low, *high));
            halves[0] |= (both & 0xffff) << (HALF * vector);
            halves[1] |= both >> HALF << (HALF * vector);
        }
        halves
    }

    #[inline(always)]
    fn store_twice(self, bytes: &[u8; HALF], mask: &[i16; HALF], to: &mut [u8; LANES]) {
        unsafe {
            let (twice, mask) = (vld1q_u8(bytes.as_ptr()), self.load_table(mask));
            vst1q_u8(to.as_mut_ptr(), vorrq_u8(twice, mask[0]));
            vst1q_u8(to.as_mut_ptr().add(HALF), vorrq_u8(twice, mask[1]));
        }
    }
}
