//! Temperatures and the local threshold, from the validation part alone; and what a policy then does to a part.

use headwater_inference::policy::{ExitPolicy, ExitThreshold, Policy, PolicyError, Temperature, Threshold};
use serde::{Deserialize, Serialize};

use crate::data::Samples;
use crate::evaluation::ExitLogits;
use crate::loss::best;
use crate::recipe::ExitRecipe;

/// What the exits of a network with a policy do to a part of the data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Samples.
    pub samples: usize,
    /// Share of correct answers of each device alone, over the samples it sees.
    pub devices: Vec<f64>,
    /// Share of correct answers of the exit `local` for every sample.
    pub local: f64,
    /// Share of correct answers of the exit `cloud` for every sample.
    pub cloud: f64,
    /// Share of correct answers when each sample leaves where the policy says.
    pub overall: f64,
    /// Share of samples that leave at the exit `local`.
    pub local_share: f64,
    /// Share of correct answers among those.
    pub local_accuracy: f64,
    /// Share of correct answers among the samples that go on to the cloud.
    pub cloud_accuracy: f64,
    /// Samples that no device sees; the class prior answers them.
    pub no_view: usize,
    /// Body bytes per device and sample, over slots that sent scores: `4|C|`, and features where the sample went on.
    pub body_bytes: f64,
}

/// A policy from the validation part: a temperature for each exit, then the largest local threshold up to which every one costs at
/// most what `wish` allows against the cloud exit.
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
    policy.local.temperature = Temperature::new(fit_temperature(&logits.local, validation))?;
    policy.cloud.temperature = Temperature::new(fit_temperature(&logits.cloud, validation))?;
    policy.local.threshold = Threshold::One(threshold(&policy.local, logits, validation, prior, wish)?);
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

/// Thresholds are tried from the strictest on, and the first whose bound on the loss is too large ends the search (fixed sequence
/// testing; Angelopoulos et al. 2021, "Learn then Test", section 3.2). By default samples that the exit `local` wins over the cloud do
/// not make up for those it loses (the positive part of the gap; Jazbec et al. 2024, "Fast yet Safe", section 3): what is counted then
/// bounds the loss from above, whatever the wins on new data will be. To take the largest that passes anywhere would be to choose
/// the luckiest of thousands, and the promise on new data would not hold.
fn threshold(
    local: &ExitPolicy,
    logits: &ExitLogits,
    validation: &Samples,
    prior: &[f32],
    wish: ExitRecipe,
) -> Result<ExitThreshold, PolicyError> {
    let answers = answers(logits, validation, prior);
    let mut leaving: Vec<(f32, i64)> = answers
        .iter()
        .zip(logits.local.chunks_exact(validation.classes))
        .filter(|(answer, _)| answer.present)
        .filter_map(|(answer, row)| {
            let wins = wish.count_wins && answer.local && !answer.cloud;
            let gain = i64::from(wins) - i64::from(answer.cloud && !answer.local);
            local.uncertainty(row).map(|uncertainty| (uncertainty, gain))
        })
        .collect();
    leaving.sort_by(|a, b| a.0.total_cmp(&b.0));
    let count = validation.len().max(1) as f64;
    let allowed = f64::from(wish.max_loss_points) / 100.0 + 1e-9;
    let (mut gained, mut decided_otherwise, mut chosen) = (0i64, 0u32, 0.0f32);
    for (index, (uncertainty, gain)) in leaving.iter().enumerate() {
        gained += gain;
        decided_otherwise += u32::from(*gain != 0);
        // Each sample loses one, nothing, or wins one: mean and standard error of paired differences.
        let loss = -gained as f64 / count;
        let deviation = (f64::from(decided_otherwise) / count - loss * loss).max(0.0).sqrt();
        let bound = loss + f64::from(wish.standard_errors) * deviation / count.sqrt();
        let next = leaving.get(index + 1).map_or(1.0, |next| next.0);
        if bound > allowed {
            break;
        }
        if next > *uncertainty {
            chosen = if index + 1 == leaving.len() { 1.0 } else { f32::midpoint(*uncertainty, next) };
        }
    }
    ExitThreshold::new(chosen.clamp(0.0, 1.0))
}

struct Answer {
    present: bool,
    local: bool,
    cloud: bool,
}

/// Which exits have each sample right; the class prior answers for both where no device sees it.
fn answers(logits: &ExitLogits, samples: &Samples, prior: &[f32]) -> Vec<Answer> {
    let rows = logits.local.chunks_exact(samples.classes).zip(logits.cloud.chunks_exact(samples.classes));
    rows.zip(samples.labels.iter().zip(&samples.seen))
        .map(|((local, cloud), (label, seen))| {
            let right = |row: &[f32]| best(if *seen == 0 { prior } else { row }) == usize::from(*label);
            Answer { present: *seen != 0, local: right(local), cloud: right(cloud) }
        })
        .collect()
}

impl Outcome {
    /// What `policy` does to a part; `feature_bytes` go on from each present device when a sample does not leave at `local`.
    pub fn of(
        logits: &ExitLogits,
        samples: &Samples,
        prior: &[f32],
        policy: &Policy,
        feature_bytes: usize,
    ) -> Self {
        let answers = answers(logits, samples, prior);
        let (mut left, mut left_right, mut on_right, mut no_view) = (0usize, 0usize, 0usize, 0usize);
        let (mut sent, mut requested) = (0u64, 0u64);
        for ((answer, row), seen) in
            answers.iter().zip(logits.local.chunks_exact(samples.classes)).zip(&samples.seen)
        {
            sent += u64::from(seen.count_ones());
            if !answer.present {
                no_view += 1;
                on_right += usize::from(answer.cloud);
            } else if policy.local.assess(row, seen.count_ones()).leaves {
                left += 1;
                left_right += usize::from(answer.local);
            } else {
                on_right += usize::from(answer.cloud);
                requested += u64::from(seen.count_ones());
            }
        }
        let count = samples.len();
        let share = |part: usize, of: usize| part as f64 / of.max(1) as f64;
        let scores = 4 * samples.classes as u64 * sent;
        Self {
            samples: count,
            devices: crate::evaluation::ExitCounts::of(logits, samples).shares().devices,
            local: share(answers.iter().filter(|answer| answer.local).count(), count),
            cloud: share(answers.iter().filter(|answer| answer.cloud).count(), count),
            overall: share(left_right + on_right, count),
            local_share: share(left, count),
            local_accuracy: share(left_right, left),
            cloud_accuracy: share(on_right, count - left),
            no_view,
            body_bytes: (scores + requested * feature_bytes as u64) as f64 / sent.max(1) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two classes, always class 0; `gap` is how sure, `right` whether the label agrees.
    fn made(samples: &[(f32, bool, bool)]) -> (ExitLogits, Samples) {
        let count = samples.len();
        let mut logits =
            ExitLogits { classes: 2, devices: vec![vec![0.0; 2 * count]], ..ExitLogits::default() };
        let (mut labels, mut cloud) = (vec![], vec![]);
        for (gap, local_right, cloud_right) in samples {
            logits.local.extend([*gap, 0.0]);
            labels.push(u16::from(!local_right));
            cloud.extend(if local_right == cloud_right { [1.0, 0.0] } else { [0.0, 1.0] });
        }
        logits.cloud = cloud;
        let samples = Samples {
            shape: [1, 1, 1],
            slots: 1,
            classes: 2,
            labels,
            seen: vec![1; count],
            pixels: vec![0; count],
        };
        (logits, samples)
    }

    #[test]
    fn the_threshold_is_the_largest_up_to_which_none_costs_more_than_allowed() {
        let (logits, samples) = made(&[
            (9.0, true, true),
            (8.0, true, true),
            (7.0, false, true),
            (6.0, true, true),
            (5.0, false, true),
        ]);
        for (points, leave) in [(0.0, 2.0), (19.9, 2.0), (20.0, 4.0), (40.0, 5.0)] {
            let mut policy = Policy::default();
            let wish = ExitRecipe { max_loss_points: points, standard_errors: 0.0, count_wins: true };
            policy.local.threshold =
                Threshold::One(threshold(&policy.local, &logits, &samples, &[0.5, 0.5], wish).unwrap());
            let outcome = Outcome::of(&logits, &samples, &[0.5, 0.5], &policy, 256);
            assert_eq!(outcome.local_share, leave / 5.0, "{points} points");
            assert!(outcome.overall >= outcome.cloud - f64::from(points) / 100.0 - 1e-6);
        }
    }

    #[test]
    fn a_lucky_threshold_behind_one_that_costs_too_much_is_not_taken() {
        let (logits, samples) =
            made(&[(9.0, true, true), (8.0, false, true), (7.0, true, false), (6.0, true, false)]);
        let policy = Policy::default();
        let wish = ExitRecipe { max_loss_points: 0.0, standard_errors: 0.0, count_wins: true };
        let chosen = threshold(&policy.local, &logits, &samples, &[0.5, 0.5], wish).unwrap();
        let policy =
            Policy { local: ExitPolicy { threshold: Threshold::One(chosen), ..policy.local }, ..policy };
        assert_eq!(Outcome::of(&logits, &samples, &[0.5, 0.5], &policy, 256).local_share, 0.25);
    }

    #[test]
    fn wins_make_up_for_losses_only_where_the_recipe_says_so() {
        let (logits, samples) =
            made(&[(9.0, true, false), (8.0, true, true), (7.0, false, true), (6.0, true, true)]);
        for (count_wins, leave) in [(true, 1.0), (false, 0.5)] {
            let mut policy = Policy::default();
            let wish = ExitRecipe { max_loss_points: 0.0, standard_errors: 0.0, count_wins };
            policy.local.threshold =
                Threshold::One(threshold(&policy.local, &logits, &samples, &[0.5, 0.5], wish).unwrap());
            let outcome = Outcome::of(&logits, &samples, &[0.5, 0.5], &policy, 256);
            assert_eq!(outcome.local_share, leave, "count_wins = {count_wins}");
        }
    }

    #[test]
    fn standard_errors_make_the_threshold_careful() {
        let rows: Vec<_> = (0..1000).map(|i| (20.0 - i as f32 * 0.015, i % 20 != 0, true)).collect();
        let (logits, samples) = made(&rows);
        let share = |standard_errors| {
            let mut policy = Policy::default();
            let wish = ExitRecipe { max_loss_points: 1.0, standard_errors, count_wins: true };
            policy.local.threshold =
                Threshold::One(threshold(&policy.local, &logits, &samples, &[0.5, 0.5], wish).unwrap());
            Outcome::of(&logits, &samples, &[0.5, 0.5], &policy, 256).local_share
        };
        // One of twenty is lost: 10 of 1000 are lost among the first 200 or so.
        assert!((share(0.0) - 0.2).abs() < 0.02, "{}", share(0.0));
        // 5 + 1.64 sqrt(5) is below 10, 6 + 1.64 sqrt(6) is just above.
        assert!((share(1.64) - 0.11).abs() < 0.02, "{}", share(1.64));
    }

    #[test]
    fn a_temperature_corrects_logits_that_are_too_sure() {
        let rows: Vec<_> = (0..100).map(|i| (10.0, i % 4 != 0, true)).collect();
        let (logits, samples) = made(&rows);
        let temperature = fit_temperature(&logits.local, &samples);
        let confidence = 1.0 / (1.0 + (-10.0 / temperature).exp());
        assert!((confidence - 0.75).abs() < 0.01, "three of four are right, confidence {confidence}");
    }
}
