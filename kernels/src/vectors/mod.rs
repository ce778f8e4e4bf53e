//! What a path does at once: with 32 small numbers, or with the bits of 256 places.
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

/// Where the count of a lane lies: those of even lanes before those of odd ones, as bytes come out of pairs.
pub(crate) const fn count_lane(lane: usize) -> usize {
    lane / 2 + lane % 2 * (LANES / 2)
}

/// Places that are worked on at once, as bits.
pub(crate) const TILE: usize = 256;
/// Words of a tile.
pub(crate) const TILE_WORDS: usize = TILE / 64;
/// One bit for each place of a tile.
pub(crate) type Row = [u64; TILE_WORDS];

/// The operations of a path. A value of such a type exists only where its instructions do.
pub(crate) trait Vectors: Copy {
    /// Sums of 16 bits, one a lane, in an order of the path's own.
    type Sums: Copy;
    /// One row of a tile: a bit for each of its places.
    type Bits: Copy;
    /// One byte a lane.
    type Bytes: Copy;
    /// Sixteen bytes to look up.
    type Lookup: Copy;

    /// Sums of nothing.
    fn no_sums(self) -> Self::Sums;
    /// Adds one row of a table of sums.
    fn add_row(self, sums: Self::Sums, row: &[i16; LANES]) -> Self::Sums;
    /// Bit `i` is set where sum `i`, made of rows, is at least so much.
    fn sums_at_least(self, sums: Self::Sums, from: i16) -> u32;

    /// Whether looking up takes an instruction of its own.
    const LOOKS_UP: bool;
    /// Bytes of nothing.
    fn no_bytes(self) -> Self::Bytes;
    /// Makes sixteen bytes ready to be looked up.
    fn table(self, bytes: &[u8; 16]) -> Self::Lookup;
    /// The bytes at places of a table, below 16; nothing for a place of `0x80`.
    fn look_up(self, table: Self::Lookup, places: &[u8; LANES]) -> Self::Bytes;
    /// `a + b`, in bytes that wrap round.
    fn add_bytes(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// `a / 16`.
    fn high_halves(self, a: Self::Bytes) -> Self::Bytes;
    /// `a - 16 * b`, in bytes that wrap round.
    fn less_halves(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// Adds the byte of lane `i` to the count at [`count_lane`]`(i)`.
    fn add_counts(self, bytes: Self::Bytes, counts: &mut [i16; LANES]);
    /// Sets a bit in the bytes of those lanes whose count, at [`count_lane`]`(i)`, is at least `least` there.
    fn set_where_at_least(
        self,
        bytes: Self::Bytes,
        bit: u8,
        counts: &[i16; LANES],
        least: &[i16; LANES],
    ) -> Self::Bytes;
    /// The bytes of the lanes.
    fn bytes(self, bytes: Self::Bytes) -> [u8; LANES];
    /// Bit `i` of four words is a number `n[i]` of four bits, and `pairs[i] = 16 * (n[i] + by * n[i + 1]) + more[i]`. After the last
    /// bit come zeros.
    fn pair_up(self, words: [u32; 4], by: i8, more: &[i16; LANES], pairs: &mut [i16; LANES]);

    /// Zeros.
    fn no_bits(self) -> Self::Bits;
    /// Ones.
    fn all_bits(self) -> Self::Bits;
    /// Reads a row.
    fn load(self, row: &Row) -> Self::Bits;
    /// Writes a row.
    fn store(self, bits: Self::Bits, row: &mut Row);
    /// The row that begins so many bits after the first word, fewer than 64.
    fn moved(self, words: &[u64; TILE_WORDS + 1], by: u32) -> Self::Bits;
    /// `a ^ b`.
    fn xor(self, a: Self::Bits, b: Self::Bits) -> Self::Bits;
    /// `a & b`.
    fn and(self, a: Self::Bits, b: Self::Bits) -> Self::Bits;
    /// `a | b`.
    fn or(self, a: Self::Bits, b: Self::Bits) -> Self::Bits;
    /// `a & !b`.
    fn and_not(self, a: Self::Bits, b: Self::Bits) -> Self::Bits;
}
