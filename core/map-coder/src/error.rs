//! Why a shape, a table, a map or a body is refused.

use core::fmt;

/// Why the coder does not support a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapeError {
    /// Which number is out of its range: `channels`, `height`, `width` or `bits`.
    pub what: &'static str,
    /// Largest supported number; the smallest is 1.
    pub max: usize,
    /// Number found.
    pub found: usize,
}

/// A table that does not belong to the shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableError {
    /// Bytes that the shape's channels need.
    pub expected: usize,
    /// Bytes found.
    pub found: usize,
}

/// Why a map cannot be encoded or counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// The map has another number of bytes than the shape.
    MapLength {
        /// Bytes expected.
        expected: usize,
        /// Bytes found.
        found: usize,
    },
    /// Bits after the map's last bit are not zero.
    TailBits,
    /// The body's buffer is shorter than the packed map.
    BodyRoom {
        /// Bytes needed.
        needed: usize,
        /// Bytes found.
        found: usize,
    },
}

/// Why a body cannot be decoded: no map of this shape has it under this table, or the buffer for the map has the wrong length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The buffer for the map has another number of bytes than the shape: a fault of the caller.
    MapLength {
        /// Bytes expected.
        expected: usize,
        /// Bytes found.
        found: usize,
    },
    /// The body has no bytes.
    Empty,
    /// The body is longer than the packed map.
    TooLong {
        /// Bytes of the packed map.
        max: usize,
        /// Bytes found.
        found: usize,
    },
    /// The body is the map itself, and bits after its last bit are not zero.
    TailBits,
    /// The body is the map itself, but encoding gives a shorter body.
    NotShortest,
    /// The code is not the one that encoding gives: it was cut, padded or altered, or made with another table.
    Code,
    /// The check byte is not the check byte of the decoded map: the body was altered, or made with another table.
    Check {
        /// Check byte of the decoded map.
        expected: u8,
        /// Check byte found.
        found: u8,
    },
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, max, found } = self;
        write!(f, "shape of a coded map, {what}: expected 1 to {max}, found {found}")
    }
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { expected, found } = self;
        write!(f, "context table: expected {expected} bytes, found {found}")
    }
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("packed map: ")?;
        match self {
            Self::MapLength { expected, found } => write!(f, "expected {expected} bytes, found {found}"),
            Self::TailBits => f.write_str("expected zero bits after the last, found bits set"),
            Self::BodyRoom { needed, found } => {
                write!(f, "expected room for a body of {needed} bytes, found {found}")
            }
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("coded map: ")?;
        match self {
            Self::MapLength { expected, found } => {
                write!(f, "expected room for a map of {expected} bytes, found {found}")
            }
            Self::Empty => f.write_str("expected at least 1 byte, found none"),
            Self::TooLong { max, found } => write!(f, "expected at most {max} bytes, found {found}"),
            Self::TailBits => f.write_str("expected zero bits after the last, found bits set"),
            Self::NotShortest => f.write_str("expected a shorter body, found the map itself"),
            Self::Code => {
                f.write_str("expected the code of a map under this table, found a cut, padded or altered one")
            }
            Self::Check { expected, found } => {
                write!(f, "expected check byte {expected:#04x}, found {found:#04x}")
            }
        }
    }
}

impl core::error::Error for ShapeError {}
impl core::error::Error for TableError {}
impl core::error::Error for MapError {}
impl core::error::Error for DecodeError {}
