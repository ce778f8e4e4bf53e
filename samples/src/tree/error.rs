//! Why a folder of images could not be read.

use std::path::PathBuf;

use crate::files::ReadError;
use crate::gathered::GatherError;
use crate::image_codec::CodecError;

/// Why a folder of images could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The folder or archive cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Its samples do not make a data set.
    #[error(transparent)]
    Gather(#[from] GatherError),
    /// An image that lies elsewhere than images do.
    #[error(
        "{}: expected PART/CLASS/IMAGE or PART/CLASS/SAMPLE/camN.EXT with a PART of train, val or test, or the same without PART/, \
         found `{name}`",
        root.display()
    )]
    Layout {
        /// Folder or archive.
        root: PathBuf,
        /// Path in it.
        name: String,
    },
    /// Samples that are files beside samples that are folders.
    #[error("{}: expected every sample to be a file or every sample to be a folder, found `{first}` and `{second}`", root.display())]
    Mixed {
        /// Folder or archive.
        root: PathBuf,
        /// One.
        first: String,
        /// The other.
        second: String,
    },
    /// A camera past the last slot.
    #[error("{}: `{name}`: expected cameras 0 to {}, found {slot}", root.display(), most - 1)]
    Slot {
        /// Folder or archive.
        root: PathBuf,
        /// Path in it.
        name: String,
        /// Camera.
        slot: usize,
        /// Slots.
        most: usize,
    },
    /// Two files for one view.
    #[error("{}: expected one file for a view, found `{first}` and `{second}`", root.display())]
    Twice {
        /// Folder or archive.
        root: PathBuf,
        /// One.
        first: String,
        /// The other.
        second: String,
    },
    /// An image that is none.
    #[error("{}: `{name}`: {source}", root.display())]
    Image {
        /// Folder or archive.
        root: PathBuf,
        /// Path in it.
        name: String,
        /// What is wrong.
        source: CodecError,
    },
    /// No image at all.
    #[error("{}: expected images (PNG, JPEG, WebP) under PART/CLASS or CLASS, found none", root.display())]
    Empty {
        /// Folder or archive.
        root: PathBuf,
    },
    /// The folder of a class without images.
    #[error("{}: `{folder}`: expected images in the folder of a class, found none; put some in or remove it", root.display())]
    EmptyClass {
        /// Folder or archive.
        root: PathBuf,
        /// The folder.
        folder: String,
    },
    /// Class names that cannot be used.
    #[error("{}: classes.txt: {reason}", root.display())]
    ClassNames {
        /// Folder or archive.
        root: PathBuf,
        /// What is wrong.
        reason: String,
    },
}
