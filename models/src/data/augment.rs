//! Augmentation: whole devices dropped, small shifts, other exposure, grey rectangles.

use headwater_protocol::{Slot, SlotSet};
use serde::{Deserialize, Serialize};

use crate::random::Random;

/// Changes of the training views; all off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Augment {
    /// Probability that a device is dropped from a sample; at least one device stays.
    pub failout: f32,
    /// Largest shift of a view on each axis in pixels; edge pixels are repeated.
    pub shift: u32,
    /// Range of the factor of all pixels: `[1 - exposure, 1 + exposure]`.
    pub exposure: f32,
    /// Probability that a grey rectangle covers part of a view.
    pub erase: f32,
    /// Largest share of the view under a rectangle.
    pub erase_share: f32,
}

impl Augment {
    /// The slots of `seen` that are not dropped.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_augmentation_a_view_is_its_pixels_over_255() {
        let view: Vec<u8> = (0..48).map(|v| v * 5).collect();
        let mut pixels = Vec::new();
        Augment::default().view(&view, [3, 4, 4], &mut Random::new(1, &[]), &mut pixels);
        assert!(view.iter().zip(&pixels).all(|(v, p)| f32::from(*v) / 255.0 == *p));
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
