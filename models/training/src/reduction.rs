//! The reduction over workers: one gradient from the gradients of all workers.

use crate::fused::BatchStatistics;
use crate::layers::{Layout, State};
use crate::loss::LossSums;

/// Gradient, statistics and sums of one step, for one worker or for all workers together.
pub struct Gradients {
    /// Mean gradient over the samples, all parameters in one vector.
    pub gradient: Vec<f32>,
    /// Statistics of each batch norm; `None` for a batch norm that took no part.
    pub statistics: Vec<Option<BatchStatistics>>,
    /// Loss and right answers, summed over the samples.
    pub sums: LossSums,
}

/// One gradient and one set of statistics from all workers, in their order. Gradients are weighted by the number of samples;
/// statistics are computed for the values of all workers together, since a worker may see few rows of a device, or none.
pub fn reduce(workers: &[Gradients], layout: &Layout) -> Gradients {
    let samples: u64 = workers.iter().map(|worker| worker.sums.samples).sum();
    let mut gradient = vec![0.0; layout.parameter_count()];
    for worker in workers {
        let share = worker.sums.samples as f32 / samples.max(1) as f32;
        gradient.iter_mut().zip(&worker.gradient).for_each(|(sum, g)| *sum += share * g);
    }
    let statistics = (0..layout.statistics.len()).map(|index| {
        BatchStatistics::of_all(workers.iter().filter_map(|worker| worker.statistics.get(index)?.as_ref()))
    });
    Gradients { gradient, statistics: statistics.collect(), sums: sums_of(workers) }
}

/// Sums over the samples of all workers.
pub fn sums_of(workers: &[Gradients]) -> LossSums {
    let mut sums = LossSums::default();
    workers.iter().for_each(|worker| sums.add(&worker.sums));
    sums
}

/// Calls `update` with each running statistic and the value in `found`; a batch norm that is `None` in `found` keeps its running statistics.
pub fn update_statistics(
    layout: &Layout,
    state: &mut State,
    found: &[Option<BatchStatistics>],
    update: impl Fn(&mut f32, f32),
) {
    for (range, found) in layout.statistics.iter().zip(found) {
        let Some(found) = found else { continue };
        let values = found.mean.iter().chain(&found.variance);
        state.statistics[range.clone()]
            .iter_mut()
            .zip(values)
            .for_each(|(running, value)| update(running, *value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::{Init, ParameterKind};

    #[test]
    fn gradients_are_weighted_by_samples() {
        let mut layout = Layout::default();
        layout.add_parameter("a".into(), &[1], ParameterKind::Offset, Init::Constant(0.0));
        let worker = |samples, gradient| Gradients {
            gradient: vec![gradient],
            statistics: Vec::new(),
            sums: LossSums { samples, loss: 1.0, ..LossSums::default() },
        };
        let found = reduce(&[worker(3, 1.0), worker(1, 5.0), worker(0, 9.0)], &layout);
        assert_eq!(found.gradient, [2.0]);
        assert_eq!((found.sums.samples, found.sums.loss), (4, 3.0));
    }

    #[test]
    fn statistics_are_those_of_the_values_of_all_workers_together() {
        let mut layout = Layout::default();
        layout.add_statistics(1);
        // Together, the workers have the values 1, 2, 3 and 10.
        let of_values = |values: &[f32]| {
            let count = values.len() as f32;
            let mean = values.iter().sum::<f32>() / count;
            let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f32>() / count;
            BatchStatistics { count: values.len() as u64, mean: vec![mean], variance: vec![variance] }
        };
        let worker = |statistics: Option<BatchStatistics>| Gradients {
            gradient: Vec::new(),
            statistics: vec![statistics],
            sums: LossSums::default(),
        };
        let parts =
            [worker(Some(of_values(&[1.0, 2.0, 3.0]))), worker(None), worker(Some(of_values(&[10.0])))];
        let found = reduce(&parts, &layout).statistics.remove(0).unwrap();
        assert_eq!((found.count, found.mean[0], found.variance[0]), (4, 4.0, 12.5));
    }
}
