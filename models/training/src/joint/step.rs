//! The gradients of one step: every worker computes the gradient of its share of the batch.
//!
//! The result depends on the number of workers, since a batch norm sees one worker's share, but never on timing.

use crate::experiment::Experiment;
use crate::fused::BatchStatistics;
use crate::layers::{Layout, Pass, State, TrainedState};
use crate::loss::LossSums;
use crate::reduction::Gradients;
use headwater_calibration::data::{Batch, Samples};
use headwater_calibration::message::{Reader, put_f32s, put_u64};

/// Gradients and statistics of each worker of this process, for its share of the samples at `indices`.
pub fn worker_gradients(
    experiment: &Experiment,
    state: &State,
    samples: &Samples,
    indices: &[u32],
    epoch: u32,
) -> Vec<Gradients> {
    let recipe = &experiment.recipe;
    experiment.workers.share(indices, |share| {
        let indices = share.iter().map(|index| *index as usize);
        let batch = Batch::augmented(samples, indices, &recipe.augment, recipe.seed, epoch);
        gradients(experiment, state, batch, epoch)
    })
}

/// Gradient of the mean loss of one worker's share; zeros if no slot sees a sample of the share.
fn gradients(experiment: &Experiment, state: &State, mut batch: Batch, epoch: u32) -> Gradients {
    let (network, layout) = (&experiment.network, &experiment.network.layout);
    if batch.is_blank() {
        let sums = LossSums { samples: batch.labels.len() as u64, ..LossSums::default() };
        return Gradients { gradient: vec![0.0; layout.parameter_count()], statistics: vec![], sums };
    }
    let pass = Pass::training(TrainedState { layout, state });
    let output = network.forward(&pass, &batch);
    // The forward pass has its own copy of the pixels, and the backward pass needs the most memory.
    batch.views.iter_mut().for_each(|views| views.pixels = Vec::new());
    let loss = experiment.recipe.loss_of_epoch(epoch, network.spec.network.configuration().exits()).of(
        &network.spec,
        &output,
        &batch,
    );
    let (gradient, statistics) = pass.finish(&loss.total.backward());
    Gradients { gradient, statistics, sums: loss.sums }
}

/// For each worker of this process, statistics of every batch norm over the samples at `indices`, with the present weights. Running
/// statistics lag behind the weights; exact statistics do not (Wu and Johnson 2021, "Rethinking 'Batch' in `BatchNorm`", section 3).
/// `batch` is the number of samples in a batch of one worker.
pub fn exact_statistics(
    experiment: &Experiment,
    state: &State,
    (samples, indices): (&Samples, &[u32]),
    batch: usize,
    epoch: u32,
) -> Vec<Vec<Option<BatchStatistics>>> {
    let recipe = &experiment.recipe;
    let (network, layout) = (&experiment.network, &experiment.network.layout);
    experiment.workers.share(indices, |share| {
        let batches = share.chunks(batch).map(|indices| {
            let indices = indices.iter().map(|index| *index as usize);
            let batch = Batch::augmented(samples, indices, &recipe.augment, recipe.seed, epoch);
            if batch.is_blank() {
                return Vec::new();
            }
            let pass = Pass::training(TrainedState { layout, state });
            network.forward(&pass, &batch);
            pass.into_statistics()
        });
        combined(&batches.collect::<Vec<_>>(), layout)
    })
}

/// The statistics of several batches or workers together; `None` for a batch norm that took no part in any.
pub fn combined(parts: &[Vec<Option<BatchStatistics>>], layout: &Layout) -> Vec<Option<BatchStatistics>> {
    let of_norm = |index: usize| {
        BatchStatistics::of_all(parts.iter().filter_map(move |part| part.get(index)?.as_ref()))
    };
    (0..layout.statistics.len()).map(of_norm).collect()
}

/// Appends the statistics of batch norms to a message, in their order; a count of 0 for a batch norm that took no part.
pub fn put_statistics(message: &mut Vec<u8>, statistics: &[Option<BatchStatistics>]) {
    for found in statistics {
        let Some(BatchStatistics { count, mean, variance }) = found else {
            put_u64(message, 0);
            continue;
        };
        put_u64(message, *count);
        put_f32s(message, mean);
        put_f32s(message, variance);
    }
}

/// Reads the statistics of batch norms that [`put_statistics`] appended; `channels` has the number of channels of each batch norm.
pub fn read_statistics(
    message: &mut Reader<'_>,
    channels: impl Iterator<Item = usize>,
) -> Vec<Option<BatchStatistics>> {
    let one = |channels| {
        let count = message.u64();
        (count > 0).then(|| {
            let (mean, variance) = (message.f32s(channels), message.f32s(channels));
            BatchStatistics { count, mean, variance }
        })
    };
    channels.map(one).collect()
}

#[cfg(test)]
mod tests {
    use headwater_protocol::Exit;

    use super::*;

    #[test]
    fn what_is_put_is_read_in_the_same_order() {
        let exits = [Exit::LOCAL, Exit::CLOUD, Exit::from_name("cloud.1").unwrap()];
        let mut sums = LossSums { samples: 7, loss: 1.0 / 3.0, ..LossSums::default() };
        sums.correct.insert(Exit::CLOUD, 5);
        let norms =
            [None, Some(BatchStatistics { count: 3, mean: vec![0.1, -2.0], variance: vec![1.5, 0.0] })];
        let mut message = Vec::new();
        put_f32s(&mut message, &[1.5, f32::MIN_POSITIVE]);
        sums.put(&exits, &mut message);
        put_statistics(&mut message, &norms);
        let mut reader = Reader(&message);
        assert_eq!(reader.f32s(2), [1.5, f32::MIN_POSITIVE]);
        assert_eq!(LossSums::read(&exits, &mut reader), sums);
        assert_eq!(read_statistics(&mut reader, [4, 2].into_iter()), norms);
        assert!(reader.0.is_empty());
    }
}
