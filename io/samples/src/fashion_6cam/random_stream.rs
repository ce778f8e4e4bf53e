//! Random stream with a key: the same bits on every platform, and for each view independent of all other views.
//!
//! `SplitMix64` (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014). The
//! generators of `rand` may change between releases and platforms; this data set must not.

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Random words that depend on the key alone.
pub(super) struct RandomStream(u64);

impl RandomStream {
    /// The stream of a key. Another order or number of words gives another stream.
    pub(super) fn keyed(key: &[u64]) -> Self {
        Self(key.iter().fold(GAMMA, |state, &word| mix((state ^ word).wrapping_add(GAMMA))))
    }

    /// 64 uniform bits.
    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        mix(self.0)
    }

    /// Uniform in `0..bound`, with a bias below `bound / 2^32`.
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        (((self.bits() >> 32) * u64::from(bound)) >> 32) as u32
    }

    /// Uniform in `[low, high)`, with 53 random bits.
    pub(super) fn uniform(&mut self, low: f64, high: f64) -> f64 {
        let unit = (self.bits() >> 11) as f64 / (1_u64 << 53) as f64;
        low + (high - low) * unit
    }

    /// Sum of eight uniform bytes, nearly normal (Irwin-Hall): mean 1020, standard deviation
    /// `sqrt(8 * (256^2 - 1) / 12)` = 209.02. Integers make the sum exact.
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
    fn the_words_equal_those_of_the_published_generator() {
        // First outputs of SplitMix64 for the state 1234567, as published with its reference code.
        let mut stream = RandomStream(1_234_567);
        assert_eq!(stream.bits(), 6_457_827_717_110_365_317);
        assert_eq!(stream.bits(), 3_203_168_211_198_807_973);
    }
}
