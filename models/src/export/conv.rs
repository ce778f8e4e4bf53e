//! Lowers a `conv` block to ONNX.

use super::onnx::{Graph, Value};
use crate::layers::{ConvNumbers, Folded, NormOrBiasNumbers};
use crate::spec::Activation;

impl ConvNumbers {
    /// `Conv` with the batch norm folded into weights and bias, then `Relu` if the block has one.
    pub(super) fn onnx(&self, graph: &mut Graph, x: &Value) -> Value {
        let mut weight = self.weight.values.clone();
        let (bias, activation) = match &self.norm_or_bias {
            NormOrBiasNumbers::Norm(Folded { scale, shift, activation }) => {
                let taps = weight.len() / scale.len();
                for (filter, scale) in weight.chunks_exact_mut(taps).zip(scale) {
                    filter.iter_mut().for_each(|value| *value *= scale);
                }
                (shift, *activation)
            }
            NormOrBiasNumbers::Bias(bias, activation) => (bias, Activation::from(*activation)),
        };
        let weight = graph.constant(&self.weight.shape, &weight);
        let bias = graph.constant(&[bias.len()], bias);
        let y = graph.conv(x, &weight, Some(&bias), self.window);
        graph.activation(y, activation)
    }
}
