//! Writes any data set as class folders.
//!
//! ```text
//! PART/CLASS/SAMPLE.png         data of one slot
//! PART/CLASS/SAMPLE/camN.png    data of several slots
//! classes.txt                   class names, so that labels keep their numbers
//! ```
//! The name of a sample is its index in its part. A sample that no slot sees has no file.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::names::{CLASSES_FILE, folder_name};
use crate::data_set::DataSet;
use crate::error::Mismatch;
use crate::{DataError, Part, Shape, View, image_codec};

/// Account of a written data set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Samples of each part, in the order of [`Part::ALL`].
    pub samples: [usize; Part::ALL.len()],
    /// Images.
    pub images: usize,
    /// Bytes of the images.
    pub bytes: u64,
    /// Samples that no slot sees. They have no file.
    pub not_in_view: usize,
    /// Images that another part has too, byte for byte. Reading refuses them unless leaks are allowed.
    pub shared: usize,
}

/// Writes at most the first `limit` samples of each part to the folder `out`. The folder is complete as soon as it exists.
///
/// `report` receives, after every sample, the number of written samples and of all samples.
///
/// # Errors
/// [`DataError::Options`] for a folder that is in use; [`DataError::Write`] and [`DataError::Image`] leave the folder `OUT.partial`.
pub fn write(
    data: &dyn DataSet,
    out: &Path,
    limit: Option<usize>,
    mut report: impl FnMut(usize, usize),
) -> Result<Written, DataError> {
    let partial = partial_folder(out)?;
    let labels = data.labels();
    fs::create_dir_all(&partial).map_err(DataError::write(partial.display()))?;
    write_file(&partial.join(CLASSES_FILE), (labels.join("\n") + "\n").as_bytes())?;

    let count = |part| data.len(part).min(limit.unwrap_or(usize::MAX));
    let total: usize = Part::ALL.into_iter().map(count).sum();
    let mut writer =
        Writer { data, shape: data.shape(), written: Written::default(), part_of: HashMap::new() };
    let mut done = 0;
    for part in Part::ALL {
        for index in 0..count(part) {
            let class = folder_name(&labels[usize::from(data.label(part, index))]);
            writer.sample(&partial.join(part.name()).join(class), part, index)?;
            done += 1;
            report(done, total);
        }
    }
    fs::rename(&partial, out).map_err(DataError::write(out.display()))?;
    Ok(writer.written)
}

/// Folder of an unfinished data set.
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
    shape: Shape,
    written: Written,
    /// First part of each image, by the hash of the file.
    part_of: HashMap<[u8; 32], Part>,
}

impl Writer<'_> {
    fn sample(&mut self, class: &Path, part: Part, index: usize) -> Result<(), DataError> {
        let slots = self.data.slots();
        let sample = class.join(format!("{index:06}"));
        let mut view = vec![0; self.shape.bytes()];
        let images_before = self.written.images;
        for slot in 0..slots {
            if !self.data.view_into(part, index, slot, &mut view) {
                continue;
            }
            let (folder, path) = if slots == 1 {
                (class, sample.with_extension("png"))
            } else {
                (sample.as_path(), sample.join(format!("cam{slot}.png")))
            };
            fs::create_dir_all(folder).map_err(DataError::write(folder.display()))?;
            let image = image_codec::png(&View::new(self.shape, view.clone()));
            let image = image.map_err(DataError::image(path.display()))?;
            write_file(&path, &image)?;
            self.written.images += 1;
            self.written.bytes += image.len() as u64;
            let first = *self.part_of.entry(Sha256::digest(&image).into()).or_insert(part);
            self.written.shared += usize::from(first != part);
        }
        if self.written.images > images_before {
            self.written.samples[part as usize] += 1;
        } else {
            self.written.not_in_view += 1;
        }
        Ok(())
    }
}
