//! Loads a data set into memory.

use std::path::Path;

use headwater_samples::fashion_6cam::{Fashion6Cam, FashionError, LABELS, Part, SLOTS};
use thiserror::Error;

use super::Samples;

/// `[channels, height, width]` of the data set's views.
const SHAPE: [usize; 3] = [3, 32, 32];

/// A data set that cannot be used.
#[derive(Debug, Error)]
pub enum DataError {
    /// The files are missing or damaged.
    #[error(transparent)]
    Fashion(#[from] FashionError),
    /// No data set of that name.
    #[error("data set: expected `fashion-6cam` (or `drawn`, figures made up for tests), found `{0}`")]
    Unknown(String),
}

/// A data set with its fixed parts, made into memory part by part.
pub struct Parts {
    fashion: Fashion6Cam,
}

/// Opens the data set `name`, whose files are in `dir`.
///
/// # Errors
/// [`DataError`]: no such data set, or its files are missing or damaged.
pub fn load(name: &str, dir: &Path) -> Result<Parts, DataError> {
    match name {
        "fashion-6cam" => Ok(Parts { fashion: Fashion6Cam::open(dir)? }),
        "drawn" => Ok(Parts::drawn(2000, 256, 512)),
        other => Err(DataError::Unknown(other.to_owned())),
    }
}

impl Parts {
    /// Simple figures before the same cameras, for tests without the data.
    pub fn drawn(train: usize, validation: usize, test: usize) -> Self {
        Self { fashion: Fashion6Cam::drawn(train, validation, test) }
    }

    /// Class names.
    pub fn labels(&self) -> Vec<String> {
        LABELS.iter().map(ToString::to_string).collect()
    }

    /// Device slots.
    pub fn slots(&self) -> usize {
        SLOTS
    }

    /// `[channels, height, width]` of a view.
    pub fn shape(&self) -> [usize; 3] {
        SHAPE
    }

    /// Share of each class in a part, or in the first `limit` samples of it.
    pub fn prior(&self, part: Part, limit: Option<usize>) -> Vec<f32> {
        let count = self.fashion.len(part).min(limit.unwrap_or(usize::MAX));
        let mut prior = vec![0.0; LABELS.len()];
        (0..count).for_each(|index| prior[usize::from(self.fashion.label(part, index))] += 1.0);
        prior.iter_mut().for_each(|share| *share /= count.max(1) as f32);
        prior
    }

    /// The samples of a part, at most the first `limit`; `threads` threads make the views.
    pub fn part(&self, part: Part, limit: Option<usize>, threads: usize) -> Samples {
        let count = self.fashion.len(part).min(limit.unwrap_or(usize::MAX));
        let view_len = SHAPE.iter().product::<usize>();
        let mut samples = Samples {
            shape: SHAPE,
            slots: SLOTS,
            classes: LABELS.len(),
            labels: (0..count).map(|index| self.fashion.label(part, index)).collect(),
            seen: vec![0; count],
            pixels: vec![0; count * SLOTS * view_len],
        };
        let share = count.div_ceil(threads.max(1)).max(1);
        let chunks = samples.seen.chunks_mut(share).zip(samples.pixels.chunks_mut(share * SLOTS * view_len));
        std::thread::scope(|scope| {
            for (chunk, (seen, pixels)) in chunks.enumerate() {
                scope.spawn(move || {
                    for (offset, seen) in seen.iter_mut().enumerate() {
                        for slot in 0..SLOTS {
                            let view = &mut pixels[(offset * SLOTS + slot) * view_len..][..view_len];
                            let visible = self.fashion.view_into(part, chunk * share + offset, slot, view);
                            *seen |= u32::from(visible) << slot;
                        }
                    }
                });
            }
        });
        samples
    }
}
