//! Fully connected layer: DDNN's binary FC exit, or a float layer.

use burn::tensor::Tensor;

use super::{
    Init, Layout, NormOrBias, NormOrBiasNumbers, ParameterId, ParameterKind, Pass, TrainedState, Weight,
};
use crate::fused::{linear, sign};
use crate::spec::{FcSpec, FloatActivation};

/// Fully connected layer over the flattened input, then batch norm (binary and hidden layers) or a bias (float logits).
#[derive(Clone, Debug)]
pub struct Fc {
    weight: ParameterId,
    binary: bool,
    inputs: usize,
    outputs: usize,
    norm_or_bias: NormOrBias,
}

/// Trained numbers of an `fc` block.
#[derive(Clone, Debug, PartialEq)]
pub struct FcNumbers {
    /// Weight, `[outputs, inputs]`.
    pub weight: Weight,
    /// Whether the weight is binary.
    pub binary: bool,
    /// Batch norm or bias, and the activation.
    pub norm_or_bias: NormOrBiasNumbers,
}

impl Fc {
    /// A layer from `inputs` values to `outputs`.
    pub fn new(layout: &mut Layout, name: &str, spec: &FcSpec, inputs: usize, outputs: usize) -> Self {
        let kind = if spec.binary { ParameterKind::Binary } else { ParameterKind::Weight };
        let init = Init::Normal((1.0 / inputs as f32).sqrt());
        let weight = layout.parameter(format!("{name}.weight"), &[outputs, inputs], kind, init);
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
        let weight = pass.weight::<2>(self.weight);
        let weight = if self.binary { sign(weight) } else { weight };
        let y = linear(x.reshape([batch, self.inputs]), weight).reshape([batch, self.outputs, 1, 1]);
        self.norm_or_bias.forward(pass, y)
    }

    /// The trained numbers.
    pub fn numbers(&self, trained: &TrainedState<'_>) -> FcNumbers {
        let weight =
            if self.binary { trained.binary_weight(self.weight) } else { trained.weight(self.weight) };
        FcNumbers { weight, binary: self.binary, norm_or_bias: self.norm_or_bias.numbers(trained) }
    }
}
