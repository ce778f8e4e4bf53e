//! The end of a layer: batch norm or a bias, then an activation.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;

use super::{Init, Layout, ParameterId, ParameterKind, Pass, StatisticsId, TrainedState};
use crate::fused::{EPSILON, batch_norm, fold, scale_shift};
use crate::spec::{Activation, FloatActivation};

/// Batch norm over batch and map, then an activation.
#[derive(Clone, Debug)]
pub struct Norm {
    gamma: ParameterId,
    beta: ParameterId,
    statistics: StatisticsId,
    activation: Activation,
}

/// Batch norm with running statistics: `activation(x * scale + shift)` per channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Folded {
    /// Factor of each channel.
    pub scale: Vec<f32>,
    /// Summand of each channel.
    pub shift: Vec<f32>,
    /// Activation after the batch norm.
    pub activation: Activation,
}

/// The end of a float layer: batch norm or a bias, then an activation.
#[derive(Clone, Debug)]
pub enum NormOrBias {
    /// Batch norm.
    Norm(Norm),
    /// A bias, `[1, channels, 1, 1]`.
    Bias(ParameterId, FloatActivation),
}

/// Trained numbers of a [`NormOrBias`].
#[derive(Clone, Debug, PartialEq)]
pub enum NormOrBiasNumbers {
    /// Batch norm.
    Norm(Folded),
    /// A bias, `[channels]`.
    Bias(Vec<f32>, FloatActivation),
}

impl Norm {
    /// Batch norm of `channels`, then `activation`.
    pub fn new(layout: &mut Layout, name: &str, channels: usize, activation: Activation) -> Self {
        let mut offset = |part: &str, value| {
            let name = format!("{name}.{part}");
            layout.parameter(name, &[channels], ParameterKind::Offset, Init::Constant(value))
        };
        let (gamma, beta) = (offset("gamma", 1.0), offset("beta", 0.0));
        Self { gamma, beta, statistics: layout.statistics(channels), activation }
    }

    /// Normalises and activates `[batch, channels, h, w]`.
    pub fn forward(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        if pass.trains() {
            let (y, statistics) =
                batch_norm(x, pass.weight(self.gamma), pass.weight(self.beta), self.activation);
            pass.record_statistics(self.statistics, statistics);
            return y;
        }
        let Folded { scale, shift, activation } = self.folded(&pass.trained());
        scale_shift(x, &scale, &shift, activation)
    }

    /// Inputs of the activation, by the running statistics.
    pub fn before_activation(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let Folded { scale, shift, .. } = self.folded(&pass.trained());
        scale_shift(x, &scale, &shift, Activation::None)
    }

    /// The layer as one factor and one summand per channel.
    pub fn folded(&self, trained: &TrainedState<'_>) -> Folded {
        let TrainedState { layout, state } = trained;
        let (mean, variance) = state.running(layout, self.statistics);
        let (gamma, beta) = (state.parameter(layout, self.gamma), state.parameter(layout, self.beta));
        let channels = gamma.iter().zip(beta).zip(mean.iter().zip(variance));
        let (scale, shift) =
            channels.map(|((g, b), (m, v))| fold(*g, *b, *m, 1.0 / (v + EPSILON).sqrt())).unzip();
        Folded { scale, shift, activation: self.activation }
    }
}

impl NormOrBias {
    pub(super) fn norm(layout: &mut Layout, name: &str, channels: usize, activation: Activation) -> Self {
        Self::Norm(Norm::new(layout, &format!("{name}.norm"), channels, activation))
    }

    pub(super) fn bias(
        layout: &mut Layout,
        name: &str,
        channels: usize,
        activation: FloatActivation,
    ) -> Self {
        let (name, shape) = (format!("{name}.bias"), [1, channels, 1, 1]);
        Self::Bias(layout.parameter(name, &shape, ParameterKind::Offset, Init::Constant(0.0)), activation)
    }

    pub(super) fn forward(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        match self {
            Self::Norm(norm) => norm.forward(pass, x),
            Self::Bias(bias, activation) => {
                let y = x + pass.weight::<4>(*bias);
                if *activation == FloatActivation::Relu { relu(y) } else { y }
            }
        }
    }

    pub(super) fn numbers(&self, trained: &TrainedState<'_>) -> NormOrBiasNumbers {
        match self {
            Self::Norm(norm) => NormOrBiasNumbers::Norm(norm.folded(trained)),
            Self::Bias(bias, activation) => {
                NormOrBiasNumbers::Bias(trained.state.parameter(trained.layout, *bias).to_vec(), *activation)
            }
        }
    }
}
