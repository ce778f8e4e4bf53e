//! Data set whose labels are in memory, and whose views are in memory or in one file.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::data_set::DataSet;
use crate::view_file::ViewFile;
use crate::{Part, Shape};

/// Samples of one part in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct InMemoryPart {
    /// Class of each sample.
    classes: Vec<u16>,
    /// `[samples, slots]`: number of each view in [`InMemory::views`]; `None` where the slot does not see the sample.
    views: Vec<Option<u32>>,
    /// Number of each sample's group; empty if samples are independent.
    pub(crate) groups: Vec<u32>,
    /// `[samples, slots]`: file of each view; empty if views have no files of their own.
    pub(crate) files: Vec<Option<String>>,
}

/// Decoded views by number, in memory or in a file.
#[derive(Clone, Debug)]
pub(crate) enum StoredViews {
    /// One view after another.
    Memory(Vec<u8>),
    File(Arc<ViewFile>),
}

/// Data set whose labels are in memory, and whose views are in memory or in one file.
#[derive(Clone, Debug)]
pub struct InMemory {
    labels: Vec<String>,
    slots: usize,
    shape: Shape,
    /// Parts in the order of [`Part::ALL`].
    parts: [InMemoryPart; Part::ALL.len()],
    /// The views of all parts.
    views: StoredViews,
    /// True when the groups are the frames of one recording.
    pub(crate) is_recording: bool,
    /// Reason why the calibration part allows no promise; `None` if a promise is allowed.
    pub(crate) promise_obstacle: Option<String>,
    /// Remarks about the reading.
    pub(crate) notes: Vec<String>,
}

impl InMemoryPart {
    /// Samples that a single slot sees, whose views are numbered from `first` on.
    pub(crate) fn single_slot(classes: Vec<u16>, first: usize) -> Self {
        let views = (first..).take(classes.len()).map(|view| Some(view as u32)).collect();
        Self { classes, views, ..Self::default() }
    }

    /// Number of samples.
    pub(crate) fn len(&self) -> usize {
        self.classes.len()
    }

    /// Adds a sample with the numbers of its views, one entry per slot.
    pub(crate) fn push(&mut self, class: u16, views: impl IntoIterator<Item = Option<usize>>) {
        self.views.extend(views.into_iter().map(|view| view.map(|view| view as u32)));
        self.classes.push(class);
    }

    /// Samples with the same group name form a group; a sample without a name is alone. If no sample has a name, all are independent.
    /// Groups are numbered in the order of their names, so that frames of a recording are in the order of time.
    pub(crate) fn set_groups(&mut self, names: &[Option<&str>]) {
        if names.iter().all(Option::is_none) {
            return;
        }
        let known: BTreeSet<&str> = names.iter().copied().flatten().collect();
        let numbers: HashMap<&str, u32> = known.into_iter().zip(0..).collect();
        let mut unnamed = numbers.len() as u32..;
        let number = |name: &Option<&str>| name.map(|name| numbers[name]).or_else(|| unnamed.next());
        self.groups = names.iter().filter_map(number).collect();
    }

    /// Cuts off the samples from `at` on, as a part of their own. Only for independent samples without files: groups and file names get lost.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        let slots = self.views.len() / self.len().max(1);
        let (classes, views) = (self.classes.split_off(at), self.views.split_off(at * slots));
        Self { classes, views, ..Self::default() }
    }
}

impl StoredViews {
    /// Reads a view into a buffer of its length.
    fn read(&self, view: usize, pixels: &mut [u8]) {
        match self {
            Self::Memory(all) => pixels.copy_from_slice(&all[view * pixels.len()..][..pixels.len()]),
            Self::File(file) => file.read(view, pixels),
        }
    }
}

impl InMemory {
    /// A data set of parts in the order of [`Part::REQUIRED`], without a calibration part.
    pub(crate) fn new<L: Into<String>>(
        labels: impl IntoIterator<Item = L>,
        slots: usize,
        shape: Shape,
        [train, validation, test]: [InMemoryPart; Part::REQUIRED.len()],
        views: StoredViews,
    ) -> Self {
        let parts = [train, validation, test, InMemoryPart::default()];
        for part in &parts {
            assert_eq!(part.views.len(), part.len() * slots);
        }
        Self {
            labels: labels.into_iter().map(Into::into).collect(),
            slots,
            shape,
            parts,
            views,
            is_recording: false,
            promise_obstacle: None,
            notes: Vec::new(),
        }
    }

    /// Adds a calibration part.
    pub(crate) fn with_calibration(mut self, part: InMemoryPart) -> Self {
        self.parts[Part::Calibration as usize] = part;
        self
    }

    /// Pixels of a view in memory; `None` when the slot does not see the sample, or the views are in a file.
    pub(crate) fn view(&self, part: Part, index: usize, slot: usize) -> Option<&[u8]> {
        let StoredViews::Memory(all) = &self.views else { return None };
        let bytes = self.shape.bytes();
        Some(&all[self.number(part, index, slot)? * bytes..][..bytes])
    }

    /// Number of a view; `None` when the slot does not see the sample.
    fn number(&self, part: Part, index: usize, slot: usize) -> Option<usize> {
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        self.parts[part as usize].views[index * self.slots + slot].map(|view| view as usize)
    }
}

impl DataSet for InMemory {
    fn labels(&self) -> Vec<String> {
        self.labels.clone()
    }

    fn slots(&self) -> usize {
        self.slots
    }

    fn shape(&self) -> Shape {
        self.shape
    }

    fn len(&self, part: Part) -> usize {
        self.parts[part as usize].len()
    }

    fn label(&self, part: Part, index: usize) -> u16 {
        self.parts[part as usize].classes[index]
    }

    fn group(&self, part: Part, index: usize) -> Option<u32> {
        self.parts[part as usize].groups.get(index).copied()
    }

    fn file_name(&self, part: Part, index: usize, slot: usize) -> Option<String> {
        self.parts[part as usize].files.get(index * self.slots + slot)?.clone()
    }

    fn is_recording(&self) -> bool {
        self.is_recording
    }

    fn promise_obstacle(&self) -> Option<String> {
        self.promise_obstacle.clone()
    }

    fn view_into(&self, part: Part, index: usize, slot: usize, pixels: &mut [u8]) -> bool {
        assert_eq!(pixels.len(), self.shape.bytes(), "bytes for a view of {}", self.shape);
        let Some(view) = self.number(part, index, slot) else { return false };
        self.views.read(view, pixels);
        true
    }

    fn kept_in_view(&self, part: Part, index: usize, slot: usize) -> Option<bool> {
        Some(self.number(part, index, slot).is_some())
    }

    fn fault(&self) -> Option<String> {
        match &self.views {
            StoredViews::Memory(_) => None,
            StoredViews::File(file) => file.fault().map(str::to_owned),
        }
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_numbered_in_the_order_of_their_names_and_samples_without_a_name_are_alone() {
        let mut part = InMemoryPart::default();
        part.set_groups(&[Some("0007"), None, Some("0002"), Some("0007"), None]);
        assert_eq!(part.groups, [1, 2, 0, 1, 3]);
        part.set_groups(&[None, None]);
        assert_eq!(part.groups, [1, 2, 0, 1, 3], "without a name nothing changes");
    }

    #[test]
    fn a_part_is_cut_between_two_samples() {
        let mut part = InMemoryPart::default();
        for class in 0..5 {
            part.push(class, [Some(usize::from(class)), None]);
        }
        let second = part.split_off(3);
        let parts = [part, second, InMemoryPart::default()];
        let views = StoredViews::Memory((0..5).flat_map(|fill| [fill; 3]).collect());
        let data = InMemory::new(["a"], 2, Shape::rgb(1, 1), parts, views);
        assert_eq!(Part::ALL.map(|part| data.len(part)), [3, 2, 0, 0]);
        assert_eq!(data.label(Part::Validation, 0), 3);
        assert_eq!(data.view(Part::Validation, 1, 0), Some(&[4; 3][..]));
        assert_eq!(data.view(Part::Train, 2, 1), None);
    }
}
