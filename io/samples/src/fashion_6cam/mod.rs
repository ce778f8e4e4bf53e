//! `fashion-6cam`: real Fashion-MNIST articles seen by six simulated fixed cameras, as 3x32x32 RGB.
//!
//! Frozen: the same seed, part, index and slot give the same bytes on every platform and in every version. A test compares them with a
//! written hash.
//!
//! Each camera has one pose and one exposure ([`Camera`]). Each view draws from a separate random stream:
//! 1. not in view, with probability 0.15;
//! 2. with probability one half, a grey rectangle over up to 30 % of the frame;
//! 3. brightness noise of standard deviation 6 per pixel, the same in its three channels.
//!
//! Arithmetic uses integers, and floats only where IEEE 754 fixes the result (no `sin`, no fused multiply-add).

mod camera;
mod figures;
mod occlusion;
mod random_stream;
#[cfg(test)]
mod tests;

use std::path::Path;

use crate::data_set::{DataSet, DataSetInfo, PartsOrigin};
use crate::in_memory::InMemory;
use crate::mnist::{self, FASHION_LABELS};
use crate::{DataError, Part, Shape};

pub use crate::mnist::FASHION_LABELS as LABELS;
pub use camera::Camera;

use camera::{GAIN_BITS, Projection};
use occlusion::Occlusion;
use random_stream::RandomStream;

/// Seed of the views. Another seed gives other views of the same articles by the same cameras.
pub const SEED: u64 = 2017;
/// Device slots, one camera each.
pub const SLOTS: usize = 6;
/// Shape of every view.
pub const SHAPE: Shape = Shape::rgb(FRAME_SIDE, FRAME_SIDE);

/// Height and width of a frame.
const FRAME_SIDE: usize = 32;
/// Pixels of one channel.
const FRAME_PIXELS: usize = FRAME_SIDE * FRAME_SIDE;
/// Fraction bits of a brightness.
const LUMA_BITS: u32 = 8;

/// Declaration of `fashion-6cam`.
pub(crate) const INFO: DataSetInfo = DataSetInfo {
    name: "fashion-6cam",
    content: "articles of clothing seen by six simulated cameras, six slots, 3x32x32",
    files: "the four files of fashion-mnist",
    marks: mnist::MARKS,
    licence: "MIT, copyright 2017 Zalando SE",
    parts: PartsOrigin::Fixed,
    folds: 0,
    has_view_seed: true,
    open: |dir, options| {
        let data = Fashion6Cam::open(dir)?;
        Ok(Box::new(data.with_view_seed(options.view_seed.unwrap_or(SEED))))
    },
};

/// Probability that a slot does not see a sample: 3 of 20.
const NOT_IN_VIEW: (u32, u32) = (3, 20);
/// Scales the centred sum of eight random bytes (standard deviation 209.02) to noise of deviation 6: `6 / 209.02`, with 16 more
/// fraction bits than [`LUMA_BITS`].
const NOISE_FACTOR: i32 = 481_593;
const NOISE_MEAN: i32 = 1020;

/// The data set: articles in memory, views computed on request. Threads can share the data set.
pub struct Fashion6Cam {
    /// The articles: grey images of 28x28 pixels, as a data set with one slot.
    articles: InMemory,
    projections: [Projection; SLOTS],
    /// Seed of the views; [`SEED`] for the data set itself.
    seed: u64,
}

impl Fashion6Cam {
    /// Loads the four Fashion-MNIST files, plain or `.gz`, from a folder (55 MB in memory).
    ///
    /// # Errors
    /// [`DataError`] naming the file and its fault.
    pub fn open(dir: &Path) -> Result<Self, DataError> {
        Ok(Self::new(mnist::fashion(dir)?))
    }

    /// Simple drawn figures seen by the same cameras, for tests without the files. Reports about `fashion-6cam` must not use these figures.
    #[must_use]
    pub fn drawn(train: usize, validation: usize, test: usize) -> Self {
        Self::drawn_with_calibration(train, [0, validation], test)
    }

    /// As [`Self::drawn`], with a calibration part; `counts` are the sizes of the calibration and the validation part.
    #[must_use]
    pub fn drawn_with_calibration(train: usize, counts: [usize; 2], test: usize) -> Self {
        let (train, test) = (figures::drawn(1, train + counts[0] + counts[1]), figures::drawn(2, test));
        Self::new(mnist::single_slot(FASHION_LABELS, train, counts, test))
    }

    /// The same articles and cameras, with presence, occlusion and noise of every view drawn anew from `seed`. Reports use the seed
    /// [`SEED`]; a result on another seed must name that seed.
    #[must_use]
    pub fn with_view_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    fn new(articles: InMemory) -> Self {
        Self { articles, projections: Camera::all().each_ref().map(Projection::new), seed: SEED }
    }

    /// Part and index by which the random stream of a view is drawn. Articles of the calibration part were once the last articles of the
    /// train part, and keep the part and index of that time, so that their views stay the same.
    fn key(&self, part: Part, index: usize) -> [u64; 2] {
        let (part, index) = match part {
            Part::Calibration => (Part::Train, self.articles.len(Part::Train) + index),
            Part::Train | Part::Validation | Part::Test => (part, index),
        };
        [part as u64, index as u64]
    }
}

impl DataSet for Fashion6Cam {
    fn labels(&self) -> Vec<String> {
        self.articles.labels()
    }

    fn slots(&self) -> usize {
        SLOTS
    }

    fn shape(&self) -> Shape {
        SHAPE
    }

    fn len(&self, part: Part) -> usize {
        self.articles.len(part)
    }

    fn label(&self, part: Part, index: usize) -> u16 {
        self.articles.label(part, index)
    }

    fn view_into(&self, part: Part, index: usize, slot: usize, pixels: &mut [u8]) -> bool {
        assert_eq!(pixels.len(), SHAPE.bytes(), "a view of {SHAPE} needs a buffer of its size");
        let projection = &self.projections[slot];
        let article = self.articles.view(part, index, 0).expect("the only slot sees every article");
        let [part, index] = self.key(part, index);
        let mut random = RandomStream::keyed(&[self.seed, part, index, slot as u64]);
        if random.below(NOT_IN_VIEW.1) < NOT_IN_VIEW.0 {
            return false;
        }
        let mut luma = projection.project(article);
        if random.below(2) == 0 {
            Occlusion::draw(&mut random).cover(&mut luma);
        }
        expose(&luma, projection.gains, &mut random, pixels);
        true
    }
}

/// Converts brightness to the camera's bytes: gain per channel, one noise value per pixel, clipping.
fn expose(luma: &[u16; FRAME_PIXELS], gains: [i32; 3], random: &mut RandomStream, pixels: &mut [u8]) {
    // No overflow of i32: 1020 * NOISE_FACTOR < 2^29, and 65280 * 1.3 * 2^GAIN_BITS < 2^29.
    let half = 1 << (LUMA_BITS - 1);
    let noise: [i32; FRAME_PIXELS] =
        std::array::from_fn(|_| half + (((random.eight_bytes() - NOISE_MEAN) * NOISE_FACTOR) >> 16));
    for (plane, gain) in pixels.chunks_exact_mut(FRAME_PIXELS).zip(gains) {
        for ((pixel, &luma), &noise) in plane.iter_mut().zip(luma).zip(&noise) {
            let value = ((i32::from(luma) * gain) >> GAIN_BITS) + noise;
            *pixel = (value >> LUMA_BITS).clamp(0, 255) as u8;
        }
    }
}
