//! The operations on vectors that kernels are written in.
//!
//! Each code path has its own version of the operations. A property test (`tests.rs`) compares every version with plain Rust.

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx2;
#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(test)]
mod tests;

#[cfg(all(target_arch = "x86_64", feature = "std"))]
pub(crate) use avx2::Avx2;
#[cfg(all(target_arch = "x86_64", feature = "std"))]
pub(crate) use avx512::Avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;
pub(crate) use portable::Portable;

/// Lanes of a vector of bytes, and of a vector of sums.
pub(crate) const LANES: usize = 32;
/// Lanes of each half of a vector of bytes. A lane looks up in the table of its half.
pub(crate) const HALF: usize = LANES / 2;
/// Words of a vector of words.
pub(crate) const WORDS: usize = 8;

/// Counts of a vector of pixels for four filters, as 16-bit numbers; `f0` to `f3` are the filters.
///
/// ```text
///                  lanes of the lower half    lanes of the upper half
/// counts[0]        f0, even pixels            f2, even pixels
/// counts[1]        f0, odd pixels             f2, odd pixels
/// counts[2]        f1, even pixels            f3, even pixels
/// counts[3]        f1, odd pixels             f3, odd pixels
/// ```
pub(crate) type Counts = [[i16; HALF]; 4];

/// Operations of a code path. A value of such a type exists only on processors that have its instructions.
pub(crate) trait Simd: Copy {
    /// True if the processor looks up many bytes with one instruction.
    const HAS_BYTE_LOOKUP: bool = false;
    /// 16-bit sums, one a lane, in an order that the code path chooses.
    type Sums: Copy;

    /// Runs code with operations on bytes if the processor looks up many bytes with one instruction; otherwise does nothing.
    #[inline(always)]
    fn with_byte_lookup(self, _: impl ByteLookupCode) {}
    /// Runs code with operations on words if the processor counts the bits of eight words with one instruction; otherwise does nothing.
    #[inline(always)]
    fn with_word_popcount(self, _: impl WordPopcountCode) {}
    fn zero_sums(self) -> Self::Sums;
    /// Adds a row of numbers to the sums.
    fn add_row(self, sums: Self::Sums, row: &[i16; LANES]) -> Self::Sums;
    /// Bit `i` of the result is 1 if sum `i` is `min` or more.
    fn sums_at_least(self, sums: Self::Sums, min: i16) -> u32;
}

/// Code that uses [`ByteLookup`]; implementations are `#[inline(always)]`.
pub(crate) trait ByteLookupCode {
    fn run<L: ByteLookup>(self, ops: L);
}

/// Code that uses [`WordPopcount`]; implementations are `#[inline(always)]`.
pub(crate) trait WordPopcountCode {
    fn run<P: WordPopcount>(self, ops: P);
}

/// Lookups of many bytes at once, and the operations around them.
pub(crate) trait ByteLookup: Copy {
    /// One byte a lane.
    type Bytes: Copy;
    /// [`Counts`](type@Counts) in registers.
    type Counts: Copy;

    fn zero_bytes(self) -> Self::Bytes;
    /// Reads a table of 16 bytes for each half of the lanes, two bytes a number.
    fn load_table(self, bytes: &[i16; HALF]) -> Self::Bytes;
    /// Looks up each lane's index, below 16, in the table of its half. An index from `0x80` on gives 0.
    fn look_up(self, table: Self::Bytes, indices: &[u8; LANES]) -> Self::Bytes;
    /// Adds byte by byte; a sum wraps around.
    fn add_bytes(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// Adds pairs of lanes as 16-bit numbers; the lower lane is the low byte.
    fn add_pairs(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// 15 in each lane: the argument of [`high_nibbles`](Self::high_nibbles), made before a loop.
    fn nibble_mask(self) -> Self::Bytes;
    /// Divides each byte by 16.
    fn high_nibbles(self, a: Self::Bytes, nibble_mask: Self::Bytes) -> Self::Bytes;
    /// Adds the [`high_nibbles`](Self::high_nibbles) of two vectors.
    #[inline(always)]
    fn add_high_nibbles(self, a: Self::Bytes, b: Self::Bytes, nibble_mask: Self::Bytes) -> Self::Bytes {
        self.add_bytes(self.high_nibbles(a, nibble_mask), self.high_nibbles(b, nibble_mask))
    }
    /// Adds to `before` the counts of two filters in each half.
    ///
    /// `second` has the counts of the second filter, one byte a lane. `both` has the counts of the first filter plus 16
    /// times the counts of the second, as pairs of lanes.
    fn add_counts(self, both: Self::Bytes, second: Self::Bytes, before: &Counts) -> Self::Counts;
    fn store_counts(self, counts: Self::Counts, to: &mut Counts);
    /// Compares the counts of each half's first and second filter with `bounds`. A lane is all ones where the count is larger, else zero.
    fn above(self, counts: Self::Counts, bounds: [&[i16; HALF]; 2]) -> [Self::Bytes; 2];
    /// Collects lanes as bits, each half in a word, one vector after the other. A bit is set if the lane is all ones.
    fn lane_bits<const X: usize>(self, vectors: &[Self::Bytes; X]) -> [u64; 2];
    /// Sets `numbers[i]` to the 4-bit number that bit `i` of each word makes; the first word gives the lowest bit.
    fn interleave(self, words: [u64; 4], numbers: &mut [u8; 64]) {
        for (bit, number) in numbers.iter_mut().enumerate() {
            let [a, b, c, d] = words.map(|word| (word >> bit & 1) as u8);
            *number = a | b << 1 | c << 2 | d << 3;
        }
    }
    /// Writes `bytes` into both halves of `to`, each combined with `mask` by OR; a number of the mask covers two lanes.
    fn store_twice(self, bytes: &[u8; HALF], mask: &[i16; HALF], to: &mut [u8; LANES]);
}

/// Bit counts of eight words at once, and the operations around them.
pub(crate) trait WordPopcount: Copy {
    /// One word a lane.
    type Words: Copy;

    fn load(self, words: &[u64; WORDS]) -> Self::Words;
    fn store(self, words: Self::Words, to: &mut [u64; WORDS]);
    /// `word` in each lane whose bit in `lanes` is set, and zero in the other lanes.
    fn broadcast_to(self, lanes: u8, word: u64) -> Self::Words;
    fn or(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// Transposes each square of 8 bits by 8 bits: byte `i` of all eight words is square `i`.
    fn transpose_bytes(self, rows: Self::Words) -> Self::Words;
    /// Adds the number of bits of `(a ^ b) & mask` to each sum.
    fn add_differing(self, sums: Self::Words, a: Self::Words, b: u64, mask: Self::Words) -> Self::Words;
    /// Bit `i` of the result is 1 if sum `i` is `max` or less.
    fn at_most(self, sums: Self::Words, max: i64) -> u8;
}
