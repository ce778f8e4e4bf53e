//! Batch norm and sign as one integer comparison.

/// `sign(scale * sum + shift)` of an integer `sum` as a comparison: `sum >= from`, negated if `scale` is negative.
///
/// The comparison is monotonic, so it commutes with max pooling: the largest sum reaches `from` if any sum does. Pooling is
/// therefore an OR of bits, and no map of sums is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Threshold {
    /// Smallest sum for which the comparison is true.
    pub from: i32,
    /// True when the bit is the negated comparison.
    pub flipped: bool,
}

impl Threshold {
    /// The bit of a sum.
    pub const fn of(self, sum: i32) -> bool {
        (sum >= self.from) != self.flipped
    }

    /// Finds the threshold of a function that is known at every sum in `-max..=max`.
    ///
    /// Returns `None` if the function changes more than once: no threshold computes it.
    pub fn fitted(max: i32, bit: impl Fn(i32) -> bool) -> Option<Self> {
        let flipped = bit(-max);
        let from = (-max..=max).find(|&sum| bit(sum) != flipped).unwrap_or(max + 1);
        // Below `from` the bit is `flipped`; from there on it must stay the other value.
        let stays = (from..=max).all(|sum| bit(sum) != flipped);
        stays.then_some(Self { from, flipped })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_function_that_changes_twice_has_no_threshold() {
        assert_eq!(Threshold::fitted(9, |sum| sum.abs() < 3), None);
    }

    #[test]
    fn a_constant_function_has_a_threshold_above_every_sum() {
        assert_eq!(Threshold::fitted(9, |_| false), Some(Threshold { from: 10, flipped: false }));
        assert_eq!(Threshold::fitted(9, |_| true), Some(Threshold { from: 10, flipped: true }));
    }

    proptest! {
        #[test]
        fn the_threshold_equals_the_sign_of_the_float_at_every_sum(
            scale in -2.0f32..2.0, shift in -40.0f32..40.0, max in 1i32..200,
        ) {
            let bit = |sum: i32| scale * sum as f32 + shift >= 0.0;
            let threshold = Threshold::fitted(max, bit).unwrap();
            for sum in -max..=max {
                prop_assert_eq!(threshold.of(sum), bit(sum));
            }
        }
    }
}
