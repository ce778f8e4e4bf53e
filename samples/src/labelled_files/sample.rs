//! A sample as its files describe it.

use sha2::{Digest, Sha256};

use crate::Part;

/// A sample as its files describe it.
#[derive(Clone, Debug)]
pub(crate) struct LabelledSample {
    /// `None` where the data has no parts.
    pub(crate) part: Option<Part>,
    pub(crate) class: String,
    /// Name in errors.
    pub(crate) name: String,
    /// Group of samples that stays in one part.
    pub(crate) group: Option<String>,
    /// View of each slot. A slot past the end sees nothing.
    pub(crate) views: Vec<Option<ImageFile>>,
}

/// Pixels of a file.
#[derive(Clone, Debug)]
pub(crate) struct ImageFile {
    /// Path in the folder or archive.
    pub(crate) path: String,
    /// SHA-256 of the file.
    pub(crate) hash: [u8; 32],
    /// CHW.
    pub(crate) pixels: Vec<u8>,
}

impl ImageFile {
    /// The pixels of a file with the content `bytes`.
    pub(crate) fn new(path: &str, bytes: &[u8], pixels: Vec<u8>) -> Self {
        Self { path: path.into(), hash: Sha256::digest(bytes).into(), pixels }
    }
}
