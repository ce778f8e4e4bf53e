//! Fully connected layer: DDNN's binary FC exit, or a float layer.

use burn::tensor::Tensor;

use super::{Builder, Folded, Init, Norm, ParameterId, ParameterKind, Pass, Source};
use crate::export::onnx::{Graph, Value};
use crate::fused::{linear, sign};
use crate::spec::FcSpec;

/// Fully connected layer over the flattened input, with batch norm or a bias behind it.
#[derive(Clone, Debug)]
pub struct Fc {
    pub(crate) weight: ParameterId,
    pub(crate) binary: bool,
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    pub(crate) behind: Behind,
}

/// What follows the product.
#[derive(Clone, Debug)]
pub(crate) enum Behind {
    /// Batch norm, then the activation: binary layers and hidden ones.
    Norm(Norm),
    /// A bias: float logits.
    Bias(ParameterId),
}

impl Fc {
    /// A layer from `inputs` values to `outputs`.
    pub fn new(builder: &mut Builder, name: &str, spec: &FcSpec, inputs: usize, outputs: usize) -> Self {
        let kind = if spec.binary { ParameterKind::Binary } else { ParameterKind::Weight };
        let init = Init::Normal((1.0 / inputs as f32).sqrt());
        let weight = builder.parameter(format!("{name}.weight"), &[outputs, inputs], kind, init);
        let behind = if spec.has_norm() {
            Behind::Norm(Norm::new(builder, &format!("{name}.norm"), outputs, spec.activation.into()))
        } else {
            let shape = [1, outputs, 1, 1];
            let init = Init::Constant(0.0);
            Behind::Bias(builder.parameter(format!("{name}.bias"), &shape, ParameterKind::Offset, init))
        };
        Self { weight, binary: spec.binary, inputs, outputs, behind }
    }

    /// `[batch, ..]` of `inputs` values to `[batch, outputs, 1, 1]`.
    pub fn forward(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let [batch, ..] = x.dims();
        let weight = pass.weight::<2>(self.weight);
        let weight = if self.binary { sign(weight) } else { weight };
        let y = linear(x.reshape([batch, self.inputs]), weight).reshape([batch, self.outputs, 1, 1]);
        match &self.behind {
            Behind::Norm(norm) => norm.forward(pass, y),
            Behind::Bias(bias) => y + pass.weight::<4>(*bias),
        }
    }

    /// Signs of the weights, `[outputs, inputs]`, and the batch norm behind them; `None` unless the layer is binary and gives
    /// scores.
    pub fn binary_scores(&self, source: &Source<'_>) -> Option<(Vec<bool>, Folded)> {
        match &self.behind {
            Behind::Norm(norm) if self.binary && norm.gives_scores() => {
                Some((source.signs(self.weight), norm.folded(source.layout, source.state)))
            }
            _ => None,
        }
    }

    /// `Flatten`, `MatMul`, then batch norm or the bias.
    pub fn export(&self, source: &Source<'_>, graph: &mut Graph, x: &Value) -> Value {
        let by_output = source.weight(self.weight, self.binary);
        let by_input: Vec<f32> = (0..self.inputs)
            .flat_map(|input| (0..self.outputs).map(move |output| output * self.inputs + input))
            .map(|at| by_output[at])
            .collect();
        let weight = graph.constant(&[self.inputs, self.outputs], &by_input);
        let x = graph.flatten(x);
        match &self.behind {
            Behind::Norm(norm) => {
                let y = graph.linear(&x, &weight, None);
                norm.export(source, graph, &y, 2)
            }
            Behind::Bias(bias) => {
                let bias = graph.constant(&[1, self.outputs], source.state.parameter(source.layout, *bias));
                graph.linear(&x, &weight, Some(&bias))
            }
        }
    }
}
