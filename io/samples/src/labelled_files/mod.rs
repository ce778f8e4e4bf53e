//! Labelled images from files, before they form a data set: checks the parts or draws them, and numbers the classes.

mod classes;
mod images;
mod leaks;

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::data_set::{Leaks, NO_CLASS, NONE_NAME, OpenOptions};
use crate::error::Mismatch;
use crate::in_memory::{InMemory, InMemoryPart, StoredViews};
use crate::split::Groups;
use crate::{DataError, Part, Shape};

pub(crate) use classes::{CLASSES_FILE, classes_file, folder_name, parse_classes};
pub(crate) use images::{Decoded, EachImage, ImageReader, PreparedImages, Target, decode_image};

const MAX_CLASSES: usize = 10_000;

/// All samples of a folder or archive, in the order that they keep within their part.
#[derive(Clone, Debug)]
pub(crate) struct LabelledFiles {
    /// Folder or archive, for errors.
    pub(crate) root: PathBuf,
    pub(crate) samples: Vec<LabelledSample>,
    /// The decoded views of all image files.
    pub(crate) views: StoredViews,
    /// Class names in label order. `None` takes the classes of the train part in alphabetical order.
    pub(crate) classes: Option<Vec<String>>,
    /// True when the groups are the frames of one recording.
    pub(crate) is_recording: bool,
    /// Remarks about the reading.
    pub(crate) notes: Vec<String>,
}

/// A sample as its files describe it.
#[derive(Clone, Debug)]
pub(crate) struct LabelledSample {
    /// `None` if the data has no parts.
    pub(crate) part: Option<Part>,
    pub(crate) class: String,
    /// Name in errors.
    pub(crate) name: String,
    /// Group of the sample; all samples of a group stay in one part.
    pub(crate) group: Option<String>,
    /// View of each slot. A slot past the end sees nothing.
    pub(crate) views: Vec<Option<ImageFile>>,
}

/// An image file with its path and hash.
#[derive(Clone, Debug)]
pub(crate) struct ImageFile {
    /// Path in the folder or archive.
    pub(crate) path: String,
    /// SHA-256 of the file.
    pub(crate) hash: [u8; 32],
    /// Number of the file's view among the decoded views.
    pub(crate) view: usize,
}

impl ImageFile {
    /// The file with its view for the slot at position `index` among the slots that see the file.
    pub(crate) fn of_slot(&self, index: usize) -> Self {
        Self { view: self.view + index, ..self.clone() }
    }
}

/// Name of the group of a frame. The number is padded to 20 digits, so that names sort in the order of time.
pub(crate) fn frame_group(frame: u64) -> String {
    format!("frame {frame:020}")
}

impl LabelledFiles {
    /// The data set of these samples.
    pub(crate) fn into_data_set(
        mut self,
        slots: usize,
        shape: Shape,
        options: OpenOptions<'_>,
    ) -> Result<InMemory, DataError> {
        let parts = self.parts(options)?;
        let classes = self.class_names(&parts)?;
        let obstacle = leaks::promise_obstacle(&self.samples, &parts);
        let mut stored = Part::ALL.map(|_| InMemoryPart::default());
        for (part, stored) in Part::ALL.iter().zip(&mut stored) {
            let of_part = self.samples.iter().zip(&parts).filter(|(_, of)| *of == part);
            stored.set_groups(&of_part.map(|(sample, _)| sample.group.as_deref()).collect::<Vec<_>>());
        }
        for (sample, part) in self.samples.iter().zip(parts) {
            let known = match sample.class.as_str() {
                NONE_NAME => Some(NO_CLASS),
                class => classes.iter().position(|known| known == class).map(|class| class as u16),
            };
            let Some(class) = known else {
                let expected = format!("a class of train ({})", classes.join(", "));
                let at = format!("{}: sample `{}`", self.root.display(), sample.name);
                return Err(Mismatch::new(expected, format!("`{}`", sample.class)).invalid(at));
            };
            let view = |slot: usize| Some(sample.views.get(slot)?.as_ref()?.view);
            stored[part as usize].push(class, (0..slots).map(view));
            let file = |slot: usize| {
                let path = &sample.views.get(slot)?.as_ref()?.path;
                // Names in an archive may begin with `./`.
                Some(path.strip_prefix("./").unwrap_or(path).to_owned())
            };
            stored[part as usize].files.extend((0..slots).map(file));
        }
        let [train, validation, test, calibration] = stored;
        let data = InMemory::new(classes, slots, shape, [train, validation, test], self.views);
        let mut data = data.with_calibration(calibration);
        data.is_recording = self.is_recording;
        data.promise_obstacle = obstacle;
        data.notes = self.notes;
        Ok(data)
    }

    /// Part of each sample, as given or drawn. An error if train, validation or test would have no sample.
    fn parts(&mut self, options: OpenOptions<'_>) -> Result<Vec<Part>, DataError> {
        let root = self.root.display().to_string();
        let empty = |part: Part| {
            let found = format!("none in {}; move whole scenes from another part to it", part.name());
            Err(Mismatch::new("samples in each of train, val and test", found).invalid(&root))
        };
        let given: Vec<Part> = self.samples.iter().filter_map(|sample| sample.part).collect();
        if self.samples.is_empty() {
            return empty(Part::Train);
        }
        if given.is_empty() {
            self.notes.extend(self.drawn_frames(options.leaks)?);
            return self.draw_parts(options);
        }
        if given.len() < self.samples.len() {
            let name = |has_part: bool| {
                let found = self.samples.iter().find(|sample| sample.part.is_some() == has_part);
                found.map(|sample| sample.name.as_str()).unwrap_or_default()
            };
            let found = format!("one for `{}` and none for `{}`", name(true), name(false));
            return Err(Mismatch::new("a part for every sample or for none", found).invalid(root));
        }
        if options.split.is_some() {
            return Err(Mismatch::new("no split", "one; the data has parts of its own").options(root));
        }
        if options.fold.is_some() {
            return Err(Mismatch::new("no folds", "some; the data has parts of its own").options(root));
        }
        if let Some(part) = Part::REQUIRED.into_iter().find(|part| !given.contains(part)) {
            return empty(part);
        }
        self.notes.extend(leaks::check(&self.root, &self.samples, &given, options.leaks)?);
        Ok(given)
    }

    /// Refuses to draw parts from the frames of a recording: frames that follow each other show the same things. If leaks are allowed,
    /// returns a remark instead.
    fn drawn_frames(&self, leaks: Leaks) -> Result<Option<String>, DataError> {
        let found = "frames of one recording without parts: drawn at random, frames that follow each other lie in different parts";
        match (self.is_recording, leaks) {
            (false, _) => Ok(None),
            (true, Leaks::Allowed) => {
                Ok(Some(format!("{found}, so results on test are better than on new data")))
            }
            (true, Leaks::Refused) => {
                let expected =
                    "folders train, val and test that divide the recording by time, with a gap between them";
                Err(Mismatch::new(expected, found).invalid(self.root.display()))
            }
        }
    }

    /// Draws the parts. Samples that share a group or an image stay together.
    fn draw_parts(&self, options: OpenOptions<'_>) -> Result<Vec<Part>, DataError> {
        let names: Vec<&str> = self.samples.iter().map(|sample| sample.name.as_str()).collect();
        let known: BTreeSet<&str> = self.samples.iter().map(|sample| sample.class.as_str()).collect();
        let known: Vec<&str> = known.into_iter().collect();
        // Every class is in `known`, so the search finds it.
        let number = |sample: &LabelledSample| known.binary_search(&sample.class.as_str()).unwrap_or(0);
        let classes: Vec<usize> = self.samples.iter().map(number).collect();
        let mut groups = Groups::new(self.samples.len());
        leaks::join(&self.samples, &mut groups);
        let split = options.split.unwrap_or_default();
        let (drawn, expected) = if let (Some(fold), Some(folds)) = (options.fold, options.folds) {
            let parts = split.parts_of_fold(&classes, &names, &mut groups, [fold, folds]);
            (parts, format!("samples in each of {folds} folds"))
        } else {
            let parts = split.parts(&classes, &names, &mut groups);
            (parts, "samples in each of train, val and test".to_owned())
        };
        drawn.map_err(|error| {
            let found = format!(
                "{} groups that cannot be divided so; a group (one scene, one image) stays in one part: add groups, or name the part of \
                 each sample",
                error.groups
            );
            let at = format!("{}: class `{}`", self.root.display(), known[error.class]);
            Mismatch::new(expected, found).invalid(at)
        })
    }

    /// Class names in label order.
    fn class_names(&mut self, parts: &[Part]) -> Result<Vec<String>, DataError> {
        let train = self.samples.iter().zip(parts).filter(|(_, part)| **part == Part::Train);
        let trained: BTreeSet<&String> =
            train.map(|(sample, _)| &sample.class).filter(|class| *class != NONE_NAME).collect();
        if trained.is_empty() {
            let found = format!("samples of `{NONE_NAME}` alone, which is no class");
            return Err(Mismatch::new("samples of a class in train", found).invalid(self.root.display()));
        }
        let classes: Vec<String> = match &self.classes {
            None => trained.into_iter().cloned().collect(),
            Some(classes) => {
                let classes: Vec<String> =
                    classes.iter().filter(|class| *class != NONE_NAME).cloned().collect();
                let untrained = classes.iter().filter(|class| !trained.contains(class));
                self.notes.extend(untrained.map(|class| format!("class `{class}` has no samples in train")));
                classes
            }
        };
        if let Some((first, second)) = classes::alike(&classes) {
            self.notes.push(format!("classes `{first}` and `{second}` differ in the case of letters alone"));
        }
        if classes.len() > MAX_CLASSES {
            let mismatch = Mismatch::new(format!("at most {MAX_CLASSES} classes"), classes.len().to_string());
            return Err(mismatch.invalid(self.root.display()));
        }
        Ok(classes)
    }
}
