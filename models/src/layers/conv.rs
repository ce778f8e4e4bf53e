//! Float convolution, then batch norm or a bias, then relu or nothing.

use burn::tensor::Tensor;

use super::{Init, Layout, NormOrBias, ParameterId, ParameterKind, Pass};
use crate::fused::conv2d;
use crate::spec::{ConvSpec, Window};

/// Float convolution, then batch norm (which makes a bias superfluous) or a bias, as in `BranchyNet`.
#[derive(Clone, Debug)]
pub struct Conv {
    pub(crate) weight: ParameterId,
    pub(crate) window: Window,
    pub(crate) norm_or_bias: NormOrBias,
}

impl Conv {
    /// A convolution of `inputs` channels; first weights for relu (He et al. 2015, section 2.2).
    pub fn new(layout: &mut Layout, name: &str, spec: &ConvSpec, inputs: usize) -> Self {
        let shape = [spec.filters, inputs, spec.kernel, spec.kernel];
        let taps = (inputs * spec.kernel * spec.kernel) as f32;
        let init = Init::Normal((2.0 / taps).sqrt());
        let weight = layout.add_parameter(format!("{name}.weight"), &shape, ParameterKind::Weight, init);
        let norm_or_bias = if spec.norm {
            NormOrBias::norm(layout, name, spec.filters, spec.activation.into())
        } else {
            NormOrBias::bias(layout, name, spec.filters, spec.activation)
        };
        Self { weight, window: spec.window(), norm_or_bias }
    }

    /// `[batch, inputs, h, w]` to `[batch, filters, positions(h), positions(w)]`.
    pub fn forward(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        self.norm_or_bias.forward(pass, conv2d(x, pass.weight(self.weight), self.window))
    }
}
