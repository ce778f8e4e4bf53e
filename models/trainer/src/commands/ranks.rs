//! The shard of a rank, and checks that refuse runs which several ranks cannot train.

use headwater_calibration::data::{Parts, Samples};
use headwater_protocol::Slot;
use headwater_samples::Part;
use headwater_training::experiment::Experiment;
use headwater_training::scale_out::Communicator;
use headwater_training::scale_out::shards::divide;

use super::{Failure, usage};

/// Fewest rows of a batch norm: with fewer, its statistics say little.
const LEAST_ROWS: f32 = 8.0;

/// Largest ratio of the size of the largest shard to the size of the smallest shard.
const LARGEST_RATIO: f32 = 1.5;

/// Largest size in bytes of the numbers in a message: MPI counts with 32 bits, and 64 MiB are left for everything else in the message.
const LARGEST_MESSAGE: usize = i32::MAX as usize - (64 << 20);

/// Train and validation shard of this rank. Refuses data if a train shard would be empty, or if the sizes would differ too much.
pub(super) fn shards(
    ranks: &dyn Communicator,
    parts: &Parts,
    limit_train: Option<usize>,
    threads: usize,
) -> Result<[Samples; 2], Failure> {
    let indices = |part, limit| divide(&parts.groups(part, limit), parts.count(part, limit), ranks.ranks());
    let train = indices(Part::Train, limit_train);
    let sizes: Vec<usize> = train.iter().map(Vec::len).collect();
    let (least, most) = (sizes.iter().min().copied(), sizes.iter().max().copied());
    let (least, most) = (least.unwrap_or_default(), most.unwrap_or_default());
    // Every rank gives equally many samples to a step, so a sample of a small shard would count for more.
    if least == 0 || most as f32 > LARGEST_RATIO * least as f32 {
        return usage(format!(
            "train part: expected shards of nearly equal size for {} ranks, found {least} to {most} samples: a group stays together; start fewer ranks",
            ranks.ranks()
        ));
    }
    let own = |part, mut all: Vec<Vec<u32>>| parts.shard(part, all.swap_remove(ranks.rank()), threads);
    Ok([own(Part::Train, train), own(Part::Validation, indices(Part::Validation, None))])
}

/// Refuses networks whose messages are larger than MPI counts.
pub(super) fn check_size(experiment: &Experiment) -> Result<(), Failure> {
    // Per parameter, a checkpoint with its best epoch has five numbers, and a step has one number for each thread.
    let numbers = experiment.recipe.workers.max(5);
    let (most, found) = (LARGEST_MESSAGE / (numbers * 4), experiment.network.layout.parameter_count());
    if found <= most {
        return Ok(());
    }
    usage(format!(
        "network: expected at most {most} parameters with --workers mpi and {} threads, found {found}; train it in one process",
        experiment.recipe.workers
    ))
}

/// Refuses batches of which a worker would see too few views of a slot for a batch norm.
pub(super) fn check_rows(
    experiment: &Experiment,
    ranks: &dyn Communicator,
    train: &Samples,
) -> Result<(), Failure> {
    let recipe = &experiment.recipe;
    if experiment.network.layout.statistics.is_empty() {
        return Ok(());
    }
    let batch = recipe.scale_out().batch(recipe.batch, ranks.ranks());
    let share = batch as f32 / (ranks.ranks() * recipe.workers) as f32;
    let rows = |slot: Slot| {
        let seen = train.seen_by(slot).len() as f32 / train.len().max(1) as f32;
        share * seen * (1.0 - recipe.augment.failout)
    };
    let fewest = Slot::first(train.slots).map(|slot| (rows(slot), slot)).min_by(|a, b| a.0.total_cmp(&b.0));
    match fewest.filter(|(rows, _)| *rows < LEAST_ROWS) {
        None => Ok(()),
        Some((rows, slot)) => usage(format!(
            "batch: expected at least {LEAST_ROWS} views of every slot for each worker, whose batch norms see them alone, found about {rows:.1} of \
             slot {slot} on rank {}; take a larger batch, or fewer ranks",
            ranks.rank()
        )),
    }
}
