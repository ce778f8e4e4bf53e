//! The rule `learned`: a logistic regression over the exit's softmax and the devices' classes.

use super::{ExitInput, Softmax};
use crate::policy::{LearnedWeights, Weight};

/// Inputs of the rule `learned`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnedInputs {
    /// Normalised entropy, in `[0, 1]`.
    pub entropy: f64,
    /// One minus the difference of the two largest probabilities, in `[0, 1]`.
    pub margin: f64,
    /// Number of present slots.
    pub present: f64,
    /// Share of devices that disagree with the exit: [`ExitInput::disagreement`].
    pub disagreement: f64,
}

impl LearnedInputs {
    pub(super) fn new(softmax: &Softmax, input: ExitInput<'_>) -> Self {
        Self {
            entropy: softmax.entropy().clamp(0.0, 1.0),
            margin: softmax.margin().clamp(0.0, 1.0),
            present: f64::from(input.present),
            disagreement: input.disagreement,
        }
    }
}

impl LearnedWeights {
    /// The logistic function of the weighted inputs.
    pub(super) fn probability(&self, inputs: LearnedInputs) -> f64 {
        let of = |weight: Weight| f64::from(weight.get());
        let log_odds = of(self.bias)
            + of(self.entropy) * inputs.entropy
            + of(self.margin) * inputs.margin
            + of(self.present) * inputs.present
            + of(self.disagreement) * inputs.disagreement;
        1.0 / (1.0 + (-log_odds).exp())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::policy::{ExitPolicy, ExitRule, ExitThreshold, Temperature, Threshold};
    use proptest::prelude::*;

    /// Tolerance against the definition: the rounding to `f32`.
    const ROUNDING: f64 = 1e-6;

    /// Weights in the order of the fields.
    pub(crate) fn weights(values: [f32; 5]) -> LearnedWeights {
        let [bias, entropy, margin, present, disagreement] = values.map(|value| Weight::new(value).unwrap());
        LearnedWeights { bias, entropy, margin, present, disagreement }
    }

    fn policy(values: [f32; 5], temperature: f32) -> ExitPolicy {
        ExitPolicy {
            rule: ExitRule::Learned,
            temperature: Temperature::new(temperature).unwrap(),
            threshold: Threshold::One(ExitThreshold::ALWAYS),
            weights: Some(weights(values)),
        }
    }

    #[test]
    fn the_uncertainty_is_the_logistic_function_of_the_weighted_inputs() {
        let p = [0.7f64, 0.2, 0.1];
        let logits = p.map(|p| p.ln() as f32);
        let entropy = -p.iter().map(|p| p * p.ln()).sum::<f64>() / 3f64.ln();
        let input = ExitInput::new(&logits, 5, [0, 1, 0, 2]);
        let found = policy([-2.0, 3.0, 0.5, -0.25, 1.5], 1.0).uncertainty(input).unwrap();
        let log_odds = -2.0 + 3.0 * entropy + 0.5 * 0.5 - 0.25 * 5.0 + 1.5 * 0.5;
        assert!((f64::from(found) - 1.0 / (1.0 + (-log_odds).exp())).abs() < ROUNDING, "{found}");
    }

    #[test]
    fn inputs_are_those_of_the_other_rules_at_the_same_temperature() {
        let logits = [2.0, -1.0, 0.5];
        let input = ExitInput::new(&logits, 2, [0, 1]);
        let policy = policy([0.0; 5], 1.7);
        let of = |rule| f64::from(ExitPolicy { rule, ..policy.clone() }.uncertainty(input).unwrap());
        let found = policy.learned_inputs(input).unwrap();
        assert!((found.entropy - of(ExitRule::Entropy)).abs() < ROUNDING);
        assert!((found.margin - of(ExitRule::Margin)).abs() < ROUNDING);
        assert_eq!((found.present, found.disagreement), (2.0, 0.5));
        assert_eq!(policy.learned_inputs(ExitInput::of_device(&[f32::NAN, 0.0])), None);
    }

    #[test]
    fn devices_disagree_by_their_share_and_one_without_scores_has_no_part() {
        let logits = [0.0, 1.0];
        let share = |classes: &[u16]| ExitInput::new(&logits, 3, classes.iter().copied()).disagreement;
        assert_eq!([share(&[1, 1, 0]), share(&[0, 1]), share(&[0]), share(&[])], [1.0 / 3.0, 0.5, 1.0, 0.0]);
        assert_eq!(ExitInput::of_device(&logits), ExitInput::new(&logits, 1, [1]));
    }

    #[test]
    fn without_weights_no_sample_leaves() {
        let policy = ExitPolicy { weights: None, ..policy([0.0; 5], 1.0) };
        assert_eq!(policy.uncertainty(ExitInput::of_device(&[9.0, 0.0])), None);
        assert!(!policy.assess(ExitInput::of_device(&[9.0, 0.0])).leaves);
    }

    fn any_weight() -> impl Strategy<Value = f32> {
        prop_oneof![-10f32..10.0, Just(f32::MAX), Just(f32::MIN)]
    }

    proptest! {
        #[test]
        fn any_input_gives_a_probability_and_undefined_logits_never_leave(
            values in prop::array::uniform5(any_weight()),
            logits in prop::collection::vec(any::<f32>(), 0..20),
            classes in prop::collection::vec(0u16..20, 0..8),
            present in any::<u32>(),
        ) {
            let policy = policy(values, 1.0);
            let input = ExitInput::new(&logits, present, classes);
            prop_assert!((0.0..=1.0).contains(&input.disagreement));
            let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let is_defined = largest.is_finite() && !logits.iter().any(|logit| logit.is_nan());
            prop_assert_eq!(policy.uncertainty(input).is_some(), is_defined);
            prop_assert!(policy.uncertainty(input).is_none_or(|found| (0.0..=1.0).contains(&found)));
            prop_assert_eq!(policy.assess(input).leaves, is_defined);
        }

        #[test]
        fn more_disagreement_is_less_sure_where_its_weight_is_positive(
            logits in prop::collection::vec(-9f32..9.0, 2..8),
            [a, b] in prop::array::uniform2(0f64..=1.0),
        ) {
            let policy = policy([-2.0, 1.0, 1.0, 0.1, 3.0], 1.0);
            let at = |disagreement| policy.uncertainty(ExitInput { logits: &logits, present: 4, disagreement }).unwrap();
            prop_assert!(at(a.min(b)) <= at(a.max(b)));
        }
    }
}
