//! Batch norm and sign as one comparison of integers.

/// `sign(scale * sum + shift)` of an integer `sum`, which grows or falls with it: `sum >= from`, turned round where it falls.
///
/// Since it is monotonic it commutes with max pooling: the largest sum is at or above `from` when any sum is. So pooling is an OR
/// of bits, and no sum is ever stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Threshold {
    /// The comparison is true from this sum on.
    pub from: i32,
    /// The bit is the opposite of the comparison.
    pub flipped: bool,
}

impl Threshold {
    /// The bit of a sum.
    pub const fn of(self, sum: i32) -> bool {
        (sum >= self.from) != self.flipped
    }

    /// The threshold of a function of a sum that is known at each one in `-most..=most`.
    ///
    /// `None` where no threshold gives that function, because it changes more than once.
    pub fn fitted(most: i32, bit: impl Fn(i32) -> bool) -> Option<Self> {
        let flipped = bit(-most);
        let from = (-most..=most).find(|&sum| bit(sum) != flipped).unwrap_or(most + 1);
        // Before `from` the bit is `flipped`, as the comparison's opposite is; from there on it must stay the other one.
        let stays = (from..=most).all(|sum| bit(sum) != flipped);
        stays.then_some(Self { from, flipped })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_function_that_turns_twice_has_no_threshold() {
        assert_eq!(Threshold::fitted(9, |sum| sum.abs() < 3), None);
    }

    #[test]
    fn constants_have_thresholds_out_of_reach() {
        assert_eq!(Threshold::fitted(9, |_| false), Some(Threshold { from: 10, flipped: false }));
        assert_eq!(Threshold::fitted(9, |_| true), Some(Threshold { from: 10, flipped: true }));
    }

    proptest! {
        #[test]
        fn the_threshold_gives_the_sign_of_the_float_at_every_sum(
            scale in -2.0f32..2.0, shift in -40.0f32..40.0, most in 1i32..200,
        ) {
            let bit = |sum: i32| scale * sum as f32 + shift >= 0.0;
            let threshold = Threshold::fitted(most, bit).unwrap();
            for sum in -most..=most {
                prop_assert_eq!(threshold.of(sum), bit(sum));
            }
        }
    }
}
