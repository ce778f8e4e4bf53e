//! Compression to a signed byte per number and a scale per block.

use std::ops::Range;

use super::Compression;
use headwater_calibration::message::{Reader, put_f32s};

/// A signed byte per number: multiples of a 127th of the block's largest magnitude, rounded to the nearest.
#[derive(Clone, Copy, Debug)]
pub struct Int8;

impl Compression for Int8 {
    fn encode(&self, values: &[f32], blocks: &[Range<usize>], message: &mut Vec<u8>) {
        for block in blocks {
            let values = &values[block.clone()];
            let scale = values.iter().fold(0.0f32, |most, value| most.max(value.abs())) / 127.0;
            put_f32s(message, &[scale]);
            let per_scale = if scale > 0.0 { 1.0 / scale } else { 0.0 };
            message.extend(values.iter().map(|value| (value * per_scale).round() as i8 as u8));
        }
    }

    fn bytes(&self, len: usize, blocks: &[Range<usize>]) -> usize {
        blocks.len() * 4 + len
    }

    fn decode(&self, message: &mut Reader<'_>, blocks: &[Range<usize>], values: &mut [f32]) {
        for block in blocks {
            let scale = message.f32s(1)[0];
            let bytes = message.bytes(block.len());
            let values = values[block.clone()].iter_mut();
            values.zip(bytes).for_each(|(value, byte)| *value = f32::from(*byte as i8) * scale);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_has_a_scale_and_each_number_a_byte() {
        let mut message = Vec::new();
        let blocks = [0..2, 2..3];
        Int8.encode(&[127.0, -1.4, 0.5], &blocks, &mut message);
        assert_eq!(message.len(), 2 * 4 + 3);
        let mut values = [0.0; 3];
        Int8.decode(&mut Reader(&message), &blocks, &mut values);
        assert_eq!(values[..2], [127.0, -1.0]);
        assert!((values[2] - 0.5).abs() < 1e-6, "{values:?}");
    }
}
