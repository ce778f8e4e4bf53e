//! Reasons for which a device does not start.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use headwater_inference::bundle::BundleError;
use headwater_inference::sections::SectionError;
use headwater_link::LinkError;
use headwater_protocol::Slot;
use headwater_samples::DataError;
use headwater_samples::archive::BrokenFrame;
use thiserror::Error;

/// Reason for which a device does not start.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// The bundle cannot be read.
    #[error("loading the bundle {}: {source}", path.display())]
    Bundle {
        /// The file.
        path: PathBuf,
        /// Reason.
        source: Box<BundleError>,
    },
    /// The slot's section cannot be loaded.
    #[error("loading the section of slot {slot}: {source}")]
    Section {
        /// Slot of the device.
        slot: Slot,
        /// Reason.
        source: SectionError,
    },
    /// The chosen engine is not available.
    #[error("engine of slot {slot}: {reason}")]
    Engine {
        /// Slot of the device.
        slot: Slot,
        /// Reason.
        reason: String,
    },
    /// The frames cannot be read.
    #[error("loading the frames: {0}")]
    Frames(#[from] DataError),
    /// The frames hold no sample.
    #[error("loading the frames: {}: expected at least one sample, found none", .0.display())]
    NoFrames(PathBuf),
    /// A frame is broken, and `on_broken_frame` is fatal.
    #[error("{0} ({1} broken in all; to go on without them: on_broken_frame = \"skip\")")]
    BrokenFrame(BrokenFrame, usize),
    /// A source of frames cannot be used.
    #[error("source of frames: {name}: {reason}")]
    Source {
        /// Folder, file or URL.
        name: String,
        /// Reason.
        reason: String,
    },
    /// Configuration, bundle and source do not fit together.
    #[error("{0}")]
    Unfit(String),
    /// A file or folder of the device cannot be used.
    #[error("{usage} {}: {reason}", path.display())]
    Stored {
        /// Use of the file or folder.
        usage: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
    /// The connection's settings cannot work.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The address of the admin listener cannot be used.
    #[error("admin.listen: {listen}: {source}")]
    Admin {
        /// The address.
        listen: SocketAddr,
        /// Reason.
        source: io::Error,
    },
    /// The system gives no thread.
    #[error("starting the model thread: {0}")]
    Thread(#[source] io::Error),
}

impl DeviceError {
    pub(crate) fn state(path: &Path, reason: impl Display) -> Self {
        Self::Stored { usage: "number kept in", path: path.into(), reason: reason.to_string() }
    }

    pub(crate) fn policy(path: &Path, reason: impl Display) -> Self {
        Self::Stored { usage: "policy:", path: path.into(), reason: reason.to_string() }
    }

    pub(crate) fn spool(path: &Path, reason: impl Display) -> Self {
        Self::Stored { usage: "spool in", path: path.into(), reason: reason.to_string() }
    }

    pub(crate) fn source_of_frames(name: impl Display, reason: impl Display) -> Self {
        Self::Source { name: name.to_string(), reason: reason.to_string() }
    }
}
