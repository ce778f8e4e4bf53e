//! Bit-packed binary networks: the device section of DDNN as integers, small enough for a microcontroller.
//!
//! A value in {-1, +1} is one bit, 1 = +1. Bits lie least significant first; the bits after the last value are zero. Zero and every
//! positive number count as +1, as in `sign(x) = x >= 0 ? +1 : -1`; so does `-0.0`.
//!
//! A [`Section`] runs `convp` blocks (binary convolution, max pool, threshold) and the exit. No float is used at run time, no memory
//! is allocated: [`Plan::needs`] says how much to bring. Beside the kernels stands [`mod@reference`], written for reading.
//!
//! No std (the feature `std` only finds out what the processor can do), no sockets, no files.
#![no_std]

#[cfg(any(test, feature = "std"))]
extern crate std;

mod dot;
mod error;
mod fc;
mod lookups;
mod one_by_one;
#[cfg(feature = "std")]
mod owned;
mod pack;
mod patches;
mod path;
mod places;
mod plan;
mod popcounts;
pub mod reference;
mod rows;
mod section;
mod shape;
mod slices;
mod tables;
mod threshold;
mod vectors;

pub use dot::dot;
pub use error::PackedError;
pub use fc::Affine;
pub use lookups::Lanes;
#[cfg(feature = "std")]
pub use owned::Owned;
pub use pack::{pack_signs, packed_len, unpack_signs};
pub use path::Path;
pub use plan::{BLOCKS_MAX, Input, Needs, Plan, VERSION};
pub use section::{BlockParts, HeadParts, Section, Temporaries, Weights, write};
pub use shape::{Convp, Map, Window};
pub use tables::Table;
pub use threshold::Threshold;
