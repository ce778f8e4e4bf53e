//! Labelled pictures from files, before they are a data set: given parts are checked, missing ones drawn, classes numbered.

mod error;
mod leaks;
mod pictures;

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::Shape;
use crate::data_set::{Part, Rules};
use crate::split::Groups;
use crate::stored::{Stored, StoredPart};

pub use error::GatherError;
pub(crate) use pictures::{Picture, Pictures};

/// Most slots.
pub(crate) const SLOTS_MAX: usize = 32;
/// Most classes.
const CLASSES_MAX: usize = 10_000;

/// A sample as its files say it.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// `None` where the data leaves it to us.
    pub(crate) part: Option<Part>,
    pub(crate) class: String,
    /// What errors call it.
    pub(crate) name: String,
    /// What it must not be separated from.
    pub(crate) group: Option<String>,
    /// What each slot sees; missing at the end: nothing.
    pub(crate) views: Vec<Option<Picture>>,
}

/// All samples, in the order that they keep within their part.
#[derive(Clone, Debug)]
pub(crate) struct Gathered {
    /// Folder or archive, for errors.
    pub(crate) root: PathBuf,
    pub(crate) samples: Vec<Sample>,
    /// Class names in the order of their labels, trained or not; `None`: those of the train part in the order of their names.
    pub(crate) classes: Option<Vec<String>>,
    pub(crate) notes: Vec<String>,
}

impl Gathered {
    /// The data set of these samples.
    pub(crate) fn finish(mut self, slots: usize, shape: Shape, rules: Rules) -> Result<Stored, GatherError> {
        let parts = self.parts(rules)?;
        let classes = self.numbered(&parts)?;
        let mut stored = [StoredPart::default(), StoredPart::default(), StoredPart::default()];
        let samples = std::mem::take(&mut self.samples);
        for (sample, part) in samples.into_iter().zip(parts) {
            let Some(class) = classes.iter().position(|known| *known == sample.class) else {
                return Err(GatherError::UnknownClass {
                    root: self.root,
                    sample: sample.name,
                    class: sample.class,
                    known: classes,
                });
            };
            let view =
                |slot: usize| sample.views.get(slot)?.as_ref().map(|picture| picture.pixels.as_slice());
            stored[part as usize].push(class as u16, shape, (0..slots).map(view));
        }
        Ok(Stored::new(classes, slots, shape, stored).with_notes(self.notes))
    }

    /// The part of each sample; none is without samples.
    fn parts(&mut self, rules: Rules) -> Result<Vec<Part>, GatherError> {
        let root = || self.root.clone();
        let given: Vec<Part> = self.samples.iter().filter_map(|sample| sample.part).collect();
        if self.samples.is_empty() {
            return Err(GatherError::NoPart { root: root(), part: Part::Train.name() });
        }
        if given.is_empty() {
            return self.drawn(rules);
        }
        if given.len() < self.samples.len() {
            let name = |has: bool| {
                let found = self.samples.iter().find(|sample| sample.part.is_some() == has);
                found.map(|sample| sample.name.clone()).unwrap_or_default()
            };
            return Err(GatherError::SomeParts { root: root(), with: name(true), without: name(false) });
        }
        if rules.split.is_some() {
            return Err(GatherError::OwnParts { root: root() });
        }
        if let Some(part) = Part::ALL.into_iter().find(|part| !given.contains(part)) {
            return Err(GatherError::NoPart { root: root(), part: part.name() });
        }
        self.notes.extend(leaks::check(&self.root, &self.samples, &given, rules.leaks)?);
        Ok(given)
    }

    /// Parts for samples that have none: what shares a group or a picture stays together.
    fn drawn(&self, rules: Rules) -> Result<Vec<Part>, GatherError> {
        let names: Vec<&str> = self.samples.iter().map(|sample| sample.name.as_str()).collect();
        let known: BTreeSet<&str> = self.samples.iter().map(|sample| sample.class.as_str()).collect();
        let known: Vec<&str> = known.into_iter().collect();
        // Every class is in `known`, so the search finds it.
        let number = |sample: &Sample| known.binary_search(&sample.class.as_str()).unwrap_or(0);
        let classes: Vec<usize> = self.samples.iter().map(number).collect();
        let mut groups = Groups::new(self.samples.len());
        leaks::join(&self.samples, &mut groups);
        let split = rules.split.unwrap_or_default();
        split.parts(&classes, &names, &mut groups).map_err(|lacking| GatherError::FewGroups {
            root: self.root.clone(),
            class: known[lacking.class].to_owned(),
            groups: lacking.groups,
        })
    }

    /// Class names in the order of their labels.
    fn numbered(&mut self, parts: &[Part]) -> Result<Vec<String>, GatherError> {
        let train = self.samples.iter().zip(parts).filter(|(_, part)| **part == Part::Train);
        let trained: BTreeSet<&String> = train.map(|(sample, _)| &sample.class).collect();
        let classes = match &self.classes {
            None => trained.into_iter().cloned().collect(),
            Some(classes) => {
                let untrained = classes.iter().filter(|class| !trained.contains(class));
                self.notes.extend(untrained.map(|class| format!("class `{class}` has no samples in train")));
                classes.clone()
            }
        };
        if classes.len() > CLASSES_MAX {
            return Err(GatherError::Classes {
                root: self.root.clone(),
                most: CLASSES_MAX,
                found: classes.len(),
            });
        }
        Ok(classes)
    }
}
