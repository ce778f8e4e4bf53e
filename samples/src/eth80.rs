//! ETH-80: 72 real objects of eight classes, each photographed from 41 directions.
//!
//! The sixteen photographs of the ring at the object's own height are shared out to cameras that stand evenly around it: four cameras 90
//! degrees apart give four samples an object, eight give two, and no photograph is in two samples. Whole objects go to one part:
//! of the nine of a class six are trained on, one is for validation, two are the test part. There is no official split.

use std::path::{Path, PathBuf};

use crate::idx::{self, IdxError};
use crate::stored::{Stored, StoredPart};
use crate::{Shape, data_dir};

const LABELS: [&str; 8] = ["apple", "car", "cow", "cup", "dog", "horse", "pear", "tomato"];
const OBJECTS: usize = 9;
const VIEWS: usize = 41;
const SHAPE: Shape = Shape::rgb(32, 32);
/// First view of the ring at polar angle 90, and how many there are, 22.5 degrees apart.
const RING: (usize, usize) = (25, 16);
/// Objects of a class in the train and validation part; the rest are the test part.
const TRAIN: usize = 6;
const VALIDATION: usize = 1;

/// Why ETH-80 could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum Eth80Error {
    /// A file is not there.
    #[error(
        "found neither `{name}.gz` nor `{name}` in {}; the folder must hold eth80-views-idx5-ubyte and eth80-labels-idx1-ubyte, each plain or .gz",
        dir.display()
    )]
    Missing {
        /// Folder looked into.
        dir: PathBuf,
        /// Name looked for.
        name: String,
    },
    /// A file is damaged or is another one.
    #[error(transparent)]
    Idx(#[from] IdxError),
    /// Objects in another order than nine of each class.
    #[error("{}: object {object}: expected class {expected}, found {found}; is it the right file?", path.display())]
    Label {
        /// File.
        path: PathBuf,
        /// Position in the file.
        object: usize,
        /// Class that stands there.
        expected: usize,
        /// Class found.
        found: u8,
    },
    /// Cameras that do not share out the ring.
    #[error("eth80: expected 1, 2, 4, 8 or 16 cameras around an object, found {0}")]
    Cameras(usize),
}

/// Loads the data set as `cameras` see it.
///
/// # Errors
/// [`Eth80Error`] naming the file and what is wrong with it.
pub fn open(dir: &Path, cameras: usize) -> Result<Stored, Eth80Error> {
    let (first, ring) = RING;
    if cameras == 0 || !ring.is_multiple_of(cameras) {
        return Err(Eth80Error::Cameras(cameras));
    }
    let objects = LABELS.len() * OBJECTS;
    let path = find(dir, "eth80-labels-idx1-ubyte")?;
    let classes = idx::read(&path)?.expect_dims(&path, &[objects])?.data;
    let mistaken = (0..objects).find(|&object| usize::from(classes[object]) != object / OBJECTS);
    if let Some(object) = mistaken {
        return Err(Eth80Error::Label { path, object, expected: object / OBJECTS, found: classes[object] });
    }
    let path = find(dir, "eth80-views-idx5-ubyte")?;
    let Shape { channels, height, width } = SHAPE;
    let views = idx::read(&path)?.expect_dims(&path, &[objects, VIEWS, channels, height, width])?.data;

    let mut parts = [StoredPart::default(), StoredPart::default(), StoredPart::default()];
    let apart = ring / cameras;
    for (object, views) in views.chunks_exact(VIEWS * SHAPE.bytes()).enumerate() {
        let part = match object % OBJECTS {
            of_class if of_class < TRAIN => 0,
            of_class if of_class < TRAIN + VALIDATION => 1,
            _ => 2,
        };
        for turn in 0..apart {
            let view = |camera: usize| {
                let at = first + turn + camera * apart;
                Some(&views[at * SHAPE.bytes()..][..SHAPE.bytes()])
            };
            parts[part].push((object / OBJECTS) as u16, SHAPE, (0..cameras).map(view));
        }
    }
    Ok(Stored::new(LABELS.map(str::to_owned).into(), cameras, SHAPE, parts))
}

fn find(dir: &Path, name: &str) -> Result<PathBuf, Eth80Error> {
    data_dir::file(dir, name, &[".gz", ""])
        .ok_or_else(|| Eth80Error::Missing { dir: dir.into(), name: name.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataSet, Part};

    /// Every view filled with its number on the ring, or with 99.
    fn written() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let objects = LABELS.len() * OBJECTS;
        let labels: Vec<u8> = (0..objects).map(|object| (object / OBJECTS) as u8).collect();
        let file = [&[0, 0, 8, 1, 0, 0, 0, objects as u8][..], &labels].concat();
        std::fs::write(dir.path().join("eth80-labels-idx1-ubyte"), file).unwrap();
        let header = [objects, VIEWS, 3, 32, 32].map(|size| (size as u32).to_be_bytes()).concat();
        let of_view = |view: usize| [if view < RING.0 { 99 } else { (view - RING.0) as u8 }; SHAPE.bytes()];
        let of_object: Vec<u8> = (0..VIEWS).flat_map(of_view).collect();
        let file = [&[0, 0, 8, 5][..], &header, &of_object.repeat(objects)].concat();
        std::fs::write(dir.path().join("eth80-views-idx5-ubyte"), file).unwrap();
        dir
    }

    #[test]
    fn cameras_share_out_the_ring_and_objects_stay_in_one_part() {
        let dir = written();
        for (cameras, samples) in [(4, 4), (8, 2), (1, 16)] {
            let data = open(dir.path(), cameras).unwrap();
            let counts = [Part::Train, Part::Validation, Part::Test].map(|part| data.len(part));
            assert_eq!(counts, [6, 1, 2].map(|objects| objects * 8 * samples));
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
    fn cameras_that_leave_a_photograph_over_are_refused() {
        for cameras in [0, 3, 5, 32] {
            let error = open(Path::new("/nowhere"), cameras).unwrap_err().to_string();
            assert!(error.ends_with(&format!("found {cameras}")), "{error}");
        }
    }

    #[test]
    fn a_missing_file_and_another_order_are_named() {
        let dir = written();
        let error = open(Path::new("/nowhere"), 4).unwrap_err().to_string();
        assert!(error.contains("eth80-labels-idx1-ubyte.gz") && error.contains("/nowhere"), "{error}");
        let path = dir.path().join("eth80-labels-idx1-ubyte");
        let mut labels = std::fs::read(&path).unwrap();
        labels[8 + 20] = 7;
        std::fs::write(&path, labels).unwrap();
        let error = open(dir.path(), 4).unwrap_err().to_string();
        assert!(error.contains("object 20: expected class 2, found 7"), "{error}");
    }
}
