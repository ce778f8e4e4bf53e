//! Frames of an archive.

use std::borrow::Cow;

use crate::View;

/// View of one slot of one sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// The slot sees the sample. The pixels are borrowed where the archive keeps them.
    View(Cow<'a, View>),
    /// The slot does not see the sample.
    NotInView,
    /// The frame cannot be used.
    Broken(BrokenFrame),
}

/// A broken frame, also as an error for callers that refuse an archive with broken frames.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("frame {name}: {reason}")]
pub struct BrokenFrame {
    /// Name in the archive.
    pub name: String,
    /// Reason.
    pub reason: String,
}
