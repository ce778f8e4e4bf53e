//! The state of a network: one flat vector of parameters, and one of running statistics.
//!
//! ```text
//! parameters  | device-0.0.weight | device-0.0.norm.gamma | device-0.0.norm.beta | ... | cloud.3.bias |
//! statistics  | means, variances of the 1st batch norm | of the 2nd | ...
//! ```
//! Layers hold ids, not values: workers share the layers, gradients are averaged as one vector, and a network is saved as two vectors.

use std::ops::Range;

use headwater_calibration::random::Random;
use headwater_calibration::wire_coding::WireCoding;

/// Index of a parameter tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterId(pub(super) usize);

/// Index of the running statistics of one batch norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatisticsId(pub(super) usize);

/// Treatment of a parameter by the optimiser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// Latent weight of a binary layer: used as its sign, clipped to `[-1, 1]` after each step.
    Binary,
    /// Float weight; weight decay applies.
    Weight,
    /// Bias, or factor or summand of batch norm: no weight decay.
    Offset,
}

/// Initial values of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Normal with mean 0 and this deviation.
    Normal(f32),
    /// All equal to this number.
    Constant(f32),
}

/// Ranges of all parameters and statistics of a network, in a fixed order.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// All parameters, by [`ParameterId`].
    pub parameters: Vec<Parameter>,
    /// Range of the running statistics of each batch norm: means, then variances.
    pub statistics: Vec<Range<usize>>,
}

/// A parameter tensor of a layout.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Name, with the section and the block.
    pub name: String,
    /// Shape, outputs first.
    pub shape: Vec<usize>,
    /// Position in [`State::parameters`].
    pub range: Range<usize>,
    /// Treatment by the optimiser.
    pub kind: ParameterKind,
    /// True when training does not change the parameter: it gets no gradient, and its batch norm keeps the running statistics.
    pub is_frozen: bool,
    init: Init,
}

/// Parameters and running statistics of a network, and the coding of its messages.
#[derive(Clone, Debug)]
pub struct State {
    /// All parameters.
    pub parameters: Vec<f32>,
    /// Running means and variances of batch norm.
    pub statistics: Vec<f32>,
    /// Coding of the devices' messages; `None` before the coding is fitted, and in networks with float scores and plain maps.
    pub coding: Option<WireCoding>,
}

impl PartialEq for State {
    /// Compares parameters and statistics alone, since the coding is fitted from them.
    fn eq(&self, other: &Self) -> bool {
        (&self.parameters, &self.statistics) == (&other.parameters, &other.statistics)
    }
}

impl Layout {
    /// Adds a parameter.
    pub fn add_parameter(
        &mut self,
        name: String,
        shape: &[usize],
        kind: ParameterKind,
        init: Init,
    ) -> ParameterId {
        let start = self.parameter_count();
        let range = start..start + shape.iter().product::<usize>();
        self.parameters.push(Parameter { name, shape: shape.to_vec(), range, kind, is_frozen: false, init });
        ParameterId(self.parameters.len() - 1)
    }

    /// Adds the means and variances of `channels`.
    pub fn add_statistics(&mut self, channels: usize) -> StatisticsId {
        let start = self.statistics_count();
        self.statistics.push(start..start + 2 * channels);
        StatisticsId(self.statistics.len() - 1)
    }

    /// The parameters that learn.
    pub fn learning(&self) -> impl Iterator<Item = &Parameter> {
        self.parameters.iter().filter(|parameter| !parameter.is_frozen)
    }

    /// Count of numbers in all parameters.
    pub fn parameter_count(&self) -> usize {
        self.parameters.last().map_or(0, |parameter| parameter.range.end)
    }

    /// Count of numbers in all running statistics.
    pub fn statistics_count(&self) -> usize {
        self.statistics.last().map_or(0, |range| range.end)
    }

    /// Initial parameters by `seed`, means of 0 and variances of 1; each parameter has a random stream of its own, which its name chooses.
    pub fn initial(&self, seed: u64) -> State {
        let mut parameters = Vec::with_capacity(self.parameter_count());
        for parameter in &self.parameters {
            let name =
                parameter.name.bytes().fold(0u64, |hash, byte| hash.wrapping_mul(31) ^ u64::from(byte));
            let mut random = Random::new(seed, &[name]);
            parameters.extend(parameter.range.clone().map(|_| match parameter.init {
                Init::Constant(value) => value,
                Init::Normal(deviation) => match parameter.kind {
                    ParameterKind::Binary => (random.normal() * deviation).clamp(-1.0, 1.0),
                    ParameterKind::Weight | ParameterKind::Offset => random.normal() * deviation,
                },
            }));
        }
        let mut statistics = vec![0.0; self.statistics_count()];
        for range in &self.statistics {
            statistics[range.start + range.len() / 2..range.end].fill(1.0);
        }
        State { parameters, statistics, coding: None }
    }
}
