//! Float convolution, then batch norm or a bias, then relu or nothing.

use burn::tensor::Tensor;

use super::{Init, Layer, Layout, NormOrBias, ParameterId, ParameterKind, Pass, TrainedState};
use crate::fused::{Folded, conv2d};
use crate::onnx::{Graph, Value, integer, windowed};
use headwater_spec::{Activation, ConvSpec, LayerShape, Window};

/// Float convolution, then batch norm (which makes a bias superfluous) or a bias, as in `BranchyNet`.
#[derive(Clone, Debug)]
pub struct Conv {
    weight: ParameterId,
    window: Window,
    groups: usize,
    norm_or_bias: NormOrBias,
}

impl Conv {
    /// A convolution; first weights for relu (He et al. 2015, section 2.2).
    pub fn new(layout: &mut Layout, name: &str, spec: &ConvSpec, of: &LayerShape) -> Self {
        let inputs = of.input[0] / spec.groups;
        let shape = [spec.filters, inputs, spec.kernel, spec.kernel];
        let taps = (inputs * spec.kernel * spec.kernel) as f32;
        let init = Init::Normal((2.0 / taps).sqrt());
        let weight = layout.add_parameter(format!("{name}.weight"), &shape, ParameterKind::Weight, init);
        let norm_or_bias = if spec.norm {
            NormOrBias::norm(layout, name, spec.filters, spec.activation.into())
        } else {
            NormOrBias::bias(layout, name, spec.filters, spec.activation)
        };
        Self { weight, window: spec.window(), groups: spec.groups, norm_or_bias }
    }

    /// The convolution of each group of channels with its filters, side by side.
    fn convolve(&self, x: Tensor<4>, weight: Tensor<4>) -> Tensor<4> {
        if self.groups == 1 {
            return conv2d(x, weight, self.window);
        }
        let groups = x.chunk(self.groups, 1).into_iter().zip(weight.chunk(self.groups, 0));
        Tensor::cat(groups.map(|(x, weight)| conv2d(x, weight, self.window)).collect(), 1)
    }
}

impl Layer for Conv {
    /// `[batch, inputs, h, w]` to `[batch, filters, positions(h), positions(w)]`.
    fn forward(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        self.norm_or_bias.forward(pass, self.convolve(x, pass.weight(self.weight)))
    }

    /// `Conv` with the batch norm folded into weights and bias, then `Relu` if the block has one.
    fn onnx(&self, trained: &TrainedState<'_>, graph: &mut Graph, x: &Value) -> Value {
        let mut weight = trained.parameter(self.weight).to_vec();
        let (bias, activation) = match &self.norm_or_bias {
            NormOrBias::Norm(norm) => {
                let Folded { scale, shift, activation } = norm.folded(trained);
                let taps = weight.len() / scale.len();
                for (filter, scale) in weight.chunks_exact_mut(taps).zip(scale) {
                    filter.iter_mut().for_each(|value| *value *= scale);
                }
                (shift, activation)
            }
            NormOrBias::Bias(bias, activation) => {
                (trained.parameter(*bias).to_vec(), Activation::from(*activation))
            }
        };
        let weight = graph.constant(trained.shape(self.weight), &weight);
        let bias = graph.constant(&[bias.len()], &bias);
        let mut attributes = windowed(self.window);
        attributes.extend((self.groups > 1).then(|| integer("group", self.groups as i64)));
        let y = graph.node("Conv", &[x, &weight, &bias], attributes);
        graph.activation(y, activation)
    }
}
