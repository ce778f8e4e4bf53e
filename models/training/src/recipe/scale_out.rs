//! `[scale_out]` of a recipe: how ranks train together.

use headwater_toml_file::table;
use serde::{Deserialize, Serialize};

table! {
    /// Settings of training on ranks; docs/scale-out.md explains every key.
    #[derive(Copy)]
    ScaleOutRecipe {
        /// When ranks exchange, and what.
        strategy: Strategy = Strategy::Synchronous;
        /// Order in which uncompressed gradients are added (`synchronous`).
        reduction: Reduction = Reduction::Ordered;
        /// Samples that `batch` of the recipe counts: of all ranks, or of each.
        batch: BatchOf = BatchOf::AllRanks;
        /// Growth of the step size with the number of ranks, where each rank has a batch of its own (`synchronous`).
        rate_scaling: RateScaling = RateScaling::SquareRoot;
        /// Least share of the steps over which the step size rises, where each rank has a batch of its own: from near zero (Goyal et al. 2017, section
        /// 2.2, begin at that of one rank).
        warm_up: f32 = 0.05, 0.0..=0.5;
        /// Fewest steps of each rank between two exchanges (`local_steps`), which divide an epoch equally.
        every: u32 = 50, 1..=1_000_000;
        /// Step size of the outer optimiser (`local_steps`); 1 and no momentum is the plain mean of the weights.
        outer_rate: f32 = 1.0, 1e-3..=10.0;
        /// Nesterov momentum of the outer optimiser (`local_steps`).
        outer_momentum: f32 = 0.5, 0.0..=0.999;
        /// Compression of what is exchanged.
        compression: CompressionKind = CompressionKind::None;
        /// Share of the numbers that `top_k` sends.
        top_k_share: f32 = 0.01;
        /// Share of the steps, at the beginning, that `synchronous` exchanges uncompressed; at least one step and those of the optimiser's warm-up.
        uncompressed: f32 = 0.0256, 0.0..=1.0;
    }
}

/// The numbers that ranks exchange, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Gradients, in every step.
    Synchronous,
    /// Weights, every few steps (Douillard et al. 2023, "`DiLoCo`").
    LocalSteps,
}

/// Order in which gradients are added over ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    /// In the order of ranks: equal to as many threads of one process, bit for bit.
    Ordered,
    /// In the order of the MPI library.
    AllReduce,
}

/// Samples that the batch of a recipe counts: of all ranks, or of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchOf {
    /// Samples of a step over all ranks.
    AllRanks,
    /// Samples of a step of each rank.
    EachRank,
}

/// Growth of the step size with the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RateScaling {
    /// The step size stays.
    None,
    /// The step size grows with the square root of the batch, for Adam (Malladi et al. 2022, "On the SDEs and scaling rules for adaptive
    /// gradient algorithms", who scale the decay rates of the moments too; here these rates stay).
    SquareRoot,
    /// The step size grows in proportion to the batch, for gradient descent (Goyal et al. 2017, "Accurate, large minibatch SGD").
    Linear,
}

/// Kind of compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CompressionKind {
    /// None: 4 bytes per number.
    None,
    /// A byte per number.
    Int8,
    /// A bit per number. With Adam, `synchronous` sends the mean of gradients, as 1-bit Adam.
    OneBit,
    /// The largest numbers with their indices, 8 bytes each.
    TopK,
}

impl ScaleOutRecipe {
    /// True when each rank has a state of its own: its moments, or the residuals of its compressed messages.
    pub fn has_rank_state(&self) -> bool {
        self.strategy == Strategy::LocalSteps || self.compression != CompressionKind::None
    }

    /// True when ranks with local steps exchange after step `step` of an epoch, counted from 1. Exchanges are equally far apart, by `every`
    /// steps or more; the last one is at the end of the epoch. An epoch of fewer than `every` steps has one exchange.
    pub fn is_exchange(&self, step: u32, steps_per_epoch: u32) -> bool {
        let (step, steps) = (u64::from(step), u64::from(steps_per_epoch));
        let exchanges = (steps / u64::from(self.every)).max(1);
        step * exchanges / steps > (step - 1) * exchanges / steps
    }

    /// Samples of a step over all ranks, for a `batch` of the recipe.
    pub fn batch(&self, batch: usize, ranks: usize) -> usize {
        match self.batch {
            BatchOf::AllRanks => batch,
            BatchOf::EachRank => batch * ranks,
        }
    }

    /// Factor of the step size on `ranks` ranks; 1 unless training is synchronous and each rank has the batch of the recipe.
    pub fn rate_factor(&self, ranks: usize) -> f32 {
        // A local step has the batch of one rank, so its step size does not grow.
        let is_larger = self.strategy == Strategy::Synchronous && self.batch == BatchOf::EachRank;
        match self.rate_scaling {
            RateScaling::None => 1.0,
            _ if !is_larger => 1.0,
            RateScaling::SquareRoot => (ranks as f32).sqrt(),
            RateScaling::Linear => ranks as f32,
        }
    }

    /// Least share of numbers that `top_k` may send: larger for local steps, whose few exchanges must carry all changes of the weights.
    pub(super) fn least_top_k_share(&self) -> f32 {
        match (self.strategy, self.compression) {
            (Strategy::LocalSteps, CompressionKind::TopK) => 0.1,
            _ => 1e-6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_size_grows_with_the_batch_of_a_step() {
        let factor = |strategy, batch, rate_scaling| {
            let recipe = ScaleOutRecipe { strategy, batch, rate_scaling, ..ScaleOutRecipe::default() };
            (recipe.batch(64, 4), recipe.rate_factor(4))
        };
        let synchronous = Strategy::Synchronous;
        assert_eq!(factor(synchronous, BatchOf::AllRanks, RateScaling::Linear), (64, 1.0));
        assert_eq!(factor(synchronous, BatchOf::EachRank, RateScaling::SquareRoot), (256, 2.0));
        assert_eq!(factor(synchronous, BatchOf::EachRank, RateScaling::Linear), (256, 4.0));
        assert_eq!(factor(synchronous, BatchOf::EachRank, RateScaling::None), (256, 1.0));
        assert_eq!(factor(Strategy::LocalSteps, BatchOf::EachRank, RateScaling::Linear), (256, 1.0));
    }

    #[test]
    fn exchanges_divide_an_epoch_equally_and_are_as_far_apart_as_asked() {
        let exchanges = |every, steps: u32| -> Vec<u32> {
            let recipe = ScaleOutRecipe { every, ..ScaleOutRecipe::default() };
            (1..=steps).filter(|step| recipe.is_exchange(*step, steps)).collect()
        };
        assert_eq!(exchanges(1, 4), [1, 2, 3, 4]);
        assert_eq!(exchanges(4, 11), [6, 11]);
        assert_eq!(exchanges(50, 7), [7]);
        let found = exchanges(50, 391);
        let apart: Vec<u32> = found.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(found.len() == 7 && apart.iter().all(|steps| [55, 56].contains(steps)), "{found:?}");
    }
}
