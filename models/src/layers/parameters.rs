//! Where the numbers of a network lie: one flat vector of parameters, one of running statistics.
//!
//! Layers hold places, not numbers. So workers share the layers, gradients are averaged as one vector, and a checkpoint is two vectors.

use std::ops::Range;

use crate::random::Random;

/// Place of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterId(pub(super) usize);

/// Place of a channel-wise mean and variance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatisticsId(pub(super) usize);

/// How a parameter is treated by the optimiser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// Latent weight of a binary layer: used as its sign, clipped to `[-1, 1]` after each step.
    Binary,
    /// Float weight; weight decay applies.
    Weight,
    /// Bias or batch norm: no weight decay.
    Offset,
}

/// First values of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Normal with this deviation.
    Normal(f32),
    /// All equal.
    Constant(f32),
}

/// All places of a network, in a fixed order.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    parameters: Vec<Parameter>,
    statistics: Vec<Range<usize>>,
}

#[derive(Clone, Debug)]
struct Parameter {
    name: String,
    shape: Vec<usize>,
    at: Range<usize>,
    kind: ParameterKind,
    init: Init,
}

/// The numbers of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// All parameters.
    pub parameters: Vec<f32>,
    /// Running means and variances of batch norm.
    pub statistics: Vec<f32>,
}

/// Lays out parameters while layers are built.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    layout: Layout,
}

impl Builder {
    /// Place for a parameter.
    pub fn parameter(
        &mut self,
        name: String,
        shape: &[usize],
        kind: ParameterKind,
        init: Init,
    ) -> ParameterId {
        let start = self.layout.parameter_count();
        let at = start..start + shape.iter().product::<usize>();
        self.layout.parameters.push(Parameter { name, shape: shape.to_vec(), at, kind, init });
        ParameterId(self.layout.parameters.len() - 1)
    }

    /// Place for means and variances of `channels`.
    pub fn statistics(&mut self, channels: usize) -> StatisticsId {
        let start = self.layout.statistics_count();
        self.layout.statistics.push(start..start + 2 * channels);
        StatisticsId(self.layout.statistics.len() - 1)
    }

    /// The finished layout.
    pub fn finish(self) -> Layout {
        self.layout
    }
}

impl Layout {
    /// Numbers in all parameters.
    pub fn parameter_count(&self) -> usize {
        self.parameters.last().map_or(0, |parameter| parameter.at.end)
    }

    /// Numbers in all running statistics.
    pub fn statistics_count(&self) -> usize {
        self.statistics.last().map_or(0, |at| at.end)
    }

    /// Number of parameter tensors.
    pub fn tensors(&self) -> usize {
        self.parameters.len()
    }

    /// Where each parameter lies and how it is treated.
    pub fn places(&self) -> impl Iterator<Item = (Range<usize>, ParameterKind)> {
        self.parameters.iter().map(|parameter| (parameter.at.clone(), parameter.kind))
    }

    /// Where the running statistics of `id` lie: means, then variances.
    pub fn statistics_at(&self, id: StatisticsId) -> Range<usize> {
        self.statistics[id.0].clone()
    }

    /// Where all running statistics lie, in order.
    pub fn all_statistics(&self) -> impl Iterator<Item = Range<usize>> {
        self.statistics.iter().cloned()
    }

    /// Number of running statistics.
    pub fn statistics_len(&self) -> usize {
        self.statistics.len()
    }

    /// Name and place of each parameter.
    pub fn named(&self) -> impl Iterator<Item = (&str, Range<usize>)> {
        self.parameters.iter().map(|parameter| (parameter.name.as_str(), parameter.at.clone()))
    }

    /// First numbers, from `seed`: each parameter has a random stream of its own, by name.
    pub fn initial(&self, seed: u64) -> State {
        let mut parameters = Vec::with_capacity(self.parameter_count());
        for parameter in &self.parameters {
            let name =
                parameter.name.bytes().fold(0u64, |hash, byte| hash.wrapping_mul(31) ^ u64::from(byte));
            let mut random = Random::new(seed, &[name]);
            parameters.extend(parameter.at.clone().map(|_| match parameter.init {
                Init::Constant(value) => value,
                Init::Normal(deviation) => match parameter.kind {
                    ParameterKind::Binary => (random.normal() * deviation).clamp(-1.0, 1.0),
                    _ => random.normal() * deviation,
                },
            }));
        }
        let mut statistics = vec![0.0; self.statistics_count()];
        for at in &self.statistics {
            let half = at.len() / 2;
            statistics[at.start + half..at.end].fill(1.0);
        }
        State { parameters, statistics }
    }

    /// Shape of a parameter.
    pub fn shape(&self, id: ParameterId) -> &[usize] {
        &self.parameters[id.0].shape
    }

    /// Where a parameter lies.
    pub fn at(&self, id: ParameterId) -> Range<usize> {
        self.parameters[id.0].at.clone()
    }
}
