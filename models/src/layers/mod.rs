//! The layers: each computes in training and inference. Export reads their fields and the trained numbers.

mod conv;
mod convp;
mod fc;
mod norm;
mod parameters;
mod pass;
mod pool;

use burn::tensor::Tensor;

pub use conv::Conv;
pub use convp::Convp;
pub use fc::Fc;
pub use norm::{Norm, NormOrBias};
pub use parameters::{Init, Layout, Parameter, ParameterId, ParameterKind, State, StatisticsId};
pub use pass::Pass;
pub(crate) use pass::values;
pub use pool::Pool;

use crate::fused::sign_of;
use crate::spec::{BlockSpec, LayerShape};

/// The state of a network together with its layout: the source of each layer's numbers.
#[derive(Clone, Copy, Debug)]
pub struct TrainedState<'a> {
    /// Where each parameter lies in `state`.
    pub layout: &'a Layout,
    /// The numbers.
    pub state: &'a State,
}

impl<'a> TrainedState<'a> {
    /// The numbers of a parameter.
    pub fn parameter(&self, id: ParameterId) -> &'a [f32] {
        &self.state.parameters[self.layout.parameters[id.0].range.clone()]
    }

    /// Running means and variances of one batch norm.
    pub fn running(&self, id: StatisticsId) -> (&'a [f32], &'a [f32]) {
        let range = self.layout.statistics[id.0].clone();
        let half = range.len() / 2;
        self.state.statistics[range].split_at(half)
    }

    /// Shape of a parameter, outputs first.
    pub fn shape(&self, id: ParameterId) -> &'a [usize] {
        &self.layout.parameters[id.0].shape
    }

    /// Whether each value of a weight is at least 0: the bits of a binary weight.
    pub fn signs(&self, id: ParameterId) -> Vec<bool> {
        self.parameter(id).iter().map(|value| *value >= 0.0).collect()
    }

    /// A binary weight as used by the network: the signs of its latent values, `+1` or `-1`.
    pub fn binary_weight(&self, id: ParameterId) -> Vec<f32> {
        self.parameter(id).iter().map(|value| sign_of(*value)).collect()
    }
}

/// One block of a section; maps are `[batch, channels, h, w]`, vectors `[batch, values, 1, 1]`.
#[derive(Clone, Debug)]
pub enum Block {
    /// Binary convolution, max pool, batch norm, sign.
    Convp(Convp),
    /// Float convolution, batch norm or bias, relu.
    Conv(Conv),
    /// Max pool.
    Pool(Pool),
    /// Fully connected.
    Fc(Fc),
}

impl Block {
    /// The block of that shape; `name` is the prefix of its parameters.
    pub fn new(layout: &mut Layout, name: &str, shape: &LayerShape) -> Self {
        match &shape.block {
            BlockSpec::Convp(spec) => Self::Convp(Convp::new(layout, name, spec, shape.input[0])),
            BlockSpec::Conv(spec) => Self::Conv(Conv::new(layout, name, spec, shape.input[0])),
            BlockSpec::Pool(spec) => Self::Pool(Pool(*spec)),
            BlockSpec::Fc(spec) => {
                Self::Fc(Fc::new(layout, name, spec, shape.input.iter().product(), shape.output[0]))
            }
        }
    }

    /// Runs the block.
    pub fn forward(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        match self {
            Self::Convp(layer) => layer.forward(pass, x),
            Self::Conv(layer) => layer.forward(pass, x),
            Self::Pool(layer) => layer.forward(x),
            Self::Fc(layer) => layer.forward(pass, x),
        }
    }

    /// Inputs of the sign that ends the block, by the running statistics; `None` for a block with float outputs.
    pub fn before_sign(&self, pass: &Pass<'_>, x: Tensor<4>) -> Option<Tensor<4>> {
        match self {
            Self::Convp(layer) => Some(layer.before_sign(pass, x)),
            Self::Conv(_) | Self::Pool(_) | Self::Fc(_) => None,
        }
    }
}
