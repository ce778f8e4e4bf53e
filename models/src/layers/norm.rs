//! Batch norm, then an activation.

use burn::tensor::Tensor;

use super::{Builder, Init, Layout, ParameterId, ParameterKind, Pass, Source, State, StatisticsId};
use crate::export::onnx::{Graph, Value};
use crate::fused::{Activation, EPSILON, batch_norm, fold, scale_shift};

/// Batch norm over batch and map, with an activation behind it.
#[derive(Clone, Debug)]
pub struct Norm {
    gamma: ParameterId,
    beta: ParameterId,
    statistics: StatisticsId,
    activation: Activation,
}

/// Batch norm with running statistics as `x * scale + shift` per channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Folded {
    /// Factor of each channel.
    pub scale: Vec<f32>,
    /// Added to each channel.
    pub shift: Vec<f32>,
}

impl Norm {
    /// Batch norm of `channels`, followed by `activation`.
    pub fn new(builder: &mut Builder, name: &str, channels: usize, activation: Activation) -> Self {
        let mut offset = |part: &str, value| {
            builder.parameter(
                format!("{name}.{part}"),
                &[channels],
                ParameterKind::Offset,
                Init::Constant(value),
            )
        };
        let (gamma, beta) = (offset("gamma", 1.0), offset("beta", 0.0));
        Self { gamma, beta, statistics: builder.statistics(channels), activation }
    }

    /// Normalises and activates `[batch, channels, h, w]`.
    pub fn forward(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        if pass.trains() {
            let (y, statistics) =
                batch_norm(x, pass.weight(self.gamma), pass.weight(self.beta), self.activation);
            pass.note(self.statistics, statistics);
            return y;
        }
        let Folded { scale, shift } = pass.folded(self);
        scale_shift(x, &scale, &shift, self.activation)
    }

    /// Whether nothing follows.
    pub fn gives_scores(&self) -> bool {
        self.activation == Activation::None
    }

    /// What the activation gets, by the running statistics.
    pub fn before_activation(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let Folded { scale, shift } = pass.folded(self);
        scale_shift(x, &scale, &shift, Activation::None)
    }

    /// The layer as one factor and one summand per channel.
    pub fn folded(&self, layout: &Layout, state: &State) -> Folded {
        let (mean, variance) = state.running(layout, self.statistics);
        let (gamma, beta) = (state.parameter(layout, self.gamma), state.parameter(layout, self.beta));
        let channels = gamma.iter().zip(beta).zip(mean.iter().zip(variance));
        let (scale, shift) =
            channels.map(|((g, b), (m, v))| fold(*g, *b, *m, 1.0 / (v + EPSILON).sqrt())).unzip();
        Folded { scale, shift }
    }

    /// One factor and one summand a channel, then the activation, on an input of `rank` dimensions.
    pub fn export(&self, source: &Source<'_>, graph: &mut Graph, x: &Value, rank: usize) -> Value {
        let Folded { scale, shift } = self.folded(source.layout, source.state);
        let y = graph.scale_shift(x, &scale, &shift, rank);
        match self.activation {
            Activation::None => y,
            Activation::Relu => graph.relu(&y),
            Activation::Sign => graph.sign(&y),
        }
    }
}
