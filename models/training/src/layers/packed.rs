//! Parts of a packed device section, and the reasons for which a section has no packed form.

use headwater_kernels::{Affine, BlockParts, Convp, PackedError, Threshold};
use thiserror::Error;

/// Obstacle to the packed form of a device section; the section then runs as ONNX.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoPackedForm {
    /// A block is not binary.
    #[error("block {0} is not a `convp` block")]
    NotBinary(usize),
    /// The head is not one binary layer to the classes.
    #[error("the head is not one binary `fc` layer")]
    Head,
    /// Devices send their views.
    #[error("devices have no section in configuration (a)")]
    NoSection,
    /// A filter has too many weights for a search over its sums.
    #[error("block {block} has {taps} weights a filter, more than are packed")]
    TooManyTaps {
        /// Index of the block.
        block: usize,
        /// Weights of one filter.
        taps: usize,
    },
    /// The sign after the batch norm of a block changes more than once over the sums of a filter: no threshold computes it.
    #[error("the batch norm of block {0} changes its sign more than once")]
    Threshold(usize),
    /// The packed form does not support such a shape.
    #[error(transparent)]
    Shape(#[from] PackedError),
}

/// A packed block with its weights.
#[derive(Clone, Debug)]
pub struct PackedBlock {
    /// Input, filters and windows of the block.
    pub shape: Convp,
    /// `[filters, channels, kernel, kernel]`; true for a weight of +1, false for -1.
    pub weights: Vec<bool>,
    /// Threshold of each filter.
    pub thresholds: Vec<Threshold>,
}

/// A packed head with its weights.
#[derive(Clone, Debug)]
pub struct PackedHead {
    /// `[classes, inputs]`; true for a weight of +1, false for -1.
    pub weights: Vec<bool>,
    /// Factor and summand of each class, as multiples of `unit`.
    pub classes: Vec<Affine>,
    /// Value of one integer unit of a score.
    pub unit: f32,
}

impl PackedBlock {
    /// The block as [`headwater_kernels::write`] takes it.
    pub fn parts(&self) -> BlockParts<'_> {
        BlockParts { shape: self.shape, weights: &self.weights, thresholds: &self.thresholds }
    }
}
