//! Which source of frames a device has, and how it is read.

use std::fmt;
use std::path::PathBuf;

use headwater_samples::roi::{RawFormat, Roi};

/// Largest file or body of one frame, in bytes; as in an archive.
pub const MAX_FRAME_BYTES: u64 = 4 << 20;

/// A source of frames and what is done to each frame.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceConfig {
    /// Where frames come from.
    pub kind: SourceKind,
    /// The part of each frame that becomes the view; `None`: all of it.
    pub roi: Option<Roi>,
    /// A frame of a source with its own timing answers for so many ms after it came; then the device is silent.
    pub max_age_ms: u64,
}

/// Where frames come from.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceKind {
    /// An archive or a folder of its layout; the sample id picks the frame.
    Archive {
        /// `.tar.gz` or folder.
        path: PathBuf,
    },
    /// A folder of images, played in the order of their names.
    Folder {
        /// The folder.
        path: PathBuf,
        /// Milliseconds from image to image.
        period_ms: u64,
        /// What comes after the last image.
        end: FolderEnd,
    },
    /// A folder into which images are put; each new one that is complete is a frame.
    Watch {
        /// The folder.
        path: PathBuf,
        /// What becomes of images that are there at the start.
        existing: Existing,
        /// Milliseconds from look to look.
        poll_ms: u64,
    },
    /// A URL that answers a GET with an image, asked at each capture.
    Http {
        /// `http://host[:port]/path`.
        url: String,
        /// Milliseconds until an answer is given up.
        timeout_ms: u64,
        /// User and password.
        auth: HttpAuth,
    },
    /// Frames on standard input.
    Stdin {
        /// How they are written.
        format: StdinFormat,
        /// Width and height of raw frames; `None`: those of the view.
        size: Option<[u32; 2]>,
    },
}

/// What a folder does after its last image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderEnd {
    /// Lists the folder again and begins with the first.
    Loop,
    /// Ends the device cleanly.
    End,
}

/// What a watched folder does with the images that are there at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Passes over them.
    Skip,
    /// Takes them as frames.
    Take,
}

/// How frames are written to standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinFormat {
    /// Raw pixels, every frame of the same size.
    Raw(RawFormat),
    /// JPEG or PNG files one after the other.
    Mjpeg,
}

/// Where user and password of a snapshot URL come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HttpAuth {
    /// There are none.
    #[default]
    None,
    /// `user:password`, the first line of a file.
    File(PathBuf),
    /// `user:password` itself.
    Given(Secret),
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl SourceKind {
    /// The word of the setting `source`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Archive { .. } => "archive",
            Self::Folder { .. } => "folder",
            Self::Watch { .. } => "watch",
            Self::Http { .. } => "http",
            Self::Stdin { .. } => "stdin",
        }
    }

    /// True when frames come by themselves and not when they are asked for.
    pub fn has_own_timing(&self) -> bool {
        matches!(self, Self::Folder { .. } | Self::Watch { .. } | Self::Stdin { .. })
    }
}
