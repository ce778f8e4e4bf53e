//! Loads a data set into memory.

use std::path::Path;

use headwater_samples::catalogue;
use headwater_samples::data_set::OpenOptions;
use headwater_samples::fashion_6cam::Fashion6Cam;
use headwater_samples::{DataError, DataSet, Part, Shape};

use super::Samples;

/// A data set with its fixed parts, made into memory part by part.
pub struct Parts {
    data: Box<dyn DataSet>,
}

/// Opens the data set `name`, whose files are in `dir`, as a network wants it; `drawn` are figures made up for tests, without files,
/// before six cameras or, where one slot is wanted, before the first of them.
///
/// # Errors
/// [`DataError`]: no such data set, or its files are missing or damaged.
pub fn load(name: &str, dir: &Path, options: OpenOptions) -> Result<Parts, DataError> {
    match name {
        "drawn" if options.slots == Some(1) => Ok(Parts::drawn(2000, 256, 512).first_slot()),
        "drawn" => Ok(Parts::drawn(2000, 256, 512)),
        name => Ok(Parts::of(catalogue::open(name, dir, options)?)),
    }
}

impl Parts {
    /// A data set that is open.
    pub fn of(data: Box<dyn DataSet>) -> Self {
        Self { data }
    }

    /// The data set.
    pub fn data(&self) -> &dyn DataSet {
        &*self.data
    }

    /// Simple figures before the cameras of `fashion-6cam`, for tests without the data.
    pub fn drawn(train: usize, validation: usize, test: usize) -> Self {
        Self { data: Box::new(Fashion6Cam::drawn(train, validation, test)) }
    }

    /// What the first slot alone sees of them.
    #[must_use]
    pub fn first_slot(self) -> Self {
        Self { data: Box::new(FirstSlot(self.data)) }
    }

    /// Class names.
    pub fn labels(&self) -> Vec<String> {
        self.data.labels()
    }

    /// Device slots.
    pub fn slots(&self) -> usize {
        self.data.slots()
    }

    /// `[channels, height, width]` of a view.
    pub fn shape(&self) -> [usize; 3] {
        let shape = self.data.shape();
        [shape.channels, shape.height, shape.width]
    }

    /// Share of each class in a part, or in the first `limit` samples of it.
    pub fn prior(&self, part: Part, limit: Option<usize>) -> Vec<f32> {
        let count = self.count(part, limit);
        let mut prior = vec![0.0; self.data.labels().len()];
        (0..count).for_each(|index| prior[usize::from(self.data.label(part, index))] += 1.0);
        prior.iter_mut().for_each(|share| *share /= count.max(1) as f32);
        prior
    }

    /// The samples of a part, at most the first `limit`; `threads` threads make the views.
    pub fn part(&self, part: Part, limit: Option<usize>, threads: usize) -> Samples {
        let (count, slots, shape) = (self.count(part, limit), self.slots(), self.shape());
        let view_len = shape.iter().product::<usize>();
        let mut samples = Samples {
            shape,
            slots,
            classes: self.data.labels().len(),
            labels: (0..count).map(|index| self.data.label(part, index)).collect(),
            seen: vec![0; count],
            pixels: vec![0; count * slots * view_len],
        };
        let share = count.div_ceil(threads.max(1)).max(1);
        let chunks = samples.seen.chunks_mut(share).zip(samples.pixels.chunks_mut(share * slots * view_len));
        std::thread::scope(|scope| {
            for (chunk, (seen, pixels)) in chunks.enumerate() {
                scope.spawn(move || {
                    for (offset, seen) in seen.iter_mut().enumerate() {
                        for slot in 0..slots {
                            let view = &mut pixels[(offset * slots + slot) * view_len..][..view_len];
                            let visible = self.data.view_into(part, chunk * share + offset, slot, view);
                            *seen |= u32::from(visible) << slot;
                        }
                    }
                });
            }
        });
        samples
    }

    fn count(&self, part: Part, limit: Option<usize>) -> usize {
        self.data.len(part).min(limit.unwrap_or(usize::MAX))
    }
}

/// A data set as its first slot alone sees it.
struct FirstSlot(Box<dyn DataSet>);

impl DataSet for FirstSlot {
    fn labels(&self) -> Vec<String> {
        self.0.labels()
    }

    fn slots(&self) -> usize {
        1
    }

    fn shape(&self) -> Shape {
        self.0.shape()
    }

    fn len(&self, part: Part) -> usize {
        self.0.len(part)
    }

    fn label(&self, part: Part, index: usize) -> u16 {
        self.0.label(part, index)
    }

    fn view_into(&self, part: Part, index: usize, slot: usize, pixels: &mut [u8]) -> bool {
        self.0.view_into(part, index, slot, pixels)
    }
}
