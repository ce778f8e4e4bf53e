//! Counts over training maps, from which a table is made.

use std::vec;
use std::vec::Vec;

use crate::contexts::NearRows;
use crate::rows::read_row;
use crate::{CONTEXTS, MapError, MapShape};

/// Number of zeros and ones in each context of each channel, over training maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapCounts {
    shape: MapShape,
    /// `[zeros, ones]`, `CONTEXTS` a channel.
    counts: Vec<[u64; 2]>,
}

impl MapCounts {
    /// Counts before the first map: all zero.
    pub fn new(shape: MapShape) -> Self {
        Self { shape, counts: vec![[0; 2]; shape.channels() * CONTEXTS] }
    }

    /// Adds one map to the counts.
    ///
    /// # Errors
    /// [`MapError`] unless `map` is a packed map of the shape with clear tail bits.
    pub fn add(&mut self, map: &[u8]) -> Result<(), MapError> {
        each_bit(self.shape, map, |context, bit| self.counts[context][usize::from(bit)] += 1)
    }

    /// Calls `visit` for each bit of the map, in order, with the counts `[zeros, ones]` of the bit's context.
    ///
    /// # Errors
    /// [`MapError`] unless `map` is a packed map of the shape with clear tail bits.
    pub fn at_each_bit(&self, map: &[u8], mut visit: impl FnMut([u64; 2])) -> Result<(), MapError> {
        each_bit(self.shape, map, |context, _| visit(self.counts[context]))
    }

    /// Counts `[zeros, ones]` for each context, [`CONTEXTS`] a channel.
    pub fn counts(&self) -> &[[u64; 2]] {
        &self.counts
    }

    /// The bytes of a [`ContextTable`](crate::ContextTable): for each context the probability nearest to
    /// `(ones + 0.4) / (zeros + ones + 0.8)`.
    pub fn table(&self) -> Vec<u8> {
        self.counts.iter().map(|&[zeros, ones]| nearest_byte(zeros, ones)).collect()
    }
}

/// Calls `visit` for each bit of a packed map, in order, with the bit and the index of its context among those of all channels.
fn each_bit(shape: MapShape, map: &[u8], mut visit: impl FnMut(usize, bool)) -> Result<(), MapError> {
    shape.check_map(map)?;
    for channel in 0..shape.channels() {
        for row in 0..shape.height() {
            for word in shape.words_of_row(channel, row) {
                let bits = read_row(map, word.start, word.width);
                NearRows::read(map, shape, [channel, row], word).visit(word.width, |column, context| {
                    let bit = bits >> column & 1 == 1;
                    visit(channel * CONTEXTS + context, bit);
                    bit
                });
            }
        }
    }
    Ok(())
}

/// The byte `v` whose `(2v + 1) / 512` is nearest to the probability: the probability in 256ths, rounded down. If two are equally near,
/// the larger.
fn nearest_byte(zeros: u64, ones: u64) -> u8 {
    // Five times `ones + 0.4`, and five times `zeros + ones + 0.8`.
    let (ones, all) = (5 * u128::from(ones) + 2, 5 * (u128::from(zeros) + u128::from(ones)) + 4);
    u8::try_from(256 * ones / all).expect("a probability is below 1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_the_nearest_probability() {
        for (zeros, ones) in (0..60).flat_map(|zeros| (0..60).map(move |ones| (zeros, ones))) {
            let probability = (f64::from(ones) + 0.4) / (f64::from(zeros + ones) + 0.8);
            let distance = |byte: u8| (f64::from(2 * u16::from(byte) + 1) / 512.0 - probability).abs();
            let nearest = (0..=255).map(distance).fold(1.0, f64::min);
            let byte = nearest_byte(zeros as u64, ones as u64);
            // Two bytes can be equally near; floats then differ by a rounding error.
            assert!(distance(byte) < nearest + 1e-12, "{zeros} zeros, {ones} ones");
        }
    }

    #[test]
    fn contexts_without_a_map_are_even_and_no_probability_is_certain() {
        assert_eq!(nearest_byte(0, 0), 128);
        assert_eq!((nearest_byte(u64::MAX, 0), nearest_byte(0, u64::MAX)), (0, 255));
    }

    #[test]
    fn each_bit_is_visited_with_the_counts_of_its_context() {
        let mut counts = MapCounts::new(MapShape::new(1, 2, 3).unwrap());
        // Rows 110 and 011, written from the left.
        let map = [0b110_011];
        counts.add(&map).unwrap();
        counts.add(&map).unwrap();
        let mut ones = std::vec::Vec::new();
        counts.at_each_bit(&map, |[zeros, of_one]| ones.push((zeros, of_one))).unwrap();
        // Each context occurs at one place alone, so the counts of a context tell the bit at its place.
        assert_eq!(ones, [(0, 2), (0, 2), (2, 0), (2, 0), (0, 2), (0, 2)]);
        assert_eq!(counts.at_each_bit(&[0; 2], |_| {}), Err(MapError::MapLength { expected: 1, found: 2 }));
    }

    #[test]
    fn a_map_of_another_shape_is_not_counted() {
        let mut counts = MapCounts::new(MapShape::new(1, 3, 3).unwrap());
        assert_eq!(counts.add(&[0; 3]), Err(MapError::MapLength { expected: 2, found: 3 }));
        assert_eq!(counts.add(&[0, 2]), Err(MapError::TailBits));
        assert!(counts.counts().iter().all(|&count| count == [0, 0]));
    }
}
