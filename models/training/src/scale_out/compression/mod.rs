//! Compression of the vectors that ranks exchange, with error feedback: the residual that a message leaves out is added to the next
//! vector (Seide et al. 2014, "1-bit stochastic gradient descent"; Karimireddy et al. 2019, "Error feedback fixes `SignSGD`").
//!
//! ```text
//! vector + residual ──[encode]─> message ──[decode]─> vector that the other ranks get
//! new residual = (vector + residual) - decoded vector
//! ```

mod int8;
mod one_bit;
mod top_k;

use std::ops::Range;

use crate::recipe::{CompressionKind, ScaleOutRecipe};
use headwater_calibration::message::{Reader, put_f32s};

pub use int8::Int8;
pub use one_bit::OneBit;
pub use top_k::TopK;

/// An encoding of a vector. `blocks` are pieces of the parameter tensors, as ranges of the vector; each block may have its own scale.
pub trait Compression: Sync {
    /// Appends the vector to a message.
    fn encode(&self, values: &[f32], blocks: &[Range<usize>], message: &mut Vec<u8>);

    /// Number of bytes for a vector of `len` numbers.
    fn bytes(&self, len: usize, blocks: &[Range<usize>]) -> usize;

    /// Reads a vector of the length of `values` from a message.
    fn decode(&self, message: &mut Reader<'_>, blocks: &[Range<usize>], values: &mut [f32]);
}

/// No compression: 4 bytes per number.
#[derive(Clone, Copy, Debug)]
pub struct Uncompressed;

impl Compression for Uncompressed {
    fn encode(&self, values: &[f32], _blocks: &[Range<usize>], message: &mut Vec<u8>) {
        put_f32s(message, values);
    }

    fn bytes(&self, len: usize, _blocks: &[Range<usize>]) -> usize {
        len * 4
    }

    fn decode(&self, message: &mut Reader<'_>, _blocks: &[Range<usize>], values: &mut [f32]) {
        values.copy_from_slice(&message.f32s(values.len()));
    }
}

/// The compression of a recipe.
pub fn of(recipe: &ScaleOutRecipe) -> Box<dyn Compression> {
    match recipe.compression {
        CompressionKind::None => Box::new(Uncompressed),
        CompressionKind::Int8 => Box::new(Int8),
        CompressionKind::OneBit => Box::new(OneBit),
        CompressionKind::TopK => Box::new(TopK { share: recipe.top_k_share }),
    }
}

/// Appends the sum of `values` and the residual of earlier messages to a message. The residual becomes the part of the sum that this
/// message leaves out. Returns the vector that the other ranks decode.
pub fn encode_with_feedback(
    compression: &dyn Compression,
    values: &[f32],
    residual: &mut [f32],
    blocks: &[Range<usize>],
    message: &mut Vec<u8>,
) -> Vec<f32> {
    residual.iter_mut().zip(values).for_each(|(residual, value)| *residual += value);
    let start = message.len();
    compression.encode(residual, blocks, message);
    let mut decoded = vec![0.0; values.len()];
    compression.decode(&mut Reader(&message[start..]), blocks, &mut decoded);
    residual.iter_mut().zip(&decoded).for_each(|(residual, sent)| *residual -= sent);
    decoded
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Tolerance for rounding in the sums.
    const ROUNDING: f32 = 1e-4;

    fn check(compression: &dyn Compression, steps: &[Vec<f32>], cut: usize) {
        let blocks = [0..cut, cut..steps[0].len()];
        let (mut residual, mut message) = (vec![0.0; steps[0].len()], Vec::new());
        let (mut meant, mut got) = (residual.clone(), residual.clone());
        let mut reader_at = 0;
        for values in steps {
            let sent = encode_with_feedback(compression, values, &mut residual, &blocks, &mut message);
            let mut decoded = vec![f32::NAN; values.len()];
            assert_eq!(message.len() - reader_at, compression.bytes(values.len(), &blocks));
            let mut reader = Reader(&message[reader_at..]);
            compression.decode(&mut reader, &blocks, &mut decoded);
            reader_at = message.len() - reader.0.len();
            assert_eq!(sent, decoded, "the sender knows what the others get");
            meant.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
            got.iter_mut().zip(&decoded).for_each(|(sum, value)| *sum += value);
        }
        assert_eq!(reader_at, message.len(), "no bytes are left");
        let largest = steps.iter().flatten().fold(1.0f32, |most, value| most.max(value.abs()));
        for ((meant, got), residual) in meant.iter().zip(&got).zip(&residual) {
            let bound = ROUNDING * largest * steps.len() as f32;
            assert!((meant - (got + residual)).abs() <= bound, "{meant} against {got} + {residual}");
        }
    }

    proptest! {
        #[test]
        fn what_was_sent_and_the_residual_are_what_was_meant(
            steps in (1usize..200).prop_flat_map(|len| vec(vec(-3.0f32..3.0, len), 1..8)),
            cut in 0usize..200,
        ) {
            let cut = cut.min(steps[0].len());
            check(&Uncompressed, &steps, cut);
            check(&Int8, &steps, cut);
            check(&OneBit, &steps, cut);
            check(&TopK { share: 0.1 }, &steps, cut);
        }
    }

    #[test]
    fn vectors_without_values_or_of_zeros_are_sent() {
        for compression in [&Uncompressed as &dyn Compression, &Int8, &OneBit, &TopK { share: 0.5 }] {
            check(compression, &[vec![]], 0);
            check(compression, &[vec![0.0; 9], vec![0.0; 9]], 4);
        }
    }
}
