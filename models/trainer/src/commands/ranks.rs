//! `headwater-train train --workers mpi`: this process as one of several ranks.

use anyhow::{Context, anyhow};
use headwater_calibration::data::{Parts, Samples, fingerprint};
use headwater_protocol::Slot;
use headwater_samples::Part;
use headwater_spec::Spec;
use headwater_training::checkpoint::Checkpoint;
use headwater_training::experiment::Experiment;
use headwater_training::recipe::Recipe;
use headwater_training::run::{RunFolder, train_on_ranks};
use headwater_training::scale_out::agreement::RankFacts;
use headwater_training::scale_out::{Communicator, shards};
use headwater_training::training::Event;
use sha2::{Digest, Sha256};

use super::Failure;

/// Fewest rows of a batch norm: with fewer, its statistics say little.
const LEAST_ROWS: f32 = 8.0;

/// Most that the largest shard may have of the smallest one.
const LARGEST_RATIO: f32 = 1.5;

/// Bytes of a message that MPI's 32-bit counts allow, with room for what goes along.
const LARGEST_MESSAGE: usize = i32::MAX as usize - (64 << 20);

/// Name of this machine.
pub(super) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "an unnamed machine".to_owned() } else { name.trim().to_owned() }
}

/// Version and hash of this program: ranks read the messages of one build.
fn program() -> Result<String, Failure> {
    let file = std::env::current_exe().and_then(std::fs::read).context("reading this program")?;
    let hash: String = Sha256::digest(file).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("headwater-train {} with SHA-256 {hash}", env!("CARGO_PKG_VERSION")))
}

/// One rank among all, before it trains.
pub(super) struct RankSetup<'a> {
    pub(super) ranks: &'a dyn Communicator,
    pub(super) parts: &'a Parts,
    pub(super) limit_train: Option<usize>,
}

impl RankSetup<'_> {
    /// Refuses one rank alone, a batch that does not divide, and ranks with other data, spec, recipe or version than rank 0.
    pub(super) fn check(&self, spec: &Spec, recipe: &Recipe, data: &str) -> Result<(), Failure> {
        let (ranks, threads) = (self.ranks.ranks(), recipe.workers);
        let scale_out = recipe.scale_out.unwrap_or_default();
        if ranks < 2 {
            return Err(Failure::usage(anyhow!(
                "--workers mpi: expected at least 2 ranks, found 1; start with `mpirun -n 2 headwater-train train --workers mpi ...`, or leave \
                 --workers mpi out"
            )));
        }
        if recipe.shards.is_some() {
            return Err(Failure::usage(anyhow!(
                "shards: expected none with --workers mpi, where each rank has one"
            )));
        }
        let batch = scale_out.batch(recipe.batch, ranks);
        if !batch.is_multiple_of(ranks * threads) {
            let next = batch.next_multiple_of(ranks * threads);
            return Err(Failure::usage(anyhow!(
                "batch: expected a multiple of {ranks} ranks times {threads} threads, found {batch}; {next} is one"
            )));
        }
        let text = |name: &str, text: String| (name.to_owned(), text);
        let part = |part: Part, limit| {
            text(&format!("data, part {}", part.name()), fingerprint(self.parts, part, limit))
        };
        let facts = RankFacts {
            host: host(),
            texts: vec![
                text("program", program()?),
                text("spec", spec.text.clone()),
                text("recipe", toml::to_string(recipe).context("writing the recipe")?),
                text("data", data.to_owned()),
                part(Part::Train, self.limit_train),
                part(Part::Validation, None),
            ],
        };
        match facts.difference(self.ranks) {
            None => Ok(()),
            Some(difference) => Err(Failure::usage(anyhow!("ranks differ: {difference}"))),
        }
    }

    /// Train and validation shard of this rank. Refuses data of which a rank would have nothing to train on.
    pub(super) fn shards(&self, threads: usize) -> Result<[Samples; 2], Failure> {
        let indices = |part, limit| {
            shards::divide(&self.parts.groups(part, limit), self.parts.count(part, limit), self.ranks.ranks())
        };
        let train = indices(Part::Train, self.limit_train);
        let sizes: Vec<usize> = train.iter().map(Vec::len).collect();
        let (least, most) = (sizes.iter().min().copied(), sizes.iter().max().copied());
        let (least, most) = (least.unwrap_or_default(), most.unwrap_or_default());
        // Every rank gives as many samples to a step, so those of a small shard count for more.
        if least == 0 || most as f32 > LARGEST_RATIO * least as f32 {
            return Err(Failure::usage(anyhow!(
                "train part: expected shards of nearly equal size for {} ranks, found {least} to {most} samples: a group stays together; start fewer ranks",
                self.ranks.ranks()
            )));
        }
        let own = |part, mut all: Vec<Vec<u32>>| {
            self.parts.shard(part, all.swap_remove(self.ranks.rank()), threads)
        };
        Ok([own(Part::Train, train), own(Part::Validation, indices(Part::Validation, None))])
    }

    /// Refuses networks whose messages are larger than MPI counts.
    pub(super) fn check_size(&self, experiment: &Experiment) -> Result<(), Failure> {
        // A checkpoint and the state of a rank have four numbers a parameter; a step has one for each thread.
        let numbers = experiment.recipe.workers.max(4);
        let (most, found) = (LARGEST_MESSAGE / (numbers * 4), experiment.network.layout.parameter_count());
        if found <= most {
            return Ok(());
        }
        Err(Failure::usage(anyhow!(
            "network: expected at most {most} parameters with --workers mpi and {} threads, found {found}; train it in one process",
            experiment.recipe.workers
        )))
    }

    /// Refuses batches of which a worker would see too few views of a slot for a batch norm.
    pub(super) fn check_rows(&self, experiment: &Experiment, train: &Samples) -> Result<(), Failure> {
        let recipe = &experiment.recipe;
        if experiment.network.layout.statistics.is_empty() {
            return Ok(());
        }
        let ranks = self.ranks.ranks();
        let batch = recipe.scale_out.unwrap_or_default().batch(recipe.batch, ranks);
        let share = batch as f32 / (ranks * recipe.workers) as f32;
        let rows = |slot: Slot| {
            let seen = train.seen_by(slot).len() as f32 / train.len().max(1) as f32;
            share * seen * (1.0 - recipe.augment.failout)
        };
        let fewest =
            Slot::first(train.slots).map(|slot| (rows(slot), slot)).min_by(|a, b| a.0.total_cmp(&b.0));
        match fewest.filter(|(rows, _)| *rows < LEAST_ROWS) {
            None => Ok(()),
            Some((rows, slot)) => Err(Failure::usage(anyhow!(
                "batch: expected at least {LEAST_ROWS} views of every slot for each worker, whose batch norms see them alone, found about {rows:.1} of \
                 slot {slot} on rank {}; take a larger batch, or fewer ranks",
                self.ranks.rank()
            ))),
        }
    }

    /// Trains this rank to the end of the recipe.
    pub(super) fn train(
        &self,
        experiment: &Experiment,
        folder: &RunFolder,
        [train, validation]: [&Samples; 2],
        notify: impl FnMut(&Event<'_>),
    ) -> Result<Checkpoint, Failure> {
        Ok(train_on_ranks(experiment, self.ranks, folder, [train, validation], notify)?)
    }
}
