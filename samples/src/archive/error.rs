//! Why an archive cannot be read or written.

use std::io;
use std::path::PathBuf;

use crate::image_codec::CodecError;

/// Why an archive cannot be read or written. A frame that does not decode is none of these: it is
/// [`Frame::Broken`](super::Frame::Broken), and the caller decides.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The file system refused.
    #[error("frames {}: cannot be read: {source}", path.display())]
    Io {
        /// Archive or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Ends in its middle.
    #[error(
        "frames {}: the archive is cut off after {inflated_bytes} bytes (inflated); copy or download it again",
        path.display()
    )]
    CutOff {
        /// Archive.
        path: PathBuf,
        /// Bytes up to the cut.
        inflated_bytes: u64,
    },
    /// Neither cut off nor sound.
    #[error(
        "frames {}: expected a .tar.gz archive, found {reason}; copy or download it again",
        path.display()
    )]
    Damaged {
        /// Archive.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// More than the reader may hold.
    #[error("frames {}: expected at most {limit} {what}, found more; split the archive", path.display())]
    TooLarge {
        /// Archive or folder.
        path: PathBuf,
        /// What there is too much of.
        what: &'static str,
        /// The bound.
        limit: u64,
    },
    /// No `labels.json`, or one that makes no sense.
    #[error("frames {}: labels.json: {reason}", path.display())]
    Labels {
        /// Archive or folder.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file in a sample's folder that is no frame, a second frame in one place, or one beyond the slots or
    /// samples.
    #[error("frames {}: {name}: {reason}", path.display())]
    Member {
        /// Archive or folder.
        path: PathBuf,
        /// File in it.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// Frames are missing (or too many), as against the number in `labels.json`.
    #[error(
        "frames {}: expected {expected} frames (labels.json), found {found}; files are missing or were added",
        path.display()
    )]
    FrameCount {
        /// Archive or folder.
        path: PathBuf,
        /// According to `labels.json`.
        expected: usize,
        /// In the archive.
        found: usize,
    },
    /// Asked for a slot the archive does not have.
    #[error("frames {}: expected a slot below {slots}, found {slot}", path.display())]
    NoSuchSlot {
        /// Archive or folder.
        path: PathBuf,
        /// Slot asked for.
        slot: usize,
        /// Slots there are.
        slots: usize,
    },
    /// A sample to be written has other slots or another shape than the archive.
    #[error("frames: sample {sample}: expected {expected}, found {found}")]
    Sample {
        /// Index of the sample.
        sample: usize,
        /// What the archive holds.
        expected: String,
        /// What the sample has.
        found: String,
    },
    /// A view cannot be encoded.
    #[error("frames: sample {sample}, slot {slot}: {source}")]
    Encode {
        /// Index of the sample.
        sample: usize,
        /// Slot of the view.
        slot: usize,
        /// What the encoder said.
        source: CodecError,
    },
    /// The archive cannot be written.
    #[error("frames: cannot be written: {0}")]
    Write(#[from] io::Error),
}
