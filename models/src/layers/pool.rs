//! Max pool, then relu or nothing.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;

use crate::fused::max_pool;
use crate::spec::{FloatActivation, PoolSpec};

/// Maximum of each window; padding is never the maximum. A pool has no trained numbers.
#[derive(Clone, Debug)]
pub struct Pool(pub(crate) PoolSpec);

impl Pool {
    /// `[batch, channels, h, w]` to `[batch, channels, positions(h), positions(w)]`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let y = max_pool(x, self.0.window());
        if self.0.activation == FloatActivation::Relu { relu(y) } else { y }
    }
}
