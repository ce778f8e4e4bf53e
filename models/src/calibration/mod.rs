//! Temperatures and thresholds, from the validation part alone; and what a policy then does to a part.

mod outcome;
#[cfg(test)]
mod tests;
mod thresholds;

use headwater_inference::policy::{Policy, PolicyError, Temperature, Threshold};
use headwater_protocol::Exit;

pub use outcome::{DeviceBytes, Outcome};

use crate::data::Samples;
use crate::evaluation::ExitLogits;
use crate::recipe::ExitRecipe;

/// A policy from the validation part: a temperature for each exit, then, from the first exit to the last but one, the largest
/// threshold up to which every one costs at most that exit's share of what `wish` allows against the cloud exit.
///
/// # Errors
/// [`PolicyError`] when a fitted number is out of range, which logits that are not finite would cause.
pub fn policy(
    logits: &ExitLogits,
    validation: &Samples,
    prior: &[f32],
    wish: ExitRecipe,
) -> Result<Policy, PolicyError> {
    let mut policy = Policy::default();
    for (exit, logits) in logits.exits.iter() {
        policy.of_mut(exit).temperature = Temperature::new(fit_temperature(logits, validation))?;
    }
    let mut search = thresholds::Search::new(logits, validation, prior, wish);
    for exit in logits.exits.iter().map(|(exit, _)| exit).filter(|exit| *exit != Exit::Cloud) {
        policy.of_mut(exit).threshold = Threshold::One(search.next(exit, policy.of(exit))?);
    }
    Ok(policy)
}

/// The temperature with the least cross-entropy on samples that some device sees (Guo et al. 2017, section 4.2).
fn fit_temperature(logits: &[f32], samples: &Samples) -> f32 {
    let loss = |log: f64| -> f64 {
        let temperature = log.exp();
        let rows = logits.chunks_exact(samples.classes).zip(&samples.labels).zip(&samples.seen);
        rows.filter(|(_, seen)| **seen != 0)
            .map(|((row, label), _)| {
                let largest = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
                let sum: f64 = row.iter().map(|z| ((f64::from(*z) - largest) / temperature).exp()).sum();
                sum.ln() - (f64::from(row[usize::from(*label)]) - largest) / temperature
            })
            .sum()
    };
    // The loss is convex in 1/temperature, so it has one valley in the logarithm too.
    let (mut low, mut high) = ((0.02f64).ln(), (50.0f64).ln());
    for _ in 0..60 {
        let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if loss(a) <= loss(b) { high = b } else { low = a }
    }
    f64::midpoint(low, high).exp() as f32
}
