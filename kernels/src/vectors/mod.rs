//! What a path does at once, with 32 small numbers.
//!
//! The kernels are written once over [`Vectors`]; each path brings its own, and [`Portable`] is the definition the others are held
//! to.

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx2;
#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(all(test, any(all(target_arch = "x86_64", feature = "std"), target_arch = "aarch64")))]
mod tests;

#[cfg(all(target_arch = "x86_64", feature = "std"))]
pub(crate) use avx2::Avx2;
#[cfg(all(target_arch = "x86_64", feature = "std"))]
pub(crate) use avx512::Avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;
pub(crate) use portable::Portable;

/// Numbers that are worked on at once; maps are cut into blocks of so many.
pub(crate) const LANES: usize = 32;

/// Half of them: what one lookup reaches.
pub(crate) const HALF: usize = LANES / 2;
/// Places whose bits are made bytes at once: those of a word.
pub(crate) const BLOCK: usize = 64;
/// Counts of two filters in each half of the lanes: of the first ones in even lanes, in odd ones, of the second ones in even and in odd
/// lanes.
pub(crate) type Counts = [[i16; HALF]; 4];

/// How a path counts products of bits.
#[allow(dead_code, reason = "no target has a path for each")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counting {
    /// By [`slices`](crate::slices), in words.
    Slices,
    /// By [`lookups`](crate::lookups), with [`LooksUp`].
    Lookups,
    /// By [`popcounts`](crate::popcounts), with [`Popcounts`], and few channels by lookups.
    Popcounts,
}

/// The operations of a path. A value of such a type exists only where its instructions do.
pub(crate) trait Vectors: Copy {
    /// How it counts products of bits.
    const COUNTING: Counting;
    /// Operations of lookups, the portable ones where it does not count so.
    type LooksUp: LooksUp;
    /// Operations of popcounts, the portable ones where it does not count so.
    type Popcounts: Popcounts;
    /// Sums of 16 bits, one a lane, in an order of the path's own.
    type Sums: Copy;

    /// The operations of lookups.
    fn looks_up(self) -> Self::LooksUp;
    /// The operations of popcounts.
    fn popcounts(self) -> Self::Popcounts;
    /// Sums of nothing.
    fn no_sums(self) -> Self::Sums;
    /// Adds one row of a table of sums.
    fn add_row(self, sums: Self::Sums, row: &[i16; LANES]) -> Self::Sums;
    /// Bit `i` is set where sum `i`, made of rows, is at least so much.
    fn sums_at_least(self, sums: Self::Sums, from: i16) -> u32;
}

/// An instruction that looks up many bytes at once, and what is done with them.
pub(crate) trait LooksUp: Copy {
    /// One byte a lane.
    type Bytes: Copy;
    /// What [`Counts`](type@Counts) holds.
    type Counts: Copy;

    /// Bytes of nothing.
    fn no_bytes(self) -> Self::Bytes;
    /// Reads sixteen bytes to look up for each half of the lanes, two a number.
    fn table(self, bytes: &[i16; HALF]) -> Self::Bytes;
    /// The bytes at places of the lane's half of the table, below 16; nothing for a place from `0x80` on.
    fn look_up(self, table: Self::Bytes, places: &[u8; LANES]) -> Self::Bytes;
    /// `a + b`, in bytes that wrap round.
    fn add_bytes(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// `a + b` where two lanes are one number of 16 bits, the lower lane its low byte.
    fn add_pairs(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// 15 in each lane, asked for before a loop.
    fn low_halves(self) -> Self::Bytes;
    /// `a / 16`, with [`Vectors::low_halves`].
    fn high_halves(self, a: Self::Bytes, low: Self::Bytes) -> Self::Bytes;
    /// Counts as they were, and more: for the second filters what is in the lanes of `second`, for the first ones what is in those of
    /// `both` less 16 times as much, pairs of lanes being one number.
    fn counts(self, both: Self::Bytes, second: Self::Bytes, before: &Counts) -> Self::Counts;
    /// Writes counts.
    fn put_counts(self, counts: Self::Counts, to: &mut Counts);
    /// Lanes of first and of second filters that are all ones where their count is above what stands in `below`, and zeros elsewhere.
    fn above(self, counts: Self::Counts, below: [&[i16; HALF]; 2]) -> [Self::Bytes; 2];
    /// The lanes of each half as bits, one vector behind the other: bit `i` of a half is set where its lane is all ones. At most four
    /// vectors.
    fn bits<const X: usize>(self, lanes: &[Self::Bytes; X]) -> [u64; 2];
    /// Bit `i` of four words is the number of four bits that byte `i` gets.
    fn number(self, words: [u64; 4], numbers: &mut [u8; BLOCK]);
    /// Writes bytes to each half of the lanes, and sets the bits of `also`, two lanes a number.
    fn put_twice(self, bytes: &[u8; HALF], also: &[i16; HALF], lanes: &mut [u8; LANES]);
}

/// Words that are worked on at once.
pub(crate) const WORDS: usize = 8;

/// An instruction that counts the bits of many words, and what is done beside it.
pub(crate) trait Popcounts: Copy {
    /// One word a lane.
    type Words: Copy;

    /// Reads words.
    fn words(self, words: &[u64; WORDS]) -> Self::Words;
    /// The word in the lanes whose bit is set, and nothing elsewhere.
    fn where_set(self, lanes: u8, word: u64) -> Self::Words;
    /// Writes words.
    fn put(self, words: Self::Words, to: &mut [u64; WORDS]);
    /// `a | b`.
    fn or(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// Each square of eight bits, one byte of eight lanes, rows to columns.
    fn transposed(self, rows: Self::Words) -> Self::Words;
    /// The sum, and the number of bits of `(a ^ b) & kept`.
    fn add_different(self, sum: Self::Words, a: Self::Words, b: u64, kept: Self::Words) -> Self::Words;
    /// Bit `i` is set where sum `i` is at most so much.
    fn at_most(self, sums: Self::Words, most: i64) -> u8;
}
