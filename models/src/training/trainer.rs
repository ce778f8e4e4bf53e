//! The epoch loop, without clock, folder and terminal: the caller handles the events of steps and epochs.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    Adam, AdamStep, Checkpoint, CheckpointError, Progress, exact_statistics, set_statistics, step,
    update_statistics,
};
use crate::by_exit::ByExit;
use crate::data::Samples;
use crate::evaluation::{ExitShares, evaluate};
use crate::experiment::Experiment;
use crate::loss::LossSums;
use crate::random::Random;

/// A run in memory.
pub struct Trainer<'a> {
    experiment: &'a Experiment,
    train: &'a Samples,
    validation: &'a Samples,
    class_prior: Vec<f32>,
    /// State and progress of the run.
    pub checkpoint: Checkpoint,
}

/// Results of one epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// Number of the epoch, from 1.
    pub epoch: u32,
    /// Mean loss over the augmented train part.
    pub loss: f64,
    /// Share of correct answers of each exit while training.
    #[serde(flatten, with = "crate::by_exit::train")]
    pub train: ByExit<f64>,
    /// Share of correct answers on the validation part.
    pub validation: ExitShares,
    /// Step size at the end of the epoch.
    pub learning_rate: f32,
}

/// An event of a run.
pub enum Event<'e> {
    /// The run in a folder resumes from a checkpoint.
    Resumed {
        /// Progress in the checkpoint.
        progress: &'e Progress,
        /// Errors of newer checkpoints.
        skipped: &'e [CheckpointError],
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
    /// The run should be saved now.
    Checkpoint(&'e mut Checkpoint),
}

/// Largest mean loss of a batch. A network that knows nothing has about `ln classes` for each term of the loss.
const MAX_LOSS: f64 = 1e4;

/// A step whose loss is no number or beyond all bounds. Its gradient was not applied.
#[derive(Clone, Debug, PartialEq, Error)]
#[error(
    "training diverged at epoch {epoch}, step {step_in_epoch} (samples {samples:?} and others): the mean loss is {loss}; the newest checkpoint is \
     from before; lower optimiser.learning_rate, or look at these samples"
)]
pub struct Diverged {
    /// Epoch, from 1.
    pub epoch: u32,
    /// Step in the epoch, from 1.
    pub step_in_epoch: u32,
    /// First samples of the batch, as indices into the train part.
    pub samples: Vec<u32>,
    /// Mean loss of the batch.
    pub loss: f64,
}

impl<'a> Trainer<'a> {
    /// A run from its beginning, or from a checkpoint.
    pub fn new(
        experiment: &'a Experiment,
        train: &'a Samples,
        validation: &'a Samples,
        from: Option<Checkpoint>,
    ) -> Self {
        let checkpoint = from.unwrap_or_else(|| Checkpoint {
            progress: Progress::default(),
            state: experiment.network.layout.initial(experiment.recipe.seed),
            adam: Adam::new(experiment.network.layout.parameter_count()),
        });
        Self { experiment, train, validation, class_prior: train.prior(), checkpoint }
    }

    /// Steps in one epoch. A remainder below half a batch is left out; each epoch leaves out other samples.
    pub fn steps_per_epoch(&self) -> u32 {
        let (samples, batch) = (self.train.len(), self.experiment.recipe.batch);
        ((samples + batch / 2) / batch).max(1) as u32
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
        let recipe = &self.experiment.recipe;
        while self.checkpoint.progress.epoch < recipe.epochs {
            let epoch = self.checkpoint.progress.epoch + 1;
            let order = Random::new(recipe.seed, &[2, u64::from(epoch)]).permutation(self.train.len());
            while self.checkpoint.progress.step_in_epoch < steps_per_epoch {
                self.step(&order, epoch)?;
                let progress = &self.checkpoint.progress;
                on(Event::Step { progress, steps_per_epoch })?;
                let inside = progress.step_in_epoch < steps_per_epoch;
                if inside && progress.step.is_multiple_of(u64::from(recipe.checkpoint.steps)) {
                    on(Event::Checkpoint(&mut self.checkpoint))?;
                }
            }
            let record = self.end_epoch(epoch);
            on(Event::Epoch(&record))?;
            on(Event::Checkpoint(&mut self.checkpoint))?;
        }
        Ok(())
    }

    fn step(&mut self, order: &[u32], epoch: u32) -> Result<(), Diverged> {
        let Experiment { recipe, network, .. } = self.experiment;
        let progress = &self.checkpoint.progress;
        let start = progress.step_in_epoch as usize * recipe.batch;
        let indices = &order[start.min(order.len())..(start + recipe.batch).min(order.len())];
        let found = step(self.experiment, &self.checkpoint.state, self.train, indices, epoch);
        let loss = found.sums.loss / found.sums.samples.max(1) as f64;
        if !(loss.abs() <= MAX_LOSS && found.gradient.iter().all(|slope| slope.is_finite())) {
            let samples = indices.iter().take(4).copied().collect();
            return Err(Diverged { epoch, step_in_epoch: progress.step_in_epoch + 1, samples, loss });
        }
        let number = progress.step + 1;
        let step = AdamStep { optimiser: recipe.optimiser, number, rate: self.rate(number) };
        let Checkpoint { progress, state, adam } = &mut self.checkpoint;
        progress.step = number;
        progress.step_in_epoch += 1;
        progress.sums.add(&found.sums);
        adam.step(step, &network.layout, state, &found.gradient);
        update_statistics(&network.layout, state, &found, recipe.optimiser.statistics_momentum);
        Ok(())
    }

    fn rate(&self, step: u64) -> f32 {
        let recipe = &self.experiment.recipe;
        recipe.optimiser.rate(step, u64::from(self.steps_per_epoch()) * u64::from(recipe.epochs))
    }

    fn end_epoch(&mut self, epoch: u32) -> EpochRecord {
        if epoch == self.experiment.recipe.epochs {
            let found = exact_statistics(self.experiment, &self.checkpoint.state, self.train, epoch);
            set_statistics(&self.experiment.network.layout, &mut self.checkpoint.state, &found);
        }
        let logits = evaluate(self.experiment, &self.checkpoint.state, self.validation);
        let learning_rate = self.rate(self.checkpoint.progress.step);
        let progress = &mut self.checkpoint.progress;
        let LossSums { samples, loss, correct } = std::mem::take(&mut progress.sums);
        let samples = samples.max(1) as f64;
        let exits = self.experiment.network.spec.network.configuration().exits().iter();
        let train = exits.map(|&exit| (exit, correct.get(exit).map_or(0.0, |hits| *hits as f64 / samples)));
        let record = EpochRecord {
            epoch,
            loss: loss / samples,
            train: train.collect(),
            validation: ExitShares::of(&logits, self.validation, &self.class_prior),
            learning_rate,
        };
        progress.epoch = epoch;
        progress.step_in_epoch = 0;
        progress.epochs.push(record.clone());
        record
    }
}
