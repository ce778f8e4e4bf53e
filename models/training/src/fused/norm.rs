//! Batch norm over the batch and the map, with the activation behind it.

use burn::tensor::Tensor;

use super::simd::{dot, squares, sum, wide};
use super::{flex, operand, record, sign_of, slice_of};
use headwater_spec::Activation;

/// Summand that keeps the variance away from zero, as in DDNN's code.
const EPSILON: f32 = 1e-5;

#[inline(always)]
fn activated(activation: Activation, z: f32) -> f32 {
    match activation {
        Activation::None => z,
        Activation::Relu => z.max(0.0),
        Activation::Sign => sign_of(z),
    }
}

/// True when the activation passes the gradient at the input `z`.
#[inline(always)]
fn passes(activation: Activation, z: f32) -> bool {
    match activation {
        Activation::None => true,
        Activation::Relu => z > 0.0,
        Activation::Sign => z.abs() <= 1.0,
    }
}

/// Mean and (biased) variance of each channel of one batch.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchStatistics {
    /// Number of values of each channel.
    pub count: u64,
    /// Mean of each channel.
    pub mean: Vec<f32>,
    /// Biased variance of each channel: the sum of squares divided by `count`.
    pub variance: Vec<f32>,
}

impl BatchStatistics {
    /// Statistics of the values of all batches together, exact up to rounding: counts, sums and squares around the common mean add up.
    /// `None` if `batches` is empty.
    pub fn of_all<'a>(batches: impl IntoIterator<Item = &'a Self>) -> Option<Self> {
        let batches: Vec<&Self> = batches.into_iter().collect();
        let first = batches.first()?;
        let count: u64 = batches.iter().map(|batch| batch.count).sum();
        let of_channel = |channel: usize| {
            let share = |batch: &Self| batch.count as f64 / count.max(1) as f64;
            let means = batches.iter().map(|batch| share(batch) * f64::from(batch.mean[channel]));
            let mean: f64 = means.sum();
            let squares = batches.iter().map(|batch| {
                let offset = f64::from(batch.mean[channel]) - mean;
                share(batch) * (f64::from(batch.variance[channel]) + offset * offset)
            });
            (mean as f32, squares.sum::<f64>() as f32)
        };
        let (mean, variance) = (0..first.mean.len()).map(of_channel).unzip();
        Some(Self { count, mean, variance })
    }
}

/// Batch norm as one factor and one summand per channel: `activation(x * scale + shift)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Folded {
    /// Factor of each channel.
    pub scale: Vec<f32>,
    /// Summand of each channel.
    pub shift: Vec<f32>,
    /// Activation after the batch norm.
    pub activation: Activation,
}

impl Folded {
    /// Folds batch norm with this mean and variance of each channel.
    pub fn new(gamma: &[f32], beta: &[f32], mean: &[f32], variance: &[f32], activation: Activation) -> Self {
        let channels = gamma.iter().zip(beta).zip(mean.iter().zip(variance));
        let folded = channels.map(|((gamma, beta), (mean, variance))| {
            let scale = gamma * inverse_deviation(*variance);
            (scale, beta - mean * scale)
        });
        let (scale, shift) = folded.unzip();
        Self { scale, shift, activation }
    }

    /// Batch norm and activation of `x`, `[batch, channels, h, w]`, without a gradient.
    pub fn apply(&self, x: Tensor<4>) -> Tensor<4> {
        let shape = x.dims();
        let (x, _) = operand(x);
        let mut output = vec![0.0; slice_of(&x).len()];
        apply(Planes::new(shape), slice_of(&x), self, &mut output);
        Tensor::from_primitive::<burn::backend::Flex>(flex(output, shape))
    }
}

/// Batch norm with the statistics of the batch itself: `activation(gamma (x - mean) / sqrt(variance + eps) + beta)`.
///
/// With `n = (x - mean) inverse` and `g` the gradient of the activation's input: `dbeta = sum g`, `dgamma = sum g n`,
/// `dx = gamma inverse (g - (dbeta + n dgamma) / count)` (Ioffe and Szegedy 2015, section 3).
///
/// # Shapes
/// - `x`: `[batch, channels, h, w]` with at least one value a channel; `gamma`, `beta`: `[channels]`; the output has the shape of `x`
pub fn batch_norm(
    x: Tensor<4>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    activation: Activation,
) -> (Tensor<4>, BatchStatistics) {
    let shape = x.dims();
    let planes = Planes::new(shape);
    let ((x, x_node), (gamma, gamma_node), (beta, beta_node)) = (operand(x), operand(gamma), operand(beta));
    let statistics = statistics(planes, slice_of(&x));
    let BatchStatistics { mean, variance, .. } = statistics.clone();
    let folded = Folded::new(slice_of(&gamma), slice_of(&beta), &mean, &variance, activation);
    let mut output = vec![0.0; slice_of(&x).len()];
    apply(planes, slice_of(&x), &folded, &mut output);
    let result = record([x_node, gamma_node, beta_node], flex(output, shape), move |output, _| {
        let x = slice_of(&x);
        let mut dx = vec![0.0; x.len()];
        let (mut dgamma, mut dbeta) = (vec![0.0; planes.channels], vec![0.0; planes.channels]);
        for index in 0..planes.channels {
            let (mean, inverse) = (mean[index], inverse_deviation(variance[index]));
            let (scale, shift) = (folded.scale[index], folded.shift[index]);
            let channel = Channel { index, mean, inverse, scale, shift, activation };
            [dgamma[index], dbeta[index]] = channel_gradient(planes, channel, x, output, &mut dx);
        }
        let channels = [planes.channels];
        [Some(flex(dx, shape)), Some(flex(dgamma, channels)), Some(flex(dbeta, channels))]
    });
    (result, statistics)
}

wide! {
    /// `activation(x scale + shift)` per channel.
    fn apply(planes: Planes, x: &[f32], folded: &Folded, output: &mut [f32]) {
        let activation = folded.activation;
        for channel in 0..planes.channels {
            let (scale, shift) = (folded.scale[channel], folded.shift[channel]);
            for at in planes.of(channel) {
                for (y, x) in output[at.clone()].iter_mut().zip(&x[at]) {
                    *y = activated(activation, x * scale + shift);
                }
            }
        }
    }
}

wide! {
    /// Statistics of each channel: first the mean, then the variance around it, since the one-pass formula loses digits for a large mean.
    fn statistics(planes: Planes, x: &[f32]) -> BatchStatistics {
        let mut mean = vec![0.0; planes.channels];
        let mut variance = vec![0.0; planes.channels];
        for channel in 0..planes.channels {
            mean[channel] = planes.of(channel).map(|at| sum(&x[at])).sum::<f32>() / planes.count();
            let centre = mean[channel];
            variance[channel] =
                planes.of(channel).map(|at| squares(&x[at], centre)).sum::<f32>() / planes.count();
        }
        BatchStatistics { count: planes.count() as u64, mean, variance }
    }
}

fn inverse_deviation(variance: f32) -> f32 {
    1.0 / (variance + EPSILON).sqrt()
}

/// Sizes of a `[batch, channels, h, w]` tensor, for the ranges of its planes.
#[derive(Clone, Copy, Debug)]
struct Planes {
    batch: usize,
    channels: usize,
    size: usize,
}

impl Planes {
    fn new([batch, channels, h, w]: [usize; 4]) -> Self {
        Self { batch, channels, size: h * w }
    }

    #[inline(always)]
    fn of(self, channel: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
        (0..self.batch).map(move |sample| {
            let start = (sample * self.channels + channel) * self.size;
            start..start + self.size
        })
    }

    fn count(self) -> f32 {
        (self.batch * self.size).max(1) as f32
    }
}

/// Batch norm of one channel.
#[derive(Clone, Copy)]
struct Channel {
    index: usize,
    mean: f32,
    /// One over the standard deviation.
    inverse: f32,
    scale: f32,
    shift: f32,
    activation: Activation,
}

wide! {
    /// Writes `dx` of one channel and returns `dgamma` and `dbeta`; `dy` is the gradient of the activation's output.
    fn channel_gradient(
        planes: Planes,
        channel: Channel,
        x: &[f32],
        dy: &[f32],
        dx: &mut [f32],
    ) -> [f32; 2] {
        let Channel { index, mean, inverse, scale, shift, activation } = channel;
        let (mut sum_g, mut sum_gx) = (0.0, 0.0);
        for at in planes.of(index) {
            let g = &mut dx[at.clone()];
            let x = &x[at.clone()];
            for ((g, x), dy) in g.iter_mut().zip(x).zip(&dy[at]) {
                *g = if passes(activation, x * scale + shift) { *dy } else { 0.0 };
            }
            let plane = sum(g);
            sum_g += plane;
            sum_gx += dot(g, x) - plane * mean;
        }
        let sum_gn = sum_gx * inverse;
        let (a, b) = (sum_g / planes.count(), sum_gn / planes.count() * inverse);
        for at in planes.of(index) {
            for (g, x) in dx[at.clone()].iter_mut().zip(&x[at]) {
                *g = scale * (*g - a - (x - mean) * b);
            }
        }
        [sum_gn, sum_g]
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Distribution, Gradients};

    use super::*;
    use crate::fused::testing::{assert_equal, gradient};

    /// Tolerance for means over 48 values of order one, added in another order.
    const SUM_ORDER: f32 = 2e-4;

    /// Batch norm and activation from burn's elementwise operations.
    fn reference(x: Tensor<4>, gamma: Tensor<1>, beta: Tensor<1>, activation: Activation) -> Tensor<4> {
        let mean = x.clone().mean_dim(0).mean_dim(2).mean_dim(3);
        let centred = x - mean;
        let variance = (centred.clone() * centred.clone()).mean_dim(0).mean_dim(2).mean_dim(3);
        let z = centred / (variance + EPSILON).sqrt() * gamma.reshape([1, -1, 1, 1])
            + beta.reshape([1, -1, 1, 1]);
        match activation {
            Activation::None => z,
            Activation::Relu => burn::tensor::activation::relu(z),
            Activation::Sign => super::super::sign(z),
        }
    }

    #[track_caller]
    fn check(activation: Activation) {
        let device = Device::flex().autodiff();
        let x = Tensor::<4>::random([4, 3, 3, 4], Distribution::Normal(0.3, 2.0), &device).require_grad();
        let gamma = Tensor::<1>::random([3], Distribution::Uniform(0.3, 0.8), &device).require_grad();
        let beta = Tensor::<1>::random([3], Distribution::Default, &device).require_grad();
        let (ours, _) = batch_norm(x.clone(), gamma.clone(), beta.clone(), activation);
        let theirs = reference(x.clone(), gamma.clone(), beta.clone(), activation);
        let inputs = |of: &Gradients| [gradient(&x, of), gradient(&gamma, of), gradient(&beta, of)].concat();
        assert_equal([ours, theirs], inputs, SUM_ORDER);
    }

    #[test]
    fn batch_norm_and_its_gradients_equal_the_formula_in_burn() {
        check(Activation::None);
        check(Activation::Relu);
        check(Activation::Sign);
    }
}
