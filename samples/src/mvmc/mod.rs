//! MVMC, the data set of DDNN: cars, buses and persons before six street cameras, in one file, `MVMC.npz`.
//!
//! `X` holds the views, `[samples, 6, 3, 32, 32]`, floats of which the largest of each view is 1; `y` the class that each camera sees,
//! `[samples, 6]`, 3 where it does not see the sample. That is all: the file has neither parts nor the frames that samples are from.
//!
//! Samples lie in the order of the recording. DDNN drew its 680 train samples from all of it, so that the same parked car may be trained
//! on and tested; here the parts follow each other in time, of the same sizes: the first eight tenths, whose last tenth is the
//! validation part, and the rest for test. A sample that shares a picture with one before it goes where that one is.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::numpy::{Array, ArrayError, Npz, NumpyError};
use crate::split::Groups;
use crate::stored::{Stored, StoredPart};
use crate::{Shape, data_dir};

const LABELS: [&str; 3] = ["car", "bus", "person"];
const NOT_IN_VIEW: i64 = 3;
/// Cameras of the recording.
pub const CAMERAS: usize = 6;
const SHAPE: Shape = Shape::rgb(32, 32);
/// As the original calls it, where it comes from and where it puts it.
const FILES: [&str; 2] = ["MVMC.npz", "mvmc.npz"];

/// Why MVMC could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum MvmcError {
    /// The file is not there.
    #[error("found no `{}` in {}", FILES[0], dir.display())]
    Missing {
        /// Folder looked into.
        dir: PathBuf,
    },
    /// The file is damaged, or its arrays are others.
    #[error(transparent)]
    Numpy(#[from] NumpyError),
    /// A label that names no class.
    #[error("{}: y[{sample}, {camera}]: expected 0 (car), 1 (bus), 2 (person) or 3 (not in view), found {found}", path.display())]
    Label {
        /// File.
        path: PathBuf,
        /// Position in the file.
        sample: usize,
        /// Camera.
        camera: usize,
        /// Label found.
        found: i64,
    },
    /// Cameras that see different things.
    #[error("{}: y[{sample}]: expected one class for all cameras that see the sample, found {first} and {second}", path.display())]
    Disagree {
        /// File.
        path: PathBuf,
        /// Position in the file.
        sample: usize,
        /// One class.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// Too few samples for three parts.
    #[error("{}: expected at least 3 samples that a camera sees, found {found}", path.display())]
    TooFew {
        /// File.
        path: PathBuf,
        /// Samples found.
        found: usize,
    },
    /// Cameras that the recording does not have.
    #[error("mvmc: expected 1 to {CAMERAS} cameras, found {0}")]
    Cameras(usize),
}

/// Loads the data set as the first `cameras` see it.
///
/// # Errors
/// [`MvmcError`] naming the file and what is wrong with it.
pub fn open(dir: &Path, cameras: usize) -> Result<Stored, MvmcError> {
    if !(1..=CAMERAS).contains(&cameras) {
        return Err(MvmcError::Cameras(cameras));
    }
    let path = FILES.iter().find_map(|name| data_dir::file(dir, name, &[""]));
    let path = path.ok_or_else(|| MvmcError::Missing { dir: dir.into() })?;
    let mut file = Npz::open(&path)?;
    let of_label = file.array("y")?;
    let samples = of_label.shape.first().copied().unwrap_or(0);
    let of_label = expect(&file, "y", of_label, &[samples, CAMERAS])?;
    let labels = of_label.integers().map_err(|reason| file.mismatch("y", reason))?;
    let classes = classes(&path, &labels)?;
    let views = file.array("X")?;
    let Shape { channels, height, width } = SHAPE;
    let views = expect(&file, "X", views, &[samples, CAMERAS, channels, height, width])?;
    let pixels = views.pixels().map_err(|reason| file.mismatch("X", reason))?;

    let kept: Vec<(usize, u16)> =
        classes.iter().enumerate().filter_map(|(sample, class)| Some((sample, (*class)?))).collect();
    if kept.len() < 3 {
        return Err(MvmcError::TooFew { path, found: kept.len() });
    }
    let view = |sample: usize, camera: usize| {
        let at = sample * CAMERAS + camera;
        (labels[at] != NOT_IN_VIEW).then(|| &pixels[at * SHAPE.bytes()..][..SHAPE.bytes()])
    };
    let firsts = firsts(&kept, view);
    let behind_train = kept.len() * 8 / 10;
    let validation = (behind_train / 10).max(1);
    let part_of = |at: usize| usize::from(at >= behind_train - validation) + usize::from(at >= behind_train);
    let mut parts = [StoredPart::default(), StoredPart::default(), StoredPart::default()];
    let mut moved = 0;
    for (at, (sample, class)) in kept.iter().enumerate() {
        let part = part_of(firsts[at]);
        moved += usize::from(part != part_of(at));
        parts[part].push(*class, SHAPE, (0..cameras).map(|camera| view(*sample, camera)));
    }
    let mut notes = Vec::new();
    if kept.len() < samples {
        notes.push(format!(
            "{} of {samples} samples are left out: no camera sees them, so their class is unknown",
            samples - kept.len()
        ));
    }
    if moved > 0 {
        notes.push(format!("{moved} samples share a picture with an earlier part and are put there"));
    }
    Ok(Stored::new(LABELS.map(str::to_owned).into(), cameras, SHAPE, parts).with_notes(notes))
}

fn expect(file: &Npz, name: &str, array: Array, shape: &[usize]) -> Result<Array, MvmcError> {
    if array.shape == shape {
        return Ok(array);
    }
    let found = format!("{:?}", array.shape);
    Err(file.mismatch(name, ArrayError::new(format!("the shape {shape:?}"), found)).into())
}

/// The class of each sample; `None` where no camera sees it.
fn classes(path: &Path, labels: &[i64]) -> Result<Vec<Option<u16>>, MvmcError> {
    let of_sample = |(sample, labels): (usize, &[i64])| {
        let mut class = None;
        for (camera, &found) in labels.iter().enumerate() {
            if !(0..=NOT_IN_VIEW).contains(&found) {
                return Err(MvmcError::Label { path: path.into(), sample, camera, found });
            }
            if found == NOT_IN_VIEW {
                continue;
            }
            let first = *class.get_or_insert(found);
            if first != found {
                let [first, second] = [first, found].map(|class| LABELS[class as usize]);
                return Err(MvmcError::Disagree { path: path.into(), sample, first, second });
            }
        }
        Ok(class.map(|class| class as u16))
    };
    labels.chunks_exact(CAMERAS).enumerate().map(of_sample).collect()
}

/// For each sample the first that shares a picture with it, with one that does, and so on.
fn firsts<'a>(kept: &[(usize, u16)], view: impl Fn(usize, usize) -> Option<&'a [u8]>) -> Vec<usize> {
    let mut groups = Groups::new(kept.len());
    let mut pictures = HashMap::new();
    for (at, (sample, _)) in kept.iter().enumerate() {
        for picture in (0..CAMERAS).filter_map(|camera| view(*sample, camera)) {
            groups.join(*pictures.entry(picture).or_insert(at), at);
        }
    }
    (0..kept.len()).map(|at| groups.first(at)).collect()
}
