//! The bytes of a packed section.
//!
//! ```text
//! header     "HWpk" | version u8 | blocks u8 | classes u16 | channels u16 | rows u16 | columns u16
//!            | kind of input u16 (0 pixels, 1 bits) | unit of the scores f32 | sent channels u16
//! shapes     per block: filters u16 | kernel, stride, padding of the convolution | of the pooling, one byte each
//! blocks     per block: weights, 1 bit each [filters, channels, kernel, kernel] | thresholds i32 [filters]
//!            | signs of the thresholds, 1 bit each: 1 for a flipped threshold
//! exit       weights, 1 bit each [classes, inputs] | factors i32 [classes] | offsets i32 [classes]
//! ```
//!
//! The exit reads the output of the last block. The features are the first channels of that output; `sent channels` is their number.
//!
//! Numbers are little endian. Bits are least significant first, and spare bits are zero; a weight of +1 is the bit 1. A section has
//! exactly one form in bytes, and the reader accepts no other form.

use super::plan::{check_affine, check_threshold};
use super::{MAX_BLOCKS, Plan};
use crate::VERSION;
use crate::error::{PackedError, check_equal, check_range};
use crate::exit::Affine;
use crate::memory::take;
use crate::shape::{Convp, InputKind, Map, Window};
use crate::threshold::Threshold;

const MAGIC: [u8; 4] = *b"HWpk";
const HEADER_BYTES: usize = 22;
/// Bytes of a block's shape.
const SHAPE_BYTES: usize = 8;

/// The parts of a block, for [`write()`].
#[derive(Clone, Copy, Debug)]
pub struct BlockParts<'a> {
    /// Shape of the block.
    pub shape: Convp,
    /// Signs of the weights, `[filters, channels, kernel, kernel]`.
    pub weights: &'a [bool],
    /// One threshold a filter. In a first block over pixels the thresholds are for sums of numbers in `0..=255`.
    pub thresholds: &'a [Threshold],
}

/// The parts of the exit, for [`write()`].
#[derive(Clone, Copy, Debug)]
pub struct HeadParts<'a> {
    /// Signs of the weights, `[classes, inputs]`.
    pub weights: &'a [bool],
    /// Factor and offset of each class.
    pub classes: &'a [Affine],
    /// Logit of a score of 1.
    pub scale: f32,
}

/// Writes a section, part by part, to `sink`. Its features are the first `sent` channels of the last block's output.
///
/// # Errors
/// [`PackedError`] if a number is out of range or the unit of the scores is not positive and finite; nothing is written then.
pub fn write(
    input: InputKind,
    blocks: &[BlockParts<'_>],
    head: &HeadParts<'_>,
    sent: usize,
    mut sink: impl FnMut(&[u8]),
) -> Result<(), PackedError> {
    check_range("blocks", None, 1..=MAX_BLOCKS as i64, blocks.len())?;
    let mut shapes = [Convp::default(); MAX_BLOCKS];
    for (shape, block) in shapes.iter_mut().zip(blocks) {
        *shape = block.shape;
    }
    let plan = Plan::new(input, &shapes[..blocks.len()], sent, head.classes.len(), head.scale)?;
    check_parts(&plan, blocks, head)?;
    write_header(&plan, &mut sink);
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

fn check_parts(plan: &Plan, blocks: &[BlockParts<'_>], head: &HeadParts<'_>) -> Result<(), PackedError> {
    for (index, block) in blocks.iter().enumerate() {
        check_equal("weights", Some(index), block.shape.filters * block.shape.taps(), block.weights.len())?;
        check_equal("thresholds", Some(index), block.shape.filters, block.thresholds.len())?;
        block.thresholds.iter().try_for_each(|threshold| check_threshold(plan, index, *threshold))?;
    }
    let inputs = plan.exit_input().len();
    check_equal("weights of the exit", None, head.classes.len() * inputs, head.weights.len())?;
    head.classes.iter().try_for_each(|class| check_affine(*class, inputs))
}

fn write_header(plan: &Plan, sink: &mut impl FnMut(&[u8])) {
    sink(&MAGIC);
    sink(&[VERSION, plan.blocks().len() as u8]);
    let Map { channels, height, width } = plan.input();
    let kind = usize::from(plan.input_kind() == InputKind::Bits);
    for number in [plan.classes(), channels, height, width, kind] {
        sink(&(number as u16).to_le_bytes());
    }
    sink(&plan.scale().to_le_bytes());
    sink(&(plan.features().channels as u16).to_le_bytes());
    for Convp { filters, conv, pool, .. } in plan.blocks() {
        sink(&(*filters as u16).to_le_bytes());
        for window in [conv, pool] {
            sink(&[window.kernel as u8, window.stride as u8, window.pad as u8]);
        }
    }
}

fn write_bits(bits: impl Iterator<Item = bool>, sink: &mut impl FnMut(&[u8])) {
    let (mut byte, mut count) = (0u8, 0);
    for bit in bits {
        byte |= u8::from(bit) << count;
        count += 1;
        if count == 8 {
            sink(&[byte]);
            (byte, count) = (0, 0);
        }
    }
    if count > 0 {
        sink(&[byte]);
    }
}

impl Plan {
    /// Reads the header of a section and checks that the number of bytes is the one that the header implies.
    ///
    /// # Errors
    /// [`PackedError`] naming the first fault.
    pub fn read(bytes: &[u8]) -> Result<Self, PackedError> {
        let truncated = |expected| PackedError::Length { expected, found: bytes.len() };
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(truncated(HEADER_BYTES))?;
        let &[m0, m1, m2, m3, version, count, ..] = header;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(PackedError::Magic);
        }
        if version != VERSION {
            return Err(PackedError::Version { found: version });
        }
        let number = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        let count = usize::from(count);
        check_range("blocks", None, 1..=MAX_BLOCKS as i64, count)?;
        check_range("kind of input", None, 0..=1, number(14))?;
        let kind = if number(14) == 0 { InputKind::Pixels } else { InputKind::Bits };
        let scale = f32::from_le_bytes([header[16], header[17], header[18], header[19]]);
        let mut input = Map { channels: number(8), height: number(10), width: number(12) };
        let mut blocks = [Convp::default(); MAX_BLOCKS];
        let (shapes, _) = bytes[HEADER_BYTES..].as_chunks::<SHAPE_BYTES>();
        let shapes = shapes.get(..count).ok_or(truncated(HEADER_BYTES + count * SHAPE_BYTES))?;
        for (index, (block, shape)) in blocks.iter_mut().zip(shapes).enumerate() {
            *block = read_shape(input, shape);
            // The next shape is derived from this one, so this one is checked first.
            Self::check_block(index, *block)?;
            input = block.output();
        }
        let plan = Self::new(kind, &blocks[..count], number(20), number(6), scale)?;
        if bytes.len() != plan.bytes() {
            return Err(truncated(plan.bytes()));
        }
        Ok(plan)
    }

    /// Number of bytes of the section.
    pub fn bytes(&self) -> usize {
        let block_bytes = |block: &Convp| {
            (block.filters * block.taps()).div_ceil(8) + 4 * block.filters + block.filters.div_ceil(8)
        };
        let exit = (self.classes() * self.exit_input().len()).div_ceil(8) + 8 * self.classes();
        let blocks = self.blocks().iter().map(block_bytes).sum::<usize>();
        self.header_bytes() + blocks + exit
    }

    /// Number of bytes in front of the weights: header and shapes.
    fn header_bytes(&self) -> usize {
        HEADER_BYTES + self.blocks().len() * SHAPE_BYTES
    }
}

fn read_shape(input: Map, bytes: &[u8; SHAPE_BYTES]) -> Convp {
    let &[f0, f1, conv @ .., pool, pool_stride, pool_pad] = bytes;
    let window = |[kernel, stride, pad]: [u8; 3]| Window {
        kernel: usize::from(kernel),
        stride: usize::from(stride),
        pad: usize::from(pad),
    };
    Convp {
        input,
        filters: usize::from(u16::from_le_bytes([f0, f1])),
        conv: window(conv),
        pool: window([pool, pool_stride, pool_pad]),
    }
}

/// Reads weights and numbers from a section whose length has been checked.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader that begins at the weights of the first block.
    pub(super) fn after_header(plan: &Plan, bytes: &'a [u8]) -> Result<Self, PackedError> {
        if bytes.len() != plan.bytes() {
            return Err(PackedError::Length { expected: plan.bytes(), found: bytes.len() });
        }
        Ok(Self { rest: &bytes[plan.header_bytes()..] })
    }

    /// Reads `count` bits; the spare bits of the last byte must be zero.
    pub(super) fn bits(&mut self, what: &'static str, count: usize) -> Result<&'a [u8], PackedError> {
        let bytes = take(&mut self.rest, count.div_ceil(8));
        match bytes.last() {
            Some(last) if !count.is_multiple_of(8) && last >> (count % 8) != 0 => {
                Err(PackedError::SpareBits { what })
            }
            _ => Ok(bytes),
        }
    }

    pub(super) fn numbers(&mut self, count: usize) -> impl Iterator<Item = i32> + use<'a> {
        let (numbers, _) = take(&mut self.rest, 4 * count).as_chunks();
        numbers.iter().map(|bytes| i32::from_le_bytes(*bytes))
    }
}
