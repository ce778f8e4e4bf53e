//! The training of one rank: its steps, alone and in exchange with the other ranks.
//!
//! ```text
//! synchronous  gradients of all ranks ──[sum]──> one step of the optimiser, the same on every rank
//! local steps  steps of each rank alone, with its own moments; every few steps
//!                weights of the last exchange - own weights ──[mean]──> one step of the outer optimiser, the same on every rank
//! ```

use headwater_protocol::Exit;

use super::exchange::{Exchange, Summed, sum};
use super::{Communicator, RankState, compression};
use crate::checkpoint::Checkpoint;
use crate::layers::{Layout, ParameterKind, State};
use crate::loss::LossSums;
use crate::optimiser::OptimiserStep;
use crate::recipe::{Algorithm, CompressionKind, Reduction, ScaleOutRecipe, Strategy};
use crate::reduction::{Gradients, reduce, sums_of, update_statistics};
use headwater_calibration::message::Reader;

/// The training of one rank.
pub struct Rank<'a> {
    recipe: ScaleOutRecipe,
    plan: RankPlan,
    exchange: Exchange<'a>,
    /// Weights after the last exchange (local steps).
    exchanged: Vec<f32>,
    /// Number of steps since the last exchange, and this rank's loss sums over these steps (local steps).
    since: (u32, LossSums),
}

/// Settings of a run that a rank needs beside the recipe.
#[derive(Clone, Copy, Debug)]
pub struct RankPlan {
    /// Samples of a step over all ranks.
    pub batch: usize,
    /// Steps at the beginning whose gradients are not compressed (synchronous strategy).
    pub uncompressed_steps: u64,
    /// Exits of the network.
    pub exits: &'static [Exit],
}

/// A number that is not finite: a loss or gradient of this rank, or a sum of gradients or of changes of weights over all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotFinite;

/// A step of the optimiser, and its place in the epoch.
#[derive(Clone, Copy, Debug)]
pub struct RankStep {
    /// The step.
    pub step: OptimiserStep,
    /// Number of the step in its epoch, from 1.
    pub in_epoch: u32,
    /// Steps of an epoch.
    pub steps_per_epoch: u32,
}

impl<'a> Rank<'a> {
    /// The training of a rank that begins with the weights `parameters`, the same on all ranks.
    pub fn new(
        ranks: &'a dyn Communicator,
        recipe: ScaleOutRecipe,
        (layout, parameters): (&Layout, &[f32]),
        plan: RankPlan,
    ) -> Self {
        Self {
            recipe,
            plan,
            exchange: Exchange::new(ranks, compression::of(&recipe), layout),
            exchanged: parameters.to_vec(),
            since: (0, LossSums::default()),
        }
    }

    /// The ranks.
    pub fn ranks(&self) -> &'a dyn Communicator {
        self.exchange.ranks
    }

    /// True when this rank has taken no local step since the last exchange; always true for the synchronous strategy.
    pub fn is_exchanged(&self) -> bool {
        self.since.0 == 0
    }

    /// Prepares the weights of the next step. After an exchange of local steps, a rank adds to the common weights the changes that its
    /// compressed message left out. Otherwise a coarse compression would undo most of the rank's own progress in every exchange.
    pub fn begin_step(&mut self, state: &mut State) {
        if self.recipe.strategy == Strategy::LocalSteps && self.is_exchanged() {
            let ranks = self.ranks().ranks() as f32;
            let residual = &mut self.exchange.sent_residual;
            for (weight, left_out) in state.parameters.iter_mut().zip(residual) {
                *weight -= ranks * std::mem::take(left_out);
            }
        }
    }

    /// Takes one step with the gradients of the workers of this rank. Returns the loss sums over the samples of all ranks since the last
    /// exchange; zeros after a step without an exchange.
    ///
    /// # Errors
    /// [`NotFinite`]: the step, or the outer step after a local step, was not taken.
    pub fn step(
        &mut self,
        RankStep { step, in_epoch, steps_per_epoch }: RankStep,
        layout: &Layout,
        checkpoint: &mut Checkpoint,
        workers: &[Gradients],
    ) -> Result<LossSums, NotFinite> {
        // A gradient that is not finite would spoil the messages to other ranks; a run of one rank checks the reduced gradient instead.
        let is_alone = self.ranks().ranks() == 1;
        if !is_alone
            && !workers.iter().all(|worker| worker.sums.loss.is_finite() && is_finite(&worker.gradient))
        {
            return Err(NotFinite);
        }
        let sums = match self.recipe.strategy {
            Strategy::Synchronous if is_alone => lone_step(step, layout, checkpoint, workers)?,
            Strategy::Synchronous => self.synchronous_step(step, layout, checkpoint, workers)?,
            Strategy::LocalSteps => {
                let found = reduce(workers, layout);
                checkpoint.moments.step(step, layout, &mut checkpoint.state, &found.gradient);
                self.since.0 += 1;
                self.since.1.add(&found.sums);
                if !self.recipe.is_exchange(in_epoch, steps_per_epoch) {
                    return Ok(LossSums::default());
                }
                self.outer_step(layout, checkpoint)?
            }
        };
        checkpoint.progress.scale_out.exchanges += 1;
        Ok(sums)
    }

    fn synchronous_step(
        &mut self,
        step: OptimiserStep,
        layout: &Layout,
        Checkpoint { state, moments, .. }: &mut Checkpoint,
        workers: &[Gradients],
    ) -> Result<LossSums, NotFinite> {
        let share = |worker: &Gradients| worker.sums.samples as f32 / self.plan.batch as f32;
        let scaled = |worker: &Gradients| worker.gradient.iter().map(|slope| share(worker) * slope).collect();
        let vectors: Vec<Vec<f32>> = workers.iter().map(scaled).collect();
        let own = sums_of(workers);
        let mut tail = Vec::new();
        own.put(self.plan.exits, &mut tail);
        let is_compressed =
            self.recipe.compression != CompressionKind::None && step.number > self.plan.uncompressed_steps;
        // 1-bit Adam: each rank sends its share of the new moving average of gradients (Adam's first moment), not its gradient.
        let is_mean = is_compressed
            && self.recipe.compression == CompressionKind::OneBit
            && step.optimiser.algorithm == Algorithm::Adam;
        let own_gradient = || sum(&vectors, layout.parameter_count());
        let (values, sums) = if is_compressed {
            let mut vector = own_gradient();
            if is_mean {
                let beta = step.optimiser.beta_1;
                let old = beta / self.ranks().ranks() as f32;
                let means = vector.iter_mut().zip(&moments.first);
                means.for_each(|(slope, mean)| *slope = old * mean + (1.0 - beta) * *slope);
            }
            self.exchange.sum_compressed(&vector, &tail).with_sums(self.plan.exits)
        } else {
            match self.recipe.reduction {
                Reduction::Ordered => self.exchange.sum_in_order(&vectors, &tail).with_sums(self.plan.exits),
                Reduction::AllReduce => self.all_reduce(own_gradient(), &own),
            }
        };
        if !is_finite(&values) {
            return Err(NotFinite);
        }
        if is_mean {
            moments.frozen_step(step, self.plan.uncompressed_steps, (layout, state), values);
        } else {
            moments.step(step, layout, state, &values);
        }
        Ok(sums)
    }

    /// The sums over all ranks of a vector and of the loss sums of a step, exchanged in one buffer.
    fn all_reduce(&self, mut values: Vec<f32>, own: &LossSums) -> (Vec<f32>, LossSums) {
        let len = values.len();
        let hits = |sums: &LossSums, exit| sums.correct.get(exit).copied();
        values.extend([own.samples as f32, own.loss as f32]);
        // A rank without any view has no counts of exits; zeros keep the buffer equally long on every rank.
        values.extend(self.plan.exits.iter().map(|exit| hits(own, *exit).unwrap_or(0) as f32));
        self.ranks().all_reduce(&mut values);
        let figures = values.split_off(len);
        let (samples, loss) = (figures[0] as u64, f64::from(figures[1]));
        let mut sums = LossSums { samples, loss, ..LossSums::default() };
        for (exit, found) in self.plan.exits.iter().zip(&figures[2..]) {
            if hits(own, *exit).is_some() || *found > 0.0 {
                sums.correct.insert(*exit, *found as u64);
            }
        }
        (values, sums)
    }

    /// The outer step: Nesterov's momentum along the mean difference of the weights (Douillard et al. 2023, algorithm 1).
    fn outer_step(&mut self, layout: &Layout, checkpoint: &mut Checkpoint) -> Result<LossSums, NotFinite> {
        let share = 1.0 / self.ranks().ranks() as f32;
        let weights = self.exchanged.iter().zip(&checkpoint.state.parameters);
        let vector: Vec<f32> = weights.map(|(before, now)| (before - now) * share).collect();
        let mut tail = Vec::new();
        self.since.1.put(self.plan.exits, &mut tail);
        let summed = match self.recipe.compression {
            CompressionKind::None => self.exchange.sum_in_order(&[vector], &tail),
            _ => self.exchange.sum_compressed(&vector, &tail),
        };
        let (values, sums) = summed.with_sums(self.plan.exits);
        if !is_finite(&values) {
            return Err(NotFinite);
        }
        let (rate, momentum) = (self.recipe.outer_rate, self.recipe.outer_momentum);
        checkpoint.outer_velocity.resize(values.len(), 0.0);
        for parameter in &layout.parameters {
            let bound = if parameter.kind == ParameterKind::Binary { 1.0 } else { f32::INFINITY };
            for at in parameter.range.clone() {
                let velocity = &mut checkpoint.outer_velocity[at];
                *velocity = momentum * *velocity + values[at];
                let move_by = rate * (values[at] + momentum * *velocity);
                self.exchanged[at] = (self.exchanged[at] - move_by).clamp(-bound, bound);
            }
        }
        checkpoint.state.parameters.copy_from_slice(&self.exchanged);
        self.since = (0, LossSums::default());
        Ok(sums)
    }

    /// The state that this rank alone has; `None` if all ranks have the same state.
    pub fn state(&self, checkpoint: &Checkpoint) -> Option<RankState> {
        self.recipe.has_rank_state().then(|| RankState {
            moments: checkpoint.moments.clone(),
            sent_residual: self.exchange.sent_residual.clone(),
            owned_residual: self.exchange.owned_residual.clone(),
        })
    }

    /// Continues from the states of all ranks of an earlier start, in the order of ranks.
    pub fn resume(&mut self, checkpoint: &mut Checkpoint, states: &[RankState]) {
        let own = RankState::of(states, self.ranks().rank(), self.ranks().ranks());
        checkpoint.moments = own.moments;
        self.exchange.sent_residual = own.sent_residual;
        self.exchange.owned_residual = own.owned_residual;
    }
}

/// A synchronous step in a run of one rank, which updates running statistics and copies no gradient for an exchange.
fn lone_step(
    step: OptimiserStep,
    layout: &Layout,
    Checkpoint { state, moments, .. }: &mut Checkpoint,
    workers: &[Gradients],
) -> Result<LossSums, NotFinite> {
    let found = reduce(workers, layout);
    if !is_finite(&found.gradient) {
        return Err(NotFinite);
    }
    moments.step(step, layout, state, &found.gradient);
    let momentum = step.optimiser.statistics_momentum;
    update_statistics(layout, state, &found.statistics, |running, value| {
        *running += momentum * (value - *running);
    });
    Ok(found.sums)
}

fn is_finite(values: &[f32]) -> bool {
    values.iter().all(|value| value.is_finite())
}

impl Summed {
    /// The sums of the vector, and the loss sums of all ranks, which are read from the tails.
    fn with_sums(self, exits: &[Exit]) -> (Vec<f32>, LossSums) {
        let mut all = LossSums::default();
        self.tails.iter().for_each(|tail| all.add(&LossSums::read(exits, &mut Reader(tail))));
        (self.values, all)
    }
}
