//! Fully connected layer: DDNN's binary FC exit, or a float layer.

use burn::tensor::Tensor;

use super::{Init, Layout, NormOrBias, ParameterId, ParameterKind, Pass};
use crate::fused::linear;
use crate::spec::{FcSpec, FloatActivation};

/// Fully connected layer over the flattened input, then batch norm (binary and hidden layers) or a bias (float logits).
#[derive(Clone, Debug)]
pub struct Fc {
    pub(crate) weight: ParameterId,
    pub(crate) binary: bool,
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    pub(crate) norm_or_bias: NormOrBias,
}

impl Fc {
    /// A layer from `inputs` values to `outputs`.
    pub fn new(layout: &mut Layout, name: &str, spec: &FcSpec, inputs: usize, outputs: usize) -> Self {
        let kind = if spec.binary { ParameterKind::Binary } else { ParameterKind::Weight };
        let init = Init::Normal((1.0 / inputs as f32).sqrt());
        let weight = layout.add_parameter(format!("{name}.weight"), &[outputs, inputs], kind, init);
        let norm_or_bias = if spec.has_norm() {
            NormOrBias::norm(layout, name, outputs, spec.activation)
        } else {
            NormOrBias::bias(layout, name, outputs, FloatActivation::None)
        };
        Self { weight, binary: spec.binary, inputs, outputs, norm_or_bias }
    }

    /// `[batch, ..]` of `inputs` values to `[batch, outputs, 1, 1]`.
    pub fn forward(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let [batch, ..] = x.dims();
        let y = linear(x.reshape([batch, self.inputs]), pass.weight(self.weight));
        self.norm_or_bias.forward(pass, y.reshape([batch, self.outputs, 1, 1]))
    }
}
