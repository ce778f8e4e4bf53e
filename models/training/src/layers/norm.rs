//! The end of a layer: batch norm or a bias, then an activation.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;

use super::{Init, Layout, ParameterId, ParameterKind, Pass, StatisticsId, TrainedState};
use crate::fused::{Folded, batch_norm, sign};
use headwater_spec::{Activation, FloatActivation};

/// Batch norm over batch and map, then an activation.
#[derive(Clone, Debug)]
pub struct Norm {
    gamma: ParameterId,
    beta: ParameterId,
    statistics: StatisticsId,
    activation: Activation,
}

/// The end of a float layer: batch norm or a bias, then an activation.
#[derive(Clone, Debug)]
pub enum NormOrBias {
    /// Batch norm.
    Norm(Norm),
    /// A bias, `[1, channels, 1, 1]`.
    Bias(ParameterId, FloatActivation),
}

impl Norm {
    /// Batch norm of `channels`, then `activation`.
    pub fn new(layout: &mut Layout, name: &str, channels: usize, activation: Activation) -> Self {
        let mut offset = |part: &str, value| {
            let name = format!("{name}.{part}");
            layout.add_parameter(name, &[channels], ParameterKind::Offset, Init::Constant(value))
        };
        let (gamma, beta) = (offset("gamma", 1.0), offset("beta", 0.0));
        Self { gamma, beta, statistics: layout.add_statistics(channels), activation }
    }

    /// Normalises and activates `[batch, channels, h, w]`.
    pub fn forward(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        if pass.trains() && pass.is_frozen(self.gamma) {
            return self.frozen(pass, x);
        }
        if pass.trains() {
            let (y, statistics) =
                batch_norm(x, pass.weight(self.gamma), pass.weight(self.beta), self.activation);
            pass.record_statistics(self.statistics, statistics);
            return y;
        }
        self.folded(&pass.trained).apply(x)
    }

    /// Forward pass of a frozen layer in training: the running statistics normalise, and the gradient passes to the input alone.
    fn frozen(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let Folded { scale, shift, activation } = self.folded(&pass.trained);
        let shape = [1, scale.len(), 1, 1];
        let y = x * pass.tensor(scale, shape) + pass.tensor(shift, shape);
        match activation {
            Activation::None => y,
            Activation::Relu => relu(y),
            Activation::Sign => sign(y),
        }
    }

    /// Batch norm with running statistics, as one factor and one summand per channel.
    pub fn folded(&self, trained: &TrainedState<'_>) -> Folded {
        let (mean, variance) = trained.running(self.statistics);
        let (gamma, beta) = (trained.parameter(self.gamma), trained.parameter(self.beta));
        Folded::new(gamma, beta, mean, variance, self.activation)
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
        Self::Bias(layout.add_parameter(name, &shape, ParameterKind::Offset, Init::Constant(0.0)), activation)
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
}
