//! Tuning: a temperature and a threshold for each exit, from the validation part alone.

#[cfg(test)]
mod tests;
mod thresholds;

use headwater_inference::exit::cross_entropy;
use headwater_inference::policy::{Policy, PolicyError, Temperature};

use crate::data::Samples;
use crate::evaluation::PartLogits;
use crate::recipe::ExitTarget;

/// A policy from the validation part.
///
/// Each exit before the cloud gets the largest threshold up to which no threshold costs more than the exit's share of the target.
///
/// # Errors
/// [`PolicyError`] when a fitted number is out of range, which only logits that are not finite cause.
pub fn policy(
    logits: &PartLogits,
    validation: &Samples,
    class_prior: &[f32],
    target: ExitTarget,
) -> Result<Policy, PolicyError> {
    let mut policy = Policy::default();
    for (exit, logits) in logits.exits.iter() {
        policy.of_mut(exit).temperature = temperature(logits, validation)?;
    }
    thresholds::choose(&mut policy, logits, validation, class_prior, target)?;
    Ok(policy)
}

/// The temperature with the least cross-entropy on samples that a slot sees (Guo et al. 2017, section 4.2).
fn temperature(logits: &[f32], samples: &Samples) -> Result<Temperature, PolicyError> {
    let loss = |log: f64| -> f64 {
        let rows = logits.chunks_exact(samples.classes).zip(&samples.labels).zip(&samples.seen);
        let seen = rows.filter(|(_, seen)| !seen.is_empty());
        seen.map(|((row, label), _)| cross_entropy(row, log.exp(), usize::from(*label))).sum()
    };
    // The loss is convex in 1/temperature, so it has one minimum in the logarithm too.
    let (mut low, mut high) = ((0.02f64).ln(), (50.0f64).ln());
    for _ in 0..60 {
        let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if loss(a) <= loss(b) { high = b } else { low = a }
    }
    Temperature::new(f64::midpoint(low, high).exp() as f32)
}
