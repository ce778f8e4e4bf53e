//! The layers: each computes in training and inference, and exposes its trained numbers as plain structs for export.

mod conv;
mod convp;
mod fc;
mod norm;
mod parameters;
mod pass;
mod pool;

use burn::tensor::Tensor;

pub use conv::{Conv, ConvNumbers};
pub use convp::{Convp, ConvpNumbers};
pub use fc::{Fc, FcNumbers};
pub use norm::{Folded, Norm, NormOrBias, NormOrBiasNumbers};
pub use parameters::{Init, Layout, ParameterId, ParameterKind, State, StatisticsId};
pub use pass::Pass;
pub(crate) use pass::values;
pub use pool::Pool;

use crate::spec::{BlockSpec, LayerShape, PoolSpec};

/// The state of a network together with its layout: the source of each layer's numbers.
#[derive(Clone, Copy, Debug)]
pub struct TrainedState<'a> {
    /// Ranges of the parameters in the state.
    pub layout: &'a Layout,
    /// The numbers.
    pub state: &'a State,
}

/// A weight tensor as used by the network: a binary weight is `+1` or `-1`.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    /// Shape, outputs first.
    pub shape: Vec<usize>,
    /// Values, row-major.
    pub values: Vec<f32>,
}

impl TrainedState<'_> {
    /// A float weight.
    fn weight(&self, id: ParameterId) -> Weight {
        let values = self.state.parameter(self.layout, id).to_vec();
        Weight { shape: self.layout.shape(id).to_vec(), values }
    }

    /// A binary weight: the signs of its latent values.
    fn binary_weight(&self, id: ParameterId) -> Weight {
        let mut weight = self.weight(id);
        weight.values.iter_mut().for_each(|value| *value = if *value >= 0.0 { 1.0 } else { -1.0 });
        weight
    }
}

impl Weight {
    /// Whether each value is positive: the bits of a binary weight.
    pub fn signs(&self) -> Vec<bool> {
        self.values.iter().map(|value| *value >= 0.0).collect()
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

/// Trained numbers of one block.
#[derive(Clone, Debug, PartialEq)]
pub enum BlockNumbers {
    /// Binary convolution, max pool, batch norm, sign.
    Convp(ConvpNumbers),
    /// Float convolution, batch norm or bias, relu.
    Conv(ConvNumbers),
    /// Max pool.
    Pool(PoolSpec),
    /// Fully connected.
    Fc(FcNumbers),
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

    /// The trained numbers of the block.
    pub fn numbers(&self, trained: &TrainedState<'_>) -> BlockNumbers {
        match self {
            Self::Convp(layer) => BlockNumbers::Convp(layer.numbers(trained)),
            Self::Conv(layer) => BlockNumbers::Conv(layer.numbers(trained)),
            Self::Pool(layer) => BlockNumbers::Pool(layer.0),
            Self::Fc(layer) => BlockNumbers::Fc(layer.numbers(trained)),
        }
    }
}
