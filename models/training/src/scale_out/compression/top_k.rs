//! Compression that sends the numbers with the largest magnitudes alone.

use std::ops::Range;

use super::Compression;
use headwater_calibration::message::{Reader, put_f32s};

/// The share of the numbers with the largest magnitudes, each with its index; the other numbers become 0 (Aji and Heafield 2017,
/// "Sparse communication").
#[derive(Clone, Copy, Debug)]
pub struct TopK {
    /// Share of the numbers that is sent, in `(0, 1]`; at least one number.
    pub share: f32,
}

impl TopK {
    fn count(self, len: usize) -> usize {
        ((len as f32 * self.share).ceil() as usize).clamp(len.min(1), len)
    }
}

impl Compression for TopK {
    fn encode(&self, values: &[f32], _blocks: &[Range<usize>], message: &mut Vec<u8>) {
        let count = self.count(values.len());
        let mut largest: Vec<u32> = (0..values.len() as u32).collect();
        if count < largest.len() {
            // Among equal magnitudes the lower index is chosen, so that the choice is the same everywhere.
            largest.select_nth_unstable_by(count, |a, b| {
                let magnitude = |index: &u32| values[*index as usize].abs();
                magnitude(b).total_cmp(&magnitude(a)).then(a.cmp(b))
            });
            largest.truncate(count);
            largest.sort_unstable();
        }
        message.extend(largest.iter().flat_map(|index| index.to_le_bytes()));
        let values: Vec<f32> = largest.iter().map(|index| values[*index as usize]).collect();
        put_f32s(message, &values);
    }

    fn bytes(&self, len: usize, _blocks: &[Range<usize>]) -> usize {
        self.count(len) * 8
    }

    fn decode(&self, message: &mut Reader<'_>, _blocks: &[Range<usize>], values: &mut [f32]) {
        let count = self.count(values.len());
        let (indices, _) = message.bytes(count * 4).as_chunks::<4>();
        let found = message.f32s(count);
        values.fill(0.0);
        for (index, value) in indices.iter().zip(found) {
            values[u32::from_le_bytes(*index) as usize] = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_magnitudes_are_sent_and_equal_ones_in_their_order() {
        let mut message = Vec::new();
        let compression = TopK { share: 0.4 };
        compression.encode(&[1.0, -3.0, 0.0, 1.0, 0.5], &[0..5, 5..5], &mut message);
        assert_eq!(message.len(), 2 * 8);
        let mut values = [9.0; 5];
        compression.decode(&mut Reader(&message), &[0..5, 5..5], &mut values);
        assert_eq!(values, [1.0, -3.0, 0.0, 0.0, 0.0]);
    }
}
