//! Float convolution, batch norm, relu: the block of a float cloud section.

use burn::tensor::Tensor;

use super::{Builder, Folded, Init, Norm, ParameterId, ParameterKind, Pass, Source};
use crate::export::onnx::{Graph, Value};
use crate::fused::{Activation, Window, conv2d};
use crate::spec::ConvSpec;

/// Convolution without bias (batch norm would remove it), batch norm, relu.
#[derive(Clone, Debug)]
pub struct Conv {
    pub(crate) weight: ParameterId,
    pub(crate) norm: Norm,
    pub(crate) window: Window,
}

impl Conv {
    /// A convolution of `inputs` channels; first weights for relu (He et al. 2015, section 2.2).
    pub fn new(builder: &mut Builder, name: &str, spec: &ConvSpec, inputs: usize) -> Self {
        let shape = [spec.filters, inputs, spec.kernel, spec.kernel];
        let taps = (inputs * spec.kernel * spec.kernel) as f32;
        let init = Init::Normal((2.0 / taps).sqrt());
        let weight = builder.parameter(format!("{name}.weight"), &shape, ParameterKind::Weight, init);
        let norm = Norm::new(builder, &format!("{name}.norm"), spec.filters, Activation::Relu);
        Self { weight, norm, window: spec.window() }
    }

    /// `[batch, inputs, h, w]` to `[batch, filters, positions(h), positions(w)]`.
    pub fn forward(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        self.norm.forward(pass, conv2d(x, pass.weight(self.weight), self.window))
    }

    /// `Conv` with the batch norm folded into weights and bias, `Relu`.
    pub fn export(&self, source: &Source<'_>, graph: &mut Graph, x: &Value) -> Value {
        let Folded { scale, shift } = self.norm.folded(source.layout, source.state);
        let mut weight = source.weight(self.weight, false);
        let taps = weight.len() / scale.len();
        for (filter, scale) in weight.chunks_exact_mut(taps).zip(&scale) {
            filter.iter_mut().for_each(|value| *value *= scale);
        }
        let weight = graph.constant(source.layout.shape(self.weight), &weight);
        let bias = graph.constant(&[shift.len()], &shift);
        let y = graph.conv(x, &weight, Some(&bias), self.window);
        graph.relu(&y)
    }
}
