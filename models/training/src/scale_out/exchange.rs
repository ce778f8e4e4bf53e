//! The sum of a vector over all ranks, in two legs: each rank owns a slice of the vector, adds the slice over all ranks, and sends the
//! sum to every rank.
//!
//! ```text
//!            slice 0   slice 1   slice 2                      sum 0     sum 1     sum 2
//! rank 0  [    own   |  to 1   |  to 2   ]   ──leg 1──>   rank 0 adds, in the order of ranks ──leg 2──> everyone
//! rank 1  [   to 0   |   own   |  to 2   ]                          rank 1 adds ...
//! rank 2  [   to 0   |  to 1   |   own   ]                                    rank 2 adds ...
//! ```
//! Each leg sends nearly the whole vector once, for any number of ranks. [`Exchange::sum_compressed`] compresses both legs, each with a
//! residual of its own.

use std::ops::Range;

use super::Communicator;
use super::compression::{Compression, Uncompressed, encode_with_feedback};
use crate::layers::Layout;
use headwater_calibration::message::{Reader, put_f32s};

/// Sums over ranks, with the residuals of earlier compressed messages.
pub struct Exchange<'a> {
    /// The ranks.
    pub ranks: &'a dyn Communicator,
    compression: Box<dyn Compression>,
    slices: Vec<Slice>,
    /// Residual of earlier messages to the owners of the slices, one number per parameter.
    pub sent_residual: Vec<f32>,
    /// Residual of earlier sums of the slice that this rank owns, one number per parameter of the slice.
    pub owned_residual: Vec<f32>,
}

/// The part of the vector that one rank owns.
#[derive(Clone, Debug)]
struct Slice {
    range: Range<usize>,
    /// Blocks of the parameter tensors in the slice, as ranges from the beginning of the slice; at most [`BLOCK`] numbers each.
    blocks: Vec<Range<usize>>,
}

/// A vector that was added over all ranks.
pub struct Summed {
    /// The sums, the same on every rank.
    pub values: Vec<f32>,
    /// For each rank, the message that the rank sent beside its vector.
    pub tails: Vec<Vec<u8>>,
}

impl<'a> Exchange<'a> {
    /// An exchange of vectors with a number for each parameter of a layout.
    pub fn new(ranks: &'a dyn Communicator, compression: Box<dyn Compression>, layout: &Layout) -> Self {
        let slices: Vec<Slice> = slice_ranges(layout.parameter_count(), ranks.ranks())
            .map(|range| Slice { blocks: blocks(layout, &range), range })
            .collect();
        let owned = slices[ranks.rank()].range.len();
        Self {
            ranks,
            compression,
            slices,
            sent_residual: vec![0.0; layout.parameter_count()],
            owned_residual: vec![0.0; owned],
        }
    }

    /// Adds the vectors of all ranks one by one, in the order of ranks and of each rank's vectors, as [`sum`] adds them in one process.
    /// `tail` goes to every rank with the first leg. Every rank must have the same number of vectors, and a tail of the same length.
    /// Nothing is compressed.
    pub fn sum_in_order(&self, vectors: &[Vec<f32>], tail: &[u8]) -> Summed {
        let message = |slice: &Slice| {
            let mut message = Vec::with_capacity(slice.range.len() * 4 * vectors.len() + tail.len());
            vectors.iter().for_each(|vector| put_f32s(&mut message, &vector[slice.range.clone()]));
            message.extend(tail);
            message
        };
        let messages: Vec<Vec<u8>> = self.slices.iter().map(message).collect();
        let own = &self.slices[self.ranks.rank()].range;
        let received = self.ranks.all_to_all(messages, own.len() * 4 * vectors.len() + tail.len());
        let mut readers: Vec<Reader<'_>> = received.iter().map(|message| Reader(message)).collect();
        let parts = readers
            .iter_mut()
            .flat_map(|reader| (0..vectors.len()).map(|_| reader.f32s(own.len())).collect::<Vec<_>>());
        let parts: Vec<Vec<f32>> = parts.collect();
        let tails = readers.iter().map(|reader| reader.0.to_vec()).collect();
        let mut message = Vec::new();
        put_f32s(&mut message, &sum(&parts, own.len()));
        Summed { values: self.gathered(&Uncompressed, &message), tails }
    }

    /// Adds the vectors of all ranks, compressed on both legs. `tail` goes to every rank with the first leg.
    pub fn sum_compressed(&mut self, vector: &[f32], tail: &[u8]) -> Summed {
        let compression = &*self.compression;
        let mut messages = Vec::new();
        for Slice { range, blocks } in &self.slices {
            let (values, residual) = (&vector[range.clone()], &mut self.sent_residual[range.clone()]);
            let mut message = Vec::new();
            encode_with_feedback(compression, values, residual, blocks, &mut message);
            message.extend(tail);
            messages.push(message);
        }
        let Slice { range, blocks } = &self.slices[self.ranks.rank()];
        let len = compression.bytes(range.len(), blocks) + tail.len();
        let received = self.ranks.all_to_all(messages, len);
        let mut tails = Vec::new();
        let parts: Vec<Vec<f32>> = received
            .iter()
            .map(|message| {
                let (mut reader, mut values) = (Reader(message), vec![0.0; range.len()]);
                compression.decode(&mut reader, blocks, &mut values);
                tails.push(reader.0.to_vec());
                values
            })
            .collect();
        let mut message = Vec::new();
        let total = sum(&parts, range.len());
        encode_with_feedback(compression, &total, &mut self.owned_residual, blocks, &mut message);
        Summed { values: self.gathered(compression, &message), tails }
    }

    /// The second leg: sends the sum of the own slice to every rank. Returns the sums of all slices.
    fn gathered(&self, compression: &dyn Compression, own: &[u8]) -> Vec<f32> {
        let len = |slice: &Slice| compression.bytes(slice.range.len(), &slice.blocks);
        let lens: Vec<usize> = self.slices.iter().map(len).collect();
        let mut values = vec![0.0; self.sent_residual.len()];
        for (sums, Slice { range, blocks }) in self.ranks.all_gather_of(own, &lens).iter().zip(&self.slices) {
            compression.decode(&mut Reader(sums), blocks, &mut values[range.clone()]);
        }
        values
    }
}

/// The sum of vectors, added in their order.
pub fn sum(vectors: &[Vec<f32>], len: usize) -> Vec<f32> {
    let mut sum = vec![0.0; len];
    for vector in vectors {
        sum.iter_mut().zip(vector).for_each(|(sum, value)| *sum += value);
    }
    sum
}

/// The slices of a vector of `len` numbers that each rank owns.
pub fn slice_ranges(len: usize, ranks: usize) -> impl Iterator<Item = Range<usize>> {
    (0..ranks).map(move |rank| len * rank / ranks..len * (rank + 1) / ranks)
}

/// Largest number of parameters that share one scale: with one bit each, 64 bytes of numbers to 4 bytes of scale.
const BLOCK: usize = 512;

/// Blocks of the parameter tensors that lie in a slice, as ranges from the beginning of the slice.
fn blocks(layout: &Layout, slice: &Range<usize>) -> Vec<Range<usize>> {
    let clipped = layout.parameters.iter().flat_map(|parameter| {
        let clip = |at: usize| at.clamp(slice.start, slice.end) - slice.start;
        let (start, end) = (clip(parameter.range.start), clip(parameter.range.end));
        (start..end).step_by(BLOCK).map(move |at| at..(at + BLOCK).min(end))
    });
    clipped.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::{Init, ParameterKind};
    use crate::scale_out::compression::Int8;
    use crate::scale_out::in_process;
    use headwater_calibration::random::Random;

    fn layout() -> Layout {
        let mut layout = Layout::default();
        for (name, len) in [("a", 5), ("b", 1), ("c", 17)] {
            layout.add_parameter(name.into(), &[len], ParameterKind::Weight, Init::Constant(0.0));
        }
        layout
    }

    fn vector(stream: u64) -> Vec<f32> {
        let mut random = Random::new(3, &[stream]);
        (0..23).map(|_| random.normal()).collect()
    }

    #[test]
    fn sums_in_order_equal_those_of_one_process_bit_for_bit() {
        for ranks in [1, 2, 3, 5] {
            // Two vectors per rank.
            let all: Vec<Vec<f32>> = (0..2 * ranks as u64).map(vector).collect();
            let expected = sum(&all, 23);
            let found = in_process::run(ranks, |rank| {
                let exchange = Exchange::new(rank, Box::new(Uncompressed), &layout());
                let own = &all[2 * rank.rank()..][..2];
                let Summed { values, tails } = exchange.sum_in_order(own, &[rank.rank() as u8]);
                assert_eq!(tails, (0..ranks).map(|rank| vec![rank as u8]).collect::<Vec<_>>());
                values
            });
            assert!(found.iter().all(|values| *values == expected), "{ranks} ranks");
        }
    }

    #[test]
    fn compressed_sums_with_the_residuals_are_what_was_meant() {
        let (ranks, steps) = (3, 20);
        let found = in_process::run(ranks, |rank| {
            let mut exchange = Exchange::new(rank, Box::new(Int8), &layout());
            let mut received = vec![0.0; 23];
            for step in 0..steps {
                let own = vector(step * 10 + rank.rank() as u64);
                let summed = exchange.sum_compressed(&own, &[]).values;
                received.iter_mut().zip(summed).for_each(|(sum, value)| *sum += value);
            }
            (received, exchange.sent_residual, exchange.owned_residual)
        });
        let all: Vec<Vec<f32>> =
            (0..steps).flat_map(|step| (0..ranks as u64).map(move |rank| vector(step * 10 + rank))).collect();
        let mut missing = sum(&found.iter().map(|(_, sent, _)| sent.clone()).collect::<Vec<_>>(), 23);
        let owned = found.iter().flat_map(|(_, _, owned)| owned);
        missing.iter_mut().zip(owned).for_each(|(sum, value)| *sum += value);
        for (meant, (got, missing)) in sum(&all, 23).iter().zip(found[0].0.iter().zip(&missing)) {
            assert!((meant - got - missing).abs() < 1e-4, "{meant} against {got} + {missing}");
        }
        assert!(found.iter().all(|(received, ..)| *received == found[0].0), "every rank gets the same sums");
    }

    #[test]
    fn every_number_has_one_owner_and_one_block() {
        for ranks in [1, 2, 4, 40] {
            let slices: Vec<Range<usize>> = slice_ranges(23, ranks).collect();
            assert_eq!(slices.iter().flat_map(Clone::clone).collect::<Vec<_>>(), (0..23).collect::<Vec<_>>());
            let counted: usize =
                slices.iter().flat_map(|slice| blocks(&layout(), slice)).map(|block| block.len()).sum();
            assert_eq!(counted, 23);
        }
    }
}
