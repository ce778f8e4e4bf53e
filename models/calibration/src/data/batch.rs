//! Batches: the views of each slot, as floats.

use headwater_protocol::{Slot, SlotSet};

use super::{AbsentView, Augment, Samples};
use crate::random::Random;

/// Samples in the form that the network reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// `[channels, height, width]` of a view.
    pub shape: [usize; 3],
    /// Class of each sample.
    pub labels: Vec<u16>,
    /// Views of each slot.
    pub views: Vec<SlotViews>,
    /// Slots that see each sample.
    pub seen: Vec<SlotSet>,
}

/// Views of one slot in a batch. Under [`AbsentView::Black`] a sample that the slot does not see has a black image.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlotViews {
    /// Index in the batch of each view's sample, ascending.
    pub rows: Vec<u32>,
    /// Pixels divided by 255, `[rows, channels, height, width]`.
    pub pixels: Vec<f32>,
}

impl Batch {
    /// The samples at `indices`, unchanged.
    pub fn plain(samples: &Samples, indices: impl Iterator<Item = usize>) -> Self {
        Self::augmented(samples, indices, &Augment::default(), 0, 0)
    }

    /// The samples at `indices`, augmented; the changes of a sample depend on `seed`, `epoch` and its index in the part
    /// alone.
    pub fn augmented(
        samples: &Samples,
        indices: impl Iterator<Item = usize>,
        augment: &Augment,
        seed: u64,
        epoch: u32,
    ) -> Self {
        let indices: Vec<usize> = indices.collect();
        let len = samples.view_len();
        let views = || SlotViews { rows: Vec::new(), pixels: Vec::with_capacity(indices.len() * len) };
        let mut batch = Self {
            shape: samples.shape,
            labels: Vec::new(),
            views: (0..samples.slots).map(|_| views()).collect(),
            seen: Vec::new(),
        };
        let mut view = vec![0; len];
        for (row, index) in indices.iter().copied().enumerate() {
            let mut random = Random::new(seed, &[1, u64::from(epoch), samples.part_index(index) as u64]);
            batch.labels.push(samples.labels[index]);
            let kept = augment.drop_devices(samples.seen[index], &mut random);
            batch.seen.push(kept);
            for (slot, views) in Slot::first(samples.slots).zip(&mut batch.views) {
                let is_seen = kept.contains(slot) && samples.view_into(index, slot, &mut view);
                match (is_seen, samples.absent) {
                    (true, _) => {
                        views.rows.push(row as u32);
                        augment.view(&view, samples.shape, &mut random, &mut views.pixels);
                    }
                    (false, AbsentView::Black) => {
                        views.rows.push(row as u32);
                        views.pixels.resize(views.pixels.len() + len, 0.0);
                    }
                    (false, AbsentView::Absent) => {}
                }
            }
        }
        batch
    }

    /// Returns true when no slot sees any sample of the batch.
    pub fn is_blank(&self) -> bool {
        self.seen.iter().all(|seen| seen.is_empty())
    }
}
