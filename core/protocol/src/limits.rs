//! Lengths of the message bodies under one network.

use crate::bits;
use crate::header::MAX_HEADER_BYTES;
use crate::kind::{Kind, MAX_BATCH_SAMPLES};
use crate::message_error::DecodeError;
use crate::scores::{self, ScoreEncoding};
use crate::varint::MAX_VARINT_BYTES;

/// Longest name of a frame's file in a message, in bytes.
pub const MAX_FILE_NAME_BYTES: usize = 255;

/// Most bytes before the scores of a batch's entry: the varints of a `u32` and of a `u16`.
const MAX_ENTRY_HEAD_BYTES: usize = 5 + 3;

/// Bytes of a decision's body: class, confidence, policy id.
pub(crate) const DECIDED_BYTES: usize = 2 + 4 + 8;

/// Body lengths of the receiver's network; a message of another length is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Number of classes; each has a score.
    pub classes: usize,
    /// Encoding of the scores of a summary.
    pub scores: ScoreEncoding,
    /// Bits of one feature map.
    pub feature_bits: usize,
    /// True when feature maps are coded: a body may then be shorter than the map.
    pub codes_features: bool,
    /// Bytes of a view.
    pub view_bytes: usize,
    /// Bits of the map of an edge; 0 in a network without edges.
    pub edge_bits: usize,
}

impl Limits {
    /// Bytes of the largest message under these limits.
    pub fn largest_payload(&self) -> usize {
        let bodies = Kind::NAMES.map(|(kind, _)| self.body_bytes(kind) + self.frame_bytes(kind));
        MAX_HEADER_BYTES + bodies.into_iter().max().unwrap_or(0)
    }

    /// Bytes of the scores of a summary.
    pub(crate) fn summary_bytes(&self) -> usize {
        self.scores.bytes(self.classes)
    }

    /// Bytes of the scores of an edge, which are floats.
    pub(crate) fn edge_score_bytes(&self) -> usize {
        ScoreEncoding::F32.bytes(self.classes)
    }

    /// True if a body of this kind may have `bytes` bytes. A batch passes with any length: its entries are checked later. A request may
    /// lack the zero bytes at its end. Coded features may be shorter than the map, but not empty.
    pub(crate) fn fits(&self, kind: Kind, bytes: usize) -> bool {
        let whole = self.body_bytes(kind);
        bytes == whole
            || kind == Kind::Batch
            || (kind == Kind::Request && bytes < whole)
            || (kind == Kind::Features && self.codes_features && (1..whole).contains(&bytes))
    }

    /// Most bytes after the body: the name of the frame, and the scores of a device that decided.
    fn frame_bytes(&self, kind: Kind) -> usize {
        let scores = if kind == Kind::Decided { self.summary_bytes() } else { 0 };
        if kind.may_name_frame() { scores + MAX_VARINT_BYTES + MAX_FILE_NAME_BYTES } else { 0 }
    }

    /// Bytes of a body of this kind; for requests, coded features and batches the largest number.
    pub(crate) fn body_bytes(&self, kind: Kind) -> usize {
        match kind {
            Kind::Request => 8,
            Kind::Summary => self.summary_bytes(),
            Kind::Features => bits::packed_len(self.feature_bits),
            Kind::Input => self.view_bytes,
            Kind::Trigger | Kind::NotInView | Kind::Gone => 0,
            Kind::Decided => DECIDED_BYTES,
            Kind::EdgeFeatures => 8 + self.edge_score_bytes() + bits::packed_len(self.edge_bits),
            Kind::Batch => MAX_BATCH_SAMPLES * (MAX_ENTRY_HEAD_BYTES + self.summary_bytes()),
        }
    }
}

/// Refuses a summary in which a float is not finite, or a bit is set after the last score.
pub(crate) fn check_scores(scores: &[u8], limits: &Limits) -> Result<(), DecodeError> {
    match limits.scores {
        ScoreEncoding::F32 => finite(scores),
        levels if bits::tail_is_clear(scores, limits.classes * levels.bits()) => Ok(()),
        _ => Err(DecodeError::ScoreTail),
    }
}

/// Refuses floats that are NaN or infinite.
pub(crate) fn finite(scores: &[u8]) -> Result<(), DecodeError> {
    if scores::floats(scores).all(f32::is_finite) { Ok(()) } else { Err(DecodeError::NotFinite) }
}
