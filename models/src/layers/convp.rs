//! DDNN's `convp` block: binary convolution, max pool, batch norm, sign.
//!
//! DDNN adds a float bias to the convolution. The bias is left out here: batch norm subtracts the mean, and with the mean the bias.

use burn::tensor::Tensor;

use super::{Folded, Init, Layout, Norm, ParameterId, ParameterKind, Pass, TrainedState, Weight};
use crate::fused::{conv2d, max_pool, sign};
use crate::spec::{Activation, ConvpSpec, Window};

/// Binary convolution, max pool, batch norm, sign.
#[derive(Clone, Debug)]
pub struct Convp {
    weight: ParameterId,
    norm: Norm,
    conv: Window,
    pool: Window,
}

/// Trained numbers of a `convp` block.
#[derive(Clone, Debug, PartialEq)]
pub struct ConvpNumbers {
    /// Binary weight, `[filters, channels, kernel, kernel]`.
    pub weight: Weight,
    /// Window of the convolution.
    pub conv: Window,
    /// Window of the pool.
    pub pool: Window,
    /// Batch norm and sign.
    pub norm: Folded,
}

impl Convp {
    /// A block over `inputs` channels; latent weights begin normal with deviation `sqrt(1 / (k k c_in))`, as in DDNN's code.
    pub fn new(layout: &mut Layout, name: &str, spec: &ConvpSpec, inputs: usize) -> Self {
        let shape = [spec.filters, inputs, spec.kernel, spec.kernel];
        let init = Init::Normal((1.0 / (inputs * spec.kernel * spec.kernel) as f32).sqrt());
        let weight = layout.parameter(format!("{name}.weight"), &shape, ParameterKind::Binary, init);
        let norm = Norm::new(layout, &format!("{name}.norm"), spec.filters, Activation::Sign);
        Self { weight, norm, conv: spec.conv_window(), pool: spec.pool_window() }
    }

    /// `[batch, inputs, h, w]` to signs `[batch, filters, ..]`.
    pub fn forward(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        self.norm.forward(pass, self.before_norm(pass, x))
    }

    /// Inputs of the sign, by the running statistics, for the comparison of bits.
    pub fn before_sign(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        self.norm.before_activation(pass, self.before_norm(pass, x))
    }

    fn before_norm(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        max_pool(conv2d(x, sign(pass.weight::<4>(self.weight)), self.conv), self.pool)
    }

    /// The trained numbers.
    pub fn numbers(&self, trained: &TrainedState<'_>) -> ConvpNumbers {
        let weight = trained.binary_weight(self.weight);
        ConvpNumbers { weight, conv: self.conv, pool: self.pool, norm: self.norm.folded(trained) }
    }
}
