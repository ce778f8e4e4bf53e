//! Shapes of maps that the coder supports.

use crate::{MapError, ShapeError};

/// Largest number of bits of a map.
pub const MAX_BITS: usize = 1 << 18;
/// Largest number of channels of a map: each needs a kilobyte of a table.
pub const MAX_CHANNELS: usize = 1 << 16;
/// Number of columns that are read and written at once, as one word.
pub(crate) const WORD_COLUMNS: usize = 64;

/// Shape of a binary map, in bits: `[channels, height, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapShape {
    channels: usize,
    height: usize,
    width: usize,
}

impl MapShape {
    /// A shape that the coder supports.
    ///
    /// # Errors
    /// [`ShapeError`] if a number is zero, or the map has more than [`MAX_CHANNELS`] channels or [`MAX_BITS`] bits.
    pub fn new(channels: usize, height: usize, width: usize) -> Result<Self, ShapeError> {
        check_range("channels", MAX_CHANNELS, channels)?;
        check_range("height", MAX_BITS, height)?;
        check_range("width", MAX_BITS, width)?;
        check_range("bits", MAX_BITS, channels.saturating_mul(height).saturating_mul(width))?;
        Ok(Self { channels, height, width })
    }

    /// Number of channels.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Number of rows of a channel.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Number of bits of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Number of bits of the map.
    pub fn bits(&self) -> usize {
        self.channels * self.height * self.width
    }

    /// Bytes of the packed map, which is also the longest body.
    pub fn packed_bytes(&self) -> usize {
        self.bits().div_ceil(8)
    }

    /// The words of a row: at most 64 columns each, from the left.
    pub(crate) fn words_of_row(&self, channel: usize, row: usize) -> impl Iterator<Item = RowWord> + use<> {
        let Self { height, width, .. } = *self;
        let start = (channel * height + row) * width;
        (0..width).step_by(WORD_COLUMNS).map(move |column| RowWord {
            start: start + column,
            column,
            width: WORD_COLUMNS.min(width - column),
        })
    }

    /// Checks that bytes are a packed map of this shape.
    pub(crate) fn check_map(&self, map: &[u8]) -> Result<(), MapError> {
        if map.len() != self.packed_bytes() {
            return Err(MapError::MapLength { expected: self.packed_bytes(), found: map.len() });
        }
        if self.tail_is_clear(map) { Ok(()) } else { Err(MapError::TailBits) }
    }

    /// True if the bits after the map's last bit are zero.
    pub(crate) fn tail_is_clear(&self, map: &[u8]) -> bool {
        match (self.bits() % 8, map.last()) {
            (0, _) | (_, None) => true,
            (used, Some(last)) => last >> used == 0,
        }
    }
}

/// Place of up to 64 neighbouring columns of a row.
#[derive(Clone, Copy)]
pub(crate) struct RowWord {
    /// Index of the first bit in the map.
    pub(crate) start: usize,
    /// First column.
    pub(crate) column: usize,
    /// Number of columns.
    pub(crate) width: usize,
}

fn check_range(what: &'static str, max: usize, found: usize) -> Result<(), ShapeError> {
    if (1..=max).contains(&found) { Ok(()) } else { Err(ShapeError { what, max, found }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_refused(shape: [usize; 3], what: &'static str, max: usize, found: usize) {
        let [channels, height, width] = shape;
        assert_eq!(MapShape::new(channels, height, width), Err(ShapeError { what, max, found }));
    }

    #[test]
    fn bits_are_packed_into_whole_bytes() {
        let shape = MapShape::new(3, 5, 7).unwrap();
        assert_eq!((shape.bits(), shape.packed_bytes()), (105, 14));
        assert!(MapShape::new(32, 60, 80).is_ok());
    }

    #[test]
    fn shapes_beyond_the_limits_are_refused() {
        check_refused([0, 1, 1], "channels", 65_536, 0);
        check_refused([1, 0, 1], "height", 262_144, 0);
        check_refused([1, 1, 262_145], "width", 262_144, 262_145);
        check_refused([65, 64, 64], "bits", 262_144, 266_240);
        check_refused(
            [65_536, 65_536, 64],
            "bits",
            262_144,
            65_536usize.saturating_mul(65_536).saturating_mul(64),
        );
        check_refused([65_537, 1, 1], "channels", 65_536, 65_537);
        check_refused([usize::MAX, 1, 1], "channels", 65_536, usize::MAX);
    }
}
