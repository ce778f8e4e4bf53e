//! Max pool.

use burn::tensor::Tensor;

use crate::export::onnx::{Graph, Value};
use crate::fused::{Window, max_pool};

/// Largest value of each window; padding is never chosen.
#[derive(Clone, Debug)]
pub struct Pool {
    pub(crate) window: Window,
}

impl Pool {
    /// A pool with that window.
    pub fn new(window: Window) -> Self {
        Self { window }
    }

    /// `[batch, channels, h, w]` to `[batch, channels, positions(h), positions(w)]`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        max_pool(x, self.window)
    }

    /// `MaxPool`.
    pub fn export(&self, graph: &mut Graph, x: &Value) -> Value {
        graph.max_pool(x, self.window)
    }
}
