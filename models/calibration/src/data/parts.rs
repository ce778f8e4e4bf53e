//! The parts of a data set.

use std::io;
use std::path::Path;
use std::sync::Arc;

use headwater_protocol::{Slot, SlotSet};
use headwater_samples::catalogue;
use headwater_samples::data_set::OpenOptions;
use headwater_samples::fashion_6cam::{self, Fashion6Cam};
use headwater_samples::{DataError, DataSet, Mismatch, Part};

use super::{Pixels, Samples, class_shares};

/// A data set whose parts are loaded one at a time.
pub struct Parts {
    /// The data set.
    pub data: Arc<dyn DataSet>,
    /// Number of device slots that are used, counted from the first slot of the data set.
    pub slots: usize,
}

/// Opens the data set `name`, whose files are in `dir`, in the shape and for the slots of a network.
///
/// `drawn` is a data set for tests without files: drawings seen by six cameras, or by the first camera if one slot is wanted.
///
/// # Errors
/// [`DataError`]: no such data set, or its files are missing or damaged.
pub fn load(name: &str, dir: &Path, options: OpenOptions<'_>) -> Result<Parts, DataError> {
    match name {
        "drawn" => {
            options.framings.check_default(name)?;
            if let Some(fold) = options.fold {
                let mismatch = Mismatch { expected: "no fold".to_owned(), found: fold.to_string() };
                return Err(DataError::Options { at: "data set drawn".to_owned(), mismatch });
            }
            let data = Fashion6Cam::drawn_with_calibration(2000, [1000, 256], 512);
            let data = data.with_view_seed(options.view_seed.unwrap_or(fashion_6cam::SEED));
            let parts = Parts::of(Box::new(data));
            Ok(if options.slots == Some(1) { parts.first_slot() } else { parts })
        }
        name => Ok(Parts::of(catalogue::open(name, dir, options)?)),
    }
}

impl Parts {
    /// The parts of an open data set.
    pub fn of(data: Box<dyn DataSet>) -> Self {
        Self { slots: data.slots(), data: data.into() }
    }

    /// Drawings seen by the cameras of `fashion-6cam`, for tests without the data.
    pub fn drawn(train: usize, validation: usize, test: usize) -> Self {
        Self::of(Box::new(Fashion6Cam::drawn(train, validation, test)))
    }

    /// The same data with the views of the first slot alone.
    #[must_use]
    pub fn first_slot(self) -> Self {
        Self { slots: 1, ..self }
    }

    /// `[channels, height, width]` of a view.
    pub fn shape(&self) -> [usize; 3] {
        let shape = self.data.shape();
        [shape.channels, shape.height, shape.width]
    }

    /// Share of each class in the first `limit` samples of a part, or in all samples if `limit` is `None`.
    pub fn prior(&self, part: Part, limit: Option<usize>) -> Vec<f32> {
        class_shares(self.labels(part, limit).into_iter(), self.data.labels().len())
    }

    /// Class of each of the first `limit` samples of a part.
    pub fn labels(&self, part: Part, limit: Option<usize>) -> Vec<u16> {
        (0..self.count(part, limit)).map(|index| self.data.label(part, index)).collect()
    }

    /// The samples of a part, at most the first `limit`; see [`shard`](Self::shard) for the views.
    pub fn part(&self, part: Part, limit: Option<usize>, threads: usize) -> Samples {
        let all: Vec<u32> = (0..self.count(part, limit) as u32).collect();
        Samples { part_indices: Vec::new(), ..self.shard(part, all, threads) }
    }

    /// Group of each of the first `limit` samples of a part; empty if samples are independent.
    pub fn groups(&self, part: Part, limit: Option<usize>) -> Vec<u32> {
        (0..self.count(part, limit)).filter_map(|index| self.data.group(part, index)).collect()
    }

    /// The samples of a part with the given indices, in the given order. Views are read later from a data set that keeps its views;
    /// otherwise all are computed now, on `threads` threads.
    pub fn shard(&self, part: Part, indices: Vec<u32>, threads: usize) -> Samples {
        let in_part = |at: usize| indices[at] as usize;
        let samples = Samples {
            shape: self.shape(),
            slots: self.slots,
            classes: self.data.labels().len(),
            labels: (0..indices.len()).map(|at| self.data.label(part, in_part(at))).collect(),
            groups: (0..indices.len()).filter_map(|at| self.data.group(part, in_part(at))).collect(),
            ..Samples::default()
        };
        let kept: Option<Vec<SlotSet>> =
            indices.iter().map(|index| self.kept_in_view(part, *index as usize)).collect();
        let (seen, pixels) = match kept {
            Some(seen) => (seen, Pixels::of_data_set(Arc::clone(&self.data), part, indices.clone())),
            None => self.computed(part, &indices, threads),
        };
        Samples { seen, pixels, part_indices: indices, ..samples }
    }

    /// Slots that see a sample; `None` for a data set that computes its views.
    fn kept_in_view(&self, part: Part, index: usize) -> Option<SlotSet> {
        let mut seen = SlotSet::EMPTY;
        for slot in Slot::first(self.slots) {
            if self.data.kept_in_view(part, index, slot.index())? {
                seen.insert(slot);
            }
        }
        Some(seen)
    }

    /// Slots that see the samples with the given indices, and their views in memory, computed on `threads` threads.
    fn computed(&self, part: Part, indices: &[u32], threads: usize) -> (Vec<SlotSet>, Pixels) {
        let (count, slots) = (indices.len(), self.slots);
        let view_len = self.shape().iter().product::<usize>();
        let mut seen = vec![SlotSet::EMPTY; count];
        let mut pixels = vec![0; count * slots * view_len];
        let share = count.div_ceil(threads.max(1)).max(1);
        let chunks = seen.chunks_mut(share).zip(pixels.chunks_mut(share * slots * view_len));
        std::thread::scope(|scope| {
            for (indices, (seen, pixels)) in indices.chunks(share).zip(chunks) {
                scope.spawn(move || {
                    let samples = pixels.chunks_exact_mut(slots * view_len);
                    for ((index, seen), views) in indices.iter().zip(seen).zip(samples) {
                        for (slot, view) in Slot::first(slots).zip(views.chunks_exact_mut(view_len)) {
                            if self.data.view_into(part, *index as usize, slot.index(), view) {
                                seen.insert(slot);
                            }
                        }
                    }
                });
            }
        });
        (seen, Pixels::in_memory(pixels, count, slots))
    }

    /// Checks that every view so far could be read; see [`Samples::check_read`].
    ///
    /// # Errors
    /// The first view that could not be read, and why.
    pub fn check_read(&self) -> io::Result<()> {
        self.data.fault().map_or(Ok(()), |fault| Err(io::Error::other(fault)))
    }

    /// Number of samples of a part, at most `limit`.
    pub fn count(&self, part: Part, limit: Option<usize>) -> usize {
        self.data.len(part).min(limit.unwrap_or(usize::MAX))
    }
}
