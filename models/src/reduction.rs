//! The reduction over workers: one gradient from the gradients of all workers.

use crate::fused::BatchStatistics;
use crate::layers::Layout;
use crate::loss::LossSums;

/// Result of one step, of one worker or of all.
pub struct Gradients {
    /// Mean gradient over the samples, all parameters in one vector.
    pub gradient: Vec<f32>,
    /// Statistics of each batch norm; `None` for one that took no part.
    pub statistics: Vec<Option<BatchStatistics>>,
    /// Sums over the samples.
    pub sums: LossSums,
}

/// Means over the workers, in their order: gradients weighted by samples, statistics over the workers with statistics.
pub fn reduce(workers: &[Gradients], layout: &Layout) -> Gradients {
    let samples: u64 = workers.iter().map(|worker| worker.sums.samples).sum();
    let mut gradient = vec![0.0; layout.parameter_count()];
    let mut sums = LossSums::default();
    for worker in workers {
        let share = worker.sums.samples as f32 / samples.max(1) as f32;
        gradient.iter_mut().zip(&worker.gradient).for_each(|(sum, g)| *sum += share * g);
        sums.add(&worker.sums);
    }
    let statistics = (0..layout.statistics.len())
        .map(|index| mean(workers.iter().filter_map(|worker| worker.statistics.get(index)?.as_ref())));
    Gradients { gradient, statistics: statistics.collect(), sums }
}

/// Mean of the statistics of one batch norm; `None` without any.
fn mean<'a>(mut all: impl Iterator<Item = &'a BatchStatistics>) -> Option<BatchStatistics> {
    let (mut sum, mut workers) = (all.next()?.clone(), 1.0);
    for found in all {
        workers += 1.0;
        sum.mean.iter_mut().zip(&found.mean).for_each(|(a, b)| *a += b);
        sum.variance.iter_mut().zip(&found.variance).for_each(|(a, b)| *a += b);
    }
    sum.mean.iter_mut().chain(&mut sum.variance).for_each(|value| *value /= workers);
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::{Init, ParameterKind};

    #[test]
    fn gradients_are_weighted_by_samples_and_statistics_are_means_over_the_workers_that_have_them() {
        let mut layout = Layout::default();
        layout.add_parameter("a".into(), &[1], ParameterKind::Offset, Init::Constant(0.0));
        layout.add_statistics(1);
        let worker = |samples, gradient, mean: Option<f32>| Gradients {
            gradient: vec![gradient],
            statistics: vec![mean.map(|mean| BatchStatistics { mean: vec![mean], variance: vec![1.0] })],
            sums: LossSums { samples, loss: 1.0, ..LossSums::default() },
        };
        let found =
            reduce(&[worker(3, 1.0, Some(2.0)), worker(1, 5.0, None), worker(0, 9.0, Some(4.0))], &layout);
        assert_eq!(found.gradient, [2.0]);
        assert_eq!(found.statistics, [Some(BatchStatistics { mean: vec![3.0], variance: vec![1.0] })]);
        assert_eq!((found.sums.samples, found.sums.loss), (4, 3.0));
    }
}
