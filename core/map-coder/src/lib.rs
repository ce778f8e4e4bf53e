//! Entropy coding of binary feature maps: context modelling as for bilevel images, and a binary arithmetic coder.
//!
//! A map is packed signs: CHW order, least significant bit first, 1 = +1, tail bits zero. A bit's context is ten bits that were
//! coded before it (see [`CONTEXTS`]). A [`ContextTable`] has the probability of a 1 in each context of each channel. The table is
//! counted on training maps (`MapCounts`, feature `std`) and does not adapt: every map is coded alone, so a lost message harms no other.
//!
//! The length of a body tells how it is coded:
//!
//! ```text
//! as long as the map    | the map itself                            |
//! shorter               | check 1 B | arithmetic code, 0 B or more  |
//! ```
//!
//! - check: CRC-8/AUTOSAR of the packed map.
//! - code: a binary fraction, the most significant byte first. Zeros follow the last byte, which itself is not zero.
//!
//! A map has exactly one body under a table. [`ContextTable::decode`] refuses every other body, so it also refuses most bodies that were
//! cut, altered or coded with another table.
//!
//! The crate has no sockets and no files, and without the feature `std` no std and no allocation. The caller knows which table belongs to
//! which network.
//!
//! A module imports only modules to its right or in the lines below. The test `module_orders` checks this diagram:
//!
//! ```text
//! coding          counts  table
//! pixels          contexts  rows  shape
//! bits            arithmetic  check
//! errors          error
//! ```
#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "std"))]
extern crate std;

mod arithmetic;
mod check;
mod contexts;
#[cfg(feature = "std")]
mod counts;
mod error;
mod rows;
mod shape;
mod table;

pub use contexts::CONTEXTS;
#[cfg(feature = "std")]
pub use counts::MapCounts;
pub use error::{DecodeError, MapError, ShapeError, TableError};
pub use shape::{MAX_BITS, MAX_CHANNELS, MapShape};
pub use table::ContextTable;
