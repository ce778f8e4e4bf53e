//! A packed section: its bytes, its memory, and its run.

mod format;
mod load;
#[cfg(feature = "std")]
mod owned;
mod plan;

pub use format::{BlockParts, HeadParts, write};
#[cfg(feature = "std")]
pub use owned::OwnedSection;
pub use plan::{MAX_BLOCKS, Plan};

use crate::bit_map::{BitLayout, into_contiguous, into_rows, read_words, write_bits};
use crate::block_kernel::{Block, BlockInput, InputLayout};
use crate::code_path::PathCode;
use crate::exit::{self, Affine};
use crate::memory::{LookupVector, Outputs, Scratch, take, take_mut};
use crate::pooling::pool_rows;
use crate::shape::{InputKind, Map};
use crate::simd::Simd;
use crate::threshold::Threshold;
use plan::Schedule;

/// A section that is ready to run.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    plan: &'a Plan,
    schedule: Schedule,
    /// Weights of the blocks, then of the exit.
    prepared: Prepared<'a>,
    classes: &'a [Affine],
}

/// Prepared weights and thresholds.
#[derive(Clone, Copy, Debug)]
struct Prepared<'a> {
    words: &'a [u64],
    signs: &'a [u8],
    vectors: &'a [LookupVector],
    thresholds: &'a [Threshold],
}

impl Section<'_> {
    /// Runs one view.
    ///
    /// # Panics
    /// If a slice has another length than the plan requires.
    pub fn run(&self, input: &[u8], scratch: Scratch<'_>, outputs: Outputs<'_>) {
        let needs = self.schedule.needs;
        assert_eq!(input.len(), self.plan.input_bytes(), "bytes of the input");
        let Scratch { words, tables, sums, bytes } = &scratch;
        let found = (words.len(), tables.len(), sums.len(), bytes.len());
        assert_eq!(found, (needs.words, needs.tables, needs.sums, needs.bytes), "scratch");
        assert_eq!(outputs.scores.len(), self.plan.classes(), "scores");
        assert_eq!(outputs.features.len(), self.plan.features().len().div_ceil(8), "bytes of features");
        self.schedule.path.run(Run { section: self, input, scratch, outputs });
    }
}

/// A run of one view.
struct Run<'a> {
    section: &'a Section<'a>,
    input: &'a [u8],
    scratch: Scratch<'a>,
    outputs: Outputs<'a>,
}

impl PathCode for Run<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { section, input, mut scratch, outputs } = self;
        let Section { plan, schedule, mut prepared, classes } = *section;
        let mut map = take_mut(&mut scratch.words, plan.map_words);
        let mut next = take_mut(&mut scratch.words, plan.map_words);
        let contiguous = take_mut(&mut scratch.words, plan.exit_words);
        if plan.input_kind() == InputKind::Bits {
            read_words(input, &mut map[..plan.input().len().div_ceil(64)]);
        }
        let mut layout = BitLayout::Contiguous;
        for (&shape, kernel) in plan.blocks().iter().zip(schedule.kernels) {
            let plan = kernel.plan(shape);
            if let Some(needed) = convert(shape.input, layout, plan.input, map, next) {
                layout = needed;
                core::mem::swap(&mut map, &mut next);
            }
            let row_words = if let BitLayout::Rows(words) = layout { words } else { 0 };
            let block = Block {
                shape,
                input: BlockInput { pixels: input, bits: map, row_words },
                words: take(&mut prepared.words, plan.needs.weights),
                signs: take(&mut prepared.signs, plan.needs.signs),
                vectors: take(&mut prepared.vectors, plan.needs.vectors),
                thresholds: take(&mut prepared.thresholds, shape.filters),
            };
            layout = plan.output;
            let output = &mut next[..layout.words(shape.output())];
            output.fill(0);
            kernel.run(simd, &block, &mut scratch, output);
            if let BitLayout::Rows(row_words) = layout {
                pool_rows(shape, block.thresholds, row_words, output);
            }
            core::mem::swap(&mut map, &mut next);
        }
        let map = match layout {
            BitLayout::Contiguous => &map[..plan.exit_words],
            BitLayout::Rows(row_words) => {
                into_contiguous(plan.exit_input(), map, row_words, contiguous);
                contiguous
            }
        };
        exit::scores(map, plan.exit_input().len(), prepared.words, classes, outputs.scores);
        write_bits(map, plan.features().len(), outputs.features);
    }
}

/// Copies a map into the layout that a kernel reads and returns this layout; `None` if the kernel reads pixels, or the map as it is.
#[inline(always)]
fn convert(
    map: Map,
    layout: BitLayout,
    needed: InputLayout,
    bits: &[u64],
    to: &mut [u64],
) -> Option<BitLayout> {
    match (needed, layout) {
        (InputLayout::Contiguous, BitLayout::Rows(row_words)) => {
            into_contiguous(map, bits, row_words, to);
            Some(BitLayout::Contiguous)
        }
        (InputLayout::Rows, BitLayout::Contiguous) => {
            into_rows(map, bits, to);
            Some(BitLayout::Rows(map.row_words()))
        }
        _ => None,
    }
}
