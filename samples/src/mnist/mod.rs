//! `mnist` and `fashion-mnist`: 28x28 grey images, one slot, as the files hold them.
//!
//! Parts are cut as for `fashion-6cam`: the first 55,000 of the train files, their last 5,000, the 10,000 of the `t10k` files.

mod images;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use crate::data_set::{DataSet, Part};
use crate::idx::IdxError;
use crate::{Shape, fashion_6cam};

pub(crate) use images::{IMAGE_BYTES, IMAGE_SIDE, Images};

/// Classes of either data set.
pub(crate) const CLASSES: usize = 10;
/// Samples at the end of the train files that are the validation part.
const VALIDATION_COUNT: usize = 5_000;
const TRAIN_FILE_COUNT: usize = 60_000;
const TEST_FILE_COUNT: usize = 10_000;

const DIGITS: [&str; CLASSES] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

/// Why the files could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum MnistError {
    /// One of the four files is not there.
    #[error(
        "found neither `{name}.gz` nor `{name}` in {}; the folder must hold the four files \
         train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, \
         each plain or .gz",
        dir.display()
    )]
    Missing {
        /// Folder looked into.
        dir: PathBuf,
        /// Name looked for, with and without `.gz`.
        name: String,
    },
    /// A file is damaged or is another one.
    #[error(transparent)]
    Idx(#[from] IdxError),
    /// A label that names no class.
    #[error(
        "{}: expected labels 0 to 9, found {label} at index {index}; is it the right file?",
        path.display()
    )]
    UnknownLabel {
        /// File.
        path: PathBuf,
        /// Position in the file.
        index: usize,
        /// Label found.
        label: u8,
    },
}

/// The images of the four files.
pub struct Mnist {
    files: Files,
    labels: [&'static str; CLASSES],
}

/// The images of the train files, whose end is the validation part, and of the `t10k` files.
pub(crate) struct Files {
    pub(crate) train: Images,
    pub(crate) test: Images,
    pub(crate) validation_count: usize,
}

impl Mnist {
    /// MNIST: handwritten digits.
    ///
    /// # Errors
    /// [`MnistError`] naming what was looked for and where, or what is wrong with it.
    pub fn digits(dir: &Path) -> Result<Self, MnistError> {
        Self::open(dir, DIGITS)
    }

    /// Fashion-MNIST: articles of clothing.
    ///
    /// # Errors
    /// As [`Mnist::digits`].
    pub fn fashion(dir: &Path) -> Result<Self, MnistError> {
        Self::open(dir, fashion_6cam::LABELS)
    }

    fn open(dir: &Path, labels: [&'static str; CLASSES]) -> Result<Self, MnistError> {
        Ok(Self { files: Files::read(dir)?, labels })
    }
}

impl Files {
    pub(crate) fn read(dir: &Path) -> Result<Self, MnistError> {
        Ok(Self {
            train: Images::read(dir, "train", TRAIN_FILE_COUNT)?,
            test: Images::read(dir, "t10k", TEST_FILE_COUNT)?,
            validation_count: VALIDATION_COUNT,
        })
    }

    /// Images of a part.
    pub(crate) fn len(&self, part: Part) -> usize {
        match part {
            Part::Train => self.train.len() - self.validation_count,
            Part::Validation => self.validation_count,
            Part::Test => self.test.len(),
        }
    }

    /// Where an image of a part lies; panics when there are not so many.
    pub(crate) fn at(&self, part: Part, index: usize) -> (&Images, usize) {
        let len = self.len(part);
        assert!(index < len, "sample {index} of a part of {len}");
        match part {
            Part::Train => (&self.train, index),
            Part::Validation => (&self.train, self.len(Part::Train) + index),
            Part::Test => (&self.test, index),
        }
    }
}

impl DataSet for Mnist {
    fn labels(&self) -> Vec<String> {
        self.labels.map(str::to_owned).to_vec()
    }

    fn slots(&self) -> usize {
        1
    }

    fn shape(&self) -> Shape {
        Shape { channels: 1, height: IMAGE_SIDE, width: IMAGE_SIDE }
    }

    fn len(&self, part: Part) -> usize {
        self.files.len(part)
    }

    fn label(&self, part: Part, index: usize) -> u16 {
        let (images, index) = self.files.at(part, index);
        images.label(index)
    }

    fn view_into(&self, part: Part, index: usize, slot: usize, pixels: &mut [u8]) -> bool {
        assert_eq!(slot, 0, "there is one slot");
        let (images, index) = self.files.at(part, index);
        pixels.copy_from_slice(images.image(index));
        true
    }
}
