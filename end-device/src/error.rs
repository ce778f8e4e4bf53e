//! Reasons for which a device does not start. Each message contains the texts of its causes, and `source()` gives none of them: a program
//! that prints the whole chain of errors would print the causes twice.

use std::fmt::Display;
use std::io;

use headwater_link::LinkError;
use headwater_samples::DataError;
use thiserror::Error;

/// Reason for which a device does not start.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// A part that the device needs cannot be used.
    #[error("{usage} {name}: {reason}")]
    Unusable {
        /// Use of the part, such as `loading the bundle`.
        usage: &'static str,
        /// Name of the part: a file, a folder, a URL, an address or a slot.
        name: String,
        /// Error text, with its causes.
        reason: String,
    },
    /// The frames cannot be read.
    #[error("loading the frames: {0}")]
    Frames(DataError),
    /// A policy, a certificate or a password has a mistake, or settings, bundle and source do not fit together.
    #[error("{0}")]
    Unfit(String),
    /// The connection's settings cannot work.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The admin listener cannot listen on its address.
    #[error("admin.listen: {0}")]
    Admin(io::Error),
    /// The system starts no thread for the section or the source, or the thread that loads the section panicked.
    #[error("starting the model thread: {0}")]
    Thread(io::Error),
}

impl From<DataError> for DeviceError {
    fn from(error: DataError) -> Self {
        Self::Frames(error)
    }
}

impl DeviceError {
    pub(crate) fn unusable(usage: &'static str, name: impl Display, reason: impl Display) -> Self {
        Self::Unusable { usage, name: name.to_string(), reason: reason.to_string() }
    }

    pub(crate) fn source_of_frames(name: impl Display, reason: impl Display) -> Self {
        Self::unusable("source of frames:", name, reason)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn no_cause_is_printed_twice() {
        let io = || io::Error::other("no such luck");
        let data = DataError::Read { at: "frames".into(), source: io() };
        for error in [DeviceError::Frames(data), DeviceError::Admin(io()), DeviceError::Thread(io())] {
            let (text, mut chain, mut cause) = (error.to_string(), error.to_string(), error.source());
            while let Some(error) = cause {
                chain.push_str(&error.to_string());
                cause = error.source();
            }
            assert_eq!((chain.matches("no such luck").count(), chain), (1, text));
        }
    }
}
