//! Max pool, then relu or nothing.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;

use super::{Layer, Layout, Pass, TrainedState};
use crate::fused::max_pool;
use crate::onnx::{Graph, Value, windowed};
use headwater_spec::{FloatActivation, LayerShape, PoolSpec};

/// Maximum of each window; padding is never the maximum. A pool has no trained numbers.
#[derive(Clone, Debug)]
pub struct Pool(PoolSpec);

impl Pool {
    /// A pool with the window and activation of `spec`.
    pub fn new(_layout: &mut Layout, _name: &str, spec: &PoolSpec, _of: &LayerShape) -> Self {
        Self(*spec)
    }
}

impl Layer for Pool {
    /// `[batch, channels, h, w]` to `[batch, channels, positions(h), positions(w)]`.
    fn forward(&self, _pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let y = max_pool(x, self.0.window());
        if self.0.activation == FloatActivation::Relu { relu(y) } else { y }
    }

    /// `MaxPool`, then `Relu` if the block has one.
    fn onnx(&self, _trained: &TrainedState<'_>, graph: &mut Graph, x: &Value) -> Value {
        let y = graph.node("MaxPool", &[x], windowed(self.0.window()));
        graph.activation(y, self.0.activation.into())
    }
}
