//! Lowers a `pool` block to ONNX.

use super::onnx::{Graph, Value, windowed};
use crate::layers::Pool;

impl Pool {
    /// `MaxPool`, then `Relu` if the block has one.
    pub(super) fn onnx(&self, graph: &mut Graph, x: &Value) -> Value {
        let y = graph.node("MaxPool", &[x], windowed(self.0.window()));
        graph.activation(y, self.0.activation.into())
    }
}
