//! Reading of weights and thresholds into the memory of a section.

use super::format::Reader;
use super::plan::{check_affine, check_threshold};
use super::{Plan, Prepared, Section};
use crate::block_kernel::{KernelKind, WeightBits};
use crate::code_path::CodePath;
use crate::error::PackedError;
use crate::exit::Affine;
use crate::memory::Weights;
use crate::threshold::Threshold;

impl<'a> Section<'a> {
    /// Reads weights and thresholds of a section into `memory`, in the order in which the kernels of `path` read them.
    ///
    /// # Errors
    /// [`PackedError`] if the number of bytes is not [`Plan::bytes`], if a spare bit is set, if a number is out of range, or if `memory`
    /// has another size than [`Plan::needs`].
    pub fn load(
        plan: &'a Plan,
        path: CodePath,
        bytes: &[u8],
        memory: Weights<'a>,
    ) -> Result<Self, PackedError> {
        let mut reader = Reader::after_header(plan, bytes)?;
        let schedule = plan.schedule(path);
        memory.check(&schedule.needs, plan.classes())?;
        let Weights { words, signs, vectors, thresholds, classes } = memory;
        let mut left = Weights {
            words: &mut *words,
            signs: &mut *signs,
            vectors: &mut *vectors,
            thresholds: &mut *thresholds,
            classes: &mut [],
        };
        for (index, kernel) in (0..plan.blocks().len()).zip(schedule.kernels) {
            load_block(plan, index, kernel, &mut reader, &mut left)?;
        }
        load_exit(plan, &mut reader, left.words, classes)?;
        Ok(Self { plan, schedule, prepared: Prepared { words, signs, vectors, thresholds }, classes })
    }
}

fn load_block(
    plan: &Plan,
    index: usize,
    kernel: KernelKind,
    reader: &mut Reader<'_>,
    left: &mut Weights<'_>,
) -> Result<(), PackedError> {
    let shape = plan.blocks()[index];
    let mut memory = left.take_block(&kernel.plan(shape).needs, shape.filters);
    let weights =
        WeightBits { bytes: reader.bits("weights", shape.filters * shape.taps())?, taps: shape.taps() };
    let from = reader.numbers(shape.filters);
    let flipped = WeightBits { bytes: reader.bits("signs of the thresholds", shape.filters)?, taps: 1 };
    for ((filter, threshold), from) in memory.thresholds.iter_mut().enumerate().zip(from) {
        *threshold = Threshold { from, flipped: flipped.is_positive(filter, 0) };
        check_threshold(plan, index, *threshold)?;
    }
    kernel.prepare(shape, weights, &mut memory);
    Ok(())
}

fn load_exit(
    plan: &Plan,
    reader: &mut Reader<'_>,
    words: &mut [u64],
    classes: &mut [Affine],
) -> Result<(), PackedError> {
    let inputs = plan.exit_input().len();
    let weights = reader.bits("weights of the exit", plan.classes() * inputs)?;
    let weights = WeightBits { bytes: weights, taps: inputs };
    words.fill(0);
    for (class, words) in words.chunks_exact_mut(plan.exit_words).enumerate() {
        for input in 0..inputs {
            words[input / 64] |= u64::from(weights.is_positive(class, input)) << (input % 64);
        }
    }
    let (factors, offsets) = (reader.numbers(plan.classes()), reader.numbers(plan.classes()));
    for ((class, factor), offset) in classes.iter_mut().zip(factors).zip(offsets) {
        *class = Affine { factor, offset };
        check_affine(*class, inputs)?;
    }
    Ok(())
}
