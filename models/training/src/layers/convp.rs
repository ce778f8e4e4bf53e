//! DDNN's `convp` block: binary convolution, max pool, batch norm, sign.
//!
//! DDNN adds a float bias to the convolution. It is left out here, since batch norm subtracts the mean, and the bias with it.

use burn::tensor::Tensor;
use headwater_kernels::{Convp as Shape, Map, Threshold};

use super::{
    Init, Layer, Layout, NoPackedForm, Norm, PackedBlock, ParameterId, ParameterKind, Pass, TrainedState,
};
use crate::fused::{Folded, conv2d, max_pool};
use crate::onnx::{Graph, Value, windowed};
use headwater_spec::{Activation, ConvpSpec, LayerShape, Window};

/// Limit on the magnitude of the sums over which thresholds are searched.
const MAX_SUM: usize = 1 << 24;

/// Binary convolution, max pool, batch norm, sign.
#[derive(Clone, Debug)]
pub struct Convp {
    weight: ParameterId,
    norm: Norm,
    conv: Window,
    pool: Window,
}

impl Convp {
    /// A block with normal initial latent weights of deviation `sqrt(1 / (k k c_in))`, as in DDNN's code.
    pub fn new(layout: &mut Layout, name: &str, spec: &ConvpSpec, of: &LayerShape) -> Self {
        let [inputs, ..] = of.input;
        let shape = [spec.filters, inputs, spec.kernel, spec.kernel];
        let init = Init::Normal((1.0 / (inputs * spec.kernel * spec.kernel) as f32).sqrt());
        let weight = layout.add_parameter(format!("{name}.weight"), &shape, ParameterKind::Binary, init);
        let norm = Norm::new(layout, &format!("{name}.norm"), spec.filters, Activation::Sign);
        Self { weight, norm, conv: spec.conv_window(), pool: spec.pool_window() }
    }

    fn before_norm(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        max_pool(conv2d(x, pass.weight(self.weight), self.conv), self.pool)
    }
}

impl Layer for Convp {
    /// `[batch, inputs, h, w]` to signs `[batch, filters, ..]`.
    fn forward(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        self.norm.forward(pass, self.before_norm(pass, x))
    }

    /// Inputs of the sign, with the running statistics in the batch norm, for the comparison of bits.
    fn before_sign(&self, pass: &Pass<'_>, x: Tensor<4>) -> Option<Tensor<4>> {
        Some(self.norm.before_activation(pass, self.before_norm(pass, x)))
    }

    /// `Conv` with signs as weights, `MaxPool`, one factor and one summand per channel, sign.
    fn onnx(&self, trained: &TrainedState<'_>, graph: &mut Graph, x: &Value) -> Value {
        let weight = graph.constant(trained.shape(self.weight), &trained.binary_weight(self.weight));
        let y = graph.node("Conv", &[x, &weight], windowed(self.conv));
        let y = graph.node("MaxPool", &[&y], windowed(self.pool));
        graph.norm(&y, &self.norm.folded(trained), 4)
    }

    /// Weights as bits, and one integer threshold per filter in place of batch norm and sign; `index` counts blocks from 0.
    fn packed(
        &self,
        trained: &TrainedState<'_>,
        input: Map,
        index: usize,
    ) -> Result<PackedBlock, NoPackedForm> {
        let Folded { scale, shift, .. } = self.norm.folded(trained);
        let shape = Shape { input, filters: scale.len(), conv: self.conv, pool: self.pool };
        let taps = shape.taps();
        // The first block sums pixels, which the float network divides by 255.
        let (max_input, unit) = if index == 0 { (255, 255.0) } else { (1, 1.0) };
        if taps > MAX_SUM / max_input {
            return Err(NoPackedForm::TooManyTaps { block: index, taps });
        }
        let max_sum = (taps * max_input) as i32;
        let thresholds = scale.iter().zip(&shift).map(|(scale, shift)| {
            Threshold::fitted(max_sum, |sum| sum as f32 / unit * scale + shift >= 0.0)
                .ok_or(NoPackedForm::Threshold(index))
        });
        Ok(PackedBlock {
            shape,
            weights: trained.signs(self.weight),
            thresholds: thresholds.collect::<Result<_, _>>()?,
        })
    }
}
