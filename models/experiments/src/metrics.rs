//! Measures of answers and of exit scores.

/// Number of bins of the calibration error.
const BINS: usize = 15;
/// Samples below which no calibration error is given: bins of fewer than about 70 samples say little.
const LEAST_FOR_CALIBRATION: usize = 1000;

/// Right answers of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Hits {
    /// Right answers.
    pub right: usize,
    /// Samples of the class.
    pub of: usize,
}

/// Right answers among the samples of a class.
pub fn hits(answers: &[u16], labels: &[u16], class: u16) -> Hits {
    let of_class = answers.iter().zip(labels).filter(|(_, label)| **label == class);
    let (mut right, mut of) = (0, 0);
    of_class.for_each(|(answer, label)| {
        of += 1;
        right += usize::from(answer == label);
    });
    Hits { right, of }
}

/// Mean of the accuracies of some classes; classes without samples are left out. `None` if no class has samples.
pub fn balanced_accuracy(answers: &[u16], labels: &[u16], classes: &[u16]) -> Option<f64> {
    let of_class = classes.iter().map(|class| hits(answers, labels, *class)).filter(|hits| hits.of > 0);
    let shares: Vec<f64> = of_class.map(|hits| hits.right as f64 / hits.of as f64).collect();
    (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
}

/// Expected calibration error over bins of equally many samples (Nixon et al. 2019, "Measuring Calibration in Deep Learning", section
/// 3): mean absolute difference of accuracy and confidence. `None` for fewer than 1,000 samples.
pub fn calibration_error(answers: &[(f32, bool)]) -> Option<f64> {
    if answers.len() < LEAST_FOR_CALIBRATION {
        return None;
    }
    let mut answers = answers.to_vec();
    answers.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Samples of equal confidence share their right answers equally, so that the result does not depend on the order of the samples.
    let shared = answers.chunk_by(|a, b| a.0 == b.0).flat_map(|equal| {
        let right = equal.iter().filter(|(_, right)| *right).count() as f64 / equal.len() as f64;
        equal.iter().map(move |(confidence, _)| (f64::from(*confidence), right))
    });
    let shared: Vec<(f64, f64)> = shared.collect();
    let bins = (0..BINS).map(|bin| &shared[bin * shared.len() / BINS..(bin + 1) * shared.len() / BINS]);
    let gap =
        |bin: &[(f64, f64)]| bin.iter().map(|(confidence, right)| confidence - right).sum::<f64>().abs();
    Some(bins.map(gap).sum::<f64>() / answers.len() as f64)
}

/// Area under the receiver operating characteristic: the probability that a sample with the event has a larger score than a sample
/// without the event, ties counted half. `None` if all samples or none have the event.
pub fn auroc(mut scores: Vec<(f32, bool)>) -> Option<f64> {
    scores.sort_by(|a, b| a.0.total_cmp(&b.0));
    let events = scores.iter().filter(|(_, event)| *event).count();
    let others = scores.len() - events;
    // Mann-Whitney: for each tie of scores, pairs with the samples below and half of the pairs inside.
    let (mut pairs, mut below) = (0.0, 0usize);
    for tie in scores.chunk_by(|a, b| a.0 == b.0) {
        let with = tie.iter().filter(|(_, event)| *event).count();
        let without = tie.len() - with;
        pairs += with as f64 * (below as f64 + without as f64 / 2.0);
        below += without;
    }
    (events > 0 && others > 0).then(|| pairs / (events as f64 * others as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balanced_accuracy_is_the_mean_over_the_named_classes() {
        let (answers, labels) = ([0, 0, 0, 1, 2], [0, 0, 0, 0, 1]);
        assert_eq!(hits(&answers, &labels, 0), Hits { right: 3, of: 4 });
        assert_eq!(balanced_accuracy(&answers, &labels, &[0, 1]), Some(0.375));
        assert_eq!(balanced_accuracy(&answers, &labels, &[0, 2]), Some(0.75));
        assert_eq!(balanced_accuracy(&answers, &labels, &[2]), None);
    }

    #[test]
    fn auroc_is_the_share_of_ordered_pairs_with_ties_half() {
        let of = |scores: &[(f32, bool)]| auroc(scores.to_vec());
        assert_eq!(of(&[(0.1, false), (0.2, false), (0.9, true)]), Some(1.0));
        assert_eq!(of(&[(0.9, false), (0.1, true)]), Some(0.0));
        assert_eq!(of(&[(0.5, false), (0.5, true), (0.5, false)]), Some(0.5));
        assert_eq!(of(&[(0.1, false), (0.5, true), (0.7, false), (0.9, true)]), Some(0.75));
        assert_eq!(of(&[(0.1, false)]), None);
    }

    #[test]
    fn a_calibrated_score_has_no_error_and_an_overconfident_one_has_its_gap() {
        let answers = |confidence: f32, right: usize| {
            (0..1500).map(|at| (confidence, at % 100 < right)).collect::<Vec<_>>()
        };
        assert!(calibration_error(&answers(0.8, 80)).unwrap() < 1e-6);
        assert!((calibration_error(&answers(0.9, 70)).unwrap() - 0.2).abs() < 1e-6);
        assert_eq!(calibration_error(&[(0.5, true); 999]), None);
    }
}
