//! The exit rule: from logits to a class, a confidence, and whether the sample leaves here.
//!
//! Argmax and uncertainty exist here once; serving, evaluation and tuning call the same functions. Sums and exponentials are in `f64`
//! and rounded once at the end, so that tiers with different maths libraries agree.

mod learned;

pub use learned::LearnedInputs;

use serde::{Deserialize, Serialize};

use crate::policy::{ExitPolicy, ExitRule};

/// Input of one exit for one sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExitInput<'a> {
    /// One logit per class.
    pub logits: &'a [f32],
    /// Number of present slots.
    pub present: u32,
    /// Among the present devices that have scores, the share whose most likely class differs from the exit's, in `[0, 1]`; 0 if no
    /// device has scores.
    pub disagreement: f64,
}

impl<'a> ExitInput<'a> {
    /// The input with `present` slots. `device_classes` has, for each present device that has scores, the class of its largest score by
    /// [`argmax`], even if some of its scores are NaN.
    pub fn new(logits: &'a [f32], present: u32, device_classes: impl IntoIterator<Item = u16>) -> Self {
        let class = argmax(logits);
        let (mut devices, mut others) = (0u32, 0u32);
        for device_class in device_classes {
            devices += 1;
            others += u32::from(device_class != class);
        }
        Self { logits, present, disagreement: f64::from(others) / f64::from(devices.max(1)) }
    }

    /// The input of an exit on a device: one slot is present, and the device's class is the exit's class.
    pub fn of_device(logits: &'a [f32]) -> Self {
        Self { logits, present: 1, disagreement: 0.0 }
    }
}

/// Answer of one exit to one sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assessment {
    /// The most likely class; the lowest if several are equally likely.
    pub class: u16,
    /// One minus the uncertainty under the policy's rule, in `[0, 1]`; 0 if the uncertainty is not defined.
    pub confidence: f32,
    /// True when the uncertainty is at or below the threshold.
    pub leaves: bool,
}

impl Assessment {
    /// Answer to a sample without a view: the most frequent class of training, with confidence 0.
    pub fn of_prior(class_prior: &[f32]) -> Self {
        Self { class: argmax(class_prior), confidence: 0.0, leaves: false }
    }
}

impl ExitPolicy {
    /// Class and confidence of an input, and whether its sample leaves.
    ///
    /// A sample for which [`ExitPolicy::uncertainty`] is `None` never leaves and has confidence 0. Allocates nothing.
    pub fn assess(&self, input: ExitInput<'_>) -> Assessment {
        let class = argmax(input.logits);
        match self.uncertainty(input) {
            Some(uncertainty) => {
                let leaves = uncertainty <= self.threshold.at(input.present).get();
                Assessment { class, confidence: 1.0 - uncertainty, leaves }
            }
            None => Assessment { class, confidence: 0.0, leaves: false },
        }
    }

    /// Lowest confidence at which a sample with `present` slots leaves: one minus the threshold, so 2 if no sample leaves.
    pub fn threshold_confidence(&self, present: u32) -> f32 {
        1.0 - self.threshold.at(present).get()
    }

    /// Uncertainty of an input in `[0, 1]`: the number that [`ExitPolicy::assess`] compares with the threshold.
    ///
    /// `None` when a logit is NaN or `+inf`, when no logit is finite, and for a learned rule without weights, which [`Policy::check`]
    /// refuses.
    ///
    /// [`Policy::check`]: crate::policy::Policy::check
    pub fn uncertainty(&self, input: ExitInput<'_>) -> Option<f32> {
        let softmax = Softmax::of(&Exponents::new(input.logits, f64::from(self.temperature.get())))?;
        let value = match self.rule {
            ExitRule::Entropy => softmax.entropy(),
            ExitRule::MaxProbability => 1.0 - 1.0 / softmax.sum,
            ExitRule::Margin => softmax.margin(),
            ExitRule::Learned => self.weights?.probability(LearnedInputs::new(&softmax, input)),
        };
        // A NaN among the logits makes the value NaN.
        (!value.is_nan()).then_some(value.clamp(0.0, 1.0) as f32)
    }

    /// Calibrated probability of each class: softmax of the logits divided by the temperature. Empty if a logit is NaN or `+inf`,
    /// or no logit is finite.
    pub fn probabilities(&self, logits: &[f32]) -> Vec<f32> {
        let exponents = Exponents::new(logits, f64::from(self.temperature.get()));
        let sum = exponents.sum();
        if !exponents.max.is_finite() || sum.is_nan() {
            return Vec::new();
        }
        exponents.iter().map(|x| (x.exp() / sum) as f32).collect()
    }

    /// Inputs of the rule `learned` at this temperature; `None` if a logit is NaN or `+inf`, or no logit is finite.
    pub fn learned_inputs(&self, input: ExitInput<'_>) -> Option<LearnedInputs> {
        let softmax = Softmax::of(&Exponents::new(input.logits, f64::from(self.temperature.get())))?;
        (!softmax.sum.is_nan()).then(|| LearnedInputs::new(&softmax, input))
    }
}

/// Cross-entropy of `softmax(logits / temperature)` against one class: `-ln p`.
///
/// # Panics
/// When there is no such class.
pub fn cross_entropy(logits: &[f32], temperature: f64, class: usize) -> f64 {
    let exponents = Exponents::new(logits, temperature);
    exponents.sum().ln() - exponents.of(logits[class])
}

/// Index of the largest value; the first if several are equal.
///
/// NaN never wins: NaN is skipped at every position. The index is 0 when no value is larger than `-inf`.
pub fn argmax(values: &[f32]) -> u16 {
    let mut best = (0, f32::NEG_INFINITY);
    for (class, &value) in values.iter().enumerate() {
        if value > best.1 {
            best = (class, value);
        }
    }
    // Networks have at most 65,535 classes.
    u16::try_from(best.0).unwrap_or(u16::MAX)
}

/// Exponents of the softmax, `x = (logit - max) / T`: at most 0, so that no exponential overflows.
struct Exponents<'a> {
    logits: &'a [f32],
    max: f32,
    temperature: f64,
}

impl<'a> Exponents<'a> {
    /// `max` skips NaN, and is `-inf` when there are no logits.
    fn new(logits: &'a [f32], temperature: f64) -> Self {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        Self { logits, max, temperature }
    }

    fn of(&self, logit: f32) -> f64 {
        (f64::from(logit) - f64::from(self.max)) / self.temperature
    }

    fn iter(&self) -> impl Iterator<Item = f64> {
        self.logits.iter().map(|&logit| self.of(logit))
    }

    /// Sum of the exponentials.
    fn sum(&self) -> f64 {
        self.iter().map(f64::exp).sum()
    }
}

/// Sums over the exponents of a softmax. Let `x = (logit - max) / T`, so that the largest `x` is 0, and `Z = sum exp x`. Then
/// `p = exp x / Z`, and the largest `p` is `1 / Z`.
struct Softmax {
    classes: usize,
    /// `Z`; NaN if a logit is NaN.
    sum: f64,
    /// `sum(x exp x)`.
    weighted: f64,
    /// The second largest `x`; `-inf` if there is only one class.
    second: f64,
}

impl Softmax {
    /// `None` if the largest logit is not finite.
    fn of(exponents: &Exponents<'_>) -> Option<Self> {
        if !exponents.max.is_finite() {
            return None;
        }
        let (mut sum, mut weighted) = (0.0f64, 0.0f64);
        for x in exponents.iter() {
            let weight = x.exp();
            sum += weight;
            // A class of logit -inf has weight 0 and adds nothing; 0 * -inf would be NaN.
            weighted += if weight > 0.0 { x * weight } else { 0.0 };
        }
        let [_, second] = two_largest(exponents.iter());
        Some(Self { classes: exponents.logits.len(), sum, weighted, second })
    }

    /// `-sum p ln p / ln C`, where `-sum p ln p = ln Z - sum(x exp x) / Z`; 0 for a single class.
    fn entropy(&self) -> f64 {
        match self.classes {
            0 | 1 => 0.0,
            classes => (self.sum.ln() - self.weighted / self.sum) / (classes as f64).ln(),
        }
    }

    /// One minus the difference of the two largest probabilities.
    fn margin(&self) -> f64 {
        1.0 - (1.0 - self.second.exp()) / self.sum
    }
}

/// The two largest values; the second is `-inf` if there is only one.
fn two_largest(values: impl Iterator<Item = f64>) -> [f64; 2] {
    let mut largest = [f64::NEG_INFINITY; 2];
    for value in values {
        if value > largest[0] {
            largest = [value, largest[0]];
        } else if value > largest[1] {
            largest[1] = value;
        }
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{ExitThreshold, Temperature, Threshold};
    use proptest::prelude::*;

    /// Tolerance between the one-pass uncertainty and its definition: the rounding of `f32` probabilities.
    const PROBABILITY_ROUNDING: f32 = 1e-5;

    /// Rules that read the softmax alone.
    const SOFTMAX_RULES: [ExitRule; 3] = [ExitRule::Entropy, ExitRule::MaxProbability, ExitRule::Margin];
    const RULES: [ExitRule; 4] =
        [ExitRule::Entropy, ExitRule::MaxProbability, ExitRule::Margin, ExitRule::Learned];

    fn policy(rule: ExitRule, temperature: f32, threshold: f32) -> ExitPolicy {
        ExitPolicy {
            rule,
            temperature: Temperature::new(temperature).unwrap(),
            threshold: Threshold::One(ExitThreshold::new(threshold).unwrap()),
            weights: (rule == ExitRule::Learned)
                .then(|| learned::tests::weights([-3.0, 4.0, 1.0, -0.2, 2.0])),
        }
    }

    fn input(logits: &[f32]) -> ExitInput<'_> {
        ExitInput::of_device(logits)
    }

    /// Class probabilities: `softmax(logits / temperature)`, stable for logits of any size.
    ///
    /// # Panics
    /// Unless `probabilities` has the length of `logits`.
    fn softmax(logits: &[f32], temperature: Temperature, probabilities: &mut [f32]) {
        assert_eq!(logits.len(), probabilities.len(), "softmax: probabilities for {} logits", logits.len());
        let exponents = Exponents::new(logits, f64::from(temperature.get()));
        let sum = exponents.sum();
        for (probability, x) in probabilities.iter_mut().zip(exponents.iter()) {
            *probability = (x.exp() / sum) as f32;
        }
    }

    /// Uncertainty of class probabilities under a rule, in `[0, 1]`, from the rule's definition. NaN if a probability is NaN; 0 for a single
    /// class.
    fn uncertainty(rule: ExitRule, probabilities: &[f32]) -> f32 {
        if probabilities.iter().any(|p| p.is_nan()) {
            return f32::NAN;
        }
        let [first, second] = two_largest(probabilities.iter().map(|&p| f64::from(p)));
        let value = match rule {
            ExitRule::Entropy if probabilities.len() < 2 => 0.0,
            ExitRule::Entropy => {
                let terms =
                    probabilities.iter().filter(|&&p| p > 0.0).map(|&p| f64::from(p) * f64::from(p).ln());
                -terms.sum::<f64>() / (probabilities.len() as f64).ln()
            }
            ExitRule::MaxProbability => 1.0 - first,
            ExitRule::Margin => 1.0 - (first - second),
            ExitRule::Learned => unreachable!("it has other inputs too"),
        };
        value.clamp(0.0, 1.0) as f32
    }

    #[track_caller]
    fn check(rule: ExitRule, probabilities: &[f32], expected: f32) {
        let found = uncertainty(rule, probabilities);
        assert!(
            (found - expected).abs() < PROBABILITY_ROUNDING,
            "{rule:?}: expected {expected}, found {found}"
        );
        let logits: Vec<f32> = probabilities.iter().map(|p| p.ln()).collect();
        let found = policy(rule, 1.0, 0.5).uncertainty(input(&logits)).unwrap();
        assert!(
            (found - expected).abs() < PROBABILITY_ROUNDING,
            "{rule:?} of logits: expected {expected}, found {found}"
        );
    }

    #[test]
    fn probabilities_are_the_softmax_at_the_temperature_and_there_are_none_of_a_nan() {
        let policy = policy(ExitRule::Entropy, 2.0, 0.5);
        let (logits, mut expected) = ([1.0, -0.5, 3.0], [0.0; 3]);
        softmax(&logits, policy.temperature, &mut expected);
        assert_eq!(policy.probabilities(&logits), expected);
        for none in [&[f32::NAN, 1.0][..], &[f32::INFINITY, 1.0], &[]] {
            assert!(policy.probabilities(none).is_empty(), "{none:?}");
        }
    }

    #[test]
    fn a_certain_answer_has_no_uncertainty() {
        for rule in SOFTMAX_RULES {
            check(rule, &[0.0, 1.0, 0.0], 0.0);
        }
    }

    #[test]
    fn equal_probabilities_are_full_uncertainty_where_the_rule_reaches_one() {
        check(ExitRule::Entropy, &[0.25; 4], 1.0);
        check(ExitRule::Margin, &[0.25; 4], 1.0);
        check(ExitRule::MaxProbability, &[0.25; 4], 0.75);
    }

    #[test]
    fn each_rule_equals_its_formula() {
        let p = [0.7, 0.2, 0.1];
        let entropy = -(0.7f32 * 0.7f32.ln() + 0.2 * 0.2f32.ln() + 0.1 * 0.1f32.ln()) / 3.0f32.ln();
        check(ExitRule::Entropy, &p, entropy);
        check(ExitRule::MaxProbability, &p, 0.3);
        check(ExitRule::Margin, &p, 0.5);
    }

    #[test]
    fn a_single_class_is_always_certain_and_leaves() {
        for rule in SOFTMAX_RULES {
            check(rule, &[1.0], 0.0);
            let assessment = policy(rule, 1.0, 0.0).assess(input(&[-3.0]));
            assert_eq!(assessment, Assessment { class: 0, confidence: 1.0, leaves: true });
        }
    }

    #[test]
    fn undefined_logits_never_leave_even_at_a_threshold_of_one() {
        for rule in RULES {
            for logits in [
                &[f32::NAN, 1.0, 0.0][..],
                &[1.0, f32::NAN],
                &[f32::INFINITY, 0.0],
                &[f32::NEG_INFINITY, f32::NEG_INFINITY],
                &[f32::NAN],
                &[],
            ] {
                let assessment = policy(rule, 1.0, 1.0).assess(input(logits));
                assert!(
                    !assessment.leaves && assessment.confidence == 0.0,
                    "{rule:?} {logits:?}: {assessment:?}"
                );
            }
        }
        assert!(uncertainty(ExitRule::Entropy, &[f32::NAN, 0.5]).is_nan());
    }

    #[test]
    fn a_class_of_logit_minus_infinity_adds_nothing() {
        let assessment = policy(ExitRule::Entropy, 1.0, 0.0).assess(input(&[f32::NEG_INFINITY, 3.0]));
        assert_eq!(assessment, Assessment { class: 1, confidence: 1.0, leaves: true });
    }

    #[test]
    fn huge_logits_do_not_overflow() {
        let mut probabilities = [0.0; 3];
        softmax(&[3e38, -3e38, 3e38], Temperature::ONE, &mut probabilities);
        assert_eq!(probabilities, [0.5, 0.0, 0.5]);
        assert_eq!(policy(ExitRule::Margin, 1e-6, 1.0).uncertainty(input(&[3e38, -3e38, 3e38])), Some(1.0));
    }

    #[test]
    fn the_first_of_equal_classes_wins() {
        assert_eq!(argmax(&[1.0, 2.0, 2.0]), 1);
        assert_eq!(argmax(&[]), 0);
        assert_eq!(Assessment::of_prior(&[0.2, 0.6, 0.2]).class, 1);
    }

    #[test]
    fn nan_never_wins() {
        for (values, class) in [
            (&[f32::NAN, -1.0][..], 1),
            (&[-1.0, f32::NAN], 0),
            (&[f32::NAN, -3.0, 2.0, f32::NAN], 2),
            (&[f32::NAN, f32::NAN], 0),
        ] {
            assert_eq!(argmax(values), class, "{values:?}");
        }
    }

    #[test]
    fn the_threshold_depends_on_how_many_are_present() {
        let list = [0.0, 1.0].map(|value| ExitThreshold::new(value).unwrap()).to_vec();
        let policy = ExitPolicy { threshold: Threshold::ByPresent(list), ..ExitPolicy::default() };
        assert!(!policy.assess(input(&[1.0, 0.0])).leaves);
        assert!(policy.assess(ExitInput::new(&[1.0, 0.0], 2, [])).leaves);
        assert_eq!([1, 2].map(|present| policy.threshold_confidence(present)), [1.0, 0.0]);
    }

    #[test]
    fn not_even_a_certain_sample_leaves_at_the_threshold_never() {
        for rule in SOFTMAX_RULES {
            let certain = [100.0, -100.0];
            assert_eq!(policy(rule, 1.0, 0.0).uncertainty(input(&certain)), Some(0.0));
            assert!(policy(rule, 1.0, 0.0).assess(input(&certain)).leaves);
            let never = policy(rule, 1.0, ExitThreshold::NEVER.get());
            assert!(!never.assess(input(&certain)).leaves && never.threshold_confidence(1) > 1.0);
        }
    }

    #[test]
    fn a_sample_exactly_at_the_threshold_leaves() {
        let at = policy(ExitRule::Entropy, 1.0, 1.0).uncertainty(input(&[1.0, 0.0, 0.5])).unwrap();
        assert!(policy(ExitRule::Entropy, 1.0, at).assess(input(&[1.0, 0.0, 0.5])).leaves);
    }

    fn logits() -> impl Strategy<Value = Vec<f32>> {
        prop::collection::vec(-30.0f32..30.0, 1..40)
    }

    fn rule() -> impl Strategy<Value = ExitRule> {
        prop::sample::select(RULES.to_vec())
    }

    proptest! {
        #[test]
        fn probabilities_are_in_range_and_sum_to_one(logits in logits(), temperature in 0.05f32..20.0) {
            let mut probabilities = vec![0.0; logits.len()];
            softmax(&logits, Temperature::new(temperature).unwrap(), &mut probabilities);
            prop_assert!(probabilities.iter().all(|p| (0.0..=1.0).contains(p)));
            prop_assert!((probabilities.iter().sum::<f32>() - 1.0).abs() < PROBABILITY_ROUNDING);
        }

        #[test]
        fn one_pass_over_logits_equals_the_definition(logits in logits(), temperature in 0.05f32..20.0, rule in prop::sample::select(SOFTMAX_RULES.to_vec())) {
            let mut probabilities = vec![0.0; logits.len()];
            softmax(&logits, Temperature::new(temperature).unwrap(), &mut probabilities);
            let expected = uncertainty(rule, &probabilities);
            let found = policy(rule, temperature, 0.5).uncertainty(input(&logits)).unwrap();
            prop_assert!((0.0..=1.0).contains(&found));
            prop_assert!((found - expected).abs() < PROBABILITY_ROUNDING, "expected {}, found {}", expected, found);
        }

        #[test]
        fn cross_entropy_is_minus_the_logarithm_of_the_probability(logits in logits(), temperature in 0.5f32..20.0, class in any::<prop::sample::Index>()) {
            let class = class.index(logits.len());
            let mut probabilities = vec![0.0; logits.len()];
            softmax(&logits, Temperature::new(temperature).unwrap(), &mut probabilities);
            let found = cross_entropy(&logits, f64::from(temperature), class);
            prop_assert!((found.exp().recip() - f64::from(probabilities[class])).abs() < f64::from(PROBABILITY_ROUNDING));
        }

        #[test]
        fn a_sample_that_leaves_at_a_threshold_leaves_at_a_higher_one(logits in logits(), rule in rule(), a in 0.0f32..=1.0, b in 0.0f32..=1.0) {
            let leaves = |threshold| policy(rule, 1.0, threshold).assess(input(&logits)).leaves;
            prop_assert!(!leaves(a.min(b)) || leaves(a.max(b)));
            prop_assert!(leaves(1.0));
        }

        #[test]
        fn a_sample_leaves_from_the_threshold_as_a_confidence_on(logits in logits(), rule in rule(), threshold in 0.0f32..=1.0) {
            let policy = policy(rule, 1.0, threshold);
            let Assessment { confidence, leaves, .. } = policy.assess(input(&logits));
            let least = policy.threshold_confidence(1);
            // Both differences from 1 are rounded, so they may be equal although the uncertainties differ.
            let is_on_its_side = if leaves { confidence >= least } else { confidence <= least };
            prop_assert!(is_on_its_side, "{} against {}", confidence, least);
        }

        #[test]
        fn any_floats_give_a_class_in_range_and_a_confidence_in_range(logits in prop::collection::vec(any::<f32>(), 0..20), rule in rule()) {
            let assessment = policy(rule, 1.0, 0.7).assess(input(&logits));
            prop_assert!(usize::from(assessment.class) < logits.len().max(1));
            prop_assert!((0.0..=1.0).contains(&assessment.confidence));
        }

        #[test]
        fn a_higher_temperature_is_less_sure_by_entropy(logits in logits(), low in 0.1f32..5.0, more in 1.0f32..5.0) {
            let at = |temperature| policy(ExitRule::Entropy, temperature, 0.5).uncertainty(input(&logits)).unwrap();
            prop_assert!(at(low) <= at(low * more) + f32::EPSILON);
        }
    }
}
