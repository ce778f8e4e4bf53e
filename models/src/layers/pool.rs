//! Max pool, then relu or nothing.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;

use crate::export::onnx::{Graph, Value};
use crate::fused::{Window, max_pool};
use crate::spec::{FloatActivation, PoolSpec};

/// Largest value of each window; padding is never chosen.
#[derive(Clone, Debug)]
pub struct Pool {
    pub(crate) window: Window,
    activation: FloatActivation,
}

impl Pool {
    /// A pool as the spec says.
    pub fn new(spec: &PoolSpec) -> Self {
        Self { window: spec.window(), activation: spec.activation }
    }

    /// `[batch, channels, h, w]` to `[batch, channels, positions(h), positions(w)]`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let y = max_pool(x, self.window);
        if self.activation == FloatActivation::Relu { relu(y) } else { y }
    }

    /// `MaxPool`, `Relu` where there is one.
    pub fn export(&self, graph: &mut Graph, x: &Value) -> Value {
        let y = graph.max_pool(x, self.window);
        if self.activation == FloatActivation::Relu { graph.relu(&y) } else { y }
    }
}
