//! Frames of an archive, in memory.

use std::borrow::Cow;

use super::collect::FrameFile;
use super::options::{ArchiveOptions, Decode};
use crate::roi::{self, Roi, RoiError};
use crate::{Shape, View};

/// View of one slot of one sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// The slot sees the sample. The pixels are borrowed where the archive keeps them.
    View(Cow<'a, View>),
    /// The slot does not see the sample.
    NotInView,
    /// The frame cannot be used.
    Broken {
        /// Name in the archive.
        name: String,
        /// Reason.
        reason: String,
    },
}

/// A broken frame as an error, for callers that refuse an archive with broken frames.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("frame {name}: {reason}")]
pub struct BrokenFrame {
    /// Name in the archive.
    pub name: String,
    /// Reason.
    pub reason: String,
}

/// Frame in memory.
pub(super) enum StoredFrame {
    View(View),
    File { name: String, bytes: Vec<u8> },
    Broken(BrokenFrame),
}

impl StoredFrame {
    /// Decodes the file now, or keeps its bytes.
    ///
    /// # Errors
    /// [`RoiError::Outside`]: the region is the caller's mistake, and the frame is not broken.
    pub(super) fn new(file: FrameFile, shape: Shape, options: &ArchiveOptions) -> Result<Self, RoiError> {
        let FrameFile { name, content } = file;
        Ok(match (content, options.decode) {
            (Err(reason), _) => Self::Broken(BrokenFrame { name, reason }),
            (Ok(bytes), Decode::OnRequest) => Self::File { name, bytes },
            (Ok(bytes), Decode::AtOpen) => match roi::decode(&bytes, shape, options.roi) {
                Ok(view) => Self::View(view),
                Err(error @ RoiError::Outside { .. }) => return Err(error),
                Err(error) => Self::Broken(BrokenFrame { name, reason: error.to_string() }),
            },
        })
    }

    pub(super) fn frame(&self, shape: Shape, roi: Option<Roi>) -> Frame<'_> {
        match self {
            Self::View(view) => Frame::View(Cow::Borrowed(view)),
            Self::Broken(BrokenFrame { name, reason }) => {
                Frame::Broken { name: name.clone(), reason: reason.clone() }
            }
            Self::File { name, bytes } => match roi::decode(bytes, shape, roi) {
                Ok(view) => Frame::View(Cow::Owned(view)),
                Err(error) => Frame::Broken { name: name.clone(), reason: error.to_string() },
            },
        }
    }
}
