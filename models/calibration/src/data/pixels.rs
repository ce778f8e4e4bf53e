//! Pixels of samples: read from a data set that keeps its views, or computed once and kept in memory.

use std::fmt;
use std::sync::Arc;

use headwater_protocol::Slot;
use headwater_samples::{DataSet, Part};

/// Pixels of samples. Clones and subsets share the views in memory.
#[derive(Clone, Default)]
pub struct Pixels {
    source: Source,
    /// Row of each sample in the source.
    rows: Vec<u32>,
    /// Slot of the source that is the first slot of the samples.
    first_slot: usize,
}

/// Origin of the views.
#[derive(Clone, Default)]
enum Source {
    /// There are no views: for samples of which only the logits are needed.
    #[default]
    None,
    /// Values `[rows, slots, view]`, and the number of slots; zeros where the slot does not see the sample.
    Memory(Arc<Vec<u8>>, usize),
    /// A part of a data set that keeps its views, in memory or in a file.
    DataSet(Arc<dyn DataSet>, Part),
}

impl Pixels {
    /// Pixels in memory, `[samples, slots, view]`.
    pub fn in_memory(pixels: Vec<u8>, samples: usize, slots: usize) -> Self {
        let rows = (0..samples as u32).collect();
        Self { source: Source::Memory(Arc::new(pixels), slots), rows, first_slot: 0 }
    }

    /// Pixels of samples of a part, by their indices in the part. The data set must keep its views.
    pub(super) fn of_data_set(data: Arc<dyn DataSet>, part: Part, rows: Vec<u32>) -> Self {
        Self { source: Source::DataSet(data, part), rows, first_slot: 0 }
    }

    /// Reads a view; zeros where the slot does not see the sample.
    pub(super) fn read(&self, sample: usize, slot: Slot, view: &mut [u8]) {
        let (row, slot) = (self.rows[sample] as usize, self.first_slot + slot.index());
        match &self.source {
            Source::None => unreachable!("samples without pixels have no rows"),
            Source::Memory(pixels, slots) => {
                let start = (row * slots + slot) * view.len();
                view.copy_from_slice(&pixels[start..start + view.len()]);
            }
            Source::DataSet(data, part) => {
                if !data.view_into(*part, row, slot, view) {
                    view.fill(0);
                }
            }
        }
    }

    /// Pixels of the samples with these indices; none if there are no pixels.
    pub(super) fn subset(&self, indices: &[usize]) -> Self {
        let rows = indices.iter().filter_map(|index| self.rows.get(*index).copied()).collect();
        Self { rows, ..self.clone_source() }
    }

    /// The same pixels with `slot` as the first slot.
    pub(super) fn of_slot(&self, slot: Slot) -> Self {
        Self { rows: self.rows.clone(), first_slot: self.first_slot + slot.index(), ..self.clone_source() }
    }

    /// Reason in words why a view could not be read; `None` if every view so far could be read.
    pub(super) fn fault(&self) -> Option<String> {
        match &self.source {
            Source::None | Source::Memory(..) => None,
            Source::DataSet(data, _) => data.fault(),
        }
    }

    /// The same source and first slot, without rows.
    fn clone_source(&self) -> Self {
        Self { source: self.source.clone(), rows: Vec::new(), first_slot: self.first_slot }
    }
}

impl fmt::Debug for Pixels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pixels").field("rows", &self.rows.len()).finish_non_exhaustive()
    }
}

impl PartialEq for Pixels {
    /// Compares views in memory by value; views of a data set are equal only for the same data set object.
    fn eq(&self, other: &Self) -> bool {
        let is_source = match (&self.source, &other.source) {
            (Source::None, Source::None) => true,
            (Source::Memory(one, slots), Source::Memory(other, of_other)) => {
                (one, slots) == (other, of_other)
            }
            (Source::DataSet(one, part), Source::DataSet(other, of_other)) => {
                Arc::ptr_eq(one, other) && part == of_other
            }
            _ => false,
        };
        is_source && self.rows == other.rows && self.first_slot == other.first_slot
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use headwater_samples::data_set::{Leaks, OpenOptions, Preparation};
    use headwater_samples::fashion_6cam::Fashion6Cam;
    use headwater_samples::{catalogue, class_folders};

    use super::*;
    use crate::data::{Augment, Batch, Parts, Samples, fingerprint};

    /// A folder of drawings that six cameras see.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        class_folders::write(&Fashion6Cam::drawn(12, 4, 4), &folder.path().join("data"), None, |_, _| {})
            .unwrap();
        folder
    }

    /// The parts of a folder, with views in memory, or in a file below the folder if `in_file`.
    fn parts(folder: &Path, in_file: bool) -> Parts {
        let cache = folder.join("cache");
        let preparation =
            Preparation { folder: in_file.then_some(cache.as_path()), threads: 2, ..Preparation::default() };
        let options = OpenOptions { leaks: Leaks::Allowed, preparation, ..OpenOptions::default() };
        let parts = Parts::of(catalogue::open("folders", &folder.join("data"), options).unwrap());
        assert_eq!(cache.exists(), in_file);
        parts
    }

    /// Augmented batches of the samples in another order, and of the views of one slot.
    fn batches(samples: &Samples) -> [Batch; 2] {
        let augment = Augment { shift: 2, flip: 0.5, failout: 0.3, ..Augment::default() };
        let batch = |of: &Samples| Batch::augmented(of, (0..of.len()).rev(), &augment, 7, 3);
        [batch(samples), batch(&samples.of_slot(Slot::new(4).unwrap()))]
    }

    #[test]
    fn views_from_a_file_and_from_memory_give_the_same_batches_of_parts_shards_and_subsets() {
        let folder = folder();
        let [memory, file] = [false, true].map(|in_file| parts(folder.path(), in_file));
        let part = |parts: &Parts| parts.part(Part::Train, None, 2);
        let [in_memory, in_file] = [&memory, &file].map(part);
        assert_eq!(in_memory.seen, in_file.seen);
        assert_eq!(batches(&in_memory), batches(&in_file));
        let shard = |parts: &Parts| parts.shard(Part::Train, vec![9, 2, 5], 2);
        assert_eq!(batches(&shard(&memory)), batches(&shard(&file)));
        let subset = |samples: &Samples| batches(&samples.subset(&[7, 1, 0]).subset(&[2, 0]));
        assert_eq!(subset(&in_memory), subset(&in_file));
        assert_eq!(subset(&in_file)[0].labels, [in_file.labels[7], in_file.labels[0]]);
        assert_eq!(fingerprint(&memory, Part::Test, None), fingerprint(&file, Part::Test, None));
        file.check_read().unwrap();
    }

    #[test]
    fn computed_views_give_the_batches_of_the_images_that_were_written_of_them() {
        let drawn = Parts::drawn(12, 4, 4);
        let computed = drawn.part(Part::Train, None, 2);
        let folder = folder();
        let kept = parts(folder.path(), true).part(Part::Train, None, 1);
        // Folders have the samples in the order of the names of their classes.
        let (names, mut order) = (drawn.data.labels(), (0..computed.len()).collect::<Vec<usize>>());
        order.sort_by_key(|sample| &names[usize::from(computed.labels[*sample])]);
        let plain = |samples: &Samples| Batch::plain(samples, 0..samples.len());
        assert_eq!(plain(&computed.subset(&order)).views, plain(&kept).views);
    }

    #[test]
    fn views_of_a_file_that_was_cut_stop_the_work_with_its_name() {
        let folder = folder();
        let parts = parts(folder.path(), true);
        let samples = parts.part(Part::Train, None, 1);
        samples.check_read().unwrap();
        let entries = std::fs::read_dir(folder.path().join("cache")).unwrap();
        for entry in entries {
            std::fs::File::options().write(true).open(entry.unwrap().path()).unwrap().set_len(0).unwrap();
        }
        let batch = Batch::plain(&samples, 0..2);
        assert!(batch.views.iter().all(|views| views.pixels.iter().all(|pixel| *pixel == 0.0)));
        let error = samples.subset(&[1]).check_read().unwrap_err().to_string();
        assert!(error.contains("cache") && error.contains("cannot be read"), "{error}");
        assert_eq!(parts.check_read().unwrap_err().to_string(), error);
    }
}
