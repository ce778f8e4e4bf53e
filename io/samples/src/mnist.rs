//! `mnist` and `fashion-mnist`: grey images of 28x28 pixels, seen by one slot.
//!
//! ```text
//! train files, 60,000 images                                      t10k files, 10,000 images
//! +-----------------------+--------------------+------------+     +------------+
//! | train, 50,000         | calibration, 5,000 | val, 5,000 |     | test       |
//! +-----------------------+--------------------+------------+     +------------+
//! ```

use std::path::Path;

use crate::data_set::{DataSetInfo, PartsOrigin};
use crate::error::Mismatch;
use crate::in_memory::{InMemory, InMemoryPart, StoredViews};
use crate::{DataError, Shape, idx};

/// Declaration of MNIST.
pub(crate) const MNIST: DataSetInfo = DataSetInfo {
    name: "mnist",
    content: "handwritten digits, one slot, 1x28x28",
    files: FILES,
    marks: MARKS,
    licence: "usually stated as CC BY-SA 3.0",
    parts: PartsOrigin::Fixed,
    folds: 0,
    has_view_seed: false,
    open: |dir, _| Ok(Box::new(digits(dir)?)),
};
/// Declaration of Fashion-MNIST.
pub(crate) const FASHION_MNIST: DataSetInfo = DataSetInfo {
    name: "fashion-mnist",
    content: "articles of clothing, one slot, 1x28x28",
    licence: "MIT, copyright 2017 Zalando SE",
    open: |dir, _| Ok(Box::new(fashion(dir)?)),
    ..MNIST
};
/// Files of MNIST and of Fashion-MNIST.
pub(crate) const FILES: &str = "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, \
                                each plain or .gz";
/// File by which MNIST, and the data sets with files of the same names, are recognised.
pub(crate) const MARKS: &[&str] = &["train-images-idx3-ubyte"];
/// Height and width of an image.
pub(crate) const IMAGE_SIDE: usize = 28;
/// Bytes of an image.
pub(crate) const IMAGE_BYTES: usize = SHAPE.bytes();
/// Number of classes.
pub const CLASSES: usize = 10;
/// Class names of Fashion-MNIST.
pub const FASHION_LABELS: [&str; CLASSES] = [
    "t-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
];

const SHAPE: Shape = Shape { channels: 1, height: IMAGE_SIDE, width: IMAGE_SIDE };
const DIGITS: [&str; CLASSES] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
const TRAIN_FILE_COUNT: usize = 60_000;
const TEST_FILE_COUNT: usize = 10_000;
/// Samples at the end of the train files that form the validation part; as many before them form the calibration part.
const VALIDATION_COUNT: usize = 5_000;

/// Images, one after another, with their classes.
pub(crate) struct Images {
    pub(crate) classes: Vec<u16>,
    pub(crate) pixels: Vec<u8>,
}

/// Opens MNIST: handwritten digits.
///
/// # Errors
/// [`DataError`] naming the file and its fault.
pub fn digits(dir: &Path) -> Result<InMemory, DataError> {
    open(dir, DIGITS)
}

/// Opens Fashion-MNIST: articles of clothing.
///
/// # Errors
/// [`DataError`] naming the file and its fault.
pub fn fashion(dir: &Path) -> Result<InMemory, DataError> {
    open(dir, FASHION_LABELS)
}

fn open(dir: &Path, labels: [&str; CLASSES]) -> Result<InMemory, DataError> {
    let train = read(dir, "train", TRAIN_FILE_COUNT)?;
    let test = read(dir, "t10k", TEST_FILE_COUNT)?;
    Ok(single_slot(labels, train, [VALIDATION_COUNT; 2], test))
}

/// Makes the data set from the samples of the train files and of the test files. The last samples of `train` form the validation part,
/// and the samples before these the calibration part; the sizes come in the order calibration, validation.
pub(crate) fn single_slot(
    labels: [&str; CLASSES],
    train: Images,
    [calibration, validation]: [usize; 2],
    test: Images,
) -> InMemory {
    let views = StoredViews::Memory([train.pixels, test.pixels].concat());
    let test = InMemoryPart::single_slot(test.classes, train.classes.len());
    let mut train = InMemoryPart::single_slot(train.classes, 0);
    let validation = train.split_off(train.len() - validation);
    let calibration = train.split_off(train.len() - calibration);
    InMemory::new(labels, 1, SHAPE, [train, validation, test], views).with_calibration(calibration)
}

/// Reads `{name}-images-idx3-ubyte` and `{name}-labels-idx1-ubyte`, plain or `.gz`.
fn read(dir: &Path, name: &str, count: usize) -> Result<Images, DataError> {
    let find = |kind: &str| idx::find(dir, &format!("{name}-{kind}"), FILES);
    let pixels = idx::read(&find("images-idx3-ubyte")?, &[count, IMAGE_SIDE, IMAGE_SIDE])?;
    let path = find("labels-idx1-ubyte")?;
    let labels = idx::read(&path, &[count])?;
    if let Some(index) = labels.iter().position(|&label| usize::from(label) >= CLASSES) {
        let found = format!("{} at index {index}", labels[index]);
        return Err(Mismatch::new("labels 0 to 9", found).wrong_file(path.display()));
    }
    Ok(Images { classes: labels.into_iter().map(u16::from).collect(), pixels })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataSet, Part};

    /// A data set whose images are filled with their index.
    fn small(train: usize, counts: [usize; 2], test: usize) -> InMemory {
        let part = |count: usize| {
            let classes = (0..count).map(|index| (index % CLASSES) as u16).collect();
            Images { classes, pixels: (0..count).flat_map(|index| [index as u8; IMAGE_BYTES]).collect() }
        };
        single_slot(DIGITS, part(train + counts[0] + counts[1]), counts, part(test))
    }

    #[test]
    fn calibration_and_validation_parts_are_the_end_of_the_train_files() {
        let data = small(30, [20, 10], 5);
        assert_eq!(Part::ALL.map(|part| data.len(part)), [30, 10, 5, 20]);
        let mut view = [0; IMAGE_BYTES];
        let cases = [
            (Part::Train, 29, 29),
            (Part::Calibration, 0, 30),
            (Part::Validation, 0, 50),
            (Part::Test, 4, 4),
        ];
        for (part, index, filled) in cases {
            assert!(data.view_into(part, index, 0, &mut view));
            assert_eq!((view, data.label(part, index)), ([filled; IMAGE_BYTES], u16::from(filled) % 10));
        }
    }

    #[test]
    #[should_panic(expected = "the len is 30 but the index is 30")]
    fn a_part_ends_where_the_next_one_begins() {
        small(30, [0, 10], 5).label(Part::Train, 30);
    }

    #[test]
    fn a_missing_file_is_named_with_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let error = digits(dir.path()).unwrap_err().to_string();
        for word in
            ["train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte", &dir.path().display().to_string()]
        {
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn files_of_another_size_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = [&[0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 28, 0, 0, 0, 28][..], &[0; 784]].concat();
        std::fs::write(dir.path().join("train-images-idx3-ubyte"), file).unwrap();
        let error = fashion(dir.path()).unwrap_err().to_string();
        assert!(error.contains("expected dimensions [60000, 28, 28], found [1, 28, 28]"), "{error}");
    }
}
