//! Folders of images with classes, read and written: a file per sample, or a folder per sample with a file per camera.
//!
//! ```text
//! train/car/000017.jpg          one slot
//! train/car/0001-12/cam0.jpg    slot 0 sees sample 0001-12
//! train/car/0001-12/cam2.jpg    slot 2 sees the sample; slot 1 has no file and does not see it
//! classes.txt                   optional: class names in label order
//! ```
//! - The root is a directory or a `.tar.gz` of the same layout.
//! - The first level is `train`, `val` (or `validation`), `test` and perhaps `calibration`. Without that level, as in `car/000017.jpg`, the parts are drawn
//!   (see [`split`](crate::split)).
//! - Labels number the classes of the train part in alphabetical order, or in the order of `classes.txt`. Samples are in the order of their names.
//! - If every sample is a folder `FRAME-OBJECT` of two numbers, as `0001-12`, the objects of a frame form a group, and
//!   the frames belong to one recording.
//! - Images (PNG, JPEG, WebP) are resized to the requested shape, or to the shape of the first image. An image is recognised by its
//!   content, not by its name.
//! - If regions are requested, one for each slot, a file that is a whole sample gives each slot its region: one camera, several slots.
//! - The class folder `_none` is no class: its images show none of the classes.
//! - Other entries are left out and counted. A file with the name of an image and other content is refused.
//! - Names of classes are compared in their composed form (Unicode NFC).
//! - Two parts that share an image, byte for byte, are refused: a test sample must not be a train sample.

mod names;
#[cfg(test)]
mod tests;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use headwater_protocol::Slot;

use crate::data_set::{DataSetInfo, Omissions, OpenOptions, PartsOrigin};
use crate::error::Mismatch;
use crate::files::{self, Entry, MAX_FILE_BYTES};
use crate::in_memory::InMemory;
use crate::labelled_files::{
    CLASSES_FILE, EachImage, ImageFile, ImageReader, LabelledFiles, LabelledSample, PreparedImages,
    decode_image, folder_name, frame_group, parse_classes,
};
use crate::table::TABLE;
use crate::tar_gz::Member;
use crate::{DataError, Part};

pub use write::{Written, write};

use names::{SampleKey, class_folder};

/// Declaration of the user's own images in folders.
pub(crate) const INFO: DataSetInfo = DataSetInfo {
    name: "folders",
    content: "images of your own in folders",
    files: "train/CLASS/IMAGE.jpg, or train/CLASS/SAMPLE/camN.jpg where camera N of several sees the sample, and so val, test and perhaps calibration, \
            or without that level; a directory or .tar.gz",
    marks: &[],
    licence: "yours",
    parts: PartsOrigin::Files,
    folds: 0,
    has_view_seed: false,
    open: |dir, options| Ok(Box::new(open(dir, options)?)),
};

/// Reads class folders from a directory or a `.tar.gz`.
///
/// # Errors
/// [`DataError`] naming the file and its fault.
fn open(path: &Path, options: OpenOptions<'_>) -> Result<InMemory, DataError> {
    let mut reader = Reader {
        root: path,
        options,
        images: ImageReader::new(path, options, decode_image),
        samples: BTreeMap::new(),
        folders: BTreeSet::new(),
        classes: None,
        first_image: None,
    };
    let left_out = files::visit(path, options.omissions, &mut |entry| match entry {
        Entry::Folder(name) => {
            reader.folders.extend(class_folder(name));
            Ok(true)
        }
        Entry::File(file) => reader.add_file(file),
    })?;
    reader.finish(left_out)
}

/// Visits the images of a directory or a `.tar.gz`.
fn visit_images(path: &Path, each: EachImage<'_>) -> Result<(), DataError> {
    let visited = files::visit(path, Omissions::Noted, &mut |entry| match entry {
        Entry::File(file) if file.name.trim_start_matches("./") != CLASSES_FILE => {
            let name = file.name.to_owned();
            let Some(bytes) = file.read_image()? else { return Ok(false) };
            each(&name, bytes).map(|()| true)
        }
        Entry::File(_) | Entry::Folder(_) => Ok(true),
    });
    visited.map(|_| ())
}

struct Reader<'a> {
    root: &'a Path,
    options: OpenOptions<'a>,
    images: ImageReader<'a>,
    samples: BTreeMap<SampleKey, BTreeMap<usize, ImageFile>>,
    /// Folders at the level of classes.
    folders: BTreeSet<(Option<Part>, String)>,
    classes: Option<Vec<String>>,
    /// Path of the first image, and true if the image lies in the folder of a sample. Later images must have the same layout.
    first_image: Option<(String, bool)>,
}

impl Reader<'_> {
    /// Text that names a file of the folder or archive in errors.
    fn at(&self, name: &str) -> String {
        format!("{}: `{name}`", self.root.display())
    }

    fn invalid(&self, expected: impl Into<String>, found: impl Into<String>) -> DataError {
        Mismatch::new(expected, found).invalid(self.root.display())
    }

    /// Adds a file. Returns false if the file is left out.
    fn add_file(&mut self, file: Member<'_>) -> Result<bool, DataError> {
        let name = file.name.to_owned();
        match name.trim_start_matches("./") {
            CLASSES_FILE if file.size > MAX_FILE_BYTES => {
                return Err(DataError::too_large(self.at(&name), MAX_FILE_BYTES, "bytes in a file"));
            }
            CLASSES_FILE => {
                let classes = parse_classes(&file.read()?);
                self.classes = Some(classes.map_err(|mismatch| mismatch.invalid(self.at(CLASSES_FILE)))?);
                return Ok(true);
            }
            TABLE => {
                let found =
                    "one: read it with `--data table`, which knows the groups and frames that it names";
                return Err(self.invalid("no labels.csv", found));
            }
            _ => {}
        }
        let Some(bytes) = file.read_image()? else { return Ok(false) };
        self.add_image(&name, bytes)?;
        Ok(true)
    }

    fn add_image(&mut self, name: &str, bytes: Vec<u8>) -> Result<(), DataError> {
        let path = names::parse_path(name);
        let (key, slot) = path.map_err(|mismatch| mismatch.invalid(self.root.display()))?;
        let is_folder = slot.is_some();
        let (first, first_is_folder) = self.first_image.get_or_insert_with(|| (name.to_owned(), is_folder));
        if *first_is_folder != is_folder {
            let found = format!("`{first}` and `{name}`");
            return Err(self.invalid("every sample to be a file or every sample to be a folder", found));
        }
        let slots = self.options.slots.unwrap_or(Slot::MAX);
        if let Some(slot) = slot.filter(|slot| *slot >= slots) {
            let mismatch = Mismatch::new(format!("cameras 0 to {}", slots - 1), slot.to_string());
            return Err(mismatch.invalid(self.at(name)));
        }
        // A file that is a whole sample gives each slot its region.
        let of_sample = 0..self.options.framings.regions.len().max(1);
        let seen_by = slot.map_or(of_sample, |slot| slot..slot + 1);
        let image = self.images.add(name, bytes, seen_by.clone())?;
        let views = self.samples.entry(key).or_default();
        for (index, slot) in seen_by.enumerate() {
            if let Some(first) = views.insert(slot, image.of_slot(index)) {
                return Err(self.invalid("one file for a view", format!("`{}` and `{name}`", first.path)));
            }
        }
        Ok(())
    }

    fn finish(self, left_out: Option<String>) -> Result<InMemory, DataError> {
        // If there are no images, the entries that were left out are often the reason.
        let why = left_out.as_ref().map(|note| format!("; {note}")).unwrap_or_default();
        if self.samples.is_empty() {
            let expected = "images (PNG, JPEG, WebP) under PART/CLASS or CLASS";
            return Err(self.invalid(expected, format!("none{why}")));
        }
        self.check_class_folders(&why)?;
        let last = self.samples.values().filter_map(|views| views.keys().next_back()).max();
        let slots = self.options.slots.unwrap_or(last.map_or(1, |slot| slot + 1));
        let class_of: BTreeMap<String, &String> =
            self.classes.iter().flatten().map(|class| (folder_name(class), class)).collect();
        let are_frames = self.are_frames()?;
        let PreparedImages { shape, views, notes: changes } =
            self.images.prepare(&|each| visit_images(self.root, each))?;
        let mut earlier = String::new();
        let sample =
            |((part, folder, (sample, ending)), mut views): (SampleKey, BTreeMap<usize, ImageFile>)| {
                let mut name = format!("{}/{sample}", path_of_class(part, &folder));
                // Files that differ in the ending alone follow each other.
                if name == earlier {
                    name = format!("{name}.{ending}");
                } else {
                    earlier.clone_from(&name);
                }
                LabelledSample {
                    part,
                    name,
                    class: class_of.get(&folder).map_or(folder, |class| (*class).clone()),
                    group: names::frame(&sample).filter(|_| are_frames).map(frame_group),
                    views: (0..slots).map(|slot| views.remove(&slot)).collect(),
                }
            };
        let samples = self.samples.into_iter().map(sample).collect();
        let notes = left_out.into_iter().chain(changes).collect();
        let (root, classes) = (self.root.into(), self.classes.clone());
        let files = LabelledFiles { root, samples, views, classes, is_recording: are_frames, notes };
        files.into_data_set(slots, shape, self.options)
    }

    /// Returns true if all samples are folders named `FRAME-OBJECT`. Refuses a mixture, because the frames of a recording would then count
    /// as independent samples.
    fn are_frames(&self) -> Result<bool, DataError> {
        if self.first_image.as_ref().is_none_or(|(_, is_folder)| !is_folder) {
            return Ok(false);
        }
        let (frames, others): (Vec<&SampleKey>, Vec<&SampleKey>) =
            self.samples.keys().partition(|(_, _, (sample, _))| names::frame(sample).is_some());
        match (frames.is_empty(), others.first()) {
            (true, _) => Ok(false),
            (false, None) => Ok(true),
            (false, Some((_, _, (other, _)))) => {
                let all = self.samples.len();
                let found = format!("{} of {all}; `{other}` is not", frames.len());
                Err(self.invalid("every sample folder to be named FRAME-OBJECT, or none", found))
            }
        }
    }

    /// Refuses a class folder without images; `why` says what is left out.
    fn check_class_folders(&self, why: &str) -> Result<(), DataError> {
        let has_parts = self.samples.keys().any(|(part, ..)| part.is_some());
        let filled: BTreeSet<(Option<Part>, String)> =
            self.samples.keys().map(|(part, class, _)| (*part, class.clone())).collect();
        match self.folders.difference(&filled).find(|(part, _)| part.is_some() == has_parts) {
            None => Ok(()),
            Some((part, class)) => {
                let at = self.at(&path_of_class(*part, class));
                let found = format!("none; add some or remove the folder{why}");
                Err(Mismatch::new("images in the folder of a class", found).invalid(at))
            }
        }
    }
}

/// Path of a class folder below the root.
fn path_of_class(part: Option<Part>, folder: &str) -> String {
    part.map_or_else(|| folder.to_owned(), |part| format!("{}/{folder}", part.name()))
}
