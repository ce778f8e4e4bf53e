//! Folders of images with classes: a file per sample, or a folder per sample with a file per camera.
//!
//! ```text
//! train/car/000017.jpg          one slot
//! train/car/0001-12/cam0.jpg    slot 0 sees sample 0001-12 so; a slot without a file does not see it
//! ```
//! The first level is `train`, `val` (or `validation`) and `test`, the second the class. Without the first level, as in `car/000017.jpg`,
//! the parts are drawn (see [`split`](crate::split)); pictures that are equal byte for byte stay together. The whole may be a
//! directory or a `.tar.gz` of the same layout. Classes are those of the train part, in the order of their names or in that of
//! `classes.txt`, one a line, where it lies beside them; samples come in the order of theirs. Images (PNG, JPEG, WebP) are
//! brought to the shape asked for, or to that of the first one. What begins with a dot, and files that are no images, are passed over.
//!
//! Parts that share a picture, byte for byte, are refused: what is tested on must not have been trained on.

mod class_names;
mod error;
mod place;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::data_set::{Part, Rules, Wanted};
use crate::files::{self, Found};
use crate::gathered::{Gathered, Picture, Pictures, SLOTS_MAX, Sample};
use crate::stored::Stored;

pub(crate) use class_names::{CLASSES_FILE, folder_name};
pub use error::TreeError;

use place::{Place, class_folder, place};

/// Reads a tree from a directory or a `.tar.gz`.
///
/// # Errors
/// [`TreeError`] naming the file and what is wrong with it.
pub fn open(path: &Path, wanted: Wanted, rules: Rules) -> Result<Stored, TreeError> {
    let mut tree = Tree::new(path, wanted);
    files::each(path, &mut |found| match found {
        Found::Folder(name) => {
            tree.folders.extend(class_folder(name));
            Ok(())
        }
        Found::File(name, bytes) if name.trim_start_matches("./") == CLASSES_FILE => tree.put_classes(bytes),
        Found::File(name, bytes) => tree.put(name, bytes),
    })?;
    tree.finish(rules)
}

/// Part (in a tree that has them), folder of the class and name of a sample, as they are ordered.
type Key = (Option<Part>, String, String);

struct Tree<'a> {
    root: &'a Path,
    slots: Option<usize>,
    pictures: Pictures,
    samples: BTreeMap<Key, BTreeMap<usize, Picture>>,
    /// Folders that stand where those of classes do.
    folders: BTreeSet<(Option<Part>, String)>,
    classes: Option<Vec<String>>,
    /// Whether a sample is a folder, and the file that said so.
    is_folder: Option<(bool, String)>,
}

impl<'a> Tree<'a> {
    fn new(root: &'a Path, wanted: Wanted) -> Self {
        Self {
            root,
            slots: wanted.slots,
            pictures: Pictures::new(wanted.shape),
            samples: BTreeMap::new(),
            folders: BTreeSet::new(),
            classes: None,
            is_folder: None,
        }
    }

    fn put_classes(&mut self, bytes: &[u8]) -> Result<(), TreeError> {
        let classes = class_names::parse(bytes)
            .map_err(|reason| TreeError::ClassNames { root: self.root.into(), reason })?;
        self.classes = Some(classes);
        Ok(())
    }

    /// Takes a file; those that are no images are passed over.
    fn put(&mut self, name: &str, bytes: &[u8]) -> Result<(), TreeError> {
        let root = || self.root.to_path_buf();
        let place = place(name).map_err(|()| TreeError::Layout { root: root(), name: name.into() })?;
        let Some(Place { part, class, sample, slot }) = place else { return Ok(()) };
        let is_folder = slot.is_some();
        let (first, at) = self.is_folder.get_or_insert_with(|| (is_folder, name.to_owned()));
        if *first != is_folder {
            return Err(TreeError::Mixed { root: root(), first: at.clone(), second: name.into() });
        }
        let slot = slot.unwrap_or(0);
        let most = self.slots.unwrap_or(SLOTS_MAX);
        if slot >= most {
            return Err(TreeError::Slot { root: root(), name: name.into(), slot, most });
        }
        let picture = self.pictures.decode(name, bytes).map_err(|source| TreeError::Image {
            root: root(),
            name: name.into(),
            source,
        })?;
        let views = self.samples.entry((part, class, sample)).or_default();
        if let Some(before) = views.insert(slot, picture) {
            return Err(TreeError::Twice { root: root(), first: before.file, second: name.into() });
        }
        Ok(())
    }

    fn finish(self, rules: Rules) -> Result<Stored, TreeError> {
        let root = || self.root.to_path_buf();
        let Some(shape) = self.pictures.shape().filter(|_| !self.samples.is_empty()) else {
            return Err(TreeError::Empty { root: root() });
        };
        let has_parts = self.samples.keys().any(|(part, ..)| part.is_some());
        let filled: BTreeSet<(Option<Part>, &str)> =
            self.samples.keys().map(|(part, class, _)| (*part, class.as_str())).collect();
        let of_a_class = |(part, _): &&(Option<Part>, String)| part.is_some() == has_parts;
        let empty =
            self.folders.iter().filter(of_a_class).find(|(part, class)| !filled.contains(&(*part, class)));
        if let Some((part, class)) = empty {
            let folder = part.map_or_else(|| class.clone(), |part| format!("{}/{class}", part.name()));
            return Err(TreeError::EmptyClass { root: root(), folder });
        }
        let highest = self.samples.values().filter_map(|views| views.keys().next_back()).max();
        let slots = self.slots.unwrap_or(highest.map_or(1, |slot| slot + 1));
        let class_of: BTreeMap<String, &String> =
            self.classes.iter().flatten().map(|class| (folder_name(class), class)).collect();
        let sample = |((part, folder, sample), mut views): (Key, BTreeMap<usize, Picture>)| Sample {
            part,
            name: part.map_or_else(String::new, |part| format!("{}/", part.name()))
                + &format!("{folder}/{sample}"),
            class: class_of.get(&folder).map_or(folder, |class| (*class).clone()),
            group: None,
            views: (0..slots).map(|slot| views.remove(&slot)).collect(),
        };
        let samples = self.samples.into_iter().map(sample).collect();
        let notes = self.pictures.notes();
        let gathered = Gathered { root: self.root.into(), samples, classes: self.classes.clone(), notes };
        Ok(gathered.finish(slots, shape, rules)?)
    }
}
