//! The epoch loop, without clock, folder and terminal: the caller handles the events of steps and epochs.

use thiserror::Error;

use super::{OwnShards, combined, exact_statistics, put_statistics, read_statistics, worker_gradients};
use crate::checkpoint::{Checkpoint, EpochRecord, Progress};
use crate::evaluation::evaluate;
use crate::experiment::Experiment;
use crate::loss::LossSums;
use crate::optimiser::{Moments, OptimiserStep};
use crate::recipe::{ExportedEpoch, Recipe, ScaleOutRecipe};
use crate::reduction::{sums_of, update_statistics};
use crate::scale_out::{Communicator, NotFinite, Rank, RankPlan, RankState, RankStep};
use headwater_calibration::data::Samples;
use headwater_calibration::message::{Reader, put_u64};
use headwater_calibration::part_logits::{ExitCounts, ExitShares, PartLogits};

/// One rank of a training run, without files; a run of one process is a run of one rank.
pub struct Trainer<'a> {
    experiment: &'a Experiment,
    train: &'a Samples,
    validation: &'a Samples,
    ranks: &'a dyn Communicator,
    rank: Rank<'a>,
    shards: OwnShards,
    /// The recipe, with batch and step size for all ranks together.
    recipe: Recipe,
    /// Number of train samples over all ranks.
    samples: usize,
    /// Bytes that training had sent before this start.
    sent_before: u64,
    /// Bytes that this rank sent in this start before training, to find the checkpoint.
    sent_to_resume: u64,
    /// Share of the train samples of all ranks that show a class.
    shown: f64,
    /// Share of each class among the train samples that show a class.
    class_prior: Vec<f32>,
    /// State and progress of the run.
    pub checkpoint: Checkpoint,
}

/// An event of a run.
pub enum Event<'e> {
    /// The run in a folder resumes from a checkpoint.
    Resumed {
        /// Progress in the checkpoint.
        progress: &'e Progress,
        /// The reasons, in words, for which newer checkpoints were skipped.
        skipped: &'e [String],
    },
    /// A step ended.
    Step {
        /// Progress of the run.
        progress: &'e Progress,
        /// Steps in an epoch.
        steps_per_epoch: u32,
    },
    /// An epoch ended.
    Epoch(&'e EpochRecord),
    /// The run should be saved now, with the state that this rank alone has; `None` if all ranks have the same state.
    Checkpoint(&'e mut Checkpoint, Option<RankState>),
}

/// Largest mean loss of this rank's samples of a step; above it training has diverged. An untrained network has about `ln classes` per
/// term of the loss.
const MAX_LOSS: f64 = 1e4;

/// A step whose loss or gradient is not finite, or whose mean loss exceeds 10,000. The synchronous step, or the outer step of local steps, was
/// not taken.
#[derive(Clone, Debug, PartialEq, Error)]
#[error(
    "training diverged at epoch {epoch}, step {step_in_epoch} (first samples: {samples:?}): the loss or a gradient is no number or too large, mean \
     loss {loss}; the newest checkpoint, if there is one, is from before; lower optimiser.learning_rate, or look at these samples"
)]
pub struct Diverged {
    /// Epoch, from 1.
    pub epoch: u32,
    /// Step in the epoch, from 1.
    pub step_in_epoch: u32,
    /// At most four samples of the step on this rank, as indices into the train part.
    pub samples: Vec<u32>,
    /// Mean loss of this rank's samples of the step.
    pub loss: f64,
}

/// Random streams: for the order of the samples in steps, and for the choice of the samples for exact statistics.
const STEPS: u64 = 2;
const STATISTICS: u64 = 3;

/// Most samples over all ranks from which exact statistics are taken.
const STATISTICS_SAMPLES: usize = 10_000;

impl<'a> Trainer<'a> {
    /// One rank of a run, from the beginning, or from a checkpoint with the states of all ranks that wrote it (empty if ranks have no
    /// state). `train` and `validation` are the shards of this rank. Every rank must call this function, since ranks exchange messages.
    pub fn new(
        experiment: &'a Experiment,
        ranks: &'a dyn Communicator,
        [train, validation]: [&'a Samples; 2],
        from: Option<(Checkpoint, Vec<RankState>)>,
    ) -> Self {
        // One rank has nobody to exchange with.
        let is_alone = ranks.ranks() == 1;
        let scale_out = if is_alone { ScaleOutRecipe::default() } else { experiment.recipe.scale_out() };
        // Bytes that ranks sent to find the checkpoint do not count as training.
        let sent_to_resume = ranks.sent_bytes();
        let mut counts = class_counts(ranks, train);
        let samples = counts.iter().sum::<u64>() as usize;
        let of_nothing = counts.pop().unwrap_or_default() as usize;
        let shown = (samples - of_nothing).max(1);
        let class_prior = counts.iter().map(|count| *count as f32 / shown as f32).collect();
        let recipe = experiment.recipe.on_ranks(ranks.ranks());
        let own = (ranks.rank(), ranks.ranks());
        let shards = OwnShards::of(train, experiment.recipe.shards, own);
        let layout = &experiment.network.layout;
        let first = || Checkpoint::new(experiment.first_state(), Moments::new(layout.parameter_count()));
        let (mut checkpoint, states) = from.unwrap_or_else(|| (first(), Vec::new()));
        let parameters = (layout, checkpoint.state.parameters.as_slice());
        let plan = RankPlan {
            batch: recipe.batch,
            uncompressed_steps: recipe.uncompressed_steps(samples),
            exits: experiment.network.spec.network.configuration().exits(),
        };
        let mut rank = Rank::new(ranks, scale_out, parameters, plan);
        if !states.is_empty() {
            rank.resume(&mut checkpoint, &states);
        }
        let is_finished = checkpoint.progress.epoch >= experiment.recipe.epochs;
        let progress = &mut checkpoint.progress.scale_out;
        let sent_before = progress.sent_bytes;
        let before = progress.ranks;
        if !is_finished {
            progress.ranks = ranks.ranks();
        }
        if before != 0 && before != ranks.ranks() {
            // Converts the steps of the unfinished epoch to steps with the new number of ranks.
            let old = experiment.recipe.on_ranks(before).steps_per_epoch(samples);
            let new = recipe.steps_per_epoch(samples);
            // The number of steps since the start stays as it is, since checkpoint files are named by that number.
            let progress = &mut checkpoint.progress;
            progress.step_in_epoch =
                (u64::from(progress.step_in_epoch) * u64::from(new) / u64::from(old)) as u32;
        }
        Self {
            experiment,
            train,
            validation,
            ranks,
            rank,
            shards,
            recipe,
            samples,
            sent_before,
            sent_to_resume,
            shown: shown as f64 / samples.max(1) as f64,
            class_prior,
            checkpoint,
        }
    }

    /// Steps in one epoch.
    pub fn steps_per_epoch(&self) -> u32 {
        self.recipe.steps_per_epoch(self.samples)
    }

    /// Trains to the end of the recipe; `on` gets every event and can stop the run with an error.
    ///
    /// # Errors
    /// The first error of `on`, or [`Diverged`].
    pub fn run<E: From<Diverged>>(
        &mut self,
        mut on: impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let steps_per_epoch = self.steps_per_epoch();
        while self.checkpoint.progress.epoch < self.recipe.epochs {
            let epoch = self.checkpoint.progress.epoch + 1;
            let order = self.shards.order((self.recipe.seed, STEPS), epoch, self.recipe.batch);
            let mut is_due = false;
            while self.checkpoint.progress.step_in_epoch < steps_per_epoch {
                self.step(&order.step(self.checkpoint.progress.step_in_epoch as usize), epoch)?;
                let progress = &self.checkpoint.progress;
                on(Event::Step { progress, steps_per_epoch })?;
                let inside = progress.step_in_epoch < steps_per_epoch;
                is_due |= inside && progress.step.is_multiple_of(u64::from(self.recipe.checkpoint.steps));
                // Between two exchanges each rank has its own weights, so a checkpoint waits for the next exchange.
                if is_due && self.rank.is_exchanged() {
                    is_due = false;
                    self.count_sent();
                    let rank = self.rank.state(&self.checkpoint);
                    on(Event::Checkpoint(&mut self.checkpoint, rank))?;
                }
            }
            let record = self.end_epoch(epoch);
            on(Event::Epoch(&record))?;
            let rank = self.rank.state(&self.checkpoint);
            on(Event::Checkpoint(&mut self.checkpoint, rank))?;
        }
        Ok(())
    }

    fn step(&mut self, indices: &[u32], epoch: u32) -> Result<(), Diverged> {
        let layout = &self.experiment.network.layout;
        let (number, step_in_epoch) =
            (self.checkpoint.progress.step + 1, self.checkpoint.progress.step_in_epoch + 1);
        let rate = self.rate(step_in_epoch);
        let step_of = OptimiserStep { optimiser: self.recipe.optimiser, number, rate };
        let steps_per_epoch = self.steps_per_epoch();
        let diverged = |loss| {
            let samples = indices.iter().take(4).map(|index| self.train.part_index(*index as usize) as u32);
            Diverged { epoch, step_in_epoch, samples: samples.collect(), loss }
        };
        self.rank.begin_step(&mut self.checkpoint.state);
        let found = worker_gradients(self.experiment, &self.checkpoint.state, self.train, indices, epoch);
        let sums = sums_of(&found);
        let loss = sums.loss / sums.samples.max(1) as f64;
        if loss.is_nan() || loss.abs() > MAX_LOSS {
            return Err(diverged(loss));
        }
        let step = RankStep { step: step_of, in_epoch: step_in_epoch, steps_per_epoch };
        let taken = self.rank.step(step, layout, &mut self.checkpoint, &found);
        let sums = taken.map_err(|NotFinite| diverged(loss))?;
        let progress = &mut self.checkpoint.progress;
        progress.step = number;
        progress.step_in_epoch += 1;
        progress.sums.add(&sums);
        Ok(())
    }

    /// Step size of step `step_in_epoch`, from 1, of the present epoch. The step size follows from the place in the run, not from the count
    /// of steps, since another number of ranks may take another number of steps per epoch.
    fn rate(&self, step_in_epoch: u32) -> f32 {
        let per_epoch = u64::from(self.steps_per_epoch());
        let step = u64::from(self.checkpoint.progress.epoch) * per_epoch + u64::from(step_in_epoch);
        self.recipe.optimiser.rate(step, self.recipe.steps(self.samples))
    }

    /// Computes the statistics of all batch norms that are not frozen anew, over the same samples every time.
    fn set_exact_statistics(&mut self) {
        let (recipe, layout) = (&self.recipe, &self.experiment.network.layout);
        let order = self.shards.order((recipe.seed, STATISTICS), recipe.epochs, recipe.batch);
        let indices = order.first(STATISTICS_SAMPLES / self.shards.all);
        let batch = recipe.batch.div_ceil(self.ranks.ranks() * recipe.workers);
        let samples = (self.train, &indices[..]);
        let workers =
            exact_statistics(self.experiment, &self.checkpoint.state, samples, batch, recipe.epochs);
        let mut message = Vec::new();
        put_u64(&mut message, workers.len() as u64);
        workers.iter().for_each(|worker| put_statistics(&mut message, worker));
        let all = self.ranks.all_gather(&message);
        let of_rank = |message: &Vec<u8>| {
            let mut reader = Reader(message);
            let channels = || layout.statistics.iter().map(|range| range.len() / 2);
            (0..reader.u64()).map(|_| read_statistics(&mut reader, channels())).collect::<Vec<_>>()
        };
        let found = combined(&all.iter().flat_map(of_rank).collect::<Vec<_>>(), layout);
        update_statistics(layout, &mut self.checkpoint.state, &found, |running, value| *running = value);
    }

    fn end_epoch(&mut self, epoch: u32) -> EpochRecord {
        // Several ranks keep no running statistics while they train, so every epoch ends with exact statistics. Where the best epoch is
        // exported, every epoch is measured with the statistics that its bundle would have.
        let chooses = self.recipe.checkpoint.export == ExportedEpoch::Best;
        if epoch == self.recipe.epochs || self.ranks.ranks() > 1 || chooses {
            self.set_exact_statistics();
        }
        let (validation, validation_loss, independent) = self.validation_figures();
        let learning_rate = self.rate(self.steps_per_epoch());
        let progress = &mut self.checkpoint.progress;
        let LossSums { samples, loss, correct } = std::mem::take(&mut progress.sums);
        let samples = samples.max(1) as f64;
        let exits = self.experiment.network.spec.network.configuration().exits().iter();
        let shown = samples * self.shown;
        let train = exits.map(|&exit| (exit, correct.get(exit).map_or(0.0, |hits| *hits as f64 / shown)));
        let (loss, train) = (loss / samples, train.collect());
        let record = EpochRecord { epoch, loss, train, validation, validation_loss, learning_rate };
        progress.epoch = epoch;
        progress.step_in_epoch = 0;
        progress.epochs.push(record.clone());
        if chooses {
            self.checkpoint.keep_best(independent);
        }
        self.count_sent();
        record
    }

    fn count_sent(&mut self) {
        let sent = self.sent_before + self.ranks.sent_bytes() - self.sent_to_resume;
        self.checkpoint.progress.scale_out.sent_bytes = sent;
    }

    /// Over all ranks: shares of right answers on the validation part, its mean cross-entropy (`None` without samples that show a class), and
    /// the number of independent samples that show a class.
    fn validation_figures(&self) -> (ExitShares, Option<f64>, u64) {
        let network = &self.experiment.network.spec.network;
        let logits = match self.validation.is_empty() {
            true => PartLogits::zeros(network.configuration(), network.slots(), network.classes(), 0),
            false => evaluate(self.experiment, &self.checkpoint.state, self.validation),
        };
        let own = ExitCounts::of(&logits, self.validation, &self.class_prior);
        let (own_loss, own_terms) = logits.cross_entropies(self.validation);
        let mut message = Vec::new();
        own.put(&mut message);
        put_u64(&mut message, own_loss.to_bits());
        put_u64(&mut message, own_terms);
        let shown = self.validation.len() - self.validation.of_nothing();
        put_u64(&mut message, self.validation.group_count_with_class().unwrap_or(shown) as u64);
        let (mut counts, mut loss, mut terms, mut independent) = (Vec::new(), 0.0, 0, 0);
        for message in self.ranks.all_gather(&message) {
            let mut reader = Reader(&message);
            counts.push(own.read(&mut reader));
            loss += f64::from_bits(reader.u64());
            terms += reader.u64();
            independent += reader.u64();
        }
        let mean = loss / terms as f64;
        let counts = counts.into_iter().reduce(|all, more| all.with(&more)).expect("this rank has its own");
        (counts.shares(), mean.is_finite().then_some(mean), independent)
    }
}

/// Number of samples of each class over all ranks; the last element is the number of samples of nothing.
fn class_counts(ranks: &dyn Communicator, samples: &Samples) -> Vec<u64> {
    let mut counts = vec![0u64; samples.classes + 1];
    samples.labels.iter().for_each(|label| counts[usize::from(*label).min(samples.classes)] += 1);
    let mut message = Vec::new();
    counts.iter().for_each(|count| put_u64(&mut message, *count));
    let mut all = vec![0u64; counts.len()];
    for message in ranks.all_gather(&message) {
        let mut reader = Reader(&message);
        all.iter_mut().for_each(|count| *count += reader.u64());
    }
    all
}
