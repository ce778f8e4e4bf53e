//! The exit: a fully connected layer with binary weights, whose batch norm is one factor and one offset a class.

use core::ops::RangeInclusive;

use crate::dot::dot;

/// Integer score of a class: `dot * factor + offset`. All classes have the same unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Affine {
    /// Factor of the dot product.
    pub factor: i32,
    /// Number added to the product.
    pub offset: i32,
}

impl Affine {
    /// Least and largest score for any map that the exit reads: the dot product of `inputs` values lies in `-inputs..=inputs`.
    pub(crate) fn limits(self, inputs: usize) -> RangeInclusive<i32> {
        // No overflow: `Section::load` has checked that every score fits in 32 bits.
        let reach = self.factor.abs() * inputs as i32;
        self.offset - reach..=self.offset + reach
    }
}

/// Computes the scores of all classes.
///
/// `weights` is `[classes, words]`; the features and each row of weights hold `len` bits.
#[inline(always)]
pub(crate) fn scores(features: &[u64], len: usize, weights: &[u64], classes: &[Affine], scores: &mut [i32]) {
    let rows = weights.chunks_exact(features.len());
    for ((score, class), weights) in scores.iter_mut().zip(classes).zip(rows) {
        // No overflow: `Section::load` has checked that every score fits in 32 bits.
        *score = dot(features, weights, len) * class.factor + class.offset;
    }
}
