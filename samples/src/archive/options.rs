//! Options for opening an archive.

use crate::Shape;
use crate::roi::Roi;

/// Limits of an archive. A frame beyond `member_bytes` is a broken frame, any other excess is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveLimits {
    /// Number of files.
    pub members: usize,
    /// Longest file, in bytes.
    pub member_bytes: u64,
    /// Longest archive, inflated, in bytes.
    pub total_bytes: u64,
}

impl Default for ArchiveLimits {
    /// 200,000 files of up to 4 MiB, 256 MiB in all.
    fn default() -> Self {
        Self { members: 200_000, member_bytes: 4 << 20, total_bytes: 256 << 20 }
    }
}

/// Options for opening an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveOptions {
    /// Loads the frames of this slot only; `None` loads all.
    pub slot: Option<usize>,
    /// Shape of the views; `None` takes the one in `labels.json`.
    pub shape: Option<Shape>,
    /// Region that is cut out of each frame before resizing; `None` takes the whole frame.
    pub roi: Option<Roi>,
    /// Limits.
    pub limits: ArchiveLimits,
}
