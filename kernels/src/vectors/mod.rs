//! What a path does with 32 small numbers at once.
//!
//! The kernels are written once over [`Vectors`]; each path brings its own, and [`Portable`] is the definition the others are held
//! to.

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx2;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(all(test, any(all(target_arch = "x86_64", feature = "std"), target_arch = "aarch64")))]
mod tests;

#[cfg(all(target_arch = "x86_64", feature = "std"))]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;
pub(crate) use portable::Portable;

/// Numbers that are worked on at once; maps are cut into blocks of so many.
pub(crate) const LANES: usize = 32;

/// The operations of a path. A value of such a type exists only where its instructions do.
pub(crate) trait Vectors: Copy {
    /// Sums of 16 bits, one a lane, in an order of the path's own.
    type Sums: Copy;
    /// Bytes, one a lane.
    type Bytes: Copy;

    /// Whether looking up takes no longer than adding. Where it does, bits are counted instead.
    const LOOKS_UP: bool;

    /// Sums of nothing.
    fn no_sums(self) -> Self::Sums;
    /// Adds one row of a table of sums.
    fn add_row(self, sums: Self::Sums, row: &[i16; LANES]) -> Self::Sums;
    /// Bit `i` is set where sum `i`, made of rows, is at least so much.
    fn sums_at_least(self, sums: Self::Sums, from: i16) -> u32;

    /// Zeros.
    fn no_bytes(self) -> Self::Bytes;
    /// Reads bytes.
    fn load(self, bytes: &[u8; LANES]) -> Self::Bytes;
    /// Writes bytes.
    fn store(self, bytes: Self::Bytes, into: &mut [u8; LANES]);
    /// Sets the bits of `value` in the bytes whose bit is set.
    fn spread(self, bytes: Self::Bytes, bits: u32, value: u8) -> Self::Bytes;
    /// A table to look up in.
    fn table(self, table: &[i8; 16]) -> Self::Bytes;
    /// The entry that the low four bits of each index name; 0 where the highest bit of the index is set.
    fn look_up(self, table: Self::Bytes, indices: Self::Bytes) -> Self::Bytes;
    /// Adds bytes, which must not overflow.
    fn add(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// Bit `i` is set where byte `i`, with its sign, is at least so much.
    fn bytes_at_least(self, bytes: Self::Bytes, from: i8) -> u32;

    /// Adds bytes, with their signs, to sums made of bytes alone.
    fn widen(self, sums: Self::Sums, bytes: Self::Bytes) -> Self::Sums;
    /// Bit `i` is set where sum `i`, made of bytes, is at least so much.
    fn widened_at_least(self, sums: Self::Sums, from: i16) -> u32;
}
