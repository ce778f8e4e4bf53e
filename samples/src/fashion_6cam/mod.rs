//! `fashion-6cam`: real Fashion-MNIST articles seen by six simulated fixed cameras, as 3x32x32 RGB.
//!
//! Frozen: the same seed, part, index and slot give the same bytes on every platform and forever, which a test
//! holds to a written sum. Each camera has one pose and one exposure ([`Camera`]). Each view, on its own and
//! whatever was asked before, draws in this order:
//! 1. not in view, with probability 0.15;
//! 2. with probability one half, a grey rectangle over up to 30 % of the frame;
//! 3. brightness noise of standard deviation 6 per pixel, the same in its three channels.
//!
//! Arithmetic is on integers, and on floats only where IEEE 754 leaves no choice (no `sin`, no fused
//! multiply-add).

mod articles;
mod camera;
#[cfg(test)]
mod frozen;
mod occlusion;
mod random;
mod test_archive;

use std::path::Path;

use camera::{GAIN_BITS, LUMA_BITS, Lens};
use occlusion::Occlusion;
use random::Stream;

pub use camera::Camera;
pub use test_archive::{Written, write_test_archive};

use crate::data_set::{DataSet, Part};
use crate::mnist::{Files, MnistError};
use crate::{SampleViews, Shape, View};

/// Seed of cameras and views. Another seed would be another data set.
pub const SEED: u64 = 2017;
/// Device slots, one camera each.
pub const SLOTS: usize = 6;
/// Shape of every view.
pub const SHAPE: Shape = Shape::rgb(FRAME_SIDE, FRAME_SIDE);
/// Bytes of every view.
pub const VIEW_BYTES: usize = SHAPE.bytes();
/// Names of the classes, by label.
pub const LABELS: [&str; 10] = [
    "t-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
];

const FRAME_SIDE: usize = 32;
const FRAME_PIXELS: usize = FRAME_SIDE * FRAME_SIDE;
/// A view is not in view in 3 of 20 cases.
const NOT_IN_VIEW: (u32, u32) = (3, 20);
/// From a sum of eight bytes to brightness: `6 / 209.02` with 16 more fraction bits than [`LUMA_BITS`].
const NOISE_FACTOR: i32 = 481_593;
const NOISE_MEAN: i32 = 1020;

/// The data set: articles in memory, views made when asked for. Shared between threads as it is.
pub struct Fashion6Cam {
    articles: Files,
    cameras: [Camera; SLOTS],
    lenses: [Lens; SLOTS],
}

impl Fashion6Cam {
    /// Loads the four Fashion-MNIST files, plain or `.gz`, from a folder (55 MB in memory).
    ///
    /// # Errors
    /// [`MnistError`] naming what was looked for and where, or what is wrong with it.
    pub fn open(dir: &Path) -> Result<Self, MnistError> {
        Ok(Self::new(Files::read(dir)?))
    }

    /// The same cameras before simple figures drawn by rule instead of real articles: for tests that must run
    /// without the data. No figure reported about `fashion-6cam` may come from it.
    #[must_use]
    pub fn drawn(train: usize, validation: usize, test: usize) -> Self {
        Self::new(Files {
            train: articles::drawn(1, train + validation),
            test: articles::drawn(2, test),
            validation_count: validation,
        })
    }

    fn new(articles: Files) -> Self {
        let cameras = Camera::all();
        Self { articles, lenses: cameras.each_ref().map(Lens::new), cameras }
    }

    /// The cameras, in slot order.
    #[must_use]
    pub const fn cameras(&self) -> &[Camera; SLOTS] {
        &self.cameras
    }

    /// One sample as all six slots see it.
    ///
    /// # Panics
    /// When `index` is not below `len(part)`.
    #[must_use]
    pub fn sample(&self, part: Part, index: usize) -> SampleViews {
        let mut buffer = vec![0; VIEW_BYTES];
        let views = (0..SLOTS).map(|slot| {
            self.view_into(part, index, slot, &mut buffer).then(|| View::new(SHAPE, buffer.clone()))
        });
        SampleViews { views: views.collect(), label: Some(self.label(part, index)) }
    }
}

impl DataSet for Fashion6Cam {
    fn labels(&self) -> Vec<String> {
        LABELS.map(str::to_owned).to_vec()
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
        let (articles, index) = self.articles.at(part, index);
        articles.label(index)
    }

    fn view_into(&self, part: Part, index: usize, slot: usize, pixels: &mut [u8]) -> bool {
        assert_eq!(pixels.len(), VIEW_BYTES, "a view of {SHAPE} needs a buffer of its size");
        let lens = &self.lenses[slot];
        let (articles, article) = self.articles.at(part, index);
        let mut draw = Stream::keyed(&[SEED, part as u64, index as u64, slot as u64]);
        if draw.below(NOT_IN_VIEW.1) < NOT_IN_VIEW.0 {
            return false;
        }
        let mut luma = lens.project(articles.image(article));
        if draw.below(2) == 0 {
            Occlusion::draw(&mut draw).cover(&mut luma);
        }
        expose(&luma, lens.gains, &mut draw, pixels);
        true
    }
}

/// From brightness in the scene to the camera's bytes: gain per channel, one noise value per pixel, clipping.
fn expose(luma: &[u16; FRAME_PIXELS], gains: [i32; 3], draw: &mut Stream, pixels: &mut [u8]) {
    // Fits: 1020 * NOISE_FACTOR < 2^29, and 65280 * 1.3 * 2^GAIN_BITS < 2^29.
    let half = 1 << (LUMA_BITS - 1);
    let noise: [i32; FRAME_PIXELS] =
        std::array::from_fn(|_| half + (((draw.eight_bytes() - NOISE_MEAN) * NOISE_FACTOR) >> 16));
    for (plane, gain) in pixels.chunks_exact_mut(FRAME_PIXELS).zip(gains) {
        for ((pixel, &luma), &noise) in plane.iter_mut().zip(luma).zip(&noise) {
            let value = ((i32::from(luma) * gain) >> GAIN_BITS) + noise;
            *pixel = (value >> LUMA_BITS).clamp(0, 255) as u8;
        }
    }
}

#[cfg(test)]
mod tests;
