//! Bit-packed binary networks: the device section of DDNN as integers, small enough for a microcontroller.
//!
//! A value in {-1, +1} is one bit, and 1 is +1. The first value is the least significant bit; bits after the last value are zero.
//! Zero counts as +1, as does `-0.0`: `sign(x) = x >= 0 ? +1 : -1`.
//!
//! A [`Section`] runs `convp` blocks (binary convolution, max pool, threshold) and the exit. A run uses no floats and allocates no
//! memory: the caller brings the memory, in the sizes of [`Plan::needs`].
//!
//! The crate has no sockets and no files, and needs no std. The feature `std` adds detection of the processor's instructions and
//! `OwnedSection`. The feature `testing` adds plain implementations with the same results, which tests compare with.
//!
//! A module imports only modules to its right or in the lines below. The test `module_orders` checks this diagram:
//!
//! ```text
//! sections        section
//! blocks          block_kernel  pixel_words  pooling
//! memory          memory  exit  bit_map  code_path
//! tests           testing
//! ground          dot  pack  shape  simd  threshold  error
//! ```
#![no_std]
#![cfg_attr(
    not(all(target_arch = "x86_64", feature = "std")),
    allow(dead_code, reason = "other targets lack the instructions of some kernels")
)]

#[cfg(any(test, feature = "std"))]
extern crate std;

mod bit_map;
mod block_kernel;
mod code_path;
mod dot;
mod error;
mod exit;
mod memory;
mod pack;
mod pixel_words;
mod pooling;
mod section;
mod shape;
mod simd;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod threshold;

pub use code_path::CodePath;
pub use dot::dot;
pub use error::PackedError;
pub use exit::Affine;
pub use memory::{LookupVector, Needs, Outputs, Scratch, SumTable, Weights};
pub use pack::{pack_signs, packed_len, unpack_signs};
#[cfg(feature = "std")]
pub use section::OwnedSection;
pub use section::{BlockParts, HeadParts, MAX_BLOCKS, Plan, Section, write};
pub use shape::{Convp, InputKind, Map, Window};
pub use threshold::Threshold;

/// Version of the format of a packed section.
pub const VERSION: u8 = 3;
