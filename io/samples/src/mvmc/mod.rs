//! MVMC, the data set of DDNN: cars, buses and persons seen by six street cameras, in one file.
//!
//! ```text
//! X  [samples, 6, 3, 32, 32]   views; the largest float of each view is 1
//! y  [samples, 6]              class that each camera sees; 3 if the camera does not see the sample
//! ```
//! The file has neither parts nor frame numbers. DDNN draws its 680 train samples from the whole recording, so one parked car can be in
//! train and test. Here the parts follow each other in time, with the same sizes:
//!
//! ```text
//! +-------------------------------------+-------+---------------+
//! | train, 72 %                         | val   | test, 20 %    |
//! +-------------------------------------+-------+---------------+
//! ```
//! A sample that shares an image with an earlier sample goes to the part of the earlier sample.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::Path;

use crate::data_set::{DataSetInfo, Omissions, PartsOrigin};
use crate::error::Mismatch;
use crate::in_memory::{InMemory, InMemoryPart, StoredViews};
use crate::numpy::{Array, Npz};
use crate::split::Groups;
use crate::{DataError, Shape, files};

/// Declaration of MVMC.
pub(crate) const INFO: DataSetInfo = DataSetInfo {
    name: "mvmc",
    content: "cars, buses and persons, 1 to 6 slots, 3x32x32",
    files: "MVMC.npz, as DDNN (kunglab/ddnn) loads it",
    marks: &NAMES,
    licence: "copyright CVLab-EPFL, research use",
    parts: PartsOrigin::Fixed,
    folds: 0,
    has_view_seed: false,
    open: |dir, options| Ok(Box::new(open(dir, options.slots.unwrap_or(CAMERAS), options.omissions)?)),
};

const LABELS: [&str; 3] = ["car", "bus", "person"];
const NOT_IN_VIEW: i64 = 3;
/// Cameras of the recording.
const CAMERAS: usize = 6;
const SHAPE: Shape = Shape::rgb(32, 32);
/// Names of the file: the name under which DDNN fetches the file, and the name under which DDNN stores it.
const NAMES: [&str; 2] = ["MVMC.npz", "mvmc.npz"];

/// The arrays of the file.
struct Recording {
    /// `[samples, cameras]`: classes, or [`NOT_IN_VIEW`].
    labels: Vec<i64>,
    /// `[samples, cameras, view]`.
    pixels: Vec<u8>,
}

/// Index and class of a sample that at least one camera sees.
type SeenSample = (usize, u16);

/// Opens the data set with the first `cameras` cameras as slots.
///
/// # Errors
/// [`DataError`] naming the file and its fault.
fn open(dir: &Path, cameras: usize, omissions: Omissions) -> Result<InMemory, DataError> {
    if !(1..=CAMERAS).contains(&cameras) {
        return Err(Mismatch::new(format!("1 to {CAMERAS} cameras"), cameras.to_string()).options("mvmc"));
    }
    let path = files::find(dir, &NAMES.map(str::to_owned), INFO.files)?;
    let recording = Recording::read(&path)?;
    let seen = recording.seen_samples(&path)?;
    if seen.len() < 3 {
        let mismatch = Mismatch::new("at least 3 samples that a camera sees", seen.len().to_string());
        return Err(mismatch.wrong_file(path.display()));
    }
    let test_start = seen.len() * 8 / 10;
    let validation_start = test_start - (test_start / 10).max(1);
    let part_at = |at: usize| usize::from(at >= validation_start) + usize::from(at >= test_start);
    let mut parts = [(); 3].map(|()| InMemoryPart::default());
    let mut moved = 0;
    for (at, first) in recording.first_with_shared_image(&seen).into_iter().enumerate() {
        let (index, class) = seen[at];
        let part = part_at(first);
        moved += usize::from(part != part_at(at));
        parts[part].push(class, (0..cameras).map(|camera| recording.number(index, camera)));
    }
    let samples = recording.labels.len() / CAMERAS;
    let mut data = InMemory::new(LABELS, cameras, SHAPE, parts, StoredViews::Memory(recording.pixels));
    if seen.len() < samples {
        let unseen = samples - seen.len();
        let note = format!(
            "{unseen} of {samples} samples are left out: no camera sees them, so their class is unknown"
        );
        data.notes.push(omissions.note(path.display(), note)?);
    }
    if moved > 0 {
        data.notes
            .push(format!("{moved} samples share an image with an earlier part and are moved to that part"));
    }
    Ok(data)
}

impl Recording {
    fn read(path: &Path) -> Result<Self, DataError> {
        let file = Npz::open(path)?;
        let labels = file.array("y")?;
        let samples = labels.shape.first().copied().unwrap_or(0);
        let labels = expect_shape(labels, &[samples, CAMERAS]).and_then(|labels| labels.integers());
        let labels = labels.map_err(|mismatch| file.wrong_array("y", mismatch))?;
        let Shape { channels, height, width } = SHAPE;
        let pixels = expect_shape(file.array("X")?, &[samples, CAMERAS, channels, height, width])
            .and_then(Array::pixels)
            .map_err(|mismatch| file.wrong_array("X", mismatch))?;
        Ok(Self { labels, pixels })
    }

    /// Number of a view; `None` if the camera does not see the sample.
    fn number(&self, index: usize, camera: usize) -> Option<usize> {
        Some(index * CAMERAS + camera).filter(|view| self.labels[*view] != NOT_IN_VIEW)
    }

    /// The samples that a camera sees, in the order of the file. The cameras must agree on the class.
    fn seen_samples(&self, path: &Path) -> Result<Vec<SeenSample>, DataError> {
        let mut seen = Vec::new();
        for (index, labels) in self.labels.chunks_exact(CAMERAS).enumerate() {
            let wrong = |at: String, expected: &str, found: String| {
                Err(Mismatch::new(expected, found).wrong_file(format!("{}: {at}", path.display())))
            };
            if let Some(camera) = labels.iter().position(|label| !(0..=NOT_IN_VIEW).contains(label)) {
                let expected = "0 (car), 1 (bus), 2 (person) or 3 (not in view)";
                return wrong(format!("y[{index}, {camera}]"), expected, labels[camera].to_string());
            }
            let mut classes = labels.iter().filter(|&&label| label != NOT_IN_VIEW);
            let Some(&class) = classes.next() else { continue };
            if let Some(&other) = classes.find(|&&other| other != class) {
                let found = format!("{} and {}", LABELS[class as usize], LABELS[other as usize]);
                return wrong(format!("y[{index}]"), "one class for all cameras that see the sample", found);
            }
            seen.push((index, class as u16));
        }
        Ok(seen)
    }

    /// For each sample the first sample of its group. Samples that share an image form a group.
    fn first_with_shared_image(&self, seen: &[SeenSample]) -> Vec<usize> {
        let mut groups = Groups::new(seen.len());
        let mut first_with = HashMap::new();
        for (at, (index, _)) in seen.iter().enumerate() {
            for view in (0..CAMERAS).filter_map(|camera| self.number(*index, camera)) {
                let view = &self.pixels[view * SHAPE.bytes()..][..SHAPE.bytes()];
                groups.join(*first_with.entry(view).or_insert(at), at);
            }
        }
        (0..seen.len()).map(|at| groups.first(at)).collect()
    }
}

fn expect_shape(array: Array, shape: &[usize]) -> Result<Array, Mismatch> {
    if array.shape == shape {
        return Ok(array);
    }
    Err(Mismatch::new(format!("the shape {shape:?}"), format!("{:?}", array.shape)))
}
