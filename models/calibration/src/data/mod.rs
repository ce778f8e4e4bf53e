//! Samples of a part, and batches of samples.

mod augment;
mod batch;
mod fingerprint;
mod parts;
mod pixels;

pub use augment::Augment;
pub use batch::{Batch, SlotViews};
pub use fingerprint::{fingerprint, fingerprint_of_all};
pub use parts::{Parts, load};
pub use pixels::Pixels;

use std::collections::BTreeSet;
use std::io;
use std::num::NonZero;

use headwater_protocol::{Slot, SlotSet};
use headwater_samples::NO_CLASS;
use serde::{Deserialize, Serialize};

/// Pixel values of one slot's views that go through a network at once; a single larger view still goes through.
const CHUNK_VALUES: usize = 1 << 22;

/// Samples of one part, all or some.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// `[channels, height, width]` of a view.
    pub shape: [usize; 3],
    /// Number of device slots.
    pub slots: usize,
    /// Number of classes.
    pub classes: usize,
    /// Class of each sample; [`NO_CLASS`] for a sample of nothing.
    pub labels: Vec<u16>,
    /// Group of each sample, if samples of one scene or object form groups; empty if samples are independent.
    pub groups: Vec<u32>,
    /// Slots that see each sample.
    pub seen: Vec<SlotSet>,
    /// Pixels of the views; none for samples of which only the logits are needed.
    pub pixels: Pixels,
    /// Input of the network from a slot that does not see a sample.
    pub absent: AbsentView,
    /// Index of each sample in the whole part, if the samples are a shard or a subset of it; empty for a whole part.
    pub part_indices: Vec<u32>,
}

/// Input of a network from a slot that does not see a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AbsentView {
    /// Nothing: the slot is absent, for aggregations and for the presence mask.
    #[default]
    Absent,
    /// A black image, as in DDNN's code: the slot takes part in every aggregation, and its image has no part in the loss of the device's
    /// own head. For baselines: no tier in production sends black images.
    Black,
}

impl Samples {
    /// Number of samples.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Returns true when there are no samples.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Number of samples of nothing.
    pub fn of_nothing(&self) -> usize {
        self.labels.iter().filter(|label| **label == NO_CLASS).count()
    }

    /// Index of a sample in the whole part; the index of the sample itself if `part_indices` is empty.
    pub fn part_index(&self, sample: usize) -> usize {
        self.part_indices.get(sample).map_or(sample, |index| *index as usize)
    }

    /// Number of values of one view: channels times height times width.
    pub fn view_len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Copies the view of a slot into `view`. Returns false and leaves `view` unchanged when the slot does not see the sample.
    ///
    /// # Panics
    /// When there is no such sample, or the samples have no pixels.
    pub fn view_into(&self, sample: usize, slot: Slot, view: &mut [u8]) -> bool {
        let is_seen = self.seen[sample].contains(slot);
        if is_seen {
            self.pixels.read(sample, slot, view);
        }
        is_seen
    }

    /// The view of a slot; `None` when the slot does not see the sample.
    ///
    /// # Panics
    /// See [`Self::view_into`].
    pub fn view(&self, sample: usize, slot: Slot) -> Option<Vec<u8>> {
        let mut view = vec![0; self.view_len()];
        self.view_into(sample, slot, &mut view).then_some(view)
    }

    /// The views of all slots of a sample, `[slots, view]`; zeros where the slot does not see the sample.
    ///
    /// # Panics
    /// See [`Self::view_into`].
    pub fn views(&self, sample: usize) -> Vec<u8> {
        let len = self.view_len();
        let mut views = vec![0; self.slots * len];
        for (slot, view) in Slot::first(self.slots).zip(views.chunks_exact_mut(len)) {
            self.view_into(sample, slot, view);
        }
        views
    }

    /// Number of samples that go through a network at once: `most`, or fewer with large views, since the maps of all layers stay in memory.
    pub fn chunk(&self, most: usize) -> usize {
        (CHUNK_VALUES / self.view_len().max(1)).clamp(1, most)
    }

    /// Checks that every view so far could be read. An unreadable view is black, so results computed from it are wrong.
    ///
    /// # Errors
    /// The first view that could not be read, and why.
    pub fn check_read(&self) -> io::Result<()> {
        self.pixels.fault().map_or(Ok(()), |fault| Err(io::Error::other(fault)))
    }

    /// Indices of the samples that a slot sees.
    pub fn seen_by(&self, slot: Slot) -> Vec<usize> {
        (0..self.len()).filter(|sample| self.seen[*sample].contains(slot)).collect()
    }

    /// The samples with the given indices, in the given order.
    ///
    /// # Panics
    /// When there is no such sample.
    #[must_use]
    pub fn subset(&self, indices: &[usize]) -> Self {
        Self {
            labels: indices.iter().map(|index| self.labels[*index]).collect(),
            groups: indices.iter().filter_map(|index| self.groups.get(*index).copied()).collect(),
            seen: indices.iter().map(|index| self.seen[*index]).collect(),
            // Samples whose pixels were dropped stay without pixels.
            pixels: self.pixels.subset(indices),
            part_indices: indices.iter().map(|index| self.part_index(*index) as u32).collect(),
            ..*self
        }
    }

    /// The samples that a slot sees, as samples of that slot alone, without groups.
    #[must_use]
    pub fn of_slot(&self, slot: Slot) -> Self {
        let samples = self.subset(&self.seen_by(slot));
        Self {
            slots: 1,
            groups: Vec::new(),
            seen: vec![SlotSet::first(1); samples.len()],
            pixels: samples.pixels.of_slot(slot),
            ..samples
        }
    }

    /// The samples that show a class.
    #[must_use]
    pub fn with_class(self) -> Self {
        if self.of_nothing() == 0 {
            return self;
        }
        let kept: Vec<usize> = (0..self.len()).filter(|sample| self.labels[*sample] != NO_CLASS).collect();
        self.subset(&kept)
    }

    /// Appends the samples of `other`. The result has no pixels. Groups of `other` get new numbers; if only one side has groups,
    /// each sample of the other side becomes a group of one.
    pub fn append(&mut self, other: Self) {
        if !(self.groups.is_empty() && other.groups.is_empty()) {
            let alone = |samples: &Self| (0..samples.len() as u32).collect::<Vec<u32>>();
            let of = |samples: &Self| match samples.groups.is_empty() {
                true => alone(samples),
                false => samples.groups.clone(),
            };
            let (mut groups, more) = (of(self), of(&other));
            let next = groups.iter().max().map_or(0, |last| last + 1);
            groups.extend(more.into_iter().map(|group| next + group));
            self.groups = groups;
        }
        if !(self.part_indices.is_empty() && other.part_indices.is_empty()) {
            let of =
                |samples: &Self| (0..samples.len()).map(|sample| samples.part_index(sample) as u32).collect();
            let (mut indices, more): (Vec<u32>, Vec<u32>) = (of(self), of(&other));
            indices.extend(more);
            self.part_indices = indices;
        }
        self.labels.extend(other.labels);
        self.seen.extend(other.seen);
        self.pixels = Pixels::default();
    }

    /// The samples without their pixels, for choices from logits.
    #[must_use]
    pub fn without_pixels(self) -> Self {
        Self { pixels: Pixels::default(), ..self }
    }

    /// Blocks of a recording whose groups are its frames: each `frames` successive groups form a block, and every second block is kept
    /// as one group, from the second block on. If frames that are `frames` apart are independent, the kept blocks are independent too,
    /// since a dropped block lies between any two of them.
    #[must_use]
    pub fn in_blocks(&self, frames: NonZero<u32>) -> Self {
        let kept: Vec<usize> =
            (0..self.len()).filter(|sample| self.groups[*sample] / frames % 2 == 1).collect();
        let mut blocks = self.subset(&kept);
        blocks.groups.iter_mut().for_each(|group| *group /= frames);
        blocks
    }

    /// Number of groups; `None` if samples are independent.
    pub fn group_count(&self) -> Option<usize> {
        let distinct: BTreeSet<u32> = self.groups.iter().copied().collect();
        (!distinct.is_empty()).then_some(distinct.len())
    }

    /// Number of groups in which a sample shows a class; `None` if samples are independent.
    pub fn group_count_with_class(&self) -> Option<usize> {
        groups_with_class(&self.labels, &self.groups)
    }

    /// Share of each class among the samples that show a class.
    pub fn prior(&self) -> Vec<f32> {
        class_shares(self.labels.iter().copied(), self.classes)
    }
}

/// Number of groups in which a sample shows a class; `None` if samples are independent.
pub fn groups_with_class(labels: &[u16], groups: &[u32]) -> Option<usize> {
    let with_class = groups.iter().zip(labels).filter(|(_, label)| **label != NO_CLASS);
    let distinct: BTreeSet<u32> = with_class.map(|(group, _)| *group).collect();
    (!groups.is_empty()).then_some(distinct.len())
}

fn class_shares(labels: impl Iterator<Item = u16>, classes: usize) -> Vec<f32> {
    let mut count = vec![0u32; classes];
    labels.filter(|label| *label != NO_CLASS).for_each(|label| count[usize::from(label)] += 1);
    let total = count.iter().sum::<u32>().max(1) as f32;
    count.iter().map(|n| *n as f32 / total).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of one class without pixels, in these groups.
    fn samples(count: usize, groups: &[u32]) -> Samples {
        Samples {
            shape: [1, 1, 1],
            slots: 1,
            classes: 1,
            labels: vec![0; count],
            groups: groups.to_vec(),
            seen: vec![SlotSet::first(1); count],
            ..Samples::default()
        }
    }

    #[test]
    fn a_sample_keeps_its_index_of_the_part_in_subsets_and_when_they_are_joined() {
        let all = samples(5, &[]);
        let mut chosen = all.subset(&[3, 1]);
        assert_eq!([0, 1].map(|sample| chosen.part_index(sample)), [3, 1]);
        assert_eq!(chosen.subset(&[1]).part_index(0), 1);
        assert_eq!(chosen.of_slot(Slot::new(0).unwrap()).part_index(0), 3);
        chosen.append(all.subset(&[4]));
        assert_eq!(chosen.part_indices, [3, 1, 4]);
    }

    #[test]
    fn groups_of_appended_samples_are_others_and_samples_without_groups_are_alone() {
        let appended = |first: &[u32], second: &[u32]| {
            let mut all = samples(3, first);
            all.append(samples(2, second));
            all.groups
        };
        assert_eq!(appended(&[0, 0, 1], &[0, 0]), [0, 0, 1, 2, 2]);
        assert_eq!(appended(&[], &[0, 0]), [0, 1, 2, 3, 3]);
        assert_eq!(appended(&[0, 0, 1], &[]), [0, 0, 1, 2, 3]);
        assert_eq!(appended(&[], &[]), [0u32; 0]);
    }

    #[test]
    fn groups_of_nothing_alone_are_no_groups_with_a_class() {
        let grouped = Samples { labels: vec![0, NO_CLASS, NO_CLASS], ..samples(3, &[0, 0, 1]) };
        assert_eq!((grouped.group_count(), grouped.group_count_with_class()), (Some(2), Some(1)));
        assert_eq!(samples(3, &[]).group_count_with_class(), None);
    }

    #[test]
    fn every_second_block_of_frames_is_a_group_and_the_others_are_left_out() {
        let frames = samples(8, &[0, 1, 1, 2, 3, 4, 6, 5]);
        let blocks = frames.in_blocks(NonZero::new(2).unwrap());
        // Block 1 has frames 2 and 3; block 3 would have frames 6 and 7, but the data has no frame 7.
        assert_eq!((blocks.len(), blocks.groups), (3, vec![1, 1, 3]));
    }
}
