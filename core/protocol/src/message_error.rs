//! Errors for bytes that are no message, and for bodies that do not fit the network.

use thiserror::Error;

use crate::fault::Fault;
use crate::kind::{MAX_BATCH_SAMPLES, VERSION};

/// Mistake in an entry of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BatchMistake {
    /// The first entry has another id or age than the header.
    #[error("expected the header's sample, found another one")]
    NotTheHeaders,
    /// The id is not above the id of the entry before.
    #[error("expected an id above the one before, found none")]
    NotRising,
    /// The id would be above the largest `u64`.
    #[error("expected an id below 2^64, found a higher one")]
    TooFar,
    /// The age would be below 0: captured after the sending.
    #[error("expected an age of at least 0, found a sample from after its sending")]
    NegativeAge,
    /// A number is cut off, too large, or written in more bytes than necessary.
    #[error("expected a number in as few bytes as it needs, found other bytes")]
    Number,
    /// The scores of the answer are cut off.
    #[error("expected {expected} bytes of scores, found {found}")]
    CutOff {
        /// Bytes that the network's shapes give.
        expected: usize,
        /// Bytes left.
        found: usize,
    },
    /// The batch has more than [`MAX_BATCH_SAMPLES`] entries.
    #[error("expected at most {MAX_BATCH_SAMPLES} entries, found more")]
    TooMany,
    /// The batch has no entry.
    #[error("expected an entry, found none")]
    Missing,
    /// The header has the flag `late`, which a batch never has.
    #[error("expected answers in time, found the flag late")]
    Late,
}

/// A body that does not fit the receiver's network.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{kind} message: expected a body of {expected} bytes, got {found}")]
pub struct EncodeError {
    /// Kind of the message.
    pub kind: &'static str,
    /// Bytes the network's shapes give.
    pub expected: usize,
    /// Bytes given.
    pub found: usize,
}

/// A payload that is not a message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The payload is shorter than a header.
    #[error("message: expected a whole header, found {0} bytes")]
    Truncated(usize),
    /// The payload is longer than the longest message.
    #[error("message: expected at most {limit} bytes, found {found}")]
    Oversize {
        /// Longest payload under the limits.
        limit: usize,
        /// Bytes found.
        found: usize,
    },
    /// The message has another version of the protocol.
    #[error("message: expected version {VERSION}, found {0}: update the older side")]
    Version(u8),
    /// A kind this version does not have.
    #[error("message: unknown kind {0}")]
    Kind(u8),
    /// A flag this version does not have.
    #[error("message: unknown flags {0:#010b}")]
    Flags(u8),
    /// A body of another length than the network's shapes give.
    #[error("{kind} message: expected a body of {expected} bytes, found {found}")]
    Length {
        /// Kind of the message.
        kind: &'static str,
        /// Bytes expected.
        expected: usize,
        /// Bytes found.
        found: usize,
    },
    /// Coded features that are empty or longer than the packed map.
    #[error("features message: expected a body of 1 to {limit} bytes, found {found}")]
    CodedLength {
        /// Bytes of the packed map, without coding.
        limit: usize,
        /// Bytes found.
        found: usize,
    },
    /// A sample id that is written in more bytes than necessary, or is above the largest `u64`.
    #[error("message: expected a sample id in as few bytes as it needs, at most 10, found other bytes")]
    SampleId,
    /// A request with a zero byte at its end, where such bytes are left out.
    #[error("request message: expected no zero byte at its end, found one")]
    ZeroAtEnd,
    /// The scores or the name of a frame are cut off, or the name is too long, not UTF-8, or has control characters.
    #[error(
        "message: expected a frame's number and a file's name of at most 255 bytes in UTF-8 without control characters, found other bytes"
    )]
    FrameName,
    /// A score that is NaN or infinite.
    #[error("message: expected finite scores, found NaN or infinity")]
    NotFinite,
    /// Bits set after the last score.
    #[error("summary message: expected zero bits after the last score, found ones")]
    ScoreTail,
    /// A confidence outside `[0, 1]`.
    #[error("decided message: expected a confidence in [0, 1], found another number")]
    Confidence,
    /// An edge message without any slot.
    #[error("edge_features message: expected at least one slot, found none")]
    NoSlots,
    /// A wrong entry of a batch.
    #[error("batch message, entry {entry}: {mistake}")]
    Batch {
        /// Number of the entry, from 0.
        entry: usize,
        /// The mistake.
        mistake: BatchMistake,
    },
    /// Bits set after the last feature.
    #[error("features message: expected zero bits after the last feature, found ones")]
    TailBits,
    /// A binary message of another kind on the topic of triggers.
    #[error("trigger: a {0} message does not belong here")]
    NotATrigger(&'static str),
    /// A trigger in JSON that cannot be read; the reason is clipped.
    #[error("trigger: expected JSON such as {{\"sample\": 17}}: {0}")]
    TriggerJson(String),
}

impl DecodeError {
    /// Row of the error table for this error.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Version(_) => Fault::WrongVersion,
            Self::Oversize { .. } => Fault::Oversize,
            _ => Fault::Malformed,
        }
    }
}
