//! Folders of images with classes: a file per sample, or a folder per sample with a file per camera.
//!
//! ```text
//! train/car/000017.jpg          one slot
//! train/car/0001-12/cam0.jpg    slot 0 sees sample 0001-12 so; a slot without a file does not see it
//! ```
//! The first level is `train`, `val` (or `validation`) and `test`, the second the class. The whole may be a directory or a `.tar.gz` of the
//! same layout. Classes are those of the train part, in the order of their names; samples come in the order of theirs. Images (PNG,
//! JPEG, WebP) are resized to the shape asked for, or to that of the first one.
//!
//! Parts that share a picture, byte for byte, are refused: what is tested on must not have been trained on.

mod error;
mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::data_set::{Part, Wanted};
use crate::stored::{Stored, StoredPart};
use crate::{View, image_codec};

pub use error::TreeError;

/// Most slots.
const SLOTS_MAX: usize = 32;
/// Parts as they are called in paths.
const PARTS: [(&str, Part); 4] = [
    ("train", Part::Train),
    ("val", Part::Validation),
    ("validation", Part::Validation),
    ("test", Part::Test),
];

/// Reads a tree from a directory or a `.tar.gz`.
///
/// # Errors
/// [`TreeError`] naming the file and what is wrong with it.
pub fn open(path: &Path, wanted: Wanted) -> Result<Stored, TreeError> {
    let mut tree = Tree { wanted, ..Tree::default() };
    read::each_file(path, &mut |name, bytes| tree.put(path, name, bytes))?;
    tree.finish(path)
}

/// Where a file lies in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    part: Part,
    class: String,
    sample: String,
    /// `None` where the sample is one file.
    slot: Option<usize>,
}

/// Part, class and name of a sample, as they are ordered.
type Key = (usize, String, String);

/// Views of one sample by slot.
type Views = BTreeMap<usize, Vec<u8>>;

#[derive(Default)]
struct Tree {
    wanted: Wanted,
    samples: BTreeMap<Key, Views>,
    /// Whether a sample is a folder, and the file that said so.
    is_folder: Option<(bool, String)>,
    /// Which part a picture is in, and its name, by the hash of its bytes.
    pictures: BTreeMap<[u8; 32], (Part, String)>,
}

impl Tree {
    /// Takes a file; those that are no images are passed over.
    fn put(&mut self, root: &Path, name: &str, bytes: &[u8]) -> Result<(), TreeError> {
        let Some(place) = place(root, name)? else { return Ok(()) };
        let is_folder = place.slot.is_some();
        let (first, at) = self.is_folder.get_or_insert_with(|| (is_folder, name.to_owned()));
        if *first != is_folder {
            return Err(TreeError::Mixed { root: root.into(), first: at.clone(), second: name.into() });
        }
        let slot = place.slot.unwrap_or(0);
        let most = self.wanted.slots.unwrap_or(SLOTS_MAX);
        if slot >= most {
            return Err(TreeError::Slot { root: root.into(), name: name.into(), slot, most });
        }
        let hash: [u8; 32] = Sha256::digest(bytes).into();
        if let Some((part, before)) = self.pictures.insert(hash, (place.part, name.into()))
            && part != place.part
        {
            return Err(TreeError::Leak { root: root.into(), first: before, second: name.into() });
        }
        let image = |source| TreeError::Image { root: root.into(), name: name.into(), source };
        let view: View = match self.wanted.shape {
            Some(shape) => image_codec::decode(bytes, shape).map_err(image)?,
            None => {
                let view = image_codec::decode_whole(bytes).map_err(image)?;
                self.wanted.shape = Some(view.shape());
                view
            }
        };
        let key = (place.part as usize, place.class, place.sample);
        if self.samples.entry(key).or_default().insert(slot, view.pixels).is_some() {
            return Err(TreeError::Twice { root: root.into(), name: name.into() });
        }
        Ok(())
    }

    fn finish(self, root: &Path) -> Result<Stored, TreeError> {
        let part_of = |key: &Key| key.0;
        let mut classes: Vec<String> = Vec::new();
        let train = self.samples.keys().filter(|key| part_of(key) == Part::Train as usize);
        train.for_each(|(_, class, _)| {
            if classes.last() != Some(class) {
                classes.push(class.clone());
            }
        });
        let (Some(shape), false) = (self.wanted.shape, classes.is_empty()) else {
            return Err(TreeError::Empty { root: root.into() });
        };
        let highest = self.samples.values().filter_map(|views| views.keys().next_back()).max();
        let slots = self.wanted.slots.unwrap_or(highest.map_or(1, |slot| slot + 1));
        let mut parts = [StoredPart::default(), StoredPart::default(), StoredPart::default()];
        for ((part, class, sample), views) in &self.samples {
            let Some(index) = classes.iter().position(|known| known == class) else {
                let (class, sample) = (class.clone(), sample.clone());
                return Err(TreeError::UnknownClass { root: root.into(), class, sample, known: classes });
            };
            let seen = (0..slots).map(|slot| views.get(&slot).map(Vec::as_slice));
            parts[*part].push(index as u16, shape, seen);
        }
        if parts[Part::Test as usize].classes.is_empty() {
            return Err(TreeError::NoPart { root: root.into(), part: "test" });
        }
        if parts[Part::Validation as usize].classes.is_empty() {
            return Err(TreeError::NoPart { root: root.into(), part: "val" });
        }
        Ok(Stored::new(classes, slots, shape, parts))
    }
}

/// Where a file belongs; `None` for a file that is no image.
fn place(root: &Path, name: &str) -> Result<Option<Place>, TreeError> {
    let steps: Vec<&str> = name.split('/').filter(|step| !step.is_empty() && *step != ".").collect();
    let Some((file, folders)) = steps.split_last() else { return Ok(None) };
    let Some((stem, end)) = file.rsplit_once('.') else { return Ok(None) };
    if stem.is_empty() || !["png", "jpg", "jpeg", "webp"].contains(&end.to_ascii_lowercase().as_str()) {
        return Ok(None);
    }
    let layout = || TreeError::Layout { root: root.into(), name: name.into() };
    let part = |word: &str| PARTS.iter().find(|(name, _)| *name == word).map(|(_, part)| *part);
    match folders {
        [first, class] => {
            let part = part(first).ok_or_else(layout)?;
            Ok(Some(Place { part, class: (*class).into(), sample: stem.into(), slot: None }))
        }
        [first, class, sample] => {
            let part = part(first).ok_or_else(layout)?;
            let slot = stem.strip_prefix("cam").and_then(|slot| slot.parse().ok()).ok_or_else(layout)?;
            Ok(Some(Place { part, class: (*class).into(), sample: (*sample).into(), slot: Some(slot) }))
        }
        _ => Err(layout()),
    }
}
