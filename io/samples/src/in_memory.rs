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
    /// `[samples, slots]`: whether the slot sees the sample.
    in_view: Vec<bool>,
    /// `[samples, slots, view]`: pixels, zeros where the slot does not see the sample. Empty if the views are in [`InMemory::stored`].
    pixels: Vec<u8>,
    /// `[samples, slots]`: number of each view in [`InMemory::stored`]; 0 where the slot does not see the sample.
    stored: Vec<u32>,
    /// Number of each sample's group; empty if samples are independent.
    groups: Vec<u32>,
    /// `[samples, slots]`: file of each view; empty if views have no files of their own.
    files: Vec<Option<String>>,
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
    /// In the order of [`Part::ALL`].
    parts: [InMemoryPart; Part::ALL.len()],
    /// The views of all parts; `None` if each part has its own.
    stored: Option<StoredViews>,
    /// Whether the groups are the frames of one recording.
    pub(crate) is_recording: bool,
    /// Why the calibration part allows no promise; `None` if it allows one.
    pub(crate) promise_obstacle: Option<String>,
    /// Remarks about the reading.
    pub(crate) notes: Vec<String>,
}

impl InMemoryPart {
    /// Samples that a single slot sees.
    pub(crate) fn single_slot(classes: Vec<u16>, pixels: Vec<u8>) -> Self {
        Self { in_view: vec![true; classes.len()], classes, pixels, ..Self::default() }
    }

    /// Number of samples.
    pub(crate) fn len(&self) -> usize {
        self.classes.len()
    }

    /// Adds a sample; `views` has one entry per slot.
    pub(crate) fn push<'a>(
        &mut self,
        class: u16,
        shape: Shape,
        views: impl IntoIterator<Item = Option<&'a [u8]>>,
    ) {
        for view in views {
            let end = self.pixels.len() + shape.bytes();
            self.pixels.extend_from_slice(view.unwrap_or_default());
            self.in_view.push(view.is_some());
            debug_assert!(view.is_none() || self.pixels.len() == end);
            self.pixels.resize(end, 0);
        }
        self.classes.push(class);
    }

    /// Adds a sample whose views are stored under these numbers; one entry per slot.
    pub(crate) fn push_stored(&mut self, class: u16, views: impl IntoIterator<Item = Option<usize>>) {
        for view in views {
            self.in_view.push(view.is_some());
            self.stored.push(view.unwrap_or_default() as u32);
        }
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

    /// Adds a sample of a group.
    pub(crate) fn push_of_group<'a>(
        &mut self,
        (class, group): (u16, u32),
        shape: Shape,
        views: impl IntoIterator<Item = Option<&'a [u8]>>,
    ) {
        self.push(class, shape, views);
        self.groups.push(group);
    }

    /// Names the files of the sample that was added last, one entry per slot. Either all samples of a part get names, or none.
    pub(crate) fn push_files(&mut self, files: impl IntoIterator<Item = Option<String>>) {
        self.files.extend(files);
    }

    /// Cuts off the samples from `at` on, as a part of their own. Only for independent samples without files: groups and names get lost.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        let samples = self.len().max(1);
        let (views, pixels) = (self.in_view.len() / samples, self.pixels.len() / samples);
        Self {
            classes: self.classes.split_off(at),
            in_view: self.in_view.split_off(at * views),
            pixels: self.pixels.split_off(at * pixels),
            ..Self::default()
        }
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
    ) -> Self {
        let parts = [train, validation, test, InMemoryPart::default()];
        for part in &parts {
            let views = part.len() * slots;
            let pixels = if part.stored.is_empty() { views * shape.bytes() } else { 0 };
            assert_eq!((part.in_view.len(), part.pixels.len()), (views, pixels));
        }
        let labels = labels.into_iter().map(Into::into).collect();
        Self {
            labels,
            slots,
            shape,
            parts,
            stored: None,
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

    /// Takes the views of all parts from here.
    pub(crate) fn with_stored(self, views: StoredViews) -> Self {
        Self { stored: Some(views), ..self }
    }

    /// Pixels of a view that its part has; `None` when the slot does not see the sample.
    pub(crate) fn view(&self, part: Part, index: usize, slot: usize) -> Option<&[u8]> {
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        let part = &self.parts[part as usize];
        let (view, bytes) = (index * self.slots + slot, self.shape.bytes());
        part.in_view[view].then(|| &part.pixels[view * bytes..][..bytes])
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
        let Some(stored) = &self.stored else {
            let view = self.view(part, index, slot);
            if let Some(view) = view {
                pixels.copy_from_slice(view);
            }
            return view.is_some();
        };
        let is_view = slot < self.slots && pixels.len() == self.shape.bytes();
        assert!(is_view, "slot {slot} of {}, {} bytes for {}", self.slots, pixels.len(), self.shape);
        let (part, view) = (&self.parts[part as usize], index * self.slots + slot);
        if part.in_view[view] {
            stored.read(part.stored[view] as usize, pixels);
        }
        part.in_view[view]
    }

    fn kept_in_view(&self, part: Part, index: usize, slot: usize) -> Option<bool> {
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        Some(self.parts[part as usize].in_view[index * self.slots + slot])
    }

    fn fault(&self) -> Option<String> {
        match self.stored.as_ref()? {
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
        let shape = Shape::rgb(1, 1);
        let mut part = InMemoryPart::default();
        for class in 0..5 {
            part.push(class, shape, [Some(&[class as u8; 3][..]), None]);
        }
        let second = part.split_off(3);
        let data = InMemory::new(["a"], 2, shape, [part, second, InMemoryPart::default()]);
        assert_eq!(Part::ALL.map(|part| data.len(part)), [3, 2, 0, 0]);
        assert_eq!(data.label(Part::Validation, 0), 3);
        assert_eq!(data.view(Part::Validation, 1, 0), Some(&[4; 3][..]));
        assert_eq!(data.view(Part::Train, 2, 1), None);
    }
}
