//! Kernels that compute a block, and the choice among them: the first that supports the block, in this order.
//!
//! | kernel | input | chosen for |
//! | --- | --- | --- |
//! | [`SumTables`] | pixels | at most 128 taps, convolution window at most 16x16; on paths of least memory stride 1 |
//! | [`Direct`] | pixels | every other block |
//! | [`Popcounts`] | bits | AVX-512 with VPOPCNTDQ, stride 1, from 48 channels on |
//! | [`Lookups`] | bits | AVX2, AVX-512 and NEON, stride 1 |
//! | [`BitSlices`] | bits | every other processor, stride 1 |
//! | [`Patches`] | bits | every other block, such as strides other than 1, and paths of least memory |
//!
//! `Popcounts`, `Lookups` and `BitSlices` also need what [`pixel_words::supports`](crate::pixel_words::supports) asks: a convolution window
//! of at most 16x16, counts that fit in 16 bits, and a path that is not of least memory.
//!
//! A new kernel is a file with its [`BlockKernel`] and its property test, and its entries in [`KernelKind`] and `of_kind!`.

mod bit_slices;
mod direct;
mod lookups;
mod patches;
mod popcounts;
mod sum_tables;
#[cfg(test)]
mod tests;

use crate::bit_map::BitLayout;
use crate::code_path::CodePath;
use crate::memory::{LookupVector, Needs, Scratch, Weights};
use crate::shape::{Convp, InputKind};
use crate::simd::Simd;
use crate::threshold::Threshold;
use bit_slices::BitSlices;
use direct::Direct;
use lookups::Lookups;
use patches::Patches;
use popcounts::Popcounts;
use sum_tables::SumTables;

/// One way to compute a block: convolution, thresholds, and pooling across rows.
///
/// Calls through [`KernelKind`] are static.
pub(crate) trait BlockKernel {
    /// Memory layout of the input.
    const INPUT: InputLayout;

    /// True if the kernel computes blocks of this shape on a code path.
    fn supports(shape: Convp, input: InputKind, path: CodePath) -> bool;

    /// Memory that a block takes: prepared weights, and scratch of a run.
    fn needs(shape: Convp) -> Needs;

    /// Memory layout of the output.
    fn output(shape: Convp) -> BitLayout {
        BitLayout::Rows(shape.row_words())
    }

    /// Writes weights in the order in which [`run`](Self::run) reads them. The caller has filled `prepared.thresholds`.
    fn prepare(shape: Convp, weights: WeightBits<'_>, prepared: &mut Weights<'_>);

    /// Computes a block. The caller has set `output` to zero.
    ///
    /// Output in rows is `[filters, pooled rows, row words]`, each row still as long as a row of the convolution, and not
    /// inverted: [`pool_rows`](crate::pooling::pool_rows) does the rest. A contiguous output is complete.
    fn run<S: Simd>(simd: S, block: &Block<'_>, scratch: &mut Scratch<'_>, output: &mut [u64]);
}

/// The input that a kernel reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputLayout {
    /// Pixels, one byte each, `[channels, height, width]`.
    Pixels,
    /// Bits as [`BitLayout::Contiguous`].
    Contiguous,
    /// Bits as [`BitLayout::Rows`].
    Rows,
}

/// A block as its kernel reads it: shape, input, and weights and thresholds as prepared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block<'a> {
    pub(crate) shape: Convp,
    pub(crate) input: BlockInput<'a>,
    pub(crate) words: &'a [u64],
    pub(crate) signs: &'a [u8],
    pub(crate) vectors: &'a [LookupVector],
    pub(crate) thresholds: &'a [Threshold],
}

/// Input of a block. A kernel reads the fields that its [`InputLayout`] names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockInput<'a> {
    pub(crate) pixels: &'a [u8],
    /// A map of bits, maybe followed by unused words.
    pub(crate) bits: &'a [u64],
    /// Number of words of a row, for bits in rows.
    pub(crate) row_words: usize,
}

/// Arguments of [`BlockKernel::run`], for code that a code path compiles with its instructions.
struct BlockRun<'a, 'b> {
    block: &'a Block<'a>,
    scratch: &'a mut Scratch<'b>,
    output: &'a mut [u64],
}

/// The weights of a block as a section stores them, one bit each: `[filters, channels, kernel, kernel]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WeightBits<'a> {
    pub(crate) bytes: &'a [u8],
    /// Number of weights of one filter.
    pub(crate) taps: usize,
}

impl WeightBits<'_> {
    /// True if a weight is +1.
    pub(crate) fn is_positive(self, filter: usize, tap: usize) -> bool {
        let bit = filter * self.taps + tap;
        self.bytes[bit / 8] >> (bit % 8) & 1 == 1
    }
}

/// Name of a [`BlockKernel`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum KernelKind {
    SumTables,
    #[default]
    Direct,
    Popcounts,
    Lookups,
    BitSlices,
    Patches,
}

/// Memory that a block takes on its kernel, and the layouts of its input and output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockPlan {
    pub(crate) needs: Needs,
    pub(crate) input: InputLayout,
    pub(crate) output: BitLayout,
}

/// `$code`, in which `$kernel` is the type of the kernel `$kind`.
macro_rules! of_kind {
    ($kind:expr, $kernel:ident => $code:expr) => {
        of_kind!($kind, $kernel => $code, SumTables Direct Popcounts Lookups BitSlices Patches)
    };
    ($kind:expr, $kernel:ident => $code:expr, $($name:ident)*) => {
        match $kind {
            $(KernelKind::$name => {
                type $kernel = $name;
                $code
            })*
        }
    };
}

impl KernelKind {
    /// All kernels in order of preference.
    const ALL: [Self; 6] =
        [Self::SumTables, Self::Direct, Self::Popcounts, Self::Lookups, Self::BitSlices, Self::Patches];

    /// The first kernel that supports a block.
    pub(crate) fn choose(shape: Convp, input: InputKind, path: CodePath) -> Self {
        let mut kernels = Self::ALL.into_iter();
        let chosen = kernels.find(|kernel| of_kind!(kernel, K => K::supports(shape, input, path)));
        chosen.expect("`Direct` supports every block of pixels, `Patches` every block of bits")
    }

    /// Memory that a block takes on this kernel, and the layouts of its input and output.
    #[inline(always)]
    pub(crate) fn plan(self, shape: Convp) -> BlockPlan {
        of_kind!(self, K => BlockPlan { needs: K::needs(shape), input: K::INPUT, output: K::output(shape) })
    }

    /// See [`BlockKernel::prepare`].
    pub(crate) fn prepare(self, shape: Convp, weights: WeightBits<'_>, prepared: &mut Weights<'_>) {
        of_kind!(self, K => K::prepare(shape, weights, prepared));
    }

    /// See [`BlockKernel::run`].
    #[inline(always)]
    pub(crate) fn run<S: Simd>(
        self,
        simd: S,
        block: &Block<'_>,
        scratch: &mut Scratch<'_>,
        output: &mut [u64],
    ) {
        of_kind!(self, K => K::run(simd, block, scratch, output));
    }
}
