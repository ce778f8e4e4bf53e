//! DDNN's `convp` block: binary convolution, max pool, batch norm, sign.
//!
//! DDNN adds a float bias to the convolution. Batch norm subtracts the mean right behind it, so that bias never had an effect;
//! it is left out.

use burn::tensor::Tensor;

use super::{Builder, Init, Norm, ParameterId, ParameterKind, Pass, Source};
use crate::export::onnx::{Graph, Value};
use crate::fused::{Activation, Window, conv2d, max_pool, sign};
use crate::spec::ConvpSpec;

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
    pub fn new(builder: &mut Builder, name: &str, spec: &ConvpSpec, inputs: usize) -> Self {
        let shape = [spec.filters, inputs, spec.kernel, spec.kernel];
        let init = Init::Normal((1.0 / (inputs * spec.kernel * spec.kernel) as f32).sqrt());
        let weight = builder.parameter(format!("{name}.weight"), &shape, ParameterKind::Binary, init);
        let norm = Norm::new(builder, &format!("{name}.norm"), spec.filters, Activation::Sign);
        Self { weight, norm, conv: spec.conv_window(), pool: spec.pool_window() }
    }

    /// `[batch, inputs, h, w]` to signs `[batch, filters, ..]`.
    pub fn forward(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        self.norm.forward(pass, self.before_norm(pass, x))
    }

    /// The numbers whose signs are the features, by the running statistics; the comparison of bits needs them.
    pub fn before_sign(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        self.norm.before_activation(pass, self.before_norm(pass, x))
    }

    fn before_norm(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        max_pool(conv2d(x, sign(pass.weight::<4>(self.weight)), self.conv), self.pool)
    }

    /// Signs of the weights, `[filters, channels, kernel, kernel]`.
    pub fn weight_signs(&self, source: &Source<'_>) -> Vec<bool> {
        source.signs(self.weight)
    }

    /// `Conv` with signs as weights, `MaxPool`, one factor and one summand a channel, sign.
    pub fn export(&self, source: &Source<'_>, graph: &mut Graph, x: &Value) -> Value {
        let weight = graph.constant(source.layout.shape(self.weight), &source.weight(self.weight, true));
        let y = graph.conv(x, &weight, None, self.conv);
        let y = graph.max_pool(&y, self.pool);
        self.norm.export(source, graph, &y, 4)
    }
}
