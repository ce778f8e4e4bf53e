//! The layers. Training and export share the structs: each has `forward` and `export`.

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
pub use norm::{Folded, Norm};
pub use parameters::{Builder, Init, Layout, ParameterId, ParameterKind, State, StatisticsId};
pub use pass::Pass;
pub use pool::Pool;

use crate::export::onnx::{Graph, Value};
use crate::spec::{BlockSpec, LayerShape};

/// Trained numbers, for export.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Where they lie.
    pub layout: &'a Layout,
    /// The numbers.
    pub state: &'a State,
}

impl Source<'_> {
    /// Signs of a binary weight, +1 as `true`.
    fn signs(&self, id: ParameterId) -> Vec<bool> {
        self.state.parameter(self.layout, id).iter().map(|value| *value >= 0.0).collect()
    }

    /// A parameter as the network uses it: binary weights as their signs.
    fn weight(&self, id: ParameterId, binary: bool) -> Vec<f32> {
        let sign = |value: &f32| if *value >= 0.0 { 1.0 } else { -1.0 };
        let values = self.state.parameter(self.layout, id);
        if binary { values.iter().map(sign).collect() } else { values.to_vec() }
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
    /// The block of that shape, with its parameters laid out under `name`.
    pub fn new(builder: &mut Builder, name: &str, shape: &LayerShape) -> Self {
        match &shape.block {
            BlockSpec::Convp(spec) => Self::Convp(Convp::new(builder, name, spec, shape.input[0])),
            BlockSpec::Conv(spec) => Self::Conv(Conv::new(builder, name, spec, shape.input[0])),
            BlockSpec::Pool(spec) => Self::Pool(Pool::new(spec)),
            BlockSpec::Fc(spec) => {
                Self::Fc(Fc::new(builder, name, spec, shape.input.iter().product(), shape.output[0]))
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

    /// The numbers whose signs a map of the block is made of, by the running statistics; `None` where the map has floats.
    pub fn before_sign(&self, pass: &Pass<'_>, x: Tensor<4>) -> Option<Tensor<4>> {
        match self {
            Self::Convp(layer) => Some(layer.before_sign(pass, x)),
            Self::Conv(_) | Self::Pool(_) | Self::Fc(_) => None,
        }
    }

    /// The layer itself when it is fully connected.
    pub fn as_fc(&self) -> Option<&Fc> {
        match self {
            Self::Fc(layer) => Some(layer),
            _ => None,
        }
    }

    /// Appends the block to an ONNX graph.
    pub fn export(&self, source: &Source<'_>, graph: &mut Graph, x: &Value) -> Value {
        match self {
            Self::Convp(layer) => layer.export(source, graph, x),
            Self::Conv(layer) => layer.export(source, graph, x),
            Self::Pool(layer) => layer.export(graph, x),
            Self::Fc(layer) => layer.export(source, graph, x),
        }
    }
}
