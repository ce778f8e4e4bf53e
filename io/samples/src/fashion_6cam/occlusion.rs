//! The grey rectangle that covers a part of the frame in half of the views.

use super::random_stream::RandomStream;
use super::{FRAME_PIXELS, FRAME_SIDE, LUMA_BITS};

/// Largest covered share of the frame.
const MAX_AREA: f64 = 0.3;

/// A rectangle inside the frame, in frame pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Occlusion {
    left: usize,
    top: usize,
    width: usize,
    height: usize,
    level: u8,
}

impl Occlusion {
    /// Draws a rectangle: area up to 30 % of the frame, aspect ratio 0.5 to 2, position and level, each uniform.
    ///
    /// The width is then rounded to whole pixels, and the height rounded down.
    pub(super) fn draw(random: &mut RandomStream) -> Self {
        let area = random.uniform(0.0, MAX_AREA) * FRAME_PIXELS as f64;
        let aspect = random.uniform(0.5, 2.0);
        let width = (area * aspect).sqrt().round();
        // The height makes up for the rounded width. Rounded down, so that the rectangle never exceeds `area`.
        let height = if width < 1.0 { 0 } else { (area / width) as usize };
        let width = width as usize;
        Self {
            left: random.below((FRAME_SIDE - width + 1) as u32) as usize,
            top: random.below((FRAME_SIDE - height + 1) as u32) as usize,
            width,
            height,
            level: random.below(256) as u8,
        }
    }

    /// Draws the rectangle over the article, before exposure and tint.
    pub(super) fn cover(self, luma: &mut [u16; FRAME_PIXELS]) {
        for row in luma.chunks_exact_mut(FRAME_SIDE).skip(self.top).take(self.height) {
            row[self.left..self.left + self.width].fill(u16::from(self.level) << LUMA_BITS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rectangles_are_inside_the_frame_and_cover_up_to_thirty_percent_evenly() {
        let mut stream = RandomStream::keyed(&[1]);
        let mut covered = 0;
        let draws = 20_000;
        for _ in 0..draws {
            let rectangle = Occlusion::draw(&mut stream);
            assert!(
                rectangle.left + rectangle.width <= FRAME_SIDE
                    && rectangle.top + rectangle.height <= FRAME_SIDE
            );
            let area = rectangle.width * rectangle.height;
            assert!(area as f64 <= MAX_AREA * 1024.0);
            covered += area;
        }
        let mean = covered as f64 / f64::from(draws) / 1024.0;
        assert!((0.14..0.15).contains(&mean), "mean 0.15 less what whole pixels lose, found {mean}");
    }
}
