//! Fully connected layer: DDNN's binary FC exit, or a float layer.

use burn::tensor::Tensor;
use headwater_kernels::Affine;

use super::{
    Init, Layer, Layout, NoPackedForm, NormOrBias, PackedHead, ParameterId, ParameterKind, Pass, TrainedState,
};
use crate::fused::{Folded, linear};
use crate::onnx::{Graph, Value, integer};
use headwater_spec::{Activation, FcSpec, FloatActivation, LayerShape};

/// Fully connected layer over the flattened input, then batch norm (binary and hidden layers) or a bias (float logits).
#[derive(Clone, Debug)]
pub struct Fc {
    weight: ParameterId,
    binary: bool,
    inputs: usize,
    outputs: usize,
    norm_or_bias: NormOrBias,
}

impl Fc {
    /// A layer over all values of its input.
    pub fn new(layout: &mut Layout, name: &str, spec: &FcSpec, of: &LayerShape) -> Self {
        let (inputs, outputs) = (of.input.iter().product(), of.output[0]);
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
}

impl Layer for Fc {
    /// `[batch, ..]` of `inputs` values to `[batch, outputs, 1, 1]`.
    fn forward(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let [batch, ..] = x.dims();
        let y = linear(x.reshape([batch, self.inputs]), pass.weight(self.weight));
        self.norm_or_bias.forward(pass, y.reshape([batch, self.outputs, 1, 1]))
    }

    /// `Flatten`, `MatMul`, then batch norm or the bias.
    fn onnx(&self, trained: &TrainedState<'_>, graph: &mut Graph, x: &Value) -> Value {
        let (inputs, outputs) = (self.inputs, self.outputs);
        let weight = if self.binary {
            trained.binary_weight(self.weight)
        } else {
            trained.parameter(self.weight).to_vec()
        };
        let by_input: Vec<f32> = (0..inputs)
            .flat_map(|input| (0..outputs).map(move |output| output * inputs + input))
            .map(|at| weight[at])
            .collect();
        let weight = graph.constant(&[inputs, outputs], &by_input);
        let x = graph.node("Flatten", &[x], vec![integer("axis", 1)]);
        match &self.norm_or_bias {
            NormOrBias::Norm(norm) => {
                let y = graph.node("MatMul", &[&x, &weight], vec![]);
                graph.norm(&y, &norm.folded(trained), 2)
            }
            NormOrBias::Bias(bias, activation) => {
                let bias = graph.constant(&[1, outputs], trained.parameter(*bias));
                let product = graph.node("MatMul", &[&x, &weight], vec![]);
                let y = graph.node("Add", &[&product, &bias], vec![]);
                graph.activation(y, (*activation).into())
            }
        }
    }

    /// Weights as bits, factors and summands as integers in one unit, in which the largest possible score is about 2^30.
    fn packed_head(&self, trained: &TrainedState<'_>) -> Result<PackedHead, NoPackedForm> {
        let (NormOrBias::Norm(norm), true) = (&self.norm_or_bias, self.binary) else {
            return Err(NoPackedForm::Head);
        };
        let Folded { scale, shift, activation } = norm.folded(trained);
        if activation != Activation::None {
            return Err(NoPackedForm::Head);
        }
        let pairs = || scale.iter().zip(&shift);
        let largest = pairs()
            .map(|(scale, shift)| f64::from(scale.abs()) * self.inputs as f64 + f64::from(shift.abs()))
            .fold(0.0, f64::max);
        // The unit is rounded to its stored form first, so that the integers are rounded for the stored unit.
        let unit = if largest > 0.0 { (largest / f64::from(1 << 30)) as f32 } else { 1.0 };
        let in_units = |value: f32| (f64::from(value) / f64::from(unit)).round() as i32;
        let classes =
            pairs().map(|(scale, shift)| Affine { factor: in_units(*scale), offset: in_units(*shift) });
        Ok(PackedHead { weights: trained.signs(self.weight), classes: classes.collect(), unit })
    }
}
