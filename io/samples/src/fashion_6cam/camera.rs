//! The six fixed cameras: pose, exposure, and projection of an article onto the frame.
//!
//! ```text
//! article, 28x28   q --- scale by 32/28, shear, rotate, shift --->   p   frame, 32x32
//! ```
//! Coordinates have their origin in the centre, x to the right, y downwards: `p = shift + rotate(shear(scale * 32/28 * q))`. Rendering
//! inverts the map: each frame pixel is a weighted sum of four article pixels. The weights are computed once per camera.

use super::random_stream::RandomStream;
use super::{FRAME_PIXELS, FRAME_SIDE, LUMA_BITS, SEED, SLOTS};
use crate::mnist::IMAGE_SIDE;

/// Steps per article pixel in which positions are measured. A weight is the product of two numbers of steps, so it fits 16 bits.
const STEPS: i64 = 128;
/// Fraction bits of a weight: `STEPS * STEPS` is the weight 1.0.
const WEIGHT_BITS: u32 = 14;
/// Fraction bits of a channel's gain.
pub(super) const GAIN_BITS: u32 = 12;

const RADIANS_PER_DEGREE: f64 = std::f64::consts::PI / 180.0;

/// Second word of a camera's key. The key of a view has the number of its part in that place, so the random streams differ.
const CAMERA_DOMAIN: u64 = 0xca3e_7a00;

/// Pose and colour of one camera.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Camera {
    /// Clockwise, in degrees, within ±25.
    pub rotation_degrees: f64,
    /// 0.7 to 1; at 1 the article of 28 pixels fills the frame of 32.
    pub scale: f64,
    /// To the right, in frame pixels, within ±4.
    pub shift_x_px: f64,
    /// Downwards, in frame pixels, within ±4.
    pub shift_y_px: f64,
    /// Horizontal shear: pixels to the right per pixel down, within ±0.15.
    pub shear: f64,
    /// Brightness factor, 0.6 to 1.3; values above white are clipped.
    pub exposure: f64,
    /// Factor of red, green and blue, 0.85 to 1.
    pub tint: [f64; 3],
}

impl Camera {
    /// The six cameras in slot order, drawn from [`SEED`].
    #[must_use]
    pub fn all() -> [Self; SLOTS] {
        let random = |slot| RandomStream::keyed(&[SEED, CAMERA_DOMAIN, slot as u64]);
        std::array::from_fn(|slot| Self::drawn(random(slot)))
    }

    fn drawn(mut random: RandomStream) -> Self {
        Self {
            rotation_degrees: random.uniform(-25.0, 25.0),
            scale: random.uniform(0.7, 1.0),
            shift_x_px: random.uniform(-4.0, 4.0),
            shift_y_px: random.uniform(-4.0, 4.0),
            shear: random.uniform(-0.15, 0.15),
            exposure: random.uniform(0.6, 1.3),
            tint: [(); 3].map(|()| random.uniform(0.85, 1.0)),
        }
    }

    /// Position of a frame pixel's centre on the article, in article pixels from the centre of pixel 0.
    fn article_point(&self, frame_x: usize, frame_y: usize) -> (f64, f64) {
        let centre = FRAME_SIDE as f64 / 2.0;
        let x = frame_x as f64 + 0.5 - centre - self.shift_x_px;
        let y = frame_y as f64 + 0.5 - centre - self.shift_y_px;
        let (sin, cos) = sin_cos(self.rotation_degrees * RADIANS_PER_DEGREE);
        let (x, y) = (cos * x + sin * y, cos * y - sin * x);
        let x = x - self.shear * y;
        let enlarge = self.scale * FRAME_SIDE as f64 / IMAGE_SIDE as f64;
        let centre = IMAGE_SIDE as f64 / 2.0 - 0.5;
        (x / enlarge + centre, y / enlarge + centre)
    }
}

/// Projection of articles onto the frame of one camera.
pub(super) struct Projection {
    /// One entry per frame pixel, row by row.
    samplers: Vec<Sampler>,
    /// Exposure times tint per channel, in fixed point with [`GAIN_BITS`] fraction bits.
    pub(super) gains: [i32; 3],
}

/// Weighted sum of four article pixels: bilinear interpolation. A pixel outside the article has weight 0.
#[derive(Clone, Copy, Default)]
struct Sampler {
    pixels: [u16; 4],
    weights: [u16; 4],
}

impl Projection {
    pub(super) fn new(camera: &Camera) -> Self {
        let frame = (0..FRAME_SIDE).flat_map(|y| (0..FRAME_SIDE).map(move |x| (x, y)));
        Self {
            samplers: frame.map(|(x, y)| Sampler::at(camera.article_point(x, y))).collect(),
            gains: camera
                .tint
                .map(|tint| (camera.exposure * tint * f64::from(1 << GAIN_BITS)).round() as i32),
        }
    }

    /// Brightness of the article at each frame pixel, row by row, in fixed point with [`LUMA_BITS`] fraction bits.
    pub(super) fn project(&self, article: &[u8]) -> [u16; FRAME_PIXELS] {
        let mut luma = [0; FRAME_PIXELS];
        for (luma, sampler) in luma.iter_mut().zip(&self.samplers) {
            let sum: u32 = (sampler.pixels.iter().zip(sampler.weights))
                .map(|(&pixel, weight)| u32::from(article[usize::from(pixel)]) * u32::from(weight))
                .sum();
            *luma = (sum >> (WEIGHT_BITS - LUMA_BITS)) as u16;
        }
        luma
    }
}

impl Sampler {
    fn at((x, y): (f64, f64)) -> Self {
        let steps = |position: f64| (position * STEPS as f64).round() as i64;
        let (x, y) = (steps(x), steps(y));
        let (left, top) = (x.div_euclid(STEPS), y.div_euclid(STEPS));
        let (right_part, lower_part) = (x.rem_euclid(STEPS), y.rem_euclid(STEPS));
        let mut sampler = Self::default();
        for neighbour in 0..4 {
            let (dx, dy) = (neighbour & 1, neighbour >> 1);
            let (x, y) = (left + dx, top + dy);
            let side = 0..IMAGE_SIDE as i64;
            if side.contains(&x) && side.contains(&y) {
                let weight_x = if dx == 1 { right_part } else { STEPS - right_part };
                let weight_y = if dy == 1 { lower_part } else { STEPS - lower_part };
                sampler.pixels[neighbour as usize] = (y * IMAGE_SIDE as i64 + x) as u16;
                sampler.weights[neighbour as usize] = (weight_x * weight_y) as u16;
            }
        }
        sampler
    }
}

/// Sine and cosine by their Taylor series, exact to the last bits below half a radian.
///
/// The system's `sin` may differ between platforms in its last bit; sums and products do not.
fn sin_cos(radians: f64) -> (f64, f64) {
    let square = radians * radians;
    let series = |first: f64, from: u32| {
        let (mut sum, mut term, mut n) = (0.0, first, f64::from(from));
        for _ in 0..10 {
            sum += term;
            term *= -square / ((n + 1.0) * (n + 2.0));
            n += 2.0;
        }
        sum
    };
    (series(radians, 1), series(1.0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRAIGHT: Camera = Camera {
        rotation_degrees: 0.0,
        scale: 28.0 / 32.0,
        shift_x_px: 0.0,
        shift_y_px: 0.0,
        shear: 0.0,
        exposure: 1.0,
        tint: [1.0; 3],
    };

    /// Frame pixels of an article with one white pixel that are at least half white.
    fn seen(camera: Camera, x: usize, y: usize) -> Vec<(usize, usize)> {
        let mut article = [0; IMAGE_SIDE * IMAGE_SIDE];
        article[y * IMAGE_SIDE + x] = 255;
        let luma = Projection::new(&camera).project(&article);
        let bright = luma.iter().enumerate().filter(|&(_, &luma)| luma >> LUMA_BITS >= 128);
        bright.map(|(at, _)| (at % FRAME_SIDE, at / FRAME_SIDE)).collect()
    }

    #[test]
    fn the_series_agrees_with_the_sine_of_the_system() {
        for tenth in -250..=250 {
            let radians = (f64::from(tenth) / 10.0).to_radians();
            let (sin, cos) = sin_cos(radians);
            assert!((sin - radians.sin()).abs() < 1e-15 && (cos - radians.cos()).abs() < 1e-15);
        }
    }

    #[test]
    fn a_straight_camera_copies_the_article_into_the_middle() {
        assert_eq!(seen(STRAIGHT, 0, 0), [(2, 2)]);
        assert_eq!(seen(STRAIGHT, 27, 5), [(29, 7)]);
    }

    #[test]
    fn a_shift_goes_right_and_down() {
        assert_eq!(seen(Camera { shift_x_px: 3.0, shift_y_px: -2.0, ..STRAIGHT }, 10, 10), [(15, 10)]);
    }

    #[test]
    fn a_rotation_is_clockwise() {
        let above = seen(Camera { rotation_degrees: 25.0, scale: 1.0, ..STRAIGHT }, 14, 2);
        assert!(!above.is_empty() && above.iter().all(|&(x, _)| x > 18), "{above:?}");
    }

    #[test]
    fn a_shear_moves_lower_rows_to_the_right() {
        assert_eq!(seen(Camera { shear: 0.08, ..STRAIGHT }, 14, 26), [(17, 28)]);
    }

    #[test]
    fn at_scale_one_the_article_fills_the_frame() {
        let luma =
            Projection::new(&Camera { scale: 1.0, ..STRAIGHT }).project(&[255; IMAGE_SIDE * IMAGE_SIDE]);
        assert!(luma.iter().all(|&luma| luma >> LUMA_BITS >= 204));
    }
}
