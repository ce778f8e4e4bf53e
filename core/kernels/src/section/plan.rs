//! The shapes of a section, and the kernels that run its blocks.

use crate::block_kernel::KernelKind;
use crate::code_path::CodePath;
use crate::error::{PackedError, check_equal, check_range, check_signed};
use crate::exit::Affine;
use crate::memory::Needs;
use crate::shape::{Convp, InputKind, Map, Window};
use crate::threshold::Threshold;

/// Largest number of blocks of a section.
pub const MAX_BLOCKS: usize = 8;

/// Largest number of rows, columns and channels of a block's input, and of filters.
const MAX_SIDE: i64 = 4096;
/// Largest number of values of a map.
const MAX_VALUES: i64 = 1 << 24;
/// Largest number of weights of a filter: a sum of pixels is at most 255 times as much, which fits in 32 bits.
const MAX_TAPS: i64 = 1 << 22;
const MAX_CLASSES: i64 = 4096;
/// Largest kernel side, and largest stride.
const MAX_WINDOW: i64 = 64;

/// The shapes of a section.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    kind: InputKind,
    blocks: [Convp; MAX_BLOCKS],
    count: usize,
    sent: usize,
    classes: usize,
    scale: f32,
    /// Words of the map that the exit reads, without gaps between rows.
    pub(super) exit_words: usize,
    /// Words of the largest map: an input of bits, or the output of any block.
    pub(super) map_words: usize,
}

/// A plan on one code path: the kernel of each block, and the memory of the whole section.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    pub(super) path: CodePath,
    pub(super) kernels: [KernelKind; MAX_BLOCKS],
    pub(super) needs: Needs,
}

impl Plan {
    /// Checks the shapes of a section whose features are the first `sent` channels of the last block's output.
    ///
    /// # Errors
    /// [`PackedError::Range`] naming the number that is out of its range, or [`PackedError::Scale`].
    pub fn new(
        kind: InputKind,
        blocks: &[Convp],
        sent: usize,
        classes: usize,
        scale: f32,
    ) -> Result<Self, PackedError> {
        check_range("blocks", None, 1..=MAX_BLOCKS as i64, blocks.len())?;
        check_range("classes", None, 1..=MAX_CLASSES, classes)?;
        if !(scale.is_finite() && scale > 0.0) {
            return Err(PackedError::Scale);
        }
        for (index, &block) in blocks.iter().enumerate() {
            Self::check_block(index, block)?;
        }
        for (index, pair) in blocks.windows(2).enumerate() {
            let (before, input, index) = (pair[0].output(), pair[1].input, Some(index + 1));
            check_equal("channels", index, before.channels, input.channels)?;
            check_equal("rows", index, before.height, input.height)?;
            check_equal("columns", index, before.width, input.width)?;
        }
        let mut plan = Self {
            kind,
            blocks: [Convp::default(); MAX_BLOCKS],
            count: blocks.len(),
            sent,
            classes,
            scale,
            exit_words: 0,
            map_words: 0,
        };
        plan.blocks[..blocks.len()].copy_from_slice(blocks);
        check_range("sent channels", None, 1..=plan.exit_input().channels as i64, sent)?;
        plan.exit_words = plan.exit_input().len().div_ceil(64);
        let input = plan.input();
        let input_words =
            if kind == InputKind::Bits { input.channels * input.height * input.row_words() } else { 0 };
        let output_words = |block: &Convp| block.filters * block.output().height * block.row_words();
        plan.map_words = blocks.iter().map(output_words).fold(input_words, usize::max);
        Ok(plan)
    }

    /// The blocks, first to last.
    pub fn blocks(&self) -> &[Convp] {
        &self.blocks[..self.count]
    }

    /// Shape of the input.
    pub fn input(&self) -> Map {
        self.blocks[0].input
    }

    /// Kind of the input.
    pub fn input_kind(&self) -> InputKind {
        self.kind
    }

    /// Number of bytes of the input.
    pub fn input_bytes(&self) -> usize {
        match self.kind {
            InputKind::Pixels => self.input().len(),
            InputKind::Bits => self.input().len().div_ceil(8),
        }
    }

    /// Shape of the features, the first channels of the last block's output. A feature is one bit.
    pub fn features(&self) -> Map {
        Map { channels: self.sent, ..self.exit_input() }
    }

    /// Shape of the map that the exit reads, the output of the last block.
    pub fn exit_input(&self) -> Map {
        self.blocks[self.count - 1].output()
    }

    /// Number of products of all convolutions and the exit: the work of a run, on any code path.
    pub fn products(&self) -> usize {
        let of_block = |block: &Convp| block.convolved().len() * block.taps();
        self.blocks().iter().map(of_block).sum::<usize>() + self.classes * self.exit_input().len()
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Logit of a score of 1.
    pub fn scale(&self) -> f32 {
        self.scale
    }

    /// Memory that the section takes on a code path.
    pub fn needs(&self, path: CodePath) -> Needs {
        self.schedule(path).needs
    }

    /// Kind of the input of a block.
    pub(super) fn block_input(&self, index: usize) -> InputKind {
        if index == 0 { self.kind } else { InputKind::Bits }
    }

    /// Chooses the kernel of each block.
    pub(super) fn schedule(&self, path: CodePath) -> Schedule {
        let mut kernels = [KernelKind::default(); MAX_BLOCKS];
        let mut needs = Needs::default();
        for (index, (&block, kernel)) in self.blocks().iter().zip(&mut kernels).enumerate() {
            *kernel = KernelKind::choose(block, self.block_input(index), path);
            needs.add_block(kernel.plan(block).needs, block.filters);
        }
        needs.weights += self.classes * self.exit_words;
        needs.words += 2 * self.map_words + self.exit_words;
        Schedule { path, kernels, needs }
    }

    /// Checks the shape of a block.
    pub(super) fn check_block(index: usize, block: Convp) -> Result<(), PackedError> {
        let check = |what, max, found| check_range(what, Some(index), 1..=max, found);
        let Map { channels, height, width } = block.input;
        check("channels", MAX_SIDE, channels)?;
        check("rows", MAX_SIDE, height)?;
        check("columns", MAX_SIDE, width)?;
        check("filters", MAX_SIDE, block.filters)?;
        check_window("kernel", index, block.conv, block.input)?;
        check_window("pooling window", index, block.pool, block.convolved())?;
        check("values", MAX_VALUES, block.input.len())?;
        check("values of the convolution", MAX_VALUES, block.convolved().len())?;
        check("values of the output", MAX_VALUES, block.output().len())?;
        check("weights of a filter", MAX_TAPS, block.taps())
    }
}

fn check_window(what: &'static str, block: usize, window: Window, map: Map) -> Result<(), PackedError> {
    let block = Some(block);
    check_range(what, block, 1..=MAX_WINDOW, window.kernel)?;
    check_range(what, block, 1..=MAX_WINDOW, window.stride)?;
    // A window over padding alone would have no largest value.
    check_range(what, block, 0..=window.kernel as i64 - 1, window.pad)?;
    let side = map.height.min(map.width) + 2 * window.pad;
    check_range(what, block, 1..=side as i64, window.kernel)
}

/// Checks that a threshold lies within the sums of a block, or is the first number above them.
pub(super) fn check_threshold(plan: &Plan, block: usize, threshold: Threshold) -> Result<(), PackedError> {
    let max = i64::from(max_sum(plan.blocks()[block], plan.block_input(block)));
    check_signed("threshold", Some(block), -max..=max + 1, i64::from(threshold.from))
}

/// Checks that the scores of a class fit in 32 bits for any `inputs` values that the exit reads.
pub(super) fn check_affine(class: Affine, inputs: usize) -> Result<(), PackedError> {
    let largest = i64::from(class.factor).abs() * inputs as i64 + i64::from(class.offset).abs();
    check_signed("largest score", None, 0..=i64::from(i32::MAX), largest)
}

/// Largest sum of a filter.
pub(super) fn max_sum(block: Convp, input: InputKind) -> i32 {
    let max_value = if input == InputKind::Pixels { 255 } else { 1 };
    (block.taps() * max_value) as i32
}
