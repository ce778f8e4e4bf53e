//! ETH-80: 72 real objects of eight classes, each photographed from 41 directions.
//!
//! Sixteen photographs form a ring around the object. Cameras are at equal distances on the ring, and each sample rotates the
//! object by one step. Two samples never share a photograph:
//!
//! ```text
//! photograph      0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15
//! sample 0  cam   0           1           2           3             four cameras: four samples per object
//! sample 1  cam      0           1           2           3
//! ```
//! The samples of an object form a group; the group has the number of the object in every division into parts. There is no official
//! division: six of the nine objects of a class are for training, one for validation, two for test. Besides, there are nine folds: a
//! fold takes three objects of every class for test, one for validation and five for training.

use std::path::Path;

use crate::data_set::{DataSetInfo, PartsOrigin};
use crate::error::Mismatch;
use crate::in_memory::{InMemory, InMemoryPart, StoredViews};
use crate::{DataError, Shape, idx};

/// Declaration of ETH-80.
pub(crate) const INFO: DataSetInfo = DataSetInfo {
    name: "eth80",
    content: "real objects of eight classes, 1, 2, 4, 8 or 16 slots, 3x32x32",
    files: FILES,
    marks: &["eth80-views-idx5-ubyte"],
    licence: "none stated by the authors, published for research; cite Leibe and Schiele 2003",
    parts: PartsOrigin::Fixed,
    folds: FOLDS,
    has_view_seed: false,
    open: |dir, options| Ok(Box::new(open(dir, options.slots.unwrap_or(DEFAULT_CAMERAS), options.fold)?)),
};

const FILES: &str = "eth80-views-idx5-ubyte and eth80-labels-idx1-ubyte, each plain or .gz";
const DEFAULT_CAMERAS: usize = 4;
const LABELS: [&str; 8] = ["apple", "car", "cow", "cup", "dog", "horse", "pear", "tomato"];
const OBJECTS_PER_CLASS: usize = 9;
const OBJECTS: usize = LABELS.len() * OBJECTS_PER_CLASS;
const VIEWS: usize = 41;
const SHAPE: Shape = Shape::rgb(32, 32);
/// First photograph of the ring at polar angle 90 degrees.
const RING_START: usize = 25;
/// Photographs of the ring, 22.5 degrees apart.
const RING_VIEWS: usize = 16;
/// Objects of a class in the train part.
const TRAIN: usize = 6;
/// Objects of a class in the validation part. The other objects are the test part.
const VALIDATION: usize = 1;

/// Three orders of the objects of a class, each divided into three folds: three objects that follow one another are the test part of a
/// fold, and the next object is the validation part of the fold.
const ORDERS: [[usize; OBJECTS_PER_CLASS]; 3] =
    [[2, 5, 1, 7, 0, 6, 4, 3, 8], [5, 7, 0, 1, 4, 8, 3, 6, 2], [0, 2, 5, 6, 8, 1, 3, 7, 4]];
/// Objects of a class in the test part of a fold.
const FOLD_TEST: usize = 3;
const FOLDS: usize = ORDERS.len() * OBJECTS_PER_CLASS / FOLD_TEST;

/// Part of each object of a class, as an index into train, validation, test.
fn parts_of_objects(fold: Option<usize>) -> [usize; OBJECTS_PER_CLASS] {
    let mut parts = [0; OBJECTS_PER_CLASS];
    match fold {
        None => {
            parts[TRAIN..].fill(2);
            parts[TRAIN..][..VALIDATION].fill(1);
        }
        Some(fold) => {
            let (order, first) = (&ORDERS[fold / FOLD_TEST], FOLD_TEST * (fold % FOLD_TEST));
            let from_first = order.iter().cycle().skip(first);
            from_first.zip([2, 2, 2, 1]).for_each(|(object, part)| parts[*object] = part);
        }
    }
    parts
}

/// Opens the data set with `cameras` slots, in the usual parts or in the parts of a fold.
///
/// # Errors
/// [`DataError`] naming the file and its fault.
fn open(dir: &Path, cameras: usize, fold: Option<usize>) -> Result<InMemory, DataError> {
    if cameras == 0 || !RING_VIEWS.is_multiple_of(cameras) {
        let expected = "1, 2, 4, 8 or 16 cameras around an object";
        return Err(Mismatch::new(expected, cameras.to_string()).options("eth80"));
    }
    let path = idx::find(dir, "eth80-labels-idx1-ubyte", FILES)?;
    let classes = idx::read(&path, &[OBJECTS])?;
    for (object, &found) in classes.iter().enumerate() {
        let expected = object / OBJECTS_PER_CLASS;
        if usize::from(found) != expected {
            let at = format!("{}: object {object}", path.display());
            return Err(Mismatch::new(format!("class {expected}"), found.to_string()).wrong_file(at));
        }
    }
    let Shape { channels, height, width } = SHAPE;
    let path = idx::find(dir, "eth80-views-idx5-ubyte", FILES)?;
    let views = idx::read(&path, &[OBJECTS, VIEWS, channels, height, width])?;

    let mut parts = [(); 3].map(|()| InMemoryPart::default());
    let (distance, parts_of_objects) = (RING_VIEWS / cameras, parts_of_objects(fold));
    for (object, class) in classes.into_iter().enumerate() {
        let part = &mut parts[parts_of_objects[object % OBJECTS_PER_CLASS]];
        for step in 0..distance {
            let view = |camera: usize| Some(object * VIEWS + RING_START + step + camera * distance);
            part.push(u16::from(class), (0..cameras).map(view));
            part.groups.push(object as u32);
        }
    }
    Ok(InMemory::new(LABELS, cameras, SHAPE, parts, StoredViews::Memory(views)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataSet, Part};

    /// Every photograph is filled with its number on the ring, or with 99.
    fn written() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let labels: Vec<u8> = (0..OBJECTS).map(|object| (object / OBJECTS_PER_CLASS) as u8).collect();
        let file = [&[0, 0, 8, 1, 0, 0, 0, OBJECTS as u8][..], &labels].concat();
        std::fs::write(dir.path().join("eth80-labels-idx1-ubyte"), file).unwrap();
        let header = [OBJECTS, VIEWS, 3, 32, 32].map(|size| (size as u32).to_be_bytes()).concat();
        let of_view =
            |view: usize| [if view < RING_START { 99 } else { (view - RING_START) as u8 }; SHAPE.bytes()];
        let of_object: Vec<u8> = (0..VIEWS).flat_map(of_view).collect();
        let file = [&[0, 0, 8, 5][..], &header, &of_object.repeat(OBJECTS)].concat();
        std::fs::write(dir.path().join("eth80-views-idx5-ubyte"), file).unwrap();
        dir
    }

    #[test]
    fn every_photograph_of_the_ring_is_in_one_sample_and_every_object_in_one_part() {
        let dir = written();
        for (cameras, samples) in [(4, 4), (8, 2), (1, 16)] {
            let data = open(dir.path(), cameras, None).unwrap();
            let counts = [Part::Train, Part::Validation, Part::Test].map(|part| data.len(part));
            assert_eq!(counts, [6, 1, 2].map(|objects| objects * 8 * samples));
            let groups = (0..counts[0]).map(|sample| data.group(Part::Train, sample));
            let of_train = (0..OBJECTS as u32).filter(|object| object % 9 < TRAIN as u32);
            assert!(
                groups.eq(of_train.flat_map(|object| vec![Some(object); samples])),
                "an object is a group"
            );
            let mut seen = Vec::new();
            let mut view = vec![0; SHAPE.bytes()];
            for sample in 0..samples {
                for slot in 0..cameras {
                    assert!(data.view_into(Part::Test, sample, slot, &mut view));
                    seen.push(view[0]);
                }
            }
            assert_eq!(&seen[..cameras.min(2)], &[0, (16 / cameras) as u8][..cameras.min(2)]);
            seen.sort_unstable();
            assert_eq!(seen, (0..16).collect::<Vec<u8>>());
        }
    }

    #[test]
    fn each_object_is_in_the_test_part_of_three_folds_and_never_in_two_parts() {
        assert_eq!(parts_of_objects(None), [0, 0, 0, 0, 0, 0, 1, 2, 2]);
        assert_eq!(parts_of_objects(Some(0)), [0, 2, 2, 0, 0, 2, 0, 1, 0]);
        // The last triple of an order is followed by the first object of the order.
        assert_eq!(parts_of_objects(Some(2)), [0, 0, 1, 2, 2, 0, 0, 0, 2]);
        let mut tested = [0; OBJECTS_PER_CLASS];
        for parts in (0..FOLDS).map(|fold| parts_of_objects(Some(fold))) {
            tested.iter_mut().zip(parts).for_each(|(count, part)| *count += usize::from(part == 2));
            assert_eq!([0, 1, 2].map(|of| parts.iter().filter(|part| **part == of).count()), [5, 1, 3]);
        }
        assert_eq!(tested, [3; OBJECTS_PER_CLASS]);
    }

    #[test]
    fn a_number_of_cameras_that_does_not_divide_the_ring_is_refused() {
        for cameras in [0, 3, 5, 32] {
            let error = open(Path::new("/nowhere"), cameras, None).unwrap_err().to_string();
            assert!(error.ends_with(&format!("found {cameras}")), "{error}");
        }
    }

    #[test]
    fn a_missing_file_and_a_wrong_order_of_objects_are_named() {
        let dir = written();
        let error = open(Path::new("/nowhere"), 4, None).unwrap_err().to_string();
        assert!(error.contains("eth80-labels-idx1-ubyte.gz") && error.contains("/nowhere"), "{error}");
        let path = dir.path().join("eth80-labels-idx1-ubyte");
        let mut labels = std::fs::read(&path).unwrap();
        labels[8 + 20] = 7;
        std::fs::write(&path, labels).unwrap();
        let error = open(dir.path(), 4, None).unwrap_err().to_string();
        assert!(error.contains("object 20: expected class 2, found 7"), "{error}");
    }
}
