//! `[scale_out]` of a recipe: how ranks train together.

use serde::{Deserialize, Serialize};

/// Settings of training on ranks; docs/scale-out.md explains every key.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScaleOutRecipe {
    /// When ranks exchange, and what.
    pub strategy: Strategy,
    /// Order in which uncompressed gradients are added (`synchronous`).
    pub reduction: Reduction,
    /// Samples that `batch` of the recipe counts: of all ranks, or of each.
    pub batch: BatchOf,
    /// Growth of the step size with the number of ranks, where each rank has a batch of its own (`synchronous`).
    pub rate_scaling: RateScaling,
    /// Least share of the steps over which the step size rises, where each rank has a batch of its own: from near zero (Goyal et al. 2017, section
    /// 2.2, begin at that of one rank).
    pub warm_up: f32,
    /// Fewest steps of each rank between two exchanges (`local_steps`), which divide an epoch equally.
    pub every: u32,
    /// Step size of the outer optimiser (`local_steps`); 1 and no momentum is the plain mean of the weights.
    pub outer_rate: f32,
    /// Nesterov momentum of the outer optimiser (`local_steps`).
    pub outer_momentum: f32,
    /// Compression of what is exchanged.
    pub compression: CompressionKind,
    /// Share of the numbers that `top_k` sends.
    pub top_k_share: f32,
    /// Share of the steps, at the beginning, that `synchronous` exchanges uncompressed; at least one step and those of the optimiser's warm-up.
    pub uncompressed: f32,
}

/// When ranks exchange, and what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Gradients, in every step.
    #[default]
    Synchronous,
    /// Weights, every few steps (Douillard et al. 2023, "`DiLoCo`").
    LocalSteps,
}

/// Order in which gradients are added over ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    /// In the order of ranks: equal to as many threads of one process, bit for bit.
    #[default]
    Ordered,
    /// In the order of the MPI library.
    AllReduce,
}

/// Samples that the batch of a recipe counts: of all ranks, or of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchOf {
    /// Samples of a step over all ranks.
    #[default]
    AllRanks,
    /// Samples of a step of each rank.
    EachRank,
}

/// Growth of the step size with the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RateScaling {
    /// None.
    None,
    /// With the square root of the batch, for Adam (Malladi et al. 2022, "On the SDEs and scaling rules for adaptive gradient algorithms", who scale the
    /// decay rates of the moments too).
    #[default]
    SquareRoot,
    /// With the batch, for gradient descent (Goyal et al. 2017, "Accurate, large minibatch SGD").
    Linear,
}

/// Kind of compression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CompressionKind {
    /// None: 4 bytes a number.
    #[default]
    None,
    /// A byte a number.
    Int8,
    /// A bit a number. With Adam, `synchronous` sends the mean of gradients, as 1-bit Adam.
    OneBit,
    /// The largest numbers with their indices, 8 bytes each.
    TopK,
}

impl Default for ScaleOutRecipe {
    fn default() -> Self {
        Self {
            strategy: Strategy::default(),
            reduction: Reduction::default(),
            batch: BatchOf::default(),
            rate_scaling: RateScaling::default(),
            warm_up: 0.05,
            every: 50,
            outer_rate: 1.0,
            outer_momentum: 0.5,
            compression: CompressionKind::default(),
            top_k_share: 0.01,
            uncompressed: 0.0256,
        }
    }
}

impl ScaleOutRecipe {
    /// Whether a rank has numbers that others do not have: moments of its own, or what its messages left out.
    pub fn has_rank_state(&self) -> bool {
        self.strategy == Strategy::LocalSteps || self.compression != CompressionKind::None
    }

    /// Whether ranks exchange after step `step` of an epoch, from 1, with local steps: at equal distances, and at the end of the epoch.
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

    /// Factor of the step size of synchronous training.
    pub fn rate_factor(&self, ranks: usize) -> f32 {
        // A local step has the batch of one rank.
        let is_larger = self.strategy == Strategy::Synchronous && self.batch == BatchOf::EachRank;
        match self.rate_scaling {
            RateScaling::None => 1.0,
            _ if !is_larger => 1.0,
            RateScaling::SquareRoot => (ranks as f32).sqrt(),
            RateScaling::Linear => ranks as f32,
        }
    }

    /// Least share of `top_k`. Local steps have few exchanges, after which the weights that all have must have followed those of the ranks.
    fn least_top_k_share(&self) -> f32 {
        match (self.strategy, self.compression) {
            (Strategy::LocalSteps, CompressionKind::TopK) => 0.1,
            _ => 1e-6,
        }
    }

    /// Numbers with their ranges, for the check of a recipe: key, value, least, most.
    pub fn ranges(&self) -> [(&'static str, f32, f32, f32); 6] {
        [
            ("scale_out.warm_up", self.warm_up, 0.0, 0.5),
            ("scale_out.every", self.every as f32, 1.0, 1e6),
            ("scale_out.outer_rate", self.outer_rate, 1e-3, 10.0),
            ("scale_out.outer_momentum", self.outer_momentum, 0.0, 0.999),
            ("scale_out.top_k_share", self.top_k_share, self.least_top_k_share(), 1.0),
            ("scale_out.uncompressed", self.uncompressed, 0.0, 1.0),
        ]
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
