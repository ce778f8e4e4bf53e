//! Reasons for which a device does not start.

use std::fmt::Display;
use std::io;

use headwater_link::LinkError;
use headwater_samples::DataError;
use headwater_samples::archive::BrokenFrame;
use thiserror::Error;

/// Reason for which a device does not start.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// A part that the device needs cannot be used.
    #[error("{usage} {name}: {reason}")]
    Unusable {
        /// Use of the part.
        usage: &'static str,
        /// Name of the part: a file, a folder, a URL, an address or a slot.
        name: String,
        /// Error text, with its causes.
        reason: String,
    },
    /// The frames cannot be read.
    #[error("loading the frames: {0}")]
    Frames(#[from] DataError),
    /// A frame is broken, and `on_broken_frame` is fatal.
    #[error("{0} ({1} broken in all; to go on without them: on_broken_frame = \"skip\")")]
    BrokenFrame(BrokenFrame, usize),
    /// The policy has a mistake, or configuration, bundle and source do not fit together.
    #[error("{0}")]
    Unfit(String),
    /// The connection's settings cannot work.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The admin listener cannot listen.
    #[error("admin.listen: {0}")]
    Admin(#[source] io::Error),
    /// The system gives no thread.
    #[error("starting the model thread: {0}")]
    Thread(#[source] io::Error),
}

impl DeviceError {
    pub(crate) fn unusable(usage: &'static str, name: impl Display, reason: impl Display) -> Self {
        Self::Unusable { usage, name: name.to_string(), reason: reason.to_string() }
    }

    pub(crate) fn source_of_frames(name: impl Display, reason: impl Display) -> Self {
        Self::unusable("source of frames:", name, reason)
    }
}
