//! Max pool, then relu or nothing.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;

use crate::fused::max_pool;
use crate::spec::{FloatActivation, PoolSpec, Window};

/// Maximum of each window; padding is never the maximum.
#[derive(Clone, Debug)]
pub struct Pool(PoolNumbers);

/// Numbers of a `pool` block, which has no trained ones.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolNumbers {
    /// Window of the pool.
    pub window: Window,
    /// Activation after the pool.
    pub activation: FloatActivation,
}

impl Pool {
    /// The pool of a spec.
    pub fn new(spec: &PoolSpec) -> Self {
        Self(PoolNumbers { window: spec.window(), activation: spec.activation })
    }

    /// `[batch, channels, h, w]` to `[batch, channels, positions(h), positions(w)]`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let y = max_pool(x, self.0.window);
        if self.0.activation == FloatActivation::Relu { relu(y) } else { y }
    }

    /// Window and activation.
    pub fn numbers(&self) -> PoolNumbers {
        self.0.clone()
    }
}
