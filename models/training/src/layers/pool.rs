//! Max pool or average pool, then relu or nothing.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::module::avg_pool2d;
use burn::tensor::ops::AvgPoolOptions;

use super::{Layer, Layout, Pass, TrainedState};
use crate::fused::max_pool;
use crate::onnx::{Graph, Value, windowed};
use headwater_spec::{FloatActivation, LayerShape, PoolSpec, Window};

/// Maximum or average of each window; padding is never the maximum and does not count in an average. A pool has no parameters.
#[derive(Clone, Debug)]
pub struct Pool {
    spec: PoolSpec,
    window: Window,
}

impl Pool {
    /// A pool with the window and activation of `spec`.
    pub fn new(_layout: &mut Layout, _name: &str, spec: &PoolSpec, of: &LayerShape) -> Self {
        Self { spec: *spec, window: spec.window(of.input) }
    }
}

impl Layer for Pool {
    /// `[batch, channels, h, w]` to `[batch, channels, positions(h), positions(w)]`.
    fn forward(&self, _pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let Window { kernel, stride, pad } = self.window;
        let y = if self.spec.average {
            let options = AvgPoolOptions::new([kernel; 2]).with_stride([stride; 2]).with_padding([pad; 2]);
            avg_pool2d(x, options.with_count_include_pad(false))
        } else {
            max_pool(x, self.window)
        };
        if self.spec.activation == FloatActivation::Relu { relu(y) } else { y }
    }

    /// `MaxPool` or `AveragePool`, which counts no padding, then `Relu` if the block has one.
    fn onnx(&self, _trained: &TrainedState<'_>, graph: &mut Graph, x: &Value) -> Value {
        let kind = if self.spec.average { "AveragePool" } else { "MaxPool" };
        let y = graph.node(kind, &[x], windowed(self.window));
        graph.activation(y, self.spec.activation.into())
    }
}
