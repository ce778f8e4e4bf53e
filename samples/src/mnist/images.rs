//! Images and classes of one pair of files.

use std::path::{Path, PathBuf};

use super::{CLASSES, MnistError};
use crate::{data_dir, idx};

pub(crate) const IMAGE_SIDE: usize = 28;
pub(crate) const IMAGE_BYTES: usize = IMAGE_SIDE * IMAGE_SIDE;

/// Images of 28x28 grey, and their classes.
#[derive(Default)]
pub(crate) struct Images {
    images: Vec<u8>,
    labels: Vec<u8>,
}

impl Images {
    /// Reads `{name}-images-idx3-ubyte[.gz]` and `{name}-labels-idx1-ubyte[.gz]` from `dir`.
    pub(super) fn read(dir: &Path, name: &str, count: usize) -> Result<Self, MnistError> {
        let path = find(dir, &format!("{name}-images-idx3-ubyte"))?;
        let images = idx::read(&path)?.expect_dims(&path, &[count, IMAGE_SIDE, IMAGE_SIDE])?.data;
        let path = find(dir, &format!("{name}-labels-idx1-ubyte"))?;
        let labels = idx::read(&path)?.expect_dims(&path, &[count])?.data;
        match labels.iter().position(|&label| usize::from(label) >= CLASSES) {
            Some(index) => Err(MnistError::UnknownLabel { path, index, label: labels[index] }),
            None => Ok(Self { images, labels }),
        }
    }

    /// Adds an image.
    pub(crate) fn push(&mut self, image: &[u8; IMAGE_BYTES], label: u8) {
        self.images.extend_from_slice(image);
        self.labels.push(label);
    }

    pub(crate) fn label(&self, index: usize) -> u16 {
        u16::from(self.labels[index])
    }

    pub(crate) fn image(&self, index: usize) -> &[u8; IMAGE_BYTES] {
        let image = &self.images[index * IMAGE_BYTES..][..IMAGE_BYTES];
        image.try_into().expect("the slice was cut to this length")
    }

    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }
}

fn find(dir: &Path, name: &str) -> Result<PathBuf, MnistError> {
    data_dir::file(dir, name, &[".gz", ""])
        .ok_or_else(|| MnistError::Missing { dir: dir.into(), name: name.into() })
}
