//! Why a folder of images could not be read.

use std::io;
use std::path::PathBuf;

use crate::image_codec::CodecError;

/// Why a folder of images could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The file system refused.
    #[error("{}: cannot be read: {source}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The archive ends early or is damaged.
    #[error("{}: expected a .tar.gz of images, found a damaged or cut off one ({source}); copy or download it again", path.display())]
    Archive {
        /// Archive.
        path: PathBuf,
        /// What the decoder said.
        source: io::Error,
    },
    /// More than is held in memory.
    #[error("{}: `{name}`: expected at most {limit} bytes {what}, found more", path.display())]
    TooLarge {
        /// Archive or folder.
        path: PathBuf,
        /// Member at which it was too much.
        name: String,
        /// Of what.
        what: &'static str,
        /// How much is allowed.
        limit: u64,
    },
    /// An image that lies elsewhere than images do.
    #[error(
        "{}: expected PART/CLASS/IMAGE or PART/CLASS/SAMPLE/camN.EXT with a PART of train, val or test, found `{name}`",
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
    /// One picture in two parts.
    #[error(
        "{}: expected no picture in two parts, found the same bytes in `{first}` and `{second}`; \
         keep all pictures of one scene in one part, or results on test mean nothing",
        root.display()
    )]
    Leak {
        /// Folder or archive.
        root: PathBuf,
        /// One.
        first: String,
        /// The other.
        second: String,
    },
    /// Two files for one view.
    #[error("{}: `{name}`: expected one file for a view, found two that differ in their endings", root.display())]
    Twice {
        /// Folder or archive.
        root: PathBuf,
        /// The second.
        name: String,
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
    /// No image for training.
    #[error("{}: expected images under train/CLASS, found none", root.display())]
    Empty {
        /// Folder or archive.
        root: PathBuf,
    },
    /// A part without samples.
    #[error("{}: expected images under {part}/CLASS too, found none; take whole scenes out of train for it", root.display())]
    NoPart {
        /// Folder or archive.
        root: PathBuf,
        /// The part.
        part: &'static str,
    },
    /// A class that is not trained.
    #[error("{}: sample `{sample}`: expected a class of train ({}), found `{class}`", root.display(), known.join(", "))]
    UnknownClass {
        /// Folder or archive.
        root: PathBuf,
        /// The class.
        class: String,
        /// A sample of it.
        sample: String,
        /// Classes of the train part.
        known: Vec<String>,
    },
    /// A folder that holds nothing.
    #[error("{}: expected images in this folder, found none; put some in or remove it", path.display())]
    EmptyFolder {
        /// The folder.
        path: PathBuf,
    },
}
