//! Compression to a sign per number and a magnitude per block.

use std::ops::Range;

use super::Compression;
use headwater_calibration::message::{Reader, put_f32s};

/// A bit per number, 1 = not negative, least significant bit first: each number becomes plus or minus the block's mean magnitude (Tang
/// et al. 2021, "1-bit Adam", section 4).
#[derive(Clone, Copy, Debug)]
pub struct OneBit;

impl Compression for OneBit {
    fn encode(&self, values: &[f32], blocks: &[Range<usize>], message: &mut Vec<u8>) {
        for block in blocks {
            let values = &values[block.clone()];
            let sum: f64 = values.iter().map(|value| f64::from(value.abs())).sum();
            put_f32s(message, &[(sum / values.len().max(1) as f64) as f32]);
        }
        message.extend(values.chunks(8).map(|values| {
            values.iter().enumerate().fold(0u8, |byte, (bit, value)| byte | u8::from(*value >= 0.0) << bit)
        }));
    }

    fn bytes(&self, len: usize, blocks: &[Range<usize>]) -> usize {
        blocks.len() * 4 + len.div_ceil(8)
    }

    fn decode(&self, message: &mut Reader<'_>, blocks: &[Range<usize>], values: &mut [f32]) {
        let magnitudes = message.f32s(blocks.len());
        let bits = message.bytes(values.len().div_ceil(8));
        for (block, magnitude) in blocks.iter().zip(magnitudes) {
            for at in block.clone() {
                values[at] = if bits[at / 8] >> (at % 8) & 1 == 1 { magnitude } else { -magnitude };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_cross_blocks_in_one_run_of_bits() {
        let mut message = Vec::new();
        let blocks = [0..3, 3..9];
        OneBit.encode(&[1.0, -2.0, 3.0, -0.5, 0.5, 0.5, 0.5, -0.5, 0.0], &blocks, &mut message);
        assert_eq!(message.len(), 2 * 4 + 2);
        assert_eq!(message[8..], [0b0111_0101, 0b1]);
        let mut values = [0.0; 9];
        OneBit.decode(&mut Reader(&message), &blocks, &mut values);
        assert_eq!(values[..4], [2.0, -2.0, 2.0, -2.5 / 6.0]);
    }
}
