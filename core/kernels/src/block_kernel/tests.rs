//! The property that every kernel is tested with: a block equals the plain reference, on every code path.

use std::ops::Range;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::{Block, BlockInput, BlockKernel, InputLayout, WeightBits};
use crate::bit_map::{BitLayout, into_contiguous, into_rows, read_words};
use crate::code_path::{CodePath, PathCode};
use crate::memory::{Scratch, SumTable, Weights};
use crate::pooling::pool_rows;
use crate::shape::{Convp, InputKind, Map, Window};
use crate::simd::Simd;
use crate::testing::reference;
use crate::threshold::Threshold;

#[derive(Clone, Debug)]
pub(super) struct BlockCase {
    shape: Convp,
    kind: InputKind,
    weights: Vec<bool>,
    thresholds: Vec<Threshold>,
    /// Pixels or packed bits.
    input: Vec<u8>,
}

fn any_window(max_kernel: usize) -> impl Strategy<Value = Window> {
    (1..=max_kernel, 1usize..=3)
        .prop_flat_map(|(kernel, stride)| (0..kernel).prop_map(move |pad| Window { kernel, stride, pad }))
}

/// Blocks over maps with channels and sides in these ranges; two thirds of the convolutions have stride 1.
pub(super) fn any_block(
    kind: InputKind,
    channels: Range<usize>,
    sides: Range<usize>,
) -> impl Strategy<Value = BlockCase> {
    let map = (channels, sides.clone(), sides).prop_map(|(channels, height, width)| Map {
        channels,
        height,
        width,
    });
    let conv = prop_oneof![any_window(5), any_window(5).prop_map(|conv| Window { stride: 1, ..conv })];
    let no_pooling = Just(Window { kernel: 1, stride: 1, pad: 0 });
    let pool = prop_oneof![no_pooling, Just(Window { kernel: 3, stride: 2, pad: 1 }), any_window(4)];
    let shape =
        (map, 1usize..20, conv, pool).prop_filter_map("windows fit", |(input, filters, conv, pool)| {
            let shape = Convp { input, filters, conv, pool };
            (!shape.convolved().is_empty() && !shape.output().is_empty()).then_some(shape)
        });
    shape.prop_flat_map(move |shape| {
        let bytes = if kind == InputKind::Pixels { shape.input.len() } else { shape.input.len().div_ceil(8) };
        let max = (shape.taps() * if kind == InputKind::Pixels { 255 } else { 1 }) as i32;
        // Most sums are near zero, so most thresholds are drawn near zero; some are the lowest and the highest allowed.
        let near = (max / 8).max(1);
        let from = prop_oneof![8 => -near..=near, 1 => Just(-max), 1 => Just(max + 1)];
        let threshold = (from, any::<bool>()).prop_map(|(from, flipped)| Threshold { from, flipped });
        let weights = prop::collection::vec(any::<bool>(), shape.filters * shape.taps());
        let thresholds = prop::collection::vec(threshold, shape.filters);
        let input = prop::collection::vec(any::<u8>(), bytes);
        (weights, thresholds, input).prop_map(move |(weights, thresholds, input)| BlockCase {
            shape,
            kind,
            weights,
            thresholds,
            input,
        })
    })
}

/// Checks a kernel against the reference, on every code path on which the kernel supports the block.
pub(super) fn check<K: BlockKernel>(case: &BlockCase) -> Result<(), TestCaseError> {
    let expected = case.reference();
    for path in CodePath::available().flat_map(|path| [path, path.low_memory()]) {
        if K::supports(case.shape, case.kind, path) {
            prop_assert_eq!(&case.run::<K>(path), &expected, "{}", path.name());
        }
    }
    Ok(())
}

impl BlockCase {
    fn is_set(&self, bit: usize) -> bool {
        self.input[bit / 8] >> (bit % 8) & 1 == 1
    }

    /// The output by the definitions, as contiguous words.
    fn reference(&self) -> Vec<u64> {
        let Map { height, width, .. } = self.shape.input;
        let value = |channel: usize, row: usize, column: usize| {
            let index = (channel * height + row) * width + column;
            match self.kind {
                InputKind::Pixels => i32::from(self.input[index]),
                InputKind::Bits => i32::from(self.is_set(index)) * 2 - 1,
            }
        };
        let mut output = vec![false; self.shape.output().len()];
        reference::convp(self.shape, value, &self.weights, &self.thresholds, &mut output);
        let mut words = vec![0; output.len().div_ceil(64)];
        for (index, &bit) in output.iter().enumerate() {
            words[index / 64] |= u64::from(bit) << (index % 64);
        }
        words
    }

    /// The output of a kernel, as contiguous words.
    fn run<K: BlockKernel>(&self, path: CodePath) -> Vec<u64> {
        let (shape, needs) = (self.shape, K::needs(self.shape));
        let mut bytes = vec![0; self.weights.len().div_ceil(8)];
        for (index, &weight) in self.weights.iter().enumerate() {
            bytes[index / 8] |= u8::from(weight) << (index % 8);
        }
        let (mut words, mut signs) = (vec![7; needs.weights], vec![7; needs.signs]);
        let mut vectors = vec![super::LookupVector::default(); needs.vectors];
        let mut thresholds = self.thresholds.clone();
        let mut prepared = Weights {
            words: &mut words,
            signs: &mut signs,
            vectors: &mut vectors,
            thresholds: &mut thresholds,
            classes: &mut [],
        };
        K::prepare(shape, WeightBits { bytes: &bytes, taps: shape.taps() }, &mut prepared);

        let mut bits = vec![0; shape.input.len().div_ceil(64)];
        let row_words = shape.input.row_words();
        if self.kind == InputKind::Bits {
            read_words(&self.input, &mut bits);
            clear_tail(shape.input.len(), &mut bits);
        }
        if K::INPUT == InputLayout::Rows {
            let mut rows = vec![0; shape.input.channels * shape.input.height * row_words];
            into_rows(shape.input, &bits, &mut rows);
            bits = rows;
        }
        let layout = K::output(shape);
        let mut output = vec![0; layout.words(shape.output())];
        let input = BlockInput { pixels: &self.input, bits: &bits, row_words };
        let (words, signs) = (&words[..], &signs[..]);
        let block = Block { shape, input, words, signs, vectors: &vectors, thresholds: &thresholds };
        // A run must not depend on what the memory held before.
        let scratch = Scratch {
            words: &mut vec![u64::MAX / 3; needs.words],
            tables: &mut vec![SumTable([[3; 32]; 8]); needs.tables],
            sums: &mut vec![3; needs.sums],
            bytes: &mut vec![3; needs.bytes],
        };
        path.run(RunKernel::<K> { block, scratch, output: &mut output, kernel: std::marker::PhantomData });
        let BitLayout::Rows(row_words) = layout else { return output };
        pool_rows(shape, &thresholds, row_words, &mut output);
        let mut contiguous = vec![0; shape.output().len().div_ceil(64)];
        into_contiguous(shape.output(), &output, row_words, &mut contiguous);
        contiguous
    }
}

/// Clears the bits after the first `bits` bits.
fn clear_tail(bits: usize, words: &mut [u64]) {
    if let Some(last) = words.last_mut().filter(|_| !bits.is_multiple_of(64)) {
        *last &= (1 << (bits % 64)) - 1;
    }
}

struct RunKernel<'a, K> {
    block: Block<'a>,
    scratch: Scratch<'a>,
    output: &'a mut [u64],
    kernel: std::marker::PhantomData<K>,
}

impl<K: BlockKernel> PathCode for RunKernel<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        K::run(simd, &self.block, &mut self.scratch, self.output);
    }
}
