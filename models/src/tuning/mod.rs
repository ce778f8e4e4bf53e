//! Tuning: a temperature and a threshold for each exit, from the validation part alone.

#[cfg(test)]
mod tests;

use headwater_inference::exit::cross_entropy;
use headwater_inference::policy::{ExitThreshold, Policy, PolicyError, Temperature, Threshold};
use headwater_protocol::Exit;

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
    choose_thresholds(&mut policy, logits, validation, class_prior, target)?;
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

/// Sets the threshold of every exit before the cloud, for the rules and temperatures of `policy`. Together they keep the target.
///
/// **One exit.** Thresholds are tried from the strictest on. The first one whose bound on the loss is too large ends the search (fixed
/// sequence testing; Angelopoulos et al. 2021, "Learn then Test", section 3.2). Taking the largest threshold that passes anywhere
/// would choose the luckiest of thousands, and the promise would not hold on new data.
///
/// By default wins of the exit over the cloud do not make up for losses (the positive part of the gap; Jazbec et al. 2024, "Fast yet
/// Safe", section 3). The count then bounds the loss from above, whatever the wins on new data are.
///
/// **Several exits.** The target is split: each of `k` exits may cost `1/k` of the points, at a level that leaves `1/k` of the risk. A
/// sample leaves at one exit only, so the total loss is the sum of the losses of the exits. By the union bound all exits keep their
/// part with the target's probability.
///
/// The losses of an exit are counted over every sample below the threshold, also over samples that leave earlier. So the search does
/// not depend on the earlier thresholds, which were chosen with the same data. The count is at least the loss in the cascade.
/// Wins, with `count_wins`, are counted only for samples that no earlier exit took.
fn choose_thresholds(
    policy: &mut Policy,
    logits: &PartLogits,
    samples: &Samples,
    class_prior: &[f32],
    target: ExitTarget,
) -> Result<(), PolicyError> {
    let exits: Vec<Exit> =
        logits.exits.iter().map(|(exit, _)| exit).filter(|exit| *exit != Exit::Cloud).collect();
    let parts = exits.len().max(1) as f64;
    // Largest loss of one exit: share of the samples that it gets wrong and the cloud right, less its wins if they count. `1e-9` absorbs
    // rounding.
    let max_loss = f64::from(target.max_loss_points) / 100.0 / parts + 1e-9;
    let standard_errors = split(f64::from(target.standard_errors), parts);
    let cloud = logits.right(Exit::Cloud, samples, class_prior);
    // Whether an earlier exit took each sample.
    let mut left = vec![false; samples.len()];
    for exit in exits {
        let here = logits.right(exit, samples, class_prior);
        let seen = (0..samples.len()).filter(|sample| !samples.seen[*sample].is_empty());
        let uncertainty = |sample| Some((policy.of(exit).uncertainty(logits.of(exit, sample))?, sample));
        let mut sure: Vec<(f32, usize)> = seen.filter_map(uncertainty).collect();
        sure.sort_by(|a, b| a.0.total_cmp(&b.0));

        let count = samples.len().max(1) as f64;
        let (mut gained, mut changed, mut threshold) = (0i64, 0u32, 0.0f32);
        for (index, &(uncertainty, sample)) in sure.iter().enumerate() {
            let wins = target.count_wins && !left[sample] && here[sample] && !cloud[sample];
            let gain = i64::from(wins) - i64::from(cloud[sample] && !here[sample]);
            gained += gain;
            changed += u32::from(gain != 0);
            // Each sample loses one, nothing, or wins one: mean and standard error of paired differences.
            let loss = -gained as f64 / count;
            let deviation = (f64::from(changed) / count - loss * loss).max(0.0).sqrt();
            let bound = loss + standard_errors * deviation / count.sqrt();
            let next = sure.get(index + 1).map_or(1.0, |next| next.0);
            if bound > max_loss {
                break;
            }
            if next > uncertainty {
                threshold = if index + 1 == sure.len() { 1.0 } else { f32::midpoint(uncertainty, next) };
            }
        }
        let threshold = threshold.clamp(0.0, 1.0);
        for (uncertainty, sample) in sure {
            left[sample] |= uncertainty <= threshold;
        }
        policy.of_mut(exit).threshold = Threshold::One(ExitThreshold::new(threshold)?);
    }
    Ok(())
}

/// Standard errors for each of `parts` tests, so that all tests hold together with the probability of `standard_errors`.
///
/// The tail of the normal distribution is `density(z) mills(z)` with a falling Mills ratio, and `density(sqrt(z² + 2 ln k))` is
/// `density(z) / k`; so the tail beyond that point is at most a `k`-th of the tail beyond `z`. Zero stays zero: the target then holds
/// for the measured part only.
fn split(standard_errors: f64, parts: f64) -> f64 {
    if standard_errors > 0.0 { (standard_errors * standard_errors + 2.0 * parts.ln()).sqrt() } else { 0.0 }
}
