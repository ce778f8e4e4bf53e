//! The exit: a fully connected layer with binary weights over a stream of bits, its batch norm as one factor and one summand.

use crate::dot::dot;

/// Score of a class as an integer: `dot * factor + offset`, all classes in the same unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Affine {
    /// Times the dot product.
    pub factor: i32,
    /// Added to it.
    pub offset: i32,
}

/// Scores of all classes; `weights` is `[classes, words]`, `bits` and each row of it hold `len` bits.
#[inline(always)]
pub(crate) fn scores(bits: &[u64], len: usize, weights: &[u64], classes: &[Affine], scores: &mut [i32]) {
    let rows = weights.chunks_exact(bits.len());
    for ((score, class), weights) in scores.iter_mut().zip(classes).zip(rows) {
        // The reader of the section has checked that this fits.
        *score = dot(bits, weights, len) * class.factor + class.offset;
    }
}
