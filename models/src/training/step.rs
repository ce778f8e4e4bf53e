//! One step: every worker takes its part of the batch, gradients are averaged in a fixed order, one optimiser step follows.
//!
//! A worker is a thread pool of one thread: burn then runs all of a worker's operations on that thread, which is faster here than
//! two threads inside each operation. The result depends on the number of workers (batch norm sees a worker's part), never on timing.

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use crate::data::{Batch, Samples};
use crate::fused::BatchStatistics;
use crate::layers::{Layout, Pass, State};
use crate::loss::Figures;
use crate::network::Network;
use crate::recipe::Recipe;

/// The threads that train.
pub struct Workers(Vec<ThreadPool>);

impl Workers {
    /// `count` workers of one thread each.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn new(count: usize) -> Result<Self, ThreadPoolBuildError> {
        let pool = |index| {
            ThreadPoolBuilder::new().num_threads(1).thread_name(move |_| format!("worker-{index}")).build()
        };
        Ok(Self((0..count.max(1)).map(pool).collect::<Result<_, _>>()?))
    }

    /// Number of workers.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Runs `work` on each item, one worker each; results in the order of the items.
    ///
    /// # Panics
    /// When there are more items than workers, or `work` panics.
    pub fn each<T: Send, R: Send>(&self, items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
        assert!(items.len() <= self.0.len(), "one item a worker");
        std::thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> = self
                .0
                .iter()
                .zip(items)
                .map(|(pool, item)| scope.spawn(move || pool.install(|| work(item))))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("a worker panicked; its message is above"))
                .collect()
        })
    }
}

/// What one step found.
pub struct StepResult {
    /// Mean gradient over the samples, all parameters in one vector.
    pub gradient: Vec<f32>,
    /// Statistics of the batch norms: means over the workers.
    pub statistics: Vec<Option<BatchStatistics>>,
    /// Sums over the samples.
    pub figures: Figures,
}

/// Gradient and statistics of the samples at `indices`.
pub fn step(
    workers: &Workers,
    network: &Network,
    state: &State,
    (samples, indices): (&Samples, &[u32]),
    recipe: &Recipe,
    epoch: u32,
) -> StepResult {
    let share = indices.len().div_ceil(workers.count()).max(1);
    let parts = workers.each(indices.chunks(share).collect(), |part| {
        let indices = part.iter().map(|index| *index as usize);
        let batch = Batch::augmented(samples, indices, &recipe.augment, recipe.seed, epoch);
        part_gradient(network, state, &batch, recipe)
    });
    average(parts, &network.layout)
}

/// Gradient of the mean loss of one worker's part.
fn part_gradient(network: &Network, state: &State, batch: &Batch, recipe: &Recipe) -> StepResult {
    let layout = &network.layout;
    if batch.is_blank() {
        let figures = Figures { samples: batch.len() as u64, ..Figures::default() };
        return StepResult { gradient: vec![0.0; layout.parameter_count()], statistics: vec![], figures };
    }
    let pass = Pass::training(layout, state);
    let answers = network.forward(&pass, batch);
    let loss = recipe.loss.of(&answers, batch);
    let gradients = loss.total.backward();
    let (gradient, statistics) = pass.finish(&gradients);
    StepResult { gradient, statistics, figures: loss.figures }
}

/// Gradients weighted by samples, statistics over the workers that have them; in the order of the workers.
pub fn average(parts: Vec<StepResult>, layout: &Layout) -> StepResult {
    let samples: u64 = parts.iter().map(|part| part.figures.samples).sum();
    let mut gradient = vec![0.0; layout.parameter_count()];
    let mut statistics: Vec<Option<(BatchStatistics, f32)>> = vec![None; layout.statistics_len()];
    let mut figures = Figures::default();
    for part in parts {
        let share = part.figures.samples as f32 / samples.max(1) as f32;
        gradient.iter_mut().zip(&part.gradient).for_each(|(sum, g)| *sum += share * g);
        figures.add(&part.figures);
        for (sum, found) in statistics.iter_mut().zip(part.statistics) {
            let Some(found) = found else { continue };
            match sum {
                None => *sum = Some((found, 1.0)),
                Some((sum, count)) => {
                    *count += 1.0;
                    sum.mean.iter_mut().zip(&found.mean).for_each(|(a, b)| *a += b);
                    sum.variance.iter_mut().zip(&found.variance).for_each(|(a, b)| *a += b);
                }
            }
        }
    }
    let statistics = statistics.into_iter().map(|sum| {
        sum.map(|(mut sum, count)| {
            sum.mean.iter_mut().chain(&mut sum.variance).for_each(|value| *value /= count);
            sum
        })
    });
    StepResult { gradient, statistics: statistics.collect(), figures }
}

/// Moves running statistics towards those of the batch.
pub fn update_statistics(
    layout: &Layout,
    state: &mut State,
    found: &[Option<BatchStatistics>],
    momentum: f32,
) {
    for (at, found) in layout.all_statistics().zip(found) {
        let Some(found) = found else { continue };
        let values = found.mean.iter().chain(&found.variance);
        for (running, value) in state.statistics[at].iter_mut().zip(values) {
            *running += momentum * (value - *running);
        }
    }
}
