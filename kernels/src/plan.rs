//! What a packed section consists of, where each part lies in its bytes, and how much memory a run takes.

use crate::error::PackedError;
use crate::path::Path;
use crate::rows::Layout;
use crate::shape::{Convp, Map, Window};
use crate::vectors::Counting;
use crate::{lookups, one_by_one, patches, places, popcounts, slices, tables};

/// Version of the form that this build reads and writes.
pub const VERSION: u8 = 1;

/// Most blocks of a section.
pub const BLOCKS_MAX: usize = 8;

pub(crate) const MAGIC: [u8; 4] = *b"HWpk";
/// Magic, version, blocks, classes, channels, rows, columns, kind of input, unit of the scores.
pub(crate) const HEADER_BYTES: usize = 20;
/// Filters, then kernel, stride and padding of the convolution and of the pooling.
pub(crate) const BLOCK_BYTES: usize = 8;

/// Longest side of a map, most channels, most filters.
const SIDE_MAX: i64 = 4096;
/// Most values of a map.
const VALUES_MAX: i64 = 1 << 24;
/// Most weights of one filter: 255 times as much still fits in 32 bits.
const TAPS_MAX: i64 = 1 << 22;
/// Most classes.
const CLASSES_MAX: i64 = 4096;

/// What a section is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Pixels in `0..=255`, one byte each, `[channels, rows, columns]`.
    Pixels,
    /// The features of a section before it: ±1 as bits, `[channels, rows, columns]`, tail bits zero.
    Bits,
}

impl Input {
    /// The largest number of the first block's input.
    const fn largest(self) -> usize {
        match self {
            Self::Pixels => 255,
            Self::Bits => 1,
        }
    }

    /// Its number in the header.
    pub(crate) const fn code(self) -> u16 {
        match self {
            Self::Pixels => 0,
            Self::Bits => 1,
        }
    }
}

/// The shapes of a section.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    kind: Input,
    blocks: [Convp; BLOCKS_MAX],
    count: usize,
    classes: usize,
    pub(crate) scale: f32,
    /// Words of the features as one stream of bits.
    stream_words: usize,
    /// Words of the largest map before or between blocks.
    map_words: usize,
    /// Words of one convolved row, in the block where they are most.
    row_words: usize,
}

/// Memory that a section takes, in elements of its kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Weights as they are run: words.
    pub weights: usize,
    /// Weights of blocks that are run by sums of three: bytes.
    pub signs: usize,
    /// Weights of blocks that are looked up: vectors of 32 bytes.
    pub lanes: usize,
    /// One a filter of every block.
    pub thresholds: usize,
    /// Temporary: words.
    pub words: usize,
    /// Temporary: tables of sums, 512 bytes each.
    pub tables: usize,
    /// Temporary: numbers of 16 bits.
    pub sums: usize,
    /// Temporary: bytes.
    pub bytes: usize,
}

impl Plan {
    /// Shapes that a section may have.
    ///
    /// # Errors
    /// [`PackedError::Range`] naming the number that is out of its range.
    pub fn new(kind: Input, blocks: &[Convp], classes: usize, scale: f32) -> Result<Self, PackedError> {
        within("blocks", None, 1, BLOCKS_MAX as i64, blocks.len())?;
        within("classes", None, 1, CLASSES_MAX, classes)?;
        if !(scale.is_finite() && scale > 0.0) {
            return Err(PackedError::Scale);
        }
        let mut plan = Self {
            kind,
            blocks: [Convp::default(); BLOCKS_MAX],
            count: blocks.len(),
            classes,
            scale,
            stream_words: 0,
            map_words: 0,
            row_words: 0,
        };
        for (index, (&block, place)) in blocks.iter().zip(&mut plan.blocks).enumerate() {
            check(index as u8, block)?;
            *place = block;
        }
        for (index, pair) in blocks.windows(2).enumerate() {
            let (before, input) = (pair[0].output(), pair[1].input);
            let index = Some(index as u8 + 1);
            let equal =
                |what, expected: usize, found| within(what, index, expected as i64, expected as i64, found);
            equal("channels", before.channels, input.channels)?;
            equal("rows", before.height, input.height)?;
            equal("columns", before.width, input.width)?;
        }
        let input = match kind {
            Input::Pixels => 0,
            Input::Bits => plan.input().channels * plan.input().height * plan.input().row_words(),
        };
        plan.stream_words = plan.features().len().div_ceil(64);
        plan.map_words = plan.blocks().iter().map(|&block| map_words(block)).fold(input, usize::max);
        plan.row_words = plan.blocks().iter().map(|&block| row_words(block)).max().unwrap_or(0);
        Ok(plan)
    }

    /// Reads the header of a section and checks that the bytes are as many as it leads to.
    ///
    /// # Errors
    /// [`PackedError`] naming what does not fit.
    pub fn read(bytes: &[u8]) -> Result<Self, PackedError> {
        let truncated = PackedError::Length { expected: HEADER_BYTES, found: bytes.len() };
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(truncated)?;
        let &[m0, m1, m2, m3, version, count, ..] = header;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(PackedError::Magic);
        }
        if version != VERSION {
            return Err(PackedError::Version { found: version });
        }
        let number = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        let count = usize::from(count);
        within("blocks", None, 1, BLOCKS_MAX as i64, count)?;
        let kind = number(14);
        within("kind of input", None, 0, 1, kind)?;
        let kind = if kind == 0 { Input::Pixels } else { Input::Bits };
        let scale = f32::from_le_bytes([header[16], header[17], header[18], header[19]]);
        let mut input = Map { channels: number(8), height: number(10), width: number(12) };
        let mut blocks = [Convp::default(); BLOCKS_MAX];
        for (index, place) in blocks.iter_mut().take(count).enumerate() {
            let at = HEADER_BYTES + index * BLOCK_BYTES;
            let expected = HEADER_BYTES + count * BLOCK_BYTES;
            let block: &[u8; BLOCK_BYTES] = bytes
                .get(at..)
                .and_then(|rest| rest.first_chunk())
                .ok_or(PackedError::Length { expected, found: bytes.len() })?;
            let &[f0, f1, conv @ .., pool, pool_stride, pool_pad] = block;
            let window = |[kernel, stride, pad]: [u8; 3]| Window {
                kernel: usize::from(kernel),
                stride: usize::from(stride),
                pad: usize::from(pad),
            };
            *place = Convp {
                input,
                filters: usize::from(u16::from_le_bytes([f0, f1])),
                conv: window(conv),
                pool: window([pool, pool_stride, pool_pad]),
            };
            // Shapes are derived from these numbers, so they are checked first.
            check(index as u8, *place)?;
            input = place.output();
        }
        let plan = Self::new(kind, &blocks[..count], number(6), scale)?;
        if bytes.len() != plan.bytes() {
            return Err(PackedError::Length { expected: plan.bytes(), found: bytes.len() });
        }
        Ok(plan)
    }

    /// The blocks, first to last.
    pub fn blocks(&self) -> &[Convp] {
        &self.blocks[..self.count]
    }

    /// What goes in.
    pub fn input(&self) -> Map {
        self.blocks[0].input
    }

    /// What the values that go in are.
    pub fn input_kind(&self) -> Input {
        self.kind
    }

    /// Bytes that go in.
    pub fn input_bytes(&self) -> usize {
        match self.kind {
            Input::Pixels => self.input().len(),
            Input::Bits => self.input().len().div_ceil(8),
        }
    }

    /// The features that come out, one bit a value.
    pub fn features(&self) -> Map {
        self.blocks[self.count - 1].output()
    }

    /// Products of all convolutions and the exit: how much work a run is, whatever it is run with.
    pub fn products(&self) -> usize {
        let of_block = |block: &Convp| block.convolved().len() * block.taps();
        self.blocks().iter().map(of_block).sum::<usize>() + self.classes * self.features().len()
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// What one unit of a score is worth.
    pub fn scale(&self) -> f32 {
        self.scale
    }

    /// Bytes of the section.
    pub fn bytes(&self) -> usize {
        let blocks = self.blocks().iter().map(|&block| block_bytes(block)).sum::<usize>();
        HEADER_BYTES + self.count * BLOCK_BYTES + blocks + self.head_bytes()
    }

    /// Bytes of the exit: weights, factors, summands.
    pub(crate) fn head_bytes(&self) -> usize {
        (self.classes * self.features().len()).div_ceil(8) + 8 * self.classes
    }

    /// Words of the features as one stream of bits.
    pub(crate) fn stream_words(&self) -> usize {
        self.stream_words
    }

    /// Words of the largest map before or between blocks.
    pub(crate) fn map_words(&self) -> usize {
        self.map_words
    }

    /// Words of one convolved row, in the block where they are most.
    pub(crate) fn row_words(&self) -> usize {
        self.row_words
    }

    /// Largest number that the block at a position is given.
    pub(crate) fn largest(&self, index: usize) -> usize {
        if index == 0 { self.kind.largest() } else { 1 }
    }

    /// The blocks with the way each is run on a path.
    pub(crate) fn ways(&self, path: Path) -> impl Iterator<Item = (Convp, Way)> + '_ {
        let way = move |(index, &block)| (block, Way::of(self.largest(index), block, path));
        self.blocks().iter().enumerate().map(way)
    }

    /// Memory that the section takes on a path.
    pub fn needs(&self, path: Path) -> Needs {
        let mut needs = Needs {
            weights: self.classes * self.stream_words(),
            thresholds: self.blocks().iter().map(|block| block.filters).sum(),
            words: 2 * self.map_words() + self.stream_words() + self.row_words(),
            ..Needs::default()
        };
        // Words of one block's own, in the block where they are most.
        let mut words = 0;
        for (block, way) in self.ways(path) {
            needs.weights += way.words(block);
            needs.signs += way.signs(block);
            needs.lanes += way.lanes(block);
            match way {
                Way::Tables => {
                    needs.tables = needs.tables.max(tables::table_len(block));
                    needs.sums = needs.sums.max(tables::line_len(block));
                }
                Way::Lookups => {
                    needs.bytes = needs.bytes.max(lookups::bytes_len(block));
                    needs.sums = needs.sums.max(lookups::sums_len(block));
                    words = words.max(lookups::words_len(block));
                }
                Way::Slices => words = words.max(slices::words(block)),
                Way::Popcounts => {
                    needs.bytes = needs.bytes.max(popcounts::bytes_len(block));
                    words = words.max(popcounts::words(block));
                }
                Way::Patches => {
                    words = words.max(patches::streams_words(block) + patches::patches_words(block));
                }
                Way::OneByOne => {}
            }
        }
        needs.words += words;
        needs
    }
}

/// How a block is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By [`tables`]: pixels.
    Tables,
    /// By [`slices`]: bits, on a path without instructions for the next two.
    Slices,
    /// By [`lookups`]: bits, where bytes can be looked up.
    Lookups,
    /// By [`popcounts`]: bits, where those of many words can be counted.
    Popcounts,
    /// By [`patches`]: bits, with steps other than 1 or in little memory.
    Patches,
    /// By [`one_by_one`]: a first block of an unusual shape.
    OneByOne,
}

impl Way {
    /// How a block over numbers up to `largest` is run.
    pub(crate) const fn of(largest: usize, block: Convp, path: Path) -> Self {
        if largest > 1 {
            return if tables::runs(block) { Self::Tables } else { Self::OneByOne };
        }
        // Slices, sums and numbered places are larger than the maps they are made of; patches are one row.
        if path.is_frugal() {
            return Self::Patches;
        }
        match path.counting() {
            Counting::Slices if places::runs(block) => Self::Slices,
            Counting::Popcounts if popcounts::runs(block) => Self::Popcounts,
            Counting::Lookups | Counting::Popcounts if places::runs(block) => Self::Lookups,
            _ => Self::Patches,
        }
    }

    /// Words of the weights of a block that is run so.
    pub(crate) const fn words(self, block: Convp) -> usize {
        match self {
            Self::Tables | Self::Lookups => 0,
            Self::Slices => slices::masks_words(block),
            Self::Popcounts => popcounts::weights_words(block),
            Self::Patches => block.filters * patches::patch_words(block),
            Self::OneByOne => block.filters * one_by_one::filter_words(block),
        }
    }

    /// Bytes of the signs of a block that is run so.
    pub(crate) const fn signs(self, block: Convp) -> usize {
        match self {
            Self::Tables => tables::signs_len(block),
            Self::Slices => slices::signs_len(block),
            Self::Lookups | Self::Popcounts | Self::Patches | Self::OneByOne => 0,
        }
    }

    /// Vectors of the weights of a block that is run so.
    pub(crate) const fn lanes(self, block: Convp) -> usize {
        match self {
            Self::Lookups => lookups::lanes_len(block),
            Self::Tables | Self::Slices | Self::Popcounts | Self::Patches | Self::OneByOne => 0,
        }
    }

    /// How what a block that is run so gives lies.
    pub(crate) fn gives(self, block: Convp) -> Layout {
        if matches!(self, Self::Lookups | Self::Popcounts) && places::gives_stream(block) {
            Layout::Stream
        } else {
            Layout::Rows(row_words(block))
        }
    }
}

/// Words of a row that holds what the convolution gives and what the pooling leaves.
pub(crate) const fn row_words(block: Convp) -> usize {
    let (convolved, left) = (block.convolved().row_words(), block.output().row_words());
    if convolved > left { convolved } else { left }
}

/// Words of what a block gives.
pub(crate) const fn map_words(block: Convp) -> usize {
    block.filters * block.output().height * row_words(block)
}

/// Largest sum of a filter.
pub(crate) const fn reach(block: Convp, largest: usize) -> i32 {
    (block.taps() * largest) as i32
}

/// Bytes of a block's weights, thresholds and their signs.
pub(crate) fn block_bytes(block: Convp) -> usize {
    (block.filters * block.taps()).div_ceil(8) + 4 * block.filters + block.filters.div_ceil(8)
}

fn check(index: u8, block: Convp) -> Result<(), PackedError> {
    let at = Some(index);
    let Map { channels, height, width } = block.input;
    within("channels", at, 1, SIDE_MAX, channels)?;
    within("rows", at, 1, SIDE_MAX, height)?;
    within("columns", at, 1, SIDE_MAX, width)?;
    within("filters", at, 1, SIDE_MAX, block.filters)?;
    check_window("kernel", at, block.conv, [height, width])?;
    let map = block.convolved();
    check_window("pooling window", at, block.pool, [map.height, map.width])?;
    within("values", at, 1, VALUES_MAX, block.input.len())?;
    within("values of the convolution", at, 1, VALUES_MAX, map.len())?;
    within("values of the output", at, 1, VALUES_MAX, block.output().len())?;
    within("weights of a filter", at, 1, TAPS_MAX, block.taps())
}

fn check_window(
    what: &'static str,
    block: Option<u8>,
    window: Window,
    [height, width]: [usize; 2],
) -> Result<(), PackedError> {
    within(what, block, 1, 64, window.kernel)?;
    within(what, block, 1, 64, window.stride)?;
    // A window that lies on padding alone would have nothing to choose from.
    within(what, block, 0, window.kernel as i64 - 1, window.pad)?;
    let room = height.min(width) + 2 * window.pad;
    within(what, block, 1, room as i64, window.kernel)
}

fn within(
    what: &'static str,
    block: Option<u8>,
    least: i64,
    most: i64,
    found: usize,
) -> Result<(), PackedError> {
    let found = i64::try_from(found).unwrap_or(i64::MAX);
    if (least..=most).contains(&found) {
        return Ok(());
    }
    Err(PackedError::Range { what, block, least, most, found })
}
