//! Why a packed section is refused.

use core::fmt;

/// What is wrong with the bytes of a packed section, or with what they are to be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackedError {
    /// The bytes do not begin as a packed section does.
    Magic,
    /// A version that this build does not read.
    Version {
        /// The version found.
        found: u8,
    },
    /// Another number of bytes than the header leads to.
    Length {
        /// Bytes expected.
        expected: usize,
        /// Bytes found.
        found: usize,
    },
    /// A number out of its range.
    Range {
        /// Which number.
        what: &'static str,
        /// The block it belongs to, 0 the first; `None` for the section.
        block: Option<u8>,
        /// Smallest.
        least: i64,
        /// Largest.
        most: i64,
        /// Found.
        found: i64,
    },
    /// Bits past the last one are not zero.
    SpareBits {
        /// Of what.
        what: &'static str,
    },
    /// The unit of the scores is not a positive, finite number.
    Scale,
}

impl fmt::Display for PackedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("packed section")?;
        match *self {
            Self::Magic => f.write_str(": expected it to begin with `HWpk`"),
            Self::Version { found } => write!(f, ": expected version {}, found {found}", crate::VERSION),
            Self::Length { expected, found } => write!(f, ": expected {expected} bytes, found {found}"),
            Self::Range { what, block, least, most, found } => {
                if let Some(block) = block {
                    write!(f, ", block {block}")?;
                }
                write!(f, ", {what}: expected {least} to {most}, found {found}")
            }
            Self::SpareBits { what } => {
                write!(f, ", {what}: expected zero bits after the last, found bits set")
            }
            Self::Scale => f.write_str(", unit of the scores: expected a positive, finite number"),
        }
    }
}

impl core::error::Error for PackedError {}
