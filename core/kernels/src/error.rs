//! Errors for which a packed section is refused.

use core::fmt;
use core::ops::RangeInclusive;

/// A fault in the bytes of a packed section, in the parts of a section that is written, or in the memory for a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackedError {
    /// The bytes do not begin with `HWpk`.
    #[error("packed section: expected it to begin with `HWpk`")]
    Magic,
    /// The version is not [`VERSION`](crate::VERSION).
    #[error("packed section: expected version {}, found {found}; export the network again", crate::VERSION)]
    Version {
        /// The version found.
        found: u8,
    },
    /// The header implies another number of bytes, or is cut off.
    #[error("packed section: expected {expected} bytes, found {found}")]
    Length {
        /// Bytes expected.
        expected: usize,
        /// Bytes found.
        found: usize,
    },
    /// A number is out of its range.
    #[error("packed section{}, {what}: expected {min} to {max}, found {found}", of_block(*.block))]
    Range {
        /// Name of the number, such as `blocks`.
        what: &'static str,
        /// Index of the block, from 0; `None` for a number of the whole section.
        block: Option<u8>,
        /// Smallest allowed number.
        min: i64,
        /// Largest allowed number.
        max: i64,
        /// Number found.
        found: i64,
    },
    /// Bits after the last one in use are not zero.
    #[error("packed section, {what}: expected zero bits after the last, found bits set")]
    SpareBits {
        /// Name of the bits, such as `weights`.
        what: &'static str,
    },
    /// The unit of the scores is not a positive, finite number.
    #[error("packed section, unit of the scores: expected a positive, finite number")]
    Scale,
}

/// Checks that a number of a block, or of the section, lies in a range.
pub(crate) fn check_range(
    what: &'static str,
    block: Option<usize>,
    allowed: RangeInclusive<i64>,
    found: usize,
) -> Result<(), PackedError> {
    check_signed(what, block, allowed, i64::try_from(found).unwrap_or(i64::MAX))
}

/// Checks like [`check_range`], for numbers that may be negative.
pub(crate) fn check_signed(
    what: &'static str,
    block: Option<usize>,
    allowed: RangeInclusive<i64>,
    found: i64,
) -> Result<(), PackedError> {
    if allowed.contains(&found) {
        return Ok(());
    }
    let (min, max) = allowed.into_inner();
    Err(PackedError::Range { what, block: block.map(|block| block as u8), min, max, found })
}

/// Checks that a number of a block, or of the section, is the one expected.
pub(crate) fn check_equal(
    what: &'static str,
    block: Option<usize>,
    expected: usize,
    found: usize,
) -> Result<(), PackedError> {
    check_range(what, block, expected as i64..=expected as i64, found)
}

/// The block as messages name it, such as `, block 2`; nothing for `None`.
fn of_block(block: Option<u8>) -> impl fmt::Display {
    fmt::from_fn(move |f| block.map_or(Ok(()), |block| write!(f, ", block {block}")))
}
