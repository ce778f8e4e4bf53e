//! Augmentation: whole devices dropped, small shifts, affine changes, mirrored views, other exposure, grey rectangles.

use headwater_protocol::{Slot, SlotSet};

use crate::random::Random;

headwater_toml_file::table! {
    /// Changes of the training views; all off by default.
    #[derive(Copy)]
    Augment {
        /// Probability that a device is dropped from a sample; at least one device stays.
        failout: f32 = 0.0, 0.0..=1.0;
        /// Largest shift of a view on each axis in pixels; edge pixels are repeated.
        shift: u32 = 0, 0..=64;
        /// Largest change of each entry of the 2x2 matrix that a view is turned, stretched and sheared by about its middle.
        affine: f32 = 0.0, 0.0..=0.9;
        /// Probability that a view is mirrored, left to right.
        flip: f32 = 0.0, 0.0..=1.0;
        /// Range of the factor of all pixels: `[1 - exposure, 1 + exposure]`.
        exposure: f32 = 0.0, 0.0..=1.0;
        /// Probability that a grey rectangle covers part of a view.
        erase: f32 = 0.0, 0.0..=1.0;
        /// Largest share of the view under a rectangle.
        erase_share: f32 = 0.0, 0.0..=1.0;
    }
}

impl Augment {
    /// The slots of `seen` that are not dropped: at least one, unless `seen` is empty.
    pub fn drop_devices(&self, seen: SlotSet, random: &mut Random) -> SlotSet {
        if self.failout <= 0.0 {
            return seen;
        }
        let slots: Vec<Slot> = seen.iter().collect();
        let kept: SlotSet = slots.iter().copied().filter(|_| random.unit() >= self.failout).collect();
        if kept.is_empty() && !slots.is_empty() {
            return SlotSet::single(slots[random.below(slots.len())]);
        }
        kept
    }

    /// Appends the changed view to `pixels`, as `x / 255`.
    pub fn view(&self, view: &[u8], shape: [usize; 3], random: &mut Random, pixels: &mut Vec<f32>) {
        let [channels, h, w] = shape;
        let start = pixels.len();
        let gain = 1.0 + self.exposure * (2.0 * random.unit() - 1.0);
        let mut table = [0.0f32; 256];
        for (value, entry) in table.iter_mut().enumerate() {
            *entry = (value as f32 * gain).min(255.0) / 255.0;
        }
        let reach = self.shift as usize;
        let (dy, dx) = (random.below(2 * reach + 1), random.below(2 * reach + 1));
        if (dy, dx) == (reach, reach) {
            pixels.extend(view.iter().map(|value| table[usize::from(*value)]));
        } else {
            for channel in view.chunks_exact(h * w).take(channels) {
                for y in 0..h {
                    let line = (y + dy).saturating_sub(reach).min(h - 1) * w;
                    pixels.extend((0..w).map(|x| {
                        let column = (x + dx).saturating_sub(reach).min(w - 1);
                        table[usize::from(channel[line + column])]
                    }));
                }
            }
        }
        // Affine changes and mirroring draw random numbers only if they are on.
        if self.affine > 0.0 {
            let matrix = [1.0, 0.0, 0.0, 1.0].map(|entry| entry + self.affine * (2.0 * random.unit() - 1.0));
            transform(&mut pixels[start..], shape, matrix);
        }
        if self.flip > 0.0 && random.unit() < self.flip {
            pixels[start..].chunks_exact_mut(w).for_each(<[f32]>::reverse);
        }
        if random.unit() < self.erase {
            self.cover(&mut pixels[start..], shape, random);
        }
    }

    fn cover(&self, pixels: &mut [f32], [_, h, w]: [usize; 3], random: &mut Random) {
        let share = self.erase_share * random.unit();
        let height = ((share.sqrt() * (0.5 + random.unit()) * h as f32) as usize).clamp(1, h);
        let width = ((share * (h * w) as f32 / height as f32) as usize).clamp(1, w);
        let (top, left) = (random.below(h - height + 1), random.below(w - width + 1));
        let grey = random.unit();
        for channel in pixels.chunks_exact_mut(h * w) {
            for line in channel.chunks_exact_mut(w).skip(top).take(height) {
                line[left..left + width].fill(grey);
            }
        }
    }
}

/// Applies a matrix `[xx, xy, yx, yy]` to a view about its middle: pixel `(x, y)` of the result is taken from `matrix * (x, y)` of
/// the view, interpolated between four pixels. Edge pixels are repeated.
fn transform(pixels: &mut [f32], [_, h, w]: [usize; 3], [xx, xy, yx, yy]: [f32; 4]) {
    let middle = [w, h].map(|size| (size as f32 - 1.0) / 2.0);
    // Indices of the two neighbouring pixels on one axis, and the weight of the second pixel.
    let between = |at: f32, size: usize| {
        let at = at.clamp(0.0, size as f32 - 1.0);
        (at as usize, (at as usize + 1).min(size - 1), at.fract())
    };
    for channel in pixels.chunks_exact_mut(h * w) {
        let view = channel.to_vec();
        for (at, pixel) in channel.iter_mut().enumerate() {
            let (x, y) = ((at % w) as f32 - middle[0], (at / w) as f32 - middle[1]);
            let (left, right, to_right) = between(xx * x + xy * y + middle[0], w);
            let (top, bottom, to_bottom) = between(yx * x + yy * y + middle[1], h);
            let line =
                |row: usize| view[row * w + left] * (1.0 - to_right) + view[row * w + right] * to_right;
            *pixel = line(top) * (1.0 - to_bottom) + line(bottom) * to_bottom;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(augment: Augment, view: &[u8], shape: [usize; 3], random: &mut Random) -> Vec<f32> {
        let mut pixels = Vec::new();
        augment.view(view, shape, random, &mut pixels);
        pixels
    }

    #[test]
    fn a_quarter_turn_moves_every_pixel_and_half_a_step_lies_between_two() {
        let view: Vec<f32> = (0..9).map(|value| value as f32).collect();
        let mut turned = view.clone();
        transform(&mut turned, [1, 3, 3], [0.0, -1.0, 1.0, 0.0]);
        assert_eq!(turned, [2.0, 5.0, 8.0, 1.0, 4.0, 7.0, 0.0, 3.0, 6.0]);
        let mut wide = view;
        transform(&mut wide, [1, 3, 3], [0.5, 0.0, 0.0, 1.0]);
        assert_eq!(wide[..3], [0.5, 1.0, 1.5]);
    }

    #[test]
    fn an_affine_change_keeps_the_range_of_a_view_and_differs_from_view_to_view() {
        let augment = Augment { affine: 0.2, ..Augment::default() };
        let view: Vec<u8> = (0..48).map(|value| value * 5).collect();
        let mut random = Random::new(1, &[]);
        let [first, second] = [(); 2].map(|()| changed(augment, &view, [3, 4, 4], &mut random));
        assert_ne!(first, second);
        assert!(first.len() == 48 && first.iter().all(|pixel| (0.0..=235.0 / 255.0).contains(pixel)));
    }

    #[test]
    fn without_augmentation_a_view_is_its_pixels_over_255() {
        let view: Vec<u8> = (0..48).map(|v| v * 5).collect();
        let pixels = changed(Augment::default(), &view, [3, 4, 4], &mut Random::new(1, &[]));
        assert!(view.iter().zip(&pixels).all(|(v, p)| f32::from(*v) / 255.0 == *p));
    }

    #[test]
    fn a_mirrored_view_has_its_rows_reversed() {
        let augment = Augment { flip: 1.0, ..Augment::default() };
        let view: Vec<u8> = (0..24).collect();
        let expected: Vec<f32> =
            view.chunks(4).flat_map(|row| row.iter().rev()).map(|value| f32::from(*value) / 255.0).collect();
        assert_eq!(changed(augment, &view, [2, 3, 4], &mut Random::new(1, &[])), expected);
    }

    #[test]
    fn failout_keeps_at_least_one_device() {
        let augment = Augment { failout: 1.0, ..Augment::default() };
        let seen = SlotSet::from_bits(0b10_1100);
        for stream in 0..50 {
            let kept = augment.drop_devices(seen, &mut Random::new(1, &[stream]));
            assert_eq!(kept.len(), 1);
            assert!(kept.is_subset(seen));
        }
        assert!(augment.drop_devices(SlotSet::EMPTY, &mut Random::new(1, &[])).is_empty());
    }
}
