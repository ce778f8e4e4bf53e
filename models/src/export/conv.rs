//! Lowers a `conv` block to ONNX.

use super::onnx::{Graph, Value, windowed};
use crate::fused::Folded;
use crate::layers::{Conv, NormOrBias, TrainedState};
use crate::spec::Activation;

impl Conv {
    /// `Conv` with the batch norm folded into weights and bias, then `Relu` if the block has one.
    pub(super) fn onnx(&self, trained: &TrainedState<'_>, graph: &mut Graph, x: &Value) -> Value {
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
        let y = graph.node("Conv", &[x, &weight, &bias], windowed(self.window));
        graph.activation(y, activation)
    }
}
