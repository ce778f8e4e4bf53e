//! The layers: each layer computes in training and inference, and writes its trained parameters as ONNX and in the packed form. Each kind
//! of block has a file and a row in `layers!`.

mod conv;
mod convp;
mod fc;
mod norm;
mod packed;
mod parameters;
mod pass;
mod pool;

use burn::tensor::Tensor;
use headwater_kernels::Map;

pub use conv::Conv;
pub use convp::Convp;
pub use fc::Fc;
pub use norm::{Norm, NormOrBias};
pub use packed::{NoPackedForm, PackedBlock, PackedHead};
pub use parameters::{Init, Layout, Parameter, ParameterId, ParameterKind, State, StatisticsId};
pub use pass::Pass;
pub(crate) use pass::values;
pub use pool::Pool;

use crate::fused::sign_of;
use crate::onnx::{Graph, Value};
use headwater_spec::{BlockSpec, LayerShape};

/// The state of a network together with its layout: the source of each layer's parameters and running statistics.
#[derive(Clone, Copy, Debug)]
pub struct TrainedState<'a> {
    /// Place of each parameter and each running statistic in `state`.
    pub layout: &'a Layout,
    /// Values of the parameters and running statistics.
    pub state: &'a State,
}

impl<'a> TrainedState<'a> {
    /// The values of a parameter.
    pub fn parameter(&self, id: ParameterId) -> &'a [f32] {
        &self.state.parameters[self.layout.parameters[id.0].range.clone()]
    }

    /// Running means and variances of one batch norm.
    pub fn running(&self, id: StatisticsId) -> (&'a [f32], &'a [f32]) {
        let range = self.layout.statistics[id.0].clone();
        let half = range.len() / 2;
        self.state.statistics[range].split_at(half)
    }

    /// Shape of a parameter, outputs first.
    pub fn shape(&self, id: ParameterId) -> &'a [usize] {
        &self.layout.parameters[id.0].shape
    }

    /// Bits of a binary weight: true for a latent value of at least 0.
    pub fn signs(&self, id: ParameterId) -> Vec<bool> {
        self.parameter(id).iter().map(|value| *value >= 0.0).collect()
    }

    /// A binary weight as used by the network: the signs of its latent values, `+1` or `-1`.
    pub fn binary_weight(&self, id: ParameterId) -> Vec<f32> {
        self.parameter(id).iter().map(|value| sign_of(*value)).collect()
    }
}

/// Computation of one kind of block.
pub trait Layer {
    /// Outputs of a batch; maps are `[batch, channels, h, w]`, vectors `[batch, values, 1, 1]`.
    fn forward(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4>;

    /// Inputs of the sign that ends the block, normalised by the running statistics; `None` for a block with float outputs.
    fn before_sign(&self, _pass: &Pass<'_>, _x: Tensor<4>) -> Option<Tensor<4>> {
        None
    }

    /// Adds the block to an ONNX graph.
    fn onnx(&self, trained: &TrainedState<'_>, graph: &mut Graph, x: &Value) -> Value;

    /// The packed form of the block; `index` counts the blocks of the section from 0.
    ///
    /// # Errors
    /// [`NoPackedForm`]; the default refuses the block as not binary.
    fn packed(&self, _: &TrainedState<'_>, _: Map, index: usize) -> Result<PackedBlock, NoPackedForm> {
        Err(NoPackedForm::NotBinary(index))
    }

    /// The packed form of the block as the head of a device.
    ///
    /// # Errors
    /// [`NoPackedForm`]; the default refuses the block as no binary head.
    fn packed_head(&self, _: &TrainedState<'_>) -> Result<PackedHead, NoPackedForm> {
        Err(NoPackedForm::Head)
    }
}

/// Declares [`Block`] with a variant for each kind of block.
macro_rules! layers {
    ($($(#[$doc:meta])* $Kind:ident,)*) => {
        /// One block of a section.
        #[derive(Clone, Debug)]
        pub enum Block {
            $($(#[$doc])* $Kind($Kind),)*
        }

        impl Block {
            /// The block that `shape` describes; `name` is the prefix of its parameters' names.
            pub fn new(layout: &mut Layout, name: &str, shape: &LayerShape) -> Self {
                match &shape.block {
                    $(BlockSpec::$Kind(spec) => Self::$Kind($Kind::new(layout, name, spec, shape)),)*
                }
            }

            /// Computation of the block.
            pub fn layer(&self) -> &dyn Layer {
                match self {
                    $(Self::$Kind(layer) => layer,)*
                }
            }
        }
    };
}

layers! {
    /// Binary convolution, max pool, batch norm, sign.
    Convp,
    /// Float convolution, batch norm or bias, relu or nothing.
    Conv,
    /// Max pool or average pool.
    Pool,
    /// Fully connected.
    Fc,
}
