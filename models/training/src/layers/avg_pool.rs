//! Average pool.

use burn::tensor::Tensor;
use burn::tensor::module::avg_pool2d;
use burn::tensor::ops::AvgPoolOptions;

use super::{Layer, Layout, Pass, TrainedState};
use crate::onnx::{Graph, Value, windowed};
use headwater_spec::{AvgPoolSpec, LayerShape, Window};

/// Mean of each window; padding has no part in a mean. An average pool has no trained numbers.
#[derive(Clone, Debug)]
pub struct AvgPool(Window);

impl AvgPool {
    /// An average pool.
    pub fn new(_layout: &mut Layout, _name: &str, spec: &AvgPoolSpec, _of: &LayerShape) -> Self {
        Self(spec.window())
    }
}

impl Layer for AvgPool {
    /// `[batch, channels, h, w]` to `[batch, channels, positions(h), positions(w)]`.
    fn forward(&self, _pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let Window { kernel, stride, pad } = self.0;
        let options = AvgPoolOptions::new([kernel; 2]).with_stride([stride; 2]).with_padding([pad; 2]);
        avg_pool2d(x, options.with_count_include_pad(false))
    }

    /// `AveragePool`, which leaves padding out by default.
    fn onnx(&self, _trained: &TrainedState<'_>, graph: &mut Graph, x: &Value) -> Value {
        graph.node("AveragePool", &[x], windowed(self.0))
    }
}
