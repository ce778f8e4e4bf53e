//! Comparison of a row with the reference, run by run.

use std::collections::{BTreeMap, BTreeSet};

use headwater_protocol::Exit;
use puruspe::betai;

use crate::figures::{GroupRight, RunFigures};
use headwater_calibration::random::Random;
use headwater_calibration::tuning::interval::{LEAST_UNITS, percentiles};

/// Number of draws of the bootstrap.
const DRAWS: usize = 10_000;
/// Answers that are compared: the answers given under the policy, or the answers of one exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ComparedAnswers {
    /// Answers given under the policy.
    Overall,
    /// Answers of an exit to every sample.
    Exit(Exit),
}

/// Runs of a row and of the reference with the same seed and fold.
pub(super) struct Pairs<'a>(Vec<[&'a RunFigures; 2]>);

impl ComparedAnswers {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Overall => "overall",
            Self::Exit(exit) => exit.name(),
        }
    }

    fn of(self, run: &RunFigures) -> Option<f64> {
        match self {
            Self::Overall => Some(run.report.overall),
            Self::Exit(exit) => run.report.every.get(exit).copied(),
        }
    }

    fn right(self, group: &GroupRight) -> usize {
        match self {
            Self::Overall => group.overall,
            Self::Exit(exit) => group.exits.get(exit).copied().unwrap_or_default(),
        }
    }
}

impl<'a> Pairs<'a> {
    /// The runs of a row, each with the run of the reference that has the same seed and fold. Other runs are left out.
    pub(super) fn of(row: impl Iterator<Item = &'a RunFigures>, reference: &[&'a RunFigures]) -> Self {
        let pair = |run: &'a RunFigures| {
            let same = |other: &&&RunFigures| (other.seed, other.fold) == (run.seed, run.fold);
            Some([run, *reference.iter().find(same)?])
        };
        Self(row.filter_map(pair).collect())
    }

    /// Difference of each pair, as a share.
    pub(super) fn differences(&self, answers: ComparedAnswers) -> Vec<f64> {
        let difference =
            |[run, reference]: &[&RunFigures; 2]| Some(answers.of(run)? - answers.of(reference)?);
        self.0.iter().filter_map(difference).collect()
    }

    /// 95 % interval of the mean difference, by a bootstrap over groups: a group is drawn with its samples in all runs. The interval is for
    /// the trained networks: other seeds and other training objects are not drawn. `None` for fewer than 20 groups.
    pub(super) fn interval(&self, answers: ComparedAnswers) -> Option<[f64; 2]> {
        // For each group and pair of runs: index of the pair, number of samples, and difference of right answers.
        let mut groups: BTreeMap<u32, Vec<(usize, f64, f64)>> = BTreeMap::new();
        for (at, [run, reference]) in self.0.iter().enumerate() {
            for (group, right) in &run.groups_right {
                let Some(of_reference) = reference.groups_right.get(group) else { continue };
                let difference = answers.right(right) as f64 - answers.right(of_reference) as f64;
                groups.entry(*group).or_default().push((at, right.samples as f64, difference));
            }
        }
        let groups: Vec<_> = groups.into_values().collect();
        if groups.len() < LEAST_UNITS {
            return None;
        }
        let mut random = Random::new(1, &[]);
        let mean = |_: usize| {
            let mut sums = vec![(0.0, 0.0); self.0.len()];
            for _ in 0..groups.len() {
                for (run, samples, difference) in &groups[random.below(groups.len())] {
                    sums[*run].0 += samples;
                    sums[*run].1 += difference;
                }
            }
            let of_runs = sums.iter().filter(|(samples, _)| *samples > 0.0);
            let (runs, sum) = of_runs.fold((0.0, 0.0), |(runs, sum), of| (runs + 1.0, sum + of.1 / of.0));
            sum / runs
        };
        percentiles((0..DRAWS).map(mean).collect())
    }

    /// 90 % interval of the mean difference, by a bootstrap over folds: a fold is drawn with all its seeds. `None` below three folds.
    pub(super) fn interval_over_folds(&self, answers: ComparedAnswers) -> Option<[f64; 2]> {
        let mut folds: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for [run, reference] in &self.0 {
            if let (Some(fold), Some(of_run), Some(of_reference)) =
                (run.fold, answers.of(run), answers.of(reference))
            {
                folds.entry(fold).or_default().push(of_run - of_reference);
            }
        }
        let means = folds.into_values().map(|seeds| seeds.iter().sum::<f64>() / seeds.len() as f64);
        bootstrap_of_folds(&means.collect::<Vec<_>>())
    }
}

/// 90 % interval of the mean of one value for each fold; `None` below three folds.
fn bootstrap_of_folds(folds: &[f64]) -> Option<[f64; 2]> {
    if folds.len() < 3 {
        return None;
    }
    let mut random = Random::new(1, &[]);
    let mean = |_: usize| {
        let sum: f64 = (0..folds.len()).map(|_| folds[random.below(folds.len())]).sum();
        sum / folds.len() as f64
    };
    let mut means: Vec<f64> = (0..DRAWS).map(mean).collect();
    means.sort_by(f64::total_cmp);
    Some([means[DRAWS / 20], means[DRAWS - 1 - DRAWS / 20]])
}

/// Number of groups that at least one of these runs has.
pub(super) fn group_count(runs: &[RunFigures]) -> usize {
    runs.iter().flat_map(|run| run.groups_right.keys()).collect::<BTreeSet<_>>().len()
}

/// Two-sided p-value of the paired t-test; `None` below three pairs, or if all differences are equal.
pub(super) fn t_test(differences: &[f64]) -> Option<f64> {
    let n = differences.len() as f64;
    if differences.len() < 3 {
        return None;
    }
    let mean = differences.iter().sum::<f64>() / n;
    let variance = differences.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    // Differences that should be equal may still differ by rounding.
    if variance.sqrt() <= 1e-9 * mean.abs() {
        return None;
    }
    let t_squared = mean.powi(2) / (variance / n);
    // Both tails of Student's distribution by the incomplete beta function (Abramowitz and Stegun 1964, 26.7.1).
    let freedom = n - 1.0;
    Some(betai(freedom / 2.0, 0.5, freedom / (freedom + t_squared)))
}

/// P-values adjusted for the number of tests (Holm 1979): an adjusted p-value below a level is significant at that level for all
/// comparisons together. `None` stays `None` and does not count as a test.
pub(super) fn holm(p_values: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut order: Vec<(usize, f64)> =
        p_values.iter().enumerate().filter_map(|(at, p)| Some((at, (*p)?))).collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut adjusted = vec![None; p_values.len()];
    let mut largest = 0.0f64;
    for (rank, (at, p)) in order.iter().enumerate() {
        largest = largest.max(p * (order.len() - rank) as f64).min(1.0);
        adjusted[*at] = Some(largest);
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_p_value_is_that_of_students_distribution() {
        // t = 2.776 with 4 degrees of freedom is the 97.5 % quantile of the published table.
        let with_t = |t: f64| {
            let spread = [-2.0, -1.0, 0.0, 1.0, 2.0];
            let error = (2.5f64 / 5.0).sqrt();
            spread.map(|value| value + t * error)
        };
        assert!((t_test(&with_t(2.776_445)).unwrap() - 0.05).abs() < 1e-6);
        assert!((t_test(&with_t(-4.604_095)).unwrap() - 0.01).abs() < 1e-6);
        let one_of_171 = [130.0, 131.0, 140.0, 99.0, 7.0].map(|right| right / 171.0 - (right - 1.0) / 171.0);
        assert_eq!([t_test(&[1.0, 2.0]), t_test(&[0.0; 5]), t_test(&one_of_171)], [None; 3]);
    }

    #[test]
    fn the_interval_over_folds_has_nine_tenths_of_the_means_of_folds_drawn_again() {
        // A mean of n values with deviation 1 has the deviation 1 / sqrt(n); 1.645 deviations on each side hold 90 %.
        let folds: Vec<f64> = (0..100).map(|at| if at % 2 == 0 { 4.0 } else { 2.0 }).collect();
        let [low, high] = bootstrap_of_folds(&folds).unwrap();
        // Means come in steps of 0.02, and 10,000 draws place an end to about a step.
        assert!((low - (3.0 - 0.1645)).abs() < 0.03 && (high - (3.0 + 0.1645)).abs() < 0.03, "{low} {high}");
        assert_eq!((bootstrap_of_folds(&[0.5; 3]), bootstrap_of_folds(&[0.5; 2])), (Some([0.5; 2]), None));
    }

    #[test]
    fn holm_multiplies_by_the_tests_that_are_left_and_never_falls() {
        let adjusted = holm(&[Some(0.03), None, Some(0.01), Some(0.02), Some(0.9)]);
        let expected = [Some(0.06), None, Some(0.04), Some(0.06), Some(0.9)];
        for (found, expected) in adjusted.iter().zip(expected) {
            assert_eq!(found.is_some(), expected.is_some());
            assert!((found.unwrap_or(0.0) - expected.unwrap_or(0.0)).abs() < 1e-12, "{found:?} {expected:?}");
        }
        assert_eq!(holm(&[Some(0.7), Some(0.6)]), [Some(1.0), Some(1.0)]);
    }
}
