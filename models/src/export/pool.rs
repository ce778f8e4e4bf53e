//! Lowers a `pool` block to ONNX.

use super::onnx::{Graph, Value};
use crate::spec::PoolSpec;

impl PoolSpec {
    /// `MaxPool`, then `Relu` if the block has one.
    pub(super) fn onnx(&self, graph: &mut Graph, x: &Value) -> Value {
        let y = graph.max_pool(x, self.window());
        graph.activation(y, self.activation.into())
    }
}
