//! Constants of the data set: seed, slots, and size of a frame.

use crate::Shape;

/// Seed of cameras and views. Another seed would give another data set.
pub const SEED: u64 = 2017;
/// Device slots, one camera each.
pub const SLOTS: usize = 6;
/// Shape of every view.
pub const SHAPE: Shape = Shape::rgb(FRAME_SIDE, FRAME_SIDE);
/// Bytes of every view.
pub const VIEW_BYTES: usize = SHAPE.bytes();

/// Height and width of a frame.
pub(super) const FRAME_SIDE: usize = 32;
/// Pixels of one channel.
pub(super) const FRAME_PIXELS: usize = FRAME_SIDE * FRAME_SIDE;
/// Fraction bits of a brightness.
pub(super) const LUMA_BITS: u32 = 8;
