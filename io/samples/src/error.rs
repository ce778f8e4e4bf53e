//! Errors of reading and writing data: one enum for all file formats and data sets.

use std::fmt::Display;
use std::io;

use crate::image_codec::CodecError;

/// A file or an option of the caller that is not as expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {found}")]
pub struct Mismatch {
    /// The content or value that was expected.
    pub expected: String,
    /// The content or value that was found.
    pub found: String,
}

/// Error of reading or writing data. Each variant asks the caller for a different action.
///
/// `at` names the file or folder, and the position in it.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The file system refuses to read. Check the path and its permissions.
    #[error("{at}: cannot be read: {source}")]
    Read {
        /// File or folder.
        at: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The file system refuses to write. Check the permissions and the free space.
    #[error("{at}: cannot be written: {source}")]
    Write {
        /// File or folder.
        at: String,
        /// Error of the system.
        source: io::Error,
    },
    /// A file is missing, damaged or of another kind, or the user's own data breaks a rule, such as one image in two parts. Correct the data.
    #[error("{at}: {mismatch}{advice}")]
    Content {
        /// File or folder, and the position in it.
        at: String,
        /// Content that is needed, and the content found.
        mismatch: Mismatch,
        /// Advice; empty if the mismatch says enough.
        advice: &'static str,
    },
    /// The data exceeds a limit. Split the data, or scale images down.
    #[error("{at}: expected at most {limit} {unit}, found more; make it smaller or split it")]
    TooLarge {
        /// File or folder.
        at: String,
        /// Limit.
        limit: u64,
        /// Unit of the limit.
        unit: &'static str,
    },
    /// An image cannot be decoded or encoded. Replace the image.
    #[error("{at}: {source}")]
    Image {
        /// File.
        at: String,
        /// Error of the codec.
        source: CodecError,
    },
    /// The caller's options do not fit the data. Change the options.
    #[error("{at}: {mismatch}")]
    Options {
        /// Data set, or file or folder.
        at: String,
        /// Possible options, and the given option.
        mismatch: Mismatch,
    },
    /// A data set of the catalogue cannot be opened.
    #[error("data set {name}: {source}")]
    DataSet {
        /// Name in the catalogue.
        name: &'static str,
        /// Cause.
        source: Box<Self>,
    },
}

impl Mismatch {
    /// A mismatch from the texts that say what was expected and what was found.
    pub(crate) fn new(expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { expected: expected.into(), found: found.into() }
    }

    /// [`DataError::Content`] for a file that is cut off or damaged.
    pub(crate) fn damaged(self, at: impl Display) -> DataError {
        self.content(at, "; it is cut off or damaged, copy or download it again")
    }

    /// [`DataError::Content`] for an undamaged file of another kind.
    pub(crate) fn wrong_file(self, at: impl Display) -> DataError {
        self.content(at, "; is it the right file?")
    }

    /// [`DataError::Content`] for missing files and for the user's own data, without advice.
    pub(crate) fn invalid(self, at: impl Display) -> DataError {
        self.content(at, "")
    }

    fn content(self, at: impl Display, advice: &'static str) -> DataError {
        DataError::Content { at: at.to_string(), mismatch: self, advice }
    }

    /// [`DataError::Options`] for a data set or a file.
    pub(crate) fn options(self, at: impl Display) -> DataError {
        DataError::Options { at: at.to_string(), mismatch: self }
    }
}

impl DataError {
    /// [`DataError::TooLarge`]: more than `limit` of the `unit`.
    pub(crate) fn too_large(at: impl Display, limit: u64, unit: &'static str) -> Self {
        Self::TooLarge { at: at.to_string(), limit, unit }
    }

    /// [`DataError::Read`] as a conversion of the system's error.
    pub(crate) fn read(at: impl Display) -> impl Fn(io::Error) -> Self {
        move |source| Self::Read { at: at.to_string(), source }
    }

    /// [`DataError::Write`] as a conversion of the system's error.
    pub(crate) fn write(at: impl Display) -> impl Fn(io::Error) -> Self {
        move |source| Self::Write { at: at.to_string(), source }
    }

    /// Conversion of a decoder's error: invalid data and an early end are damage, the rest comes from the file system.
    pub(crate) fn decode(at: impl Display, expected: &str) -> impl Fn(io::Error) -> Self {
        move |source| match source.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof => {
                Mismatch::new(expected, format!("one that does not inflate ({source})")).damaged(&at)
            }
            _ => Self::Read { at: at.to_string(), source },
        }
    }

    /// [`DataError::Image`] as a conversion of the codec's error.
    pub(crate) fn image(at: impl Display) -> impl Fn(CodecError) -> Self {
        move |source| Self::Image { at: at.to_string(), source }
    }
}
