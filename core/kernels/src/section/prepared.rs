//! Prepared weights of a section, block after block.

use crate::block_kernel::{Block, BlockInput};
use crate::memory::{LookupVector, Needs, take};
use crate::shape::Convp;
use crate::threshold::Threshold;

/// Prepared weights and thresholds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prepared<'a> {
    pub(super) words: &'a [u64],
    pub(super) signs: &'a [u8],
    pub(super) vectors: &'a [LookupVector],
    pub(super) thresholds: &'a [Threshold],
}

impl<'a> Prepared<'a> {
    /// Splits off the weights of a block.
    #[inline(always)]
    pub(super) fn take_block<'b>(&mut self, shape: Convp, needs: &Needs, input: BlockInput<'b>) -> Block<'b>
    where
        'a: 'b,
    {
        Block {
            shape,
            input,
            words: take(&mut self.words, needs.weights),
            signs: take(&mut self.signs, needs.signs),
            vectors: take(&mut self.vectors, needs.vectors),
            thresholds: take(&mut self.thresholds, shape.filters),
        }
    }
}
