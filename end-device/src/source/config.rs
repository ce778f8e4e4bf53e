//! Configuration of a source of frames.

use std::fmt;
use std::path::PathBuf;

use headwater_samples::roi::Roi;
use headwater_transport::Endpoint;
use serde::Deserialize;

/// Largest file or body of one frame, in bytes; as in an archive.
pub const MAX_FRAME_BYTES: u64 = 4 << 20;

/// A source of frames, and the region of interest.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceConfig {
    /// Kind of source.
    pub kind: SourceKind,
    /// Part of each frame that becomes the view; `None`: the whole frame.
    pub roi: Option<Roi>,
    /// Milliseconds for which the newest frame of a source with its own timing answers; then the slot is missing.
    pub max_age_ms: u64,
}

/// Kind of source.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceKind {
    /// An archive or a folder of its layout, in which the sample id picks the frame.
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
        /// Action after the last image.
        end: FolderEnd,
    },
    /// A folder into which images are put; each new image is a frame once it is complete.
    Watch {
        /// The folder.
        path: PathBuf,
        /// Treatment of images that are present at the start.
        existing: Existing,
        /// Milliseconds between two scans.
        poll_ms: u64,
    },
    /// A URL that answers a GET with an image, requested at each capture.
    Http {
        /// `http://host[:port]/path`.
        url: Endpoint,
        /// Milliseconds until a request is abandoned.
        timeout_ms: u64,
        /// User and password.
        auth: HttpAuth,
    },
    /// Frames on standard input.
    Stdin(StdinFrames),
}

/// Frames on standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StdinFrames {
    /// Their format.
    pub format: StdinFormat,
    /// Width and height of raw frames; `None`: those of the view.
    pub size: Option<[u32; 2]>,
}

/// Action of a folder after its last image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FolderEnd {
    /// Lists the folder again and starts with its first image.
    Loop,
    /// Ends the device cleanly.
    End,
}

/// Treatment of the images that are in a watched folder at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Existing {
    /// Skips them.
    Skip,
    /// Takes them as frames.
    Take,
}

/// Format of frames on standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StdinFormat {
    /// Raw pixels of three bytes; all frames have the same size.
    Rgb24,
    /// Raw pixels of one byte; all frames have the same size.
    Gray,
    /// JPEG or PNG files one after the other.
    Mjpeg,
}

/// Origin of user and password of a snapshot URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HttpAuth {
    /// No user and password.
    #[default]
    None,
    /// `user:password`, the first line of a file.
    File(PathBuf),
    /// `user:password` itself.
    Given(Secret),
}

/// A text that is never displayed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}
