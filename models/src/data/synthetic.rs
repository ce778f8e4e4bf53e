//! A tiny made-up data set for tests: bright squares at a place that tells the class.

#[cfg(test)]
use super::Samples;
#[cfg(test)]
use crate::random::Random;

#[cfg(test)]
impl Samples {
    /// `count` samples of `classes` classes for `slots` slots, `3 x 8 x 8`; not every slot sees every sample.
    pub(crate) fn synthetic(count: usize, slots: usize, classes: usize, seed: u64) -> Self {
        let shape = [3, 8, 8];
        let mut samples = Self { shape, slots, classes, labels: vec![], seen: vec![], pixels: vec![] };
        for index in 0..count {
            let mut random = Random::new(seed, &[index as u64]);
            let label = random.below(classes);
            let mut seen = 0;
            for slot in 0..slots {
                let visible = random.unit() < 0.85 || (slot + 1 == slots && seen == 0);
                seen |= u32::from(visible) << slot;
                for at in 0..3 * 64 {
                    let (y, x) = (at % 64 / 8, at % 8);
                    let bright = (y / 4) * 2 + x / 4 == (label + slot) % 4;
                    let noise = random.below(120) as u8;
                    samples.pixels.push(if !visible { 0 } else { noise + if bright { 100 } else { 0 } });
                }
            }
            samples.labels.push(label as u16);
            samples.seen.push(seen);
        }
        samples
    }
}
