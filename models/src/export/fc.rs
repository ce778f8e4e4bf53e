//! Lowers an `fc` block to ONNX, and the binary head of a device to the packed form.

use headwater_kernels::Affine;

use super::onnx::{Graph, Value};
use super::packed::NoPackedForm;
use crate::layers::{FcNumbers, Folded, NormOrBiasNumbers};
use crate::spec::Activation;

/// A packed head with its weights.
pub(super) struct PackedHead {
    pub(super) weights: Vec<bool>,
    pub(super) classes: Vec<Affine>,
    /// Value of one integer unit of a score.
    pub(super) unit: f32,
}

impl FcNumbers {
    /// `Flatten`, `MatMul`, then batch norm or the bias.
    pub(super) fn onnx(&self, graph: &mut Graph, x: &Value) -> Value {
        let [outputs, inputs] = self.sizes();
        let by_input: Vec<f32> = (0..inputs)
            .flat_map(|input| (0..outputs).map(move |output| output * inputs + input))
            .map(|at| self.weight.values[at])
            .collect();
        let weight = graph.constant(&[inputs, outputs], &by_input);
        let x = graph.flatten(x);
        match &self.norm_or_bias {
            NormOrBiasNumbers::Norm(norm) => {
                let y = graph.linear(&x, &weight, None);
                graph.norm(&y, norm, 2)
            }
            NormOrBiasNumbers::Bias(bias, activation) => {
                let bias = graph.constant(&[1, outputs], bias);
                let y = graph.linear(&x, &weight, Some(&bias));
                graph.activation(y, (*activation).into())
            }
        }
    }

    /// Weights as bits, factors and summands as integers in one unit, chosen so that the largest score takes 30 bits.
    pub(super) fn packed(&self) -> Result<PackedHead, NoPackedForm> {
        let NormOrBiasNumbers::Norm(Folded { scale, shift, activation: Activation::None }) =
            &self.norm_or_bias
        else {
            return Err(NoPackedForm::Head);
        };
        if !self.binary {
            return Err(NoPackedForm::Head);
        }
        let [_, inputs] = self.sizes();
        let pairs = || scale.iter().zip(shift);
        let largest = pairs()
            .map(|(scale, shift)| f64::from(scale.abs()) * inputs as f64 + f64::from(shift.abs()))
            .fold(0.0, f64::max);
        // The unit is rounded to its stored form first, so that the integers are rounded for the stored unit.
        let unit = if largest > 0.0 { (largest / f64::from(1 << 30)) as f32 } else { 1.0 };
        let in_units = |value: f32| (f64::from(value) / f64::from(unit)).round() as i32;
        let classes =
            pairs().map(|(scale, shift)| Affine { factor: in_units(*scale), offset: in_units(*shift) });
        Ok(PackedHead { weights: self.weight.signs(), classes: classes.collect(), unit })
    }

    fn sizes(&self) -> [usize; 2] {
        [self.weight.shape[0], self.weight.shape[1]]
    }
}
