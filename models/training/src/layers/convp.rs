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
/// Value of a pixel that is 1 in the float network.
const PIXEL_UNIT: f32 = 255.0;

/// Binary convolution, max pool, batch norm, sign.
#[derive(Clone, Debug)]
pub struct Convp {
    weight: ParameterId,
    norm: Norm,
    conv: Window,
    pool: Window,
    /// True when no sum of pixels lies at a threshold; see [`Convp::settle`].
    is_settled: bool,
}

impl Convp {
    /// A block with normal initial latent weights of deviation `sqrt(1 / (k k c_in))`, as in DDNN's code.
    pub fn new(layout: &mut Layout, name: &str, spec: &ConvpSpec, of: &LayerShape) -> Self {
        let [inputs, ..] = of.input;
        let shape = [spec.filters, inputs, spec.kernel, spec.kernel];
        let init = Init::Normal((1.0 / (inputs * spec.kernel * spec.kernel) as f32).sqrt());
        let weight = layout.add_parameter(format!("{name}.weight"), &shape, ParameterKind::Binary, init);
        let norm = Norm::new(layout, &format!("{name}.norm"), spec.filters, Activation::Sign);
        Self { weight, norm, conv: spec.conv_window(), pool: spec.pool_window(), is_settled: false }
    }

    /// From now on each threshold outside training lies in the middle between two sums of pixels; every sum keeps its sign.
    ///
    /// An ONNX engine sums pixels as floats, in an order of its own. A sum right at a threshold could get either sign, and the blocks after
    /// this one would enlarge the difference beyond the tolerance of parity.
    pub fn settle(&mut self) {
        self.is_settled = true;
    }

    /// Batch norm with running statistics.
    fn folded(&self, trained: &TrainedState<'_>) -> Folded {
        let mut folded = self.norm.folded(trained);
        if self.is_settled {
            for (scale, shift) in folded.scale.iter().zip(&mut folded.shift) {
                *shift = settled(*scale, *shift);
            }
        }
        folded
    }

    fn before_norm(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        max_pool(conv2d(x, pass.weight(self.weight), self.conv), self.pool)
    }
}

impl Layer for Convp {
    /// `[batch, inputs, h, w]` to signs `[batch, filters, ..]`.
    fn forward(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let y = self.before_norm(pass, x);
        if pass.trains() || !self.is_settled {
            return self.norm.forward(pass, y);
        }
        self.folded(&pass.trained).apply(y)
    }

    /// Inputs of the sign, with the running statistics in the batch norm, for the comparison of bits.
    fn before_sign(&self, pass: &Pass<'_>, x: Tensor<4>) -> Option<Tensor<4>> {
        let folded = Folded { activation: Activation::None, ..self.folded(&pass.trained) };
        Some(folded.apply(self.before_norm(pass, x)))
    }

    /// `Conv` with signs as weights, `MaxPool`, one factor and one summand per channel, sign.
    fn onnx(&self, trained: &TrainedState<'_>, graph: &mut Graph, x: &Value) -> Value {
        let weight = graph.constant(trained.shape(self.weight), &trained.binary_weight(self.weight));
        let y = graph.node("Conv", &[x, &weight], windowed(self.conv));
        let y = graph.node("MaxPool", &[&y], windowed(self.pool));
        graph.norm(&y, &self.folded(trained), 4)
    }

    /// Weights as bits, and one integer threshold per filter in place of batch norm and sign; `index` counts blocks from 0.
    fn packed(
        &self,
        trained: &TrainedState<'_>,
        input: Map,
        index: usize,
    ) -> Result<PackedBlock, NoPackedForm> {
        let Folded { scale, shift, .. } = self.folded(trained);
        let shape = Shape { input, filters: scale.len(), conv: self.conv, pool: self.pool };
        let taps = shape.taps();
        // The first block sums pixels, which the float network divides by 255.
        let (max_input, unit) = if index == 0 { (255, PIXEL_UNIT) } else { (1, 1.0) };
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

/// The summand of a batch norm that gives every sum of pixels the same sign as `shift` does, and has its threshold in the middle between
/// two sums.
fn settled(scale: f32, shift: f32) -> f32 {
    let value = |sum: f32| sum / PIXEL_UNIT * scale + shift;
    let nearest = (-shift / scale * PIXEL_UNIT).round();
    // No sum can lie at a threshold beyond the largest sum.
    if nearest.is_nan() || nearest.abs() > MAX_SUM as f32 {
        return shift;
    }
    let half_a_step = (scale / PIXEL_UNIT / 2.0).copysign(if value(nearest) >= 0.0 { 1.0 } else { -1.0 });
    shift + (half_a_step - value(nearest))
}

#[cfg(test)]
mod tests {
    use headwater_calibration::random::Random;

    use super::*;

    #[test]
    fn a_settled_batch_norm_keeps_the_sign_of_every_sum_and_is_far_from_all_of_them() {
        let mut random = Random::new(1, &[]);
        for case in 0..200 {
            let scale = random.normal();
            // Every other threshold lies at a sum.
            let at = if case % 2 == 0 { (random.normal() * 500.0).round() } else { random.normal() * 500.0 };
            let shift = -at / PIXEL_UNIT * scale;
            let settled = settled(scale, shift);
            for sum in -3000..=3000 {
                let [before, after] = [shift, settled].map(|shift| sum as f32 / PIXEL_UNIT * scale + shift);
                assert_eq!(before >= 0.0, after >= 0.0, "{scale} {shift} {sum}");
                assert!(after.abs() > 0.48 * scale.abs() / PIXEL_UNIT, "{scale} {shift} {sum}: {after}");
            }
        }
        assert_eq!([settled(0.0, 0.5), settled(1e-30, -2.0)], [0.5, -2.0]);
    }
}
