//! Float convolution, then batch norm or a bias, then relu or nothing.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;

use super::{Builder, Folded, Init, Norm, ParameterId, ParameterKind, Pass, Source};
use crate::export::onnx::{Graph, Value};
use crate::fused::{Window, conv2d};
use crate::spec::{ConvSpec, FloatActivation};

/// Float convolution with what follows it.
#[derive(Clone, Debug)]
pub struct Conv {
    pub(crate) weight: ParameterId,
    pub(crate) window: Window,
    activation: FloatActivation,
    behind: Behind,
}

/// What follows the convolution.
#[derive(Clone, Debug)]
enum Behind {
    /// Batch norm (which would remove a bias) with the activation.
    Norm(Norm),
    /// A bias, `[1, filters, 1, 1]`, then the activation: the convolutions of `BranchyNet`.
    Bias(ParameterId),
}

impl Conv {
    /// A convolution of `inputs` channels; first weights for relu (He et al. 2015, section 2.2).
    pub fn new(builder: &mut Builder, name: &str, spec: &ConvSpec, inputs: usize) -> Self {
        let shape = [spec.filters, inputs, spec.kernel, spec.kernel];
        let taps = (inputs * spec.kernel * spec.kernel) as f32;
        let init = Init::Normal((2.0 / taps).sqrt());
        let weight = builder.parameter(format!("{name}.weight"), &shape, ParameterKind::Weight, init);
        let behind = if spec.norm {
            let activation = spec.activation.into();
            Behind::Norm(Norm::new(builder, &format!("{name}.norm"), spec.filters, activation))
        } else {
            let (shape, init) = ([1, spec.filters, 1, 1], Init::Constant(0.0));
            Behind::Bias(builder.parameter(format!("{name}.bias"), &shape, ParameterKind::Offset, init))
        };
        Self { weight, window: spec.window(), activation: spec.activation, behind }
    }

    /// `[batch, inputs, h, w]` to `[batch, filters, positions(h), positions(w)]`.
    pub fn forward(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let y = conv2d(x, pass.weight(self.weight), self.window);
        match &self.behind {
            Behind::Norm(norm) => norm.forward(pass, y),
            Behind::Bias(bias) => {
                let y = y + pass.weight::<4>(*bias);
                if self.activation == FloatActivation::Relu { relu(y) } else { y }
            }
        }
    }

    /// `Conv` with the batch norm folded into weights and bias, `Relu` where there is one.
    pub fn export(&self, source: &Source<'_>, graph: &mut Graph, x: &Value) -> Value {
        let mut weight = source.weight(self.weight, false);
        let bias = match &self.behind {
            Behind::Norm(norm) => {
                let Folded { scale, shift } = norm.folded(source.layout, source.state);
                let taps = weight.len() / scale.len();
                for (filter, scale) in weight.chunks_exact_mut(taps).zip(&scale) {
                    filter.iter_mut().for_each(|value| *value *= scale);
                }
                shift
            }
            Behind::Bias(bias) => source.state.parameter(source.layout, *bias).to_vec(),
        };
        let weight = graph.constant(source.layout.shape(self.weight), &weight);
        let bias = graph.constant(&[bias.len()], &bias);
        let y = graph.conv(x, &weight, Some(&bias), self.window);
        if self.activation == FloatActivation::Relu { graph.relu(&y) } else { y }
    }
}
