//! The epoch loop. It knows no clock, no folder and no terminal: what happens after a step or an epoch is the caller's.

use serde::{Deserialize, Serialize};

use super::{Adam, Checkpoint, Progress, Workers, step, update_statistics};
use crate::by_exit::ByExit;
use crate::data::Samples;
use crate::evaluation::{ExitCounts, evaluate};
use crate::loss::Figures;
use crate::network::Network;
use crate::random::Random;
use crate::recipe::Recipe;

/// A run in memory.
pub struct Trainer<'a> {
    network: &'a Network,
    recipe: &'a Recipe,
    workers: &'a Workers,
    train: &'a Samples,
    validation: &'a Samples,
    /// Where it stands.
    pub at: Checkpoint,
}

/// What one epoch found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// From 1.
    pub epoch: u32,
    /// Mean loss over the train part, as it was changed for training.
    pub loss: f64,
    /// Share of correct answers of each exit while training.
    #[serde(flatten, with = "crate::by_exit::train")]
    pub train: ByExit<f64>,
    /// Share of correct answers on the validation part.
    pub validation: ExitShares,
    /// Step size at the end of the epoch.
    pub learning_rate: f32,
}

/// Share of correct answers by exit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExitShares {
    /// Each device, over the samples it sees; none where devices have no section.
    pub devices: Vec<f64>,
    /// Each exit.
    #[serde(flatten, with = "crate::by_exit::plain")]
    pub exits: ByExit<f64>,
}

/// What happened.
pub enum Event<'e> {
    /// A step ended.
    Step {
        /// Where the run stands.
        progress: &'e Progress,
        /// Steps in an epoch.
        steps_per_epoch: u32,
    },
    /// An epoch ended.
    Epoch(&'e EpochRecord),
    /// The run should be saved now.
    Checkpoint(&'e mut Checkpoint),
}

impl<'a> Trainer<'a> {
    /// A run from its beginning, or from a checkpoint.
    pub fn new(
        (network, recipe, workers): (&'a Network, &'a Recipe, &'a Workers),
        (train, validation): (&'a Samples, &'a Samples),
        from: Option<Checkpoint>,
    ) -> Self {
        let at = from.unwrap_or_else(|| Checkpoint {
            progress: Progress::default(),
            state: network.initial(recipe.seed),
            adam: Adam::new(network.layout.parameter_count()),
        });
        Self { network, recipe, workers, train, validation, at }
    }

    /// Steps in one epoch; a rest smaller than half a batch is left out, another draw of samples each epoch.
    pub fn steps_per_epoch(&self) -> u32 {
        let (samples, batch) = (self.train.len(), self.recipe.batch);
        ((samples + batch / 2) / batch).max(1) as u32
    }

    /// Trains to the end of the recipe; `on` hears of every step, epoch and checkpoint and can stop the run with an error.
    ///
    /// # Errors
    /// The first error of `on`.
    pub fn run<E>(&mut self, mut on: impl FnMut(Event<'_>) -> Result<(), E>) -> Result<(), E> {
        let steps = self.steps_per_epoch();
        while self.at.progress.epoch < self.recipe.epochs {
            let epoch = self.at.progress.epoch + 1;
            let order = Random::new(self.recipe.seed, &[2, u64::from(epoch)]).permutation(self.train.len());
            while self.at.progress.step_in_epoch < steps {
                self.step(&order, epoch, steps);
                on(Event::Step { progress: &self.at.progress, steps_per_epoch: steps })?;
                let inside = self.at.progress.step_in_epoch < steps;
                if inside && self.at.progress.step.is_multiple_of(u64::from(self.recipe.checkpoint.steps)) {
                    on(Event::Checkpoint(&mut self.at))?;
                }
            }
            let record = self.end_epoch(epoch, steps);
            on(Event::Epoch(&record))?;
            on(Event::Checkpoint(&mut self.at))?;
        }
        Ok(())
    }

    fn step(&mut self, order: &[u32], epoch: u32, steps: u32) {
        let Checkpoint { progress, state, adam } = &mut self.at;
        let start = progress.step_in_epoch as usize * self.recipe.batch;
        let indices = &order[start.min(order.len())..(start + self.recipe.batch).min(order.len())];
        let result = step(self.workers, self.network, state, (self.train, indices), self.recipe, epoch);
        progress.step += 1;
        progress.step_in_epoch += 1;
        progress.figures.add(&result.figures);
        let optimiser = &self.recipe.optimiser;
        let rate = optimiser.rate(progress.step, u64::from(steps) * u64::from(self.recipe.epochs));
        adam.step(optimiser, &self.network.layout, state, &result.gradient, (progress.step, rate));
        update_statistics(&self.network.layout, state, &result.statistics, optimiser.statistics_momentum);
    }

    fn end_epoch(&mut self, epoch: u32, steps: u32) -> EpochRecord {
        let answers = evaluate(self.workers, self.network, &self.at.state, self.validation);
        let progress = &mut self.at.progress;
        let Figures { samples, loss, correct } = progress.figures;
        let samples = samples.max(1) as f64;
        let exits = self.network.configuration.exits().iter();
        let train = exits.map(|&exit| (exit, correct.get(exit).map_or(0.0, |hits| *hits as f64 / samples)));
        let record = EpochRecord {
            epoch,
            loss: loss / samples,
            train: train.collect(),
            validation: ExitCounts::of(&answers, self.validation).shares(),
            learning_rate: self
                .recipe
                .optimiser
                .rate(progress.step, u64::from(steps) * u64::from(self.recipe.epochs)),
        };
        progress.epoch = epoch;
        progress.step_in_epoch = 0;
        progress.figures = Figures::default();
        progress.epochs.push(record.clone());
        record
    }
}
