//! Writes any data set as class folders.
//!
//! ```text
//! PART/CLASS/SAMPLE.png         data of one slot
//! PART/CLASS/SAMPLE/camN.png    data of several slots
//! classes.txt                   class names, so that labels keep their numbers
//! labels.csv                    only if samples form groups: the table that names the groups
//! ```
//! The name of a sample is its index in its part. A sample that no slot sees has no file.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::data_set::{DataSet, NONE_NAME};
use crate::error::Mismatch;
use crate::labelled_files::{CLASSES_FILE, classes_file, folder_name};
use crate::table::TABLE;
use crate::{DataError, Part, Shape, View, image_codec};

/// Counts of a written data set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Samples of each part, in the order of [`Part::ALL`].
    pub samples: [usize; Part::ALL.len()],
    /// Number of image files.
    pub images: usize,
    /// Bytes of the image files.
    pub bytes: u64,
    /// Samples that no slot sees. They have no file.
    pub not_in_view: usize,
    /// Images that an earlier part has too, byte for byte. Reading refuses such images unless leaks are allowed.
    pub shared: usize,
}

/// Writes at most the first `limit` samples of each part to the folder `out`. The samples appear in `out` all at once, when
/// all are written.
///
/// `report` receives, after every sample, the number of written samples and of all samples.
///
/// # Errors
/// [`DataError::Options`] for a folder that is in use, for class names that a reader would change, and for data on whose calibration part no promise
/// may be made. [`DataError::Write`], [`DataError::Image`] and [`DataError::Read`] (a view cannot be read) leave the folder `OUT.partial`.
pub fn write(
    data: &dyn DataSet,
    out: &Path,
    limit: Option<usize>,
    mut report: impl FnMut(usize, usize),
) -> Result<Written, DataError> {
    if let Some(obstacle) = data.promise_obstacle() {
        let expected =
            "a calibration part of independent samples, since the copy does not say what it is not";
        return Err(Mismatch::new(expected, obstacle).options(out.display()));
    }
    let labels = data.labels();
    let classes = classes_file(&labels).map_err(|mismatch| mismatch.options(out.display()))?;
    let partial = partial_folder(out)?;
    fs::create_dir_all(&partial).map_err(DataError::write(partial.display()))?;
    write_file(&partial.join(CLASSES_FILE), classes.as_bytes())?;

    let count = |part| data.len(part).min(limit.unwrap_or(usize::MAX));
    let total: usize = Part::ALL.into_iter().map(count).sum();
    let mut writer = Writer {
        data,
        root: &partial,
        shape: data.shape(),
        written: Written::default(),
        part_of: HashMap::new(),
        has_groups: Part::ALL.into_iter().any(|part| data.len(part) > 0 && data.group(part, 0).is_some()),
        rows: Vec::new(),
    };
    let mut done = 0;
    for part in Part::ALL {
        for index in 0..count(part) {
            let class = labels.get(usize::from(data.label(part, index)));
            writer.sample(class.map_or(NONE_NAME, String::as_str), part, index)?;
            done += 1;
            report(done, total);
        }
    }
    let written = writer.finish()?;
    if let Some(fault) = data.fault() {
        return Err(DataError::read("views")(io::Error::other(fault)));
    }
    fs::rename(&partial, out).map_err(DataError::write(out.display()))?;
    Ok(written)
}

/// Path of the folder `OUT.partial`, which must not exist yet.
fn partial_folder(out: &Path) -> Result<PathBuf, DataError> {
    let in_use = |found: &str| {
        Mismatch::new("an empty folder or none", format!("{found}; choose another")).options(out.display())
    };
    let Some(name) = out.file_name() else { return Err(in_use("no name for a folder")) };
    if out.is_dir() {
        let mut entries = fs::read_dir(out).map_err(DataError::read(out.display()))?;
        if entries.next().is_some() {
            return Err(in_use("one with files in it"));
        }
    } else if out.exists() {
        return Err(in_use("a file"));
    }
    let mut name = name.to_owned();
    name.push(".partial");
    let partial = out.with_file_name(name);
    if partial.exists() {
        let found = "the folder of an unfinished conversion; remove it and start again";
        return Err(Mismatch::new("no such folder", found).options(partial.display()));
    }
    Ok(partial)
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), DataError> {
    fs::write(path, bytes).map_err(DataError::write(path.display()))
}

struct Writer<'a> {
    data: &'a dyn DataSet,
    root: &'a Path,
    shape: Shape,
    written: Written,
    /// First part of each image, by the hash of the file.
    part_of: HashMap<[u8; 32], Part>,
    /// True when samples of some part form groups.
    has_groups: bool,
    /// Rows of the table, if samples form groups.
    rows: Vec<Vec<String>>,
}

/// Distance between the frame numbers of two parts, so that no frames of different parts count as near each other.
const FRAMES_OF_A_PART: u64 = 1 << 32;

impl Writer<'_> {
    fn sample(&mut self, label: &str, part: Part, index: usize) -> Result<(), DataError> {
        let slots = self.data.slots();
        let class = self.root.join(part.name()).join(folder_name(label));
        let sample = class.join(format!("{index:06}"));
        let group = self.data.group(part, index).map(|group| match self.data.is_recording() {
            true => (u64::from(group) + FRAMES_OF_A_PART * part as u64).to_string(),
            // Padded, so that names sort in the order of the numbers.
            false => format!("{}-{group:08}", part.name()),
        });
        let mut files = vec![String::new(); slots];
        let mut view = vec![0; self.shape.bytes()];
        let images_before = self.written.images;
        for (slot, file) in files.iter_mut().enumerate() {
            if !self.data.view_into(part, index, slot, &mut view) {
                continue;
            }
            let (folder, path) = if slots == 1 {
                (class.as_path(), sample.with_extension("png"))
            } else {
                (sample.as_path(), sample.join(format!("cam{slot}.png")))
            };
            fs::create_dir_all(folder).map_err(DataError::write(folder.display()))?;
            let image = image_codec::png(&View::new(self.shape, view.clone()));
            let image = image.map_err(DataError::image(path.display()))?;
            write_file(&path, &image)?;
            let relative = path.strip_prefix(self.root).unwrap_or(&path);
            *file = relative.to_string_lossy().replace('\\', "/");
            self.written.images += 1;
            self.written.bytes += image.len() as u64;
            let first = *self.part_of.entry(Sha256::digest(&image).into()).or_insert(part);
            self.written.shared += usize::from(first != part);
        }
        if self.written.images > images_before {
            self.written.samples[part as usize] += 1;
            if self.has_groups {
                let group = group.unwrap_or_default();
                let name = format!("{}-{index:06}", part.name());
                let row = [part.name().to_owned(), label.to_owned(), name, group];
                self.rows.push(row.into_iter().chain(files).collect());
            }
        } else {
            self.written.not_in_view += 1;
        }
        Ok(())
    }

    /// Writes the table if the data has groups. Returns the counts.
    fn finish(self) -> Result<Written, DataError> {
        if self.rows.is_empty() {
            return Ok(self.written);
        }
        let group = if self.data.is_recording() { "frame" } else { "group" };
        let files = match self.data.slots() {
            1 => vec!["file".to_owned()],
            slots => (0..slots).map(|slot| format!("cam{slot}")).collect(),
        };
        let head = ["part", "class", "sample", group].map(str::to_owned).into_iter().chain(files);
        let path = self.root.join(TABLE);
        let failed = |error: csv::Error| DataError::write(path.display())(io::Error::other(error));
        let mut table = csv::Writer::from_path(&path).map_err(failed)?;
        table.write_record(head).map_err(failed)?;
        self.rows.iter().try_for_each(|row| table.write_record(row)).map_err(failed)?;
        table.flush().map_err(DataError::write(path.display()))?;
        Ok(self.written)
    }
}
