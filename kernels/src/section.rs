//! A packed section: the bytes of a device section, and running it.
//!
//! ```text
//! "HWpk", version, blocks, classes u16, channels u16, rows u16, columns u16, input u16 (0 pixels, 1 bits), unit of the scores f32
//! per block: filters u16, convolution (kernel, stride, padding) 3 bytes, pooling 3 bytes
//! per block: weights, 1 bit each [filters, channels, kernel, kernel]; thresholds i32 [filters]; their signs, 1 bit each
//! exit:      weights, 1 bit each [classes, features]; factors i32 [classes]; summands i32 [classes]
//! ```
//!
//! Little endian; bits least significant first, 1 = +1, spare bits zero. There is one way to write a section, and a reader accepts
//! only that.

use crate::error::PackedError;
use crate::fc::{self, Affine};
use crate::lookups::Lanes;
use crate::path::Path;
use crate::plan::{self, BLOCK_BYTES, HEADER_BYTES, Input, MAGIC, Needs, Plan, VERSION, Way};
use crate::rows::Layout;
use crate::shape::{Convp, Map};
use crate::tables::{self, Table};
use crate::threshold::Threshold;
use crate::vectors::{Counting, Vectors};
use crate::{lookups, one_by_one, patches, popcounts, rows, slices};

/// What a block is made of, for [`write()`].
#[derive(Clone, Copy, Debug)]
pub struct BlockParts<'a> {
    /// Shape.
    pub shape: Convp,
    /// Signs of the weights, `[filters, channels, kernel, kernel]`.
    pub weights: &'a [bool],
    /// One a filter; sums of a first block over pixels are of `0..=255`.
    pub thresholds: &'a [Threshold],
}

/// What the exit is made of, for [`write()`].
#[derive(Clone, Copy, Debug)]
pub struct HeadParts<'a> {
    /// Signs of the weights, `[classes, features]`.
    pub weights: &'a [bool],
    /// One a class.
    pub classes: &'a [Affine],
    /// What one unit of a score is worth.
    pub scale: f32,
}

/// Writes a section, part by part, to `sink`.
///
/// # Errors
/// [`PackedError`] naming what is out of range; nothing is written then.
pub fn write(
    input: Input,
    blocks: &[BlockParts<'_>],
    head: &HeadParts<'_>,
    mut sink: impl FnMut(&[u8]),
) -> Result<(), PackedError> {
    let mut shapes = [Convp::default(); plan::BLOCKS_MAX];
    for (shape, block) in shapes.iter_mut().zip(blocks) {
        *shape = block.shape;
    }
    let shapes = shapes.get(..blocks.len()).ok_or(PackedError::Range {
        what: "blocks",
        block: None,
        least: 1,
        most: plan::BLOCKS_MAX as i64,
        found: blocks.len() as i64,
    })?;
    let plan = Plan::new(input, shapes, head.classes.len(), head.scale)?;
    for (index, block) in blocks.iter().enumerate() {
        exactly("weights", Some(index), block.shape.filters * block.shape.taps(), block.weights.len())?;
        exactly("thresholds", Some(index), block.shape.filters, block.thresholds.len())?;
        for threshold in block.thresholds {
            check_threshold(index, block.shape, plan.largest(index), *threshold)?;
        }
    }
    let features = plan.features().len();
    exactly("weights of the exit", None, head.classes.len() * features, head.weights.len())?;
    head.classes.iter().try_for_each(|class| check_affine(*class, features))?;

    sink(&MAGIC);
    sink(&[VERSION, blocks.len() as u8]);
    let Map { channels, height, width } = plan.input();
    for number in [plan.classes(), channels, height, width] {
        sink(&(number as u16).to_le_bytes());
    }
    sink(&input.code().to_le_bytes());
    sink(&head.scale.to_le_bytes());
    for Convp { filters, conv, pool, .. } in shapes {
        sink(&(*filters as u16).to_le_bytes());
        for window in [conv, pool] {
            sink(&[window.kernel as u8, window.stride as u8, window.pad as u8]);
        }
    }
    for block in blocks {
        write_bits(block.weights.iter().copied(), &mut sink);
        block.thresholds.iter().for_each(|threshold| sink(&threshold.from.to_le_bytes()));
        write_bits(block.thresholds.iter().map(|threshold| threshold.flipped), &mut sink);
    }
    write_bits(head.weights.iter().copied(), &mut sink);
    head.classes.iter().for_each(|class| sink(&class.factor.to_le_bytes()));
    head.classes.iter().for_each(|class| sink(&class.offset.to_le_bytes()));
    Ok(())
}

fn write_bits(bits: impl Iterator<Item = bool>, sink: &mut impl FnMut(&[u8])) {
    let (mut byte, mut place) = (0u8, 0);
    for bit in bits {
        byte |= u8::from(bit) << place;
        place += 1;
        if place == 8 {
            sink(&[byte]);
            (byte, place) = (0, 0);
        }
    }
    if place > 0 {
        sink(&[byte]);
    }
}

/// Weights and thresholds as they are run, in memory of [`Plan::needs`].
#[derive(Debug)]
pub struct Weights<'a> {
    /// `needs().weights` words.
    pub words: &'a mut [u64],
    /// `needs().signs` bytes.
    pub signs: &'a mut [u8],
    /// `needs().lanes`.
    pub lanes: &'a mut [Lanes],
    /// `needs().thresholds`.
    pub thresholds: &'a mut [Threshold],
    /// `classes()`.
    pub classes: &'a mut [Affine],
}

/// Temporaries of a run, in memory of [`Plan::needs`].
#[derive(Debug)]
pub struct Temporaries<'a> {
    /// `needs().words`.
    pub words: &'a mut [u64],
    /// `needs().tables`.
    pub tables: &'a mut [Table],
    /// `needs().sums`.
    pub sums: &'a mut [i16],
    /// `needs().bytes`.
    pub bytes: &'a mut [u8],
}

/// A section that is ready to run.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    plan: &'a Plan,
    path: Path,
    needs: Needs,
    words: &'a [u64],
    signs: &'a [u8],
    lanes: &'a [Lanes],
    thresholds: &'a [Threshold],
    classes: &'a [Affine],
}

impl<'a> Section<'a> {
    /// Reads a section into `memory`, in the order in which `path` runs it.
    ///
    /// # Errors
    /// [`PackedError`] when the bytes do not fit `plan` (read from them by [`Plan::read`]), a number is out of range, or `memory` has
    /// another size than [`Plan::needs`] says.
    pub fn load(plan: &'a Plan, path: Path, bytes: &[u8], memory: Weights<'a>) -> Result<Self, PackedError> {
        if bytes.len() != plan.bytes() {
            return Err(PackedError::Length { expected: plan.bytes(), found: bytes.len() });
        }
        let needs = plan.needs(path);
        exactly("memory for weights", None, needs.weights, memory.words.len())?;
        exactly("memory for signs", None, needs.signs, memory.signs.len())?;
        exactly("memory for lanes", None, needs.lanes, memory.lanes.len())?;
        exactly("memory for thresholds", None, needs.thresholds, memory.thresholds.len())?;
        exactly("memory for classes", None, plan.classes(), memory.classes.len())?;
        let Weights { words, signs, lanes, thresholds, classes } = memory;
        let mut rest = &bytes[HEADER_BYTES + plan.blocks().len() * BLOCK_BYTES..];
        let (mut words_left, mut signs_left) = (&mut words[..], &mut signs[..]);
        let (mut lanes_left, mut thresholds_left) = (&mut lanes[..], &mut thresholds[..]);
        for (index, (block, way)) in plan.ways(path).enumerate() {
            let weights = take_bits("weights", &mut rest, block.filters * block.taps())?;
            let weight = |filter: usize, tap: usize| bit(weights, filter * block.taps() + tap);
            let (words, signs) =
                (take(&mut words_left, way.words(block)), take(&mut signs_left, way.signs(block)));
            let lanes = take(&mut lanes_left, way.lanes(block));
            match way {
                Way::Tables => tables::prepare(block, weight, signs),
                Way::Lookups => lookups::prepare(block, weight, lanes),
                Way::Slices => slices::prepare(block, weight, words, signs),
                Way::Popcounts => popcounts::prepare(block, weight, words),
                Way::Patches => patches::prepare(block, weight, words),
                Way::OneByOne => one_by_one::prepare(block, weight, words),
            }
            let from = take_bytes(&mut rest, 4 * block.filters);
            let flipped = take_bits("signs of the thresholds", &mut rest, block.filters)?;
            let thresholds = take(&mut thresholds_left, block.filters);
            for (filter, (threshold, from)) in thresholds.iter_mut().zip(numbers(from)).enumerate() {
                *threshold = Threshold { from, flipped: bit(flipped, filter) };
                check_threshold(index, block, plan.largest(index), *threshold)?;
            }
            match way {
                Way::Lookups => lookups::prepare_thresholds(block, thresholds, lanes),
                Way::Popcounts => popcounts::prepare_thresholds(block, thresholds, words),
                _ => {}
            }
        }
        let features = plan.features().len();
        let weights = take_bits("weights of the exit", &mut rest, plan.classes() * features)?;
        words_left.fill(0);
        for (class, words) in words_left.chunks_exact_mut(plan.stream_words()).enumerate() {
            for at in 0..features {
                words[at / 64] |= u64::from(bit(weights, class * features + at)) << (at % 64);
            }
        }
        let (factors, offsets) = rest.split_at(4 * plan.classes());
        for ((class, factor), offset) in classes.iter_mut().zip(numbers(factors)).zip(numbers(offsets)) {
            *class = Affine { factor, offset };
            check_affine(*class, features)?;
        }
        Ok(Self { plan, path, needs, words, signs, lanes, thresholds, classes })
    }

    /// A section whose memory [`Section::load`] has filled before, for the same path, which needs so much.
    ///
    /// # Panics
    /// When a part has another size.
    #[cfg(feature = "std")]
    pub(crate) fn loaded(
        plan: &'a Plan,
        (path, needs): (Path, Needs),
        words: &'a [u64],
        signs: &'a [u8],
        lanes: &'a [Lanes],
        thresholds: &'a [Threshold],
        classes: &'a [Affine],
    ) -> Self {
        let weights = (words.len(), signs.len(), lanes.len());
        assert_eq!(weights, (needs.weights, needs.signs, needs.lanes), "weights");
        assert_eq!(
            (thresholds.len(), classes.len()),
            (needs.thresholds, plan.classes()),
            "thresholds, classes"
        );
        Self { plan, path, needs, words, signs, lanes, thresholds, classes }
    }

    /// Runs one view: an input as [`Plan::input_kind`] says in; scores and features out.
    ///
    /// A score times [`Plan::scale`] is the logit. Features are packed, `ceil(features / 8)` bytes, tail bits zero.
    ///
    /// # Panics
    /// When a slice has another length than the plan says.
    pub fn run(&self, input: &[u8], memory: Temporaries<'_>, scores: &mut [i32], features: &mut [u8]) {
        let needs = self.needs;
        assert_eq!(input.len(), self.plan.input_bytes(), "bytes of the input");
        let Temporaries { words, tables, sums, bytes } = &memory;
        let found = (words.len(), tables.len(), sums.len(), bytes.len());
        assert_eq!(found, (needs.words, needs.tables, needs.sums, needs.bytes), "temporaries");
        assert_eq!(scores.len(), self.plan.classes(), "scores");
        assert_eq!(features.len(), self.plan.features().len().div_ceil(8), "bytes of features");
        self.path.run(self, input, memory, scores, features);
    }

    /// As [`Section::run`], compiled into each path with what its processor can do.
    #[inline(always)]
    pub(crate) fn run_with<V: Vectors>(
        &self,
        v: V,
        input: &[u8],
        memory: Temporaries<'_>,
        scores: &mut [i32],
        features: &mut [u8],
    ) {
        let plan = self.plan;
        let Temporaries { mut words, tables, sums, bytes } = memory;
        let mut map = take(&mut words, plan.map_words());
        let mut next = take(&mut words, plan.map_words());
        let stream = take(&mut words, plan.stream_words());
        let row = take(&mut words, plan.row_words());
        let own = words;

        let (mut weights, mut signs) = (self.words, self.signs);
        let (mut lanes, mut thresholds) = (self.lanes, self.thresholds);
        if plan.input_kind() == Input::Bits {
            read_words(input, &mut map[..plan.input().len().div_ceil(64)]);
        }
        let mut layout = Layout::Stream;
        for (block, way) in plan.ways(self.path) {
            let of_block = split(&mut thresholds, block.filters);
            let of_weights = split(&mut weights, way.words(block));
            let of_signs = split(&mut signs, way.signs(block));
            let of_lanes = split(&mut lanes, way.lanes(block));
            match (way, layout) {
                (Way::Lookups | Way::Popcounts, Layout::Rows(row_words)) => {
                    rows::join(block.input, map, row_words, next);
                    core::mem::swap(&mut map, &mut next);
                }
                (Way::Slices | Way::Patches, Layout::Stream) => {
                    rows::split(block.input, map, next);
                    layout = Layout::Rows(block.input.row_words());
                    core::mem::swap(&mut map, &mut next);
                }
                _ => {}
            }
            let before = layout.row_words();
            layout = way.gives(block);
            let pooled = &mut next[..layout.words(block)];
            pooled.fill(0);
            match way {
                Way::Tables => {
                    let tables = &mut tables[..tables::table_len(block)];
                    let line = &mut sums[..tables::line_len(block)];
                    let mut scratch = tables::Scratch { tables, line };
                    tables::convolve(v, block, input, of_signs, of_block, &mut scratch, pooled);
                }
                Way::Lookups if V::COUNTING != Counting::Slices => {
                    let mut scratch = lookups::Scratch { bytes, sums, words: own };
                    lookups::convolve(v.looks_up(), block, map, of_lanes, of_block, &mut scratch, pooled);
                }
                Way::Popcounts if V::COUNTING == Counting::Popcounts => {
                    let mut scratch = popcounts::Scratch { words: own, bytes };
                    let (v, weights) = (v.popcounts(), of_weights);
                    popcounts::convolve(v, block, map, weights, of_block, &mut scratch, pooled);
                }
                Way::Slices if V::COUNTING == Counting::Slices => {
                    let words = &mut own[..slices::words(block)];
                    let mut scratch = slices::Scratch { words, row };
                    let (map, weights) = ((&map[..], before), (of_weights, of_signs));
                    slices::convolve(block, map, weights, of_block, &mut scratch, pooled);
                }
                // Not chosen for a path that does not count so, and so not compiled for it.
                Way::Slices | Way::Lookups | Way::Popcounts => {}
                Way::Patches => {
                    let (streams, patches) = own.split_at_mut(patches::streams_words(block));
                    let patches = &mut patches[..patches::patches_words(block)];
                    let mut scratch = patches::Scratch { row, streams, patches };
                    patches::convolve(block, (map, before), of_weights, of_block, &mut scratch, pooled);
                }
                Way::OneByOne => one_by_one::convolve(block, input, of_weights, of_block, row, pooled),
            }
            if let Layout::Rows(row_words) = layout {
                let (height, width) = (block.output().height, block.convolved().width);
                for (threshold, rows) in of_block.iter().zip(pooled.chunks_exact_mut(height * row_words)) {
                    rows::pool_along(block.pool, width, threshold.flipped, row_words, rows);
                }
            }
            core::mem::swap(&mut map, &mut next);
        }
        let stream = match layout {
            Layout::Stream => &map[..plan.stream_words()],
            Layout::Rows(row_words) => {
                rows::join(plan.features(), map, row_words, stream);
                stream
            }
        };
        fc::scores(stream, plan.features().len(), weights, self.classes, scores);
        let (eights, rest) = features.as_chunks_mut();
        for (bytes, word) in eights.iter_mut().zip(stream) {
            *bytes = word.to_le_bytes();
        }
        if let Some(word) = stream.get(eights.len()) {
            rest.copy_from_slice(&word.to_le_bytes()[..rest.len()]);
        }
    }
}

/// Bytes to words.
fn read_words(bytes: &[u8], words: &mut [u64]) {
    let (eights, rest) = bytes.as_chunks();
    for (word, bytes) in words.iter_mut().zip(eights) {
        *word = u64::from_le_bytes(*bytes);
    }
    if let Some(word) = words.get_mut(eights.len()) {
        let mut bytes = [0; 8];
        bytes[..rest.len()].copy_from_slice(rest);
        *word = u64::from_le_bytes(bytes);
    }
}

fn take<'a, T>(from: &mut &'a mut [T], count: usize) -> &'a mut [T] {
    let (taken, rest) = core::mem::take(from).split_at_mut(count);
    *from = rest;
    taken
}

fn split<'a, T>(from: &mut &'a [T], count: usize) -> &'a [T] {
    let (taken, rest) = from.split_at(count);
    *from = rest;
    taken
}

fn take_bytes<'a>(from: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = from.split_at(count);
    *from = rest;
    taken
}

fn take_bits<'a>(what: &'static str, from: &mut &'a [u8], count: usize) -> Result<&'a [u8], PackedError> {
    let bytes = take_bytes(from, count.div_ceil(8));
    match bytes.last() {
        Some(last) if !count.is_multiple_of(8) && last >> (count % 8) != 0 => {
            Err(PackedError::SpareBits { what })
        }
        _ => Ok(bytes),
    }
}

fn bit(bytes: &[u8], at: usize) -> bool {
    bytes[at / 8] >> (at % 8) & 1 == 1
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = i32> + '_ {
    bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

fn exactly(
    what: &'static str,
    block: Option<usize>,
    expected: usize,
    found: usize,
) -> Result<(), PackedError> {
    if expected == found {
        return Ok(());
    }
    let (expected, found) = (expected as i64, found as i64);
    Err(PackedError::Range { what, block: block.map(|b| b as u8), least: expected, most: expected, found })
}

fn check_threshold(
    index: usize,
    shape: Convp,
    largest: usize,
    threshold: Threshold,
) -> Result<(), PackedError> {
    let reach = i64::from(plan::reach(shape, largest));
    let found = i64::from(threshold.from);
    if (-reach..=reach + 1).contains(&found) {
        return Ok(());
    }
    let block = Some(index as u8);
    Err(PackedError::Range { what: "threshold", block, least: -reach, most: reach + 1, found })
}

/// A score must fit in 32 bits whatever the features are.
fn check_affine(class: Affine, features: usize) -> Result<(), PackedError> {
    let largest = i64::from(class.factor).abs() * features as i64 + i64::from(class.offset).abs();
    if largest <= i64::from(i32::MAX) {
        return Ok(());
    }
    let most = i64::from(i32::MAX);
    Err(PackedError::Range { what: "largest score", block: None, least: 0, most, found: largest })
}
