//! Bit-packed binary layers: the packing convention, the packed dot product, and plain references.
//!
//! State encoding: a value in {-1, +1} is one bit, 1 = +1. Bits lie least significant first; the bits after the last value
//! are zero. Zero and every positive number count as +1, as in `sign(x) = x >= 0 ? +1 : -1`; so does `-0.0`.
//!
//! No std, no allocation, no sockets, no files.
#![no_std]

#[cfg(test)]
extern crate std;

mod dot;
mod pack;
pub mod reference;

pub use dot::dot;
pub use pack::{pack_signs, packed_len, unpack_signs};
