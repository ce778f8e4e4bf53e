//! Errors for which a shape, a table, a map or a body is refused.

/// A shape that the coder does not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("shape of a coded map, {what}: expected 1 to {max}, found {found}")]
pub struct ShapeError {
    /// Name of the number that is out of its range: `channels`, `height`, `width` or `bits`.
    pub what: &'static str,
    /// Largest supported number; the smallest is 1.
    pub max: usize,
    /// Number found.
    pub found: usize,
}

/// A table that does not belong to the shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("context table: expected {expected} bytes, found {found}")]
pub struct TableError {
    /// Bytes that the shape's channels need.
    pub expected: usize,
    /// Bytes found.
    pub found: usize,
}

/// Reason for which a map cannot be encoded or counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// The map has another number of bytes than the shape.
    #[error("packed map: expected {expected} bytes, found {found}")]
    MapLength {
        /// Bytes expected.
        expected: usize,
        /// Bytes found.
        found: usize,
    },
    /// Bits after the map's last bit are not zero.
    #[error("packed map: expected zero bits after the last, found bits set")]
    TailBits,
    /// The body's buffer is shorter than the packed map.
    #[error("packed map: expected room for a body of {needed} bytes, found {found}")]
    BodyRoom {
        /// Bytes needed.
        needed: usize,
        /// Bytes found.
        found: usize,
    },
}

/// Reason for which a body cannot be decoded: no map of this shape has the body under this table, or the buffer for the map has the wrong
/// length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The buffer for the map has another number of bytes than the shape: a fault of the caller.
    #[error("coded map: expected room for a map of {expected} bytes, found {found}")]
    MapLength {
        /// Bytes expected.
        expected: usize,
        /// Bytes found.
        found: usize,
    },
    /// The body has no bytes.
    #[error("coded map: expected at least 1 byte, found none")]
    Empty,
    /// The body is longer than the packed map.
    #[error("coded map: expected at most {max} bytes, found {found}")]
    TooLong {
        /// Bytes of the packed map.
        max: usize,
        /// Bytes found.
        found: usize,
    },
    /// The body is the map itself, and bits after its last bit are not zero.
    #[error("coded map: expected zero bits after the last, found bits set")]
    TailBits,
    /// The body is the map itself, but encoding gives a shorter body.
    #[error("coded map: expected a shorter body, found the map itself")]
    NotShortest,
    /// Encoding gives another code: the body was cut, padded or altered, or made with another table.
    #[error("coded map: expected the code of a map under this table, found a cut, padded or altered one")]
    Code,
    /// The check byte is not the check byte of the decoded map: the body was altered, or made with another table.
    #[error("coded map: expected check byte {expected:#04x}, found {found:#04x}")]
    Check {
        /// Check byte of the decoded map.
        expected: u8,
        /// Check byte found.
        found: u8,
    },
}
