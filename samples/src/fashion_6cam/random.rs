//! A small random stream with a key: the same bits on every platform, and any view without those before it.
//!
//! `SplitMix64` (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014). `rand`'s
//! small generators may change between its releases and differ between platforms; this data set must not.

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// A stream of random words that depends on its key alone.
pub(super) struct Stream(u64);

impl Stream {
    /// The stream of a key. Order and number of the words count.
    pub(super) fn keyed(key: &[u64]) -> Self {
        Self(key.iter().fold(GAMMA, |state, &word| mix((state ^ word).wrapping_add(GAMMA))))
    }

    /// 64 uniform bits.
    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        mix(self.0)
    }

    /// Uniform in `0..bound`; the bias, below `bound / 2^32`, does not matter here.
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        (((self.bits() >> 32) * u64::from(bound)) >> 32) as u32
    }

    /// Uniform in `[low, high)`, with 53 random bits.
    pub(super) fn uniform(&mut self, low: f64, high: f64) -> f64 {
        let unit = (self.bits() >> 11) as f64 / (1_u64 << 53) as f64;
        low + (high - low) * unit
    }

    /// Sum of eight uniform bytes: nearly normal (Irwin-Hall), mean 1020, standard deviation
    /// `sqrt(8 * (256^2 - 1) / 12)` = 209.02. Integers only, so bit-exact.
    pub(super) fn eight_bytes(&mut self) -> i32 {
        const EVEN_BYTES: u64 = 0x00ff_00ff_00ff_00ff;
        const ONE_PER_PAIR: u64 = 0x0001_0001_0001_0001;
        let bits = self.bits();
        let pairs = (bits & EVEN_BYTES) + ((bits >> 8) & EVEN_BYTES);
        (pairs.wrapping_mul(ONE_PER_PAIR) >> 48) as i32
    }
}

fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_the_published_generator() {
        // First outputs of SplitMix64 for the state 1234567, as published with its reference code.
        let mut stream = Stream(1_234_567);
        assert_eq!(stream.bits(), 6_457_827_717_110_365_317);
        assert_eq!(stream.bits(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn a_key_is_its_words_in_their_order() {
        let first = |key: &[u64]| Stream::keyed(key).bits();
        assert_eq!(first(&[1, 2]), first(&[1, 2]));
        assert_ne!(first(&[1, 2]), first(&[2, 1]));
        assert_ne!(first(&[1]), first(&[1, 0]));
    }

    #[test]
    fn the_byte_sum_counts_all_eight_bytes() {
        let mut plain = Stream(7);
        let mut summed = Stream(7);
        for _ in 0..1000 {
            let expected: i32 = plain.bits().to_le_bytes().iter().map(|&byte| i32::from(byte)).sum();
            assert_eq!(summed.eight_bytes(), expected);
        }
    }

    #[test]
    fn ranges_keep_their_ends() {
        let mut stream = Stream::keyed(&[3]);
        for _ in 0..10_000 {
            assert!(stream.below(7) < 7);
            assert!((-2.0..3.0).contains(&stream.uniform(-2.0, 3.0)));
        }
    }
}
