//! Random numbers that are a pure function of a seed and a stream (epoch, step, sample), so that a resumed run draws the same numbers.

/// A small generator (`SplitMix64`, Steele et al. 2014); good enough for shuffles, masks and initial weights.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A separate random stream for each `seed` and `stream`.
    pub fn new(seed: u64, stream: &[u64]) -> Self {
        let mut state = Self(seed);
        for part in stream {
            state.0 = state.next() ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93);
        }
        state.next();
        state
    }

    /// 64 random bits.
    #[expect(clippy::should_implement_trait, reason = "a generator is no iterator: it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `[0, 1)`.
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Uniform in `0..end`; 0 when `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// Normal with mean 0 and deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f32 {
        let radius = (-2.0 * f64::from(1.0 - self.unit()).ln()).sqrt();
        (radius * (std::f64::consts::TAU * f64::from(self.unit())).cos()) as f32
    }

    /// The numbers `0..len` in random order.
    pub fn permutation(&mut self, len: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..len as u32).collect();
        for i in (1..len).rev() {
            order.swap(i, self.below(i + 1));
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_streams_repeat_and_others_differ() {
        let draw = |seed, stream: &[u64]| Random::new(seed, stream).next();
        assert_eq!(draw(7, &[1, 2]), draw(7, &[1, 2]));
        assert_ne!(draw(7, &[1, 2]), draw(7, &[2, 1]));
        assert_ne!(draw(7, &[1, 2]), draw(8, &[1, 2]));
    }

    #[test]
    fn a_permutation_holds_every_number_once() {
        let mut order = Random::new(1, &[]).permutation(1000);
        assert_ne!(order[..4], [0, 1, 2, 3]);
        order.sort_unstable();
        assert!(order.iter().enumerate().all(|(i, v)| i as u32 == *v));
    }
}
