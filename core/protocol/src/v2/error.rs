//! Errors of a body.

use thiserror::Error;

use super::HEADER_LENGTH;

/// A body that is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum V2Error {
    /// The JSON part cannot be read.
    #[error("JSON part: {0}")]
    Json(String),
    /// The named length of the JSON part is longer than the body.
    #[error("{HEADER_LENGTH}: names {named} bytes, the body has {body}")]
    HeadLength {
        /// Length of the JSON part as the header states it, bytes.
        named: usize,
        /// Bytes in the body.
        body: usize,
    },
    /// An input with an unknown name.
    #[error("input {0:?} is unknown: expected `features` and `presence`")]
    UnknownInput(String),
    /// An input given twice.
    #[error("input {0:?} stands twice")]
    Twice(&'static str),
    /// A missing input.
    #[error("input `{0}` is missing")]
    MissingInput(&'static str),
    /// A missing output.
    #[error("output `{0}` is missing")]
    MissingOutput(&'static str),
    /// Wrong datatype.
    #[error("{name}: expected datatype {expected}, found {found:?}")]
    Datatype {
        /// Name of the tensor.
        name: &'static str,
        /// Datatype that the model takes.
        expected: &'static str,
        /// Datatype in the request.
        found: String,
    },
    /// Wrong shape.
    #[error("{name}: expected shape {expected:?}, found {found:?}")]
    Shape {
        /// Name of the tensor.
        name: &'static str,
        /// Shape that the model takes.
        expected: Vec<usize>,
        /// Shape in the request (at most eight dimensions).
        found: Vec<usize>,
    },
    /// No sample or too many.
    #[error("expected 1 to {max} samples, found {found}")]
    Samples {
        /// Largest number of samples.
        max: usize,
        /// Found.
        found: usize,
    },
    /// A tensor with another number of bytes than its shape needs.
    #[error("{name}: expected {expected} bytes, found {found}")]
    Truncated {
        /// Name of the tensor.
        name: &'static str,
        /// Bytes that the shape needs.
        expected: usize,
        /// Bytes in the request.
        found: usize,
    },
    /// Neither binary nor JSON data of the datatype, or both.
    #[error("{0}: expected either a binary tensor or `data` of its datatype")]
    Data(&'static str),
    /// Bits after the last feature bit are set.
    #[error("features: sample {sample}, slot {slot}: expected zero after bit {bits}, found bits set")]
    TailBits {
        /// Sample in the request.
        sample: usize,
        /// Slot.
        slot: usize,
        /// Feature bits of one map.
        bits: usize,
    },
    /// A boolean that is neither 0 nor 1.
    #[error("presence: expected bytes 0 or 1")]
    Bool,
    /// A logit that is NaN or infinite.
    #[error("logits: expected finite numbers")]
    NotFinite,
    /// Bytes after the last tensor.
    #[error("{0} bytes after the last tensor")]
    Trailing(usize),
}
