//! Lowers an `fc` block to ONNX, and the binary head of a device to the packed form.

use headwater_kernels::Affine;

use super::no_packed_form::NoPackedForm;
use super::onnx::{Graph, Value, integer};
use crate::fused::Folded;
use crate::layers::{Fc, NormOrBias, TrainedState};
use crate::spec::Activation;

/// A packed head with its weights.
pub(super) struct PackedHead {
    pub(super) weights: Vec<bool>,
    pub(super) classes: Vec<Affine>,
    /// Value of one integer unit of a score.
    pub(super) unit: f32,
}

impl Fc {
    /// `Flatten`, `MatMul`, then batch norm or the bias.
    pub(super) fn onnx(&self, trained: &TrainedState<'_>, graph: &mut Graph, x: &Value) -> Value {
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

    /// Weights as bits, factors and summands as integers in one unit, chosen so that the largest score takes 30 bits.
    pub(super) fn packed(&self, trained: &TrainedState<'_>) -> Result<PackedHead, NoPackedForm> {
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
