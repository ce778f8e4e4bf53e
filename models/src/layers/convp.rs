//! DDNN's `convp` block: binary convolution, max pool, batch norm, sign.
//!
//! DDNN adds a float bias to the convolution. The bias is left out here: batch norm subtracts the mean, and with the mean the bias.

use burn::tensor::Tensor;

use super::{Init, Layout, Norm, ParameterId, ParameterKind, Pass};
use crate::fused::{conv2d, max_pool};
use crate::spec::{Activation, ConvpSpec, Window};

/// Binary convolution, max pool, batch norm, sign.
#[derive(Clone, Debug)]
pub struct Convp {
    pub(crate) weight: ParameterId,
    pub(crate) norm: Norm,
    pub(crate) conv: Window,
    pub(crate) pool: Window,
}

impl Convp {
    /// A block over `inputs` channels; latent weights begin normal with deviation `sqrt(1 / (k k c_in))`, as in DDNN's code.
    pub fn new(layout: &mut Layout, name: &str, spec: &ConvpSpec, inputs: usize) -> Self {
        let shape = [spec.filters, inputs, spec.kernel, spec.kernel];
        let init = Init::Normal((1.0 / (inputs * spec.kernel * spec.kernel) as f32).sqrt());
        let weight = layout.add_parameter(format!("{name}.weight"), &shape, ParameterKind::Binary, init);
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
        max_pool(conv2d(x, pass.weight(self.weight), self.conv), self.pool)
    }
}
