//! `fashion-6cam`: real Fashion-MNIST articles seen by six simulated fixed cameras, as 3x32x32 RGB.
//!
//! Frozen: the same seed, part, index and slot give the same bytes on every platform and in every version. A test compares them with a
//! written hash.
//!
//! Each camera has one pose and one exposure ([`Camera`]). Each view draws from a separate random stream:
//! 1. not in view, with probability 0.15;
//! 2. with probability one half, a grey rectangle over up to 30 % of the frame;
//! 3. brightness noise of standard deviation 6 per pixel, the same in its three channels.
//!
//! Arithmetic uses integers, and floats only where IEEE 754 fixes the result (no `sin`, no fused multiply-add).

mod camera;
mod data;
mod figures;
mod frame;
mod occlusion;
mod random_stream;
mod test_archive;
#[cfg(test)]
mod tests;

pub use crate::mnist::FASHION_LABELS as LABELS;
pub use camera::Camera;
pub use data::Fashion6Cam;
pub(crate) use data::INFO;
pub use frame::{SEED, SHAPE, SLOTS, VIEW_BYTES};
pub use test_archive::{WrittenBytes, write_test_archive};
