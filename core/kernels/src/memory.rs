//! The memory that a section runs in. The caller brings it; nothing is allocated.

use crate::error::{PackedError, check_equal};
use crate::exit::Affine;
use crate::simd::{HALF, LANES};
use crate::threshold::Threshold;

/// A vector of prepared weights: 16 numbers of 16 bits, or 32 bytes, two in each number.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
pub struct LookupVector(pub(crate) [i16; HALF]);

impl LookupVector {
    /// The vector of these bytes.
    pub(crate) fn of_bytes(bytes: &[u8; LANES]) -> Self {
        let mut vector = Self::default();
        for (number, bytes) in vector.0.iter_mut().zip(bytes.as_chunks().0) {
            *number = i16::from_ne_bytes(*bytes);
        }
        vector
    }
}

/// The sums of three taps for each of the eight combinations of their signs, at each of 32 columns of a row. No vector of 32 sums
/// crosses a cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub struct SumTable(pub(crate) [[i16; LANES]; 8]);

/// Memory that a section takes, as numbers of elements; outputs and [`Affine`] values of classes are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Prepared weights: words of 64 bits.
    pub weights: usize,
    /// Prepared weights of blocks that sum three taps at a time: bytes.
    pub signs: usize,
    /// Prepared weights of blocks that look up products: vectors of 32 bytes.
    pub vectors: usize,
    /// Thresholds, one a filter of every block.
    pub thresholds: usize,
    /// Scratch: words of 64 bits.
    pub words: usize,
    /// Scratch: tables of sums, 512 bytes each.
    pub tables: usize,
    /// Scratch: 16-bit numbers.
    pub sums: usize,
    /// Scratch: bytes.
    pub bytes: usize,
}

impl Needs {
    /// Adds the needs of a block. Weights add up; scratch memory is shared by all blocks, so the largest need counts.
    pub(crate) fn add_block(&mut self, block: Self, filters: usize) {
        self.weights += block.weights;
        self.signs += block.signs;
        self.vectors += block.vectors;
        self.thresholds += filters;
        self.words = self.words.max(block.words);
        self.tables = self.tables.max(block.tables);
        self.sums = self.sums.max(block.sums);
        self.bytes = self.bytes.max(block.bytes);
    }
}

/// Weights and thresholds as kernels read them, in the sizes of [`Plan::needs`](crate::Plan::needs).
#[derive(Debug)]
pub struct Weights<'a> {
    /// `needs().weights` words.
    pub words: &'a mut [u64],
    /// `needs().signs` bytes.
    pub signs: &'a mut [u8],
    /// `needs().vectors` vectors.
    pub vectors: &'a mut [LookupVector],
    /// `needs().thresholds` thresholds.
    pub thresholds: &'a mut [Threshold],
    /// Factor and offset of each class, [`Plan::classes`](crate::Plan::classes) in number.
    pub classes: &'a mut [Affine],
}

impl<'a> Weights<'a> {
    pub(crate) fn check(&self, needs: &Needs, classes: usize) -> Result<(), PackedError> {
        check_equal("memory for weights", None, needs.weights, self.words.len())?;
        check_equal("memory for signs", None, needs.signs, self.signs.len())?;
        check_equal("memory for vectors", None, needs.vectors, self.vectors.len())?;
        check_equal("memory for thresholds", None, needs.thresholds, self.thresholds.len())?;
        check_equal("memory for classes", None, classes, self.classes.len())
    }

    /// Splits off the memory of a block.
    pub(crate) fn take_block(&mut self, needs: &Needs, filters: usize) -> Weights<'a> {
        Weights {
            words: take_mut(&mut self.words, needs.weights),
            signs: take_mut(&mut self.signs, needs.signs),
            vectors: take_mut(&mut self.vectors, needs.vectors),
            thresholds: take_mut(&mut self.thresholds, filters),
            classes: &mut [],
        }
    }
}

/// Scratch memory of a run, in the sizes of [`Plan::needs`](crate::Plan::needs).
#[derive(Debug)]
pub struct Scratch<'a> {
    /// `needs().words` words.
    pub words: &'a mut [u64],
    /// `needs().tables` tables.
    pub tables: &'a mut [SumTable],
    /// `needs().sums` numbers.
    pub sums: &'a mut [i16],
    /// `needs().bytes` bytes.
    pub bytes: &'a mut [u8],
}

/// Output memory of a run.
#[derive(Debug)]
pub struct Outputs<'a> {
    /// One score a class. A score times [`Plan::scale`](crate::Plan::scale) is the logit.
    pub scores: &'a mut [i32],
    /// Packed features, `ceil(features / 8)` bytes, tail bits zero.
    pub features: &'a mut [u8],
}

/// Splits the first elements off a slice.
#[inline(always)]
pub(crate) fn take<'a, T>(from: &mut &'a [T], count: usize) -> &'a [T] {
    let (taken, rest) = from.split_at(count);
    *from = rest;
    taken
}

/// Splits the first elements off a mutable slice.
#[inline(always)]
pub(crate) fn take_mut<'a, T>(from: &mut &'a mut [T], count: usize) -> &'a mut [T] {
    let (taken, rest) = core::mem::take(from).split_at_mut(count);
    *from = rest;
    taken
}
