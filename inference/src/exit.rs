//! The exit rule: from logits to a class, a confidence, and whether the sample leaves here.
//!
//! Sums and exponentials are in `f64` and rounded once at the end, so that tiers with different maths libraries agree.

use crate::policy::{ExitPolicy, ExitRule, Temperature};

/// What one exit says of one sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assessment {
    /// The most likely class; the lowest one where several are equal.
    pub class: u16,
    /// One minus the uncertainty under the policy's rule, in `[0, 1]`.
    pub confidence: f32,
    /// Whether the uncertainty is at or below the threshold.
    pub leaves: bool,
}

impl Assessment {
    /// The answer to a sample that no device saw: the most frequent class of training, without any confidence.
    pub fn of_prior(class_prior: &[f32]) -> Self {
        Self { class: most_likely(class_prior), confidence: 0.0, leaves: false }
    }
}

impl ExitPolicy {
    /// Class and confidence of these logits, and whether a sample with `present` slots leaves with them.
    ///
    /// Logits with a NaN or `+inf` among them never leave and have no confidence. Allocates nothing.
    pub fn assess(&self, logits: &[f32], present: u32) -> Assessment {
        let class = most_likely(logits);
        match logits_uncertainty(self.rule, self.temperature, logits) {
            Some(uncertainty) => {
                let leaves = uncertainty <= self.threshold.at(present).get();
                Assessment { class, confidence: 1.0 - uncertainty, leaves }
            }
            None => Assessment { class, confidence: 0.0, leaves: false },
        }
    }

    /// Uncertainty of these logits in `[0, 1]`, as [`ExitPolicy::assess`] compares it; `None` where it is not defined (a NaN
    /// or `+inf` among them, or no logits), which never leaves.
    pub fn uncertainty(&self, logits: &[f32]) -> Option<f32> {
        logits_uncertainty(self.rule, self.temperature, logits)
    }
}

/// Class probabilities: `softmax(logits / temperature)`, stable for logits of any size.
///
/// # Panics
/// Unless `probabilities` has the length of `logits`.
pub fn softmax(logits: &[f32], temperature: Temperature, probabilities: &mut [f32]) {
    assert_eq!(logits.len(), probabilities.len(), "softmax: probabilities for {} logits", logits.len());
    let max = maximum(logits);
    let weight = |logit: f32| ((f64::from(logit) - f64::from(max)) / f64::from(temperature.get())).exp();
    let sum: f64 = logits.iter().map(|&logit| weight(logit)).sum();
    for (probability, &logit) in probabilities.iter_mut().zip(logits) {
        *probability = (weight(logit) / sum) as f32;
    }
}

/// Uncertainty of class probabilities in `[0, 1]` under a rule, from its definition. NaN where a probability is NaN.
///
/// One class alone is always certain: 0. [`ExitPolicy::assess`] gives the same from logits in one pass.
pub fn uncertainty(rule: ExitRule, probabilities: &[f32]) -> f32 {
    if probabilities.iter().any(|p| p.is_nan()) {
        return f32::NAN;
    }
    let [first, second] = two_largest(probabilities.iter().map(|&p| f64::from(p)));
    let value = match rule {
        ExitRule::Entropy if probabilities.len() < 2 => 0.0,
        ExitRule::Entropy => {
            let terms = probabilities.iter().filter(|&&p| p > 0.0).map(|&p| f64::from(p) * f64::from(p).ln());
            -terms.sum::<f64>() / (probabilities.len() as f64).ln()
        }
        ExitRule::MaxProbability => 1.0 - first,
        ExitRule::Margin => 1.0 - (first - second),
    };
    value.clamp(0.0, 1.0) as f32
}

/// Index of the largest value, the first of equals, NaN passed over; 0 when there is none.
pub fn most_likely(values: &[f32]) -> u16 {
    let mut best = (0, f32::NEG_INFINITY);
    for (class, &value) in values.iter().enumerate() {
        if value > best.1 {
            best = (class, value);
        }
    }
    // Networks have at most 65,535 classes.
    u16::try_from(best.0).unwrap_or(u16::MAX)
}

/// With `x = (logit - max) / T` and `Z = sum exp x`: `p = exp x / Z`, the largest is `1 / Z`, and the entropy is
/// `-sum p ln p = ln Z - sum(x exp x) / Z`.
fn logits_uncertainty(rule: ExitRule, temperature: Temperature, logits: &[f32]) -> Option<f32> {
    let max = maximum(logits);
    if !max.is_finite() {
        return None;
    }
    let scale = f64::from(temperature.get());
    let (mut sum, mut weighted) = (0.0f64, 0.0f64);
    for &logit in logits {
        let x = (f64::from(logit) - f64::from(max)) / scale;
        let weight = x.exp();
        sum += weight;
        // A class of logit -inf has weight 0 and adds nothing; 0 * -inf would be NaN.
        weighted += if weight > 0.0 { x * weight } else { 0.0 };
    }
    let value = match rule {
        ExitRule::Entropy if logits.len() < 2 => 0.0,
        ExitRule::Entropy => (sum.ln() - weighted / sum) / (logits.len() as f64).ln(),
        ExitRule::MaxProbability => 1.0 - 1.0 / sum,
        ExitRule::Margin => {
            let [_, second] = two_largest(logits.iter().map(|&logit| f64::from(logit)));
            let second = ((second - f64::from(max)) / scale).exp();
            1.0 - (1.0 - second) / sum
        }
    };
    // The sum is NaN when a logit is.
    (!value.is_nan()).then_some(value.clamp(0.0, 1.0) as f32)
}

/// The largest logit; NaN passed over, `-inf` when there is none.
fn maximum(logits: &[f32]) -> f32 {
    logits.iter().copied().fold(f32::NEG_INFINITY, f32::max)
}

/// The two largest values; for one value alone the second is `-inf`.
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
