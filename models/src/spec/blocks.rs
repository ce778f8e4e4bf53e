//! The blocks of a section, as written in a spec.

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use toml::Spanned;

use super::Window;

/// One block.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum BlockSpec {
    /// Binary convolution, max pool, batch norm, sign.
    Convp(ConvpSpec),
    /// Float convolution, batch norm or bias, relu or nothing.
    Conv(ConvSpec),
    /// Max pool.
    Pool(PoolSpec),
    /// Fully connected layer over the flattened input.
    Fc(FcSpec),
}

/// Blocks from features to scores: one block, or a list of blocks (the branches of `BranchyNet`).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum HeadSpec {
    /// One block.
    One(BlockSpec),
    /// Blocks in order.
    Several(Vec<Spanned<BlockSpec>>),
}

/// `kind = "convp"`; the defaults are DDNN's device block.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ConvpSpec {
    /// Output channels.
    pub filters: usize,
    /// Kernel size: pixels of a side.
    #[serde(default = "number::<3>")]
    pub kernel: usize,
    /// Stride of the convolution.
    #[serde(default = "number::<1>")]
    pub stride: usize,
    /// Zero padding of the convolution.
    #[serde(default = "number::<1>")]
    pub pad: usize,
    /// Pooling window size: pixels of a side.
    #[serde(default = "number::<3>")]
    pub pool: usize,
    /// Stride of the pooling; 2 on devices, 1 in DDNN's cloud.
    #[serde(default = "number::<2>")]
    pub pool_stride: usize,
    /// Padding of the pooling; padding is never the maximum.
    #[serde(default = "number::<1>")]
    pub pool_pad: usize,
}

/// `kind = "conv"`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ConvSpec {
    /// Output channels.
    pub filters: usize,
    /// Kernel size: pixels of a side.
    #[serde(default = "number::<3>")]
    pub kernel: usize,
    /// Stride.
    #[serde(default = "number::<1>")]
    pub stride: usize,
    /// Zero padding.
    #[serde(default = "number::<1>")]
    pub pad: usize,
    /// Batch norm after the convolution; a bias when false.
    #[serde(default = "default_true", skip_serializing_if = "is_true")]
    pub norm: bool,
    /// Activation after the batch norm or bias.
    #[serde(default = "relu", skip_serializing_if = "is_relu")]
    pub activation: FloatActivation,
}

/// `kind = "pool"`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PoolSpec {
    /// Pooling window size: pixels of a side.
    #[serde(default = "number::<2>")]
    pub size: usize,
    /// Stride.
    #[serde(default = "number::<2>")]
    pub stride: usize,
    /// Padding; padding is never the maximum.
    #[serde(default)]
    pub pad: usize,
    /// Activation after the pool.
    #[serde(default, skip_serializing_if = "is_none")]
    pub activation: FloatActivation,
}

/// `kind = "fc"`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FcSpec {
    /// Outputs; the number of classes when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<usize>,
    /// 1-bit weights and batch norm; float weights and a bias when false.
    #[serde(default)]
    pub binary: bool,
    /// Activation after the batch norm; `none` for scores and logits.
    #[serde(default)]
    pub activation: Activation,
}

/// Activation after a float convolution or a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FloatActivation {
    /// None.
    #[default]
    None,
    /// Relu.
    Relu,
}

/// Activation at the end of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Activation {
    /// None: scores or logits.
    #[default]
    None,
    /// `max(z, 0)`.
    Relu,
    /// `z >= 0 -> +1`, else `-1`; the gradient passes where `|z| <= 1`.
    Sign,
}

impl From<FloatActivation> for Activation {
    fn from(value: FloatActivation) -> Self {
        match value {
            FloatActivation::None => Self::None,
            FloatActivation::Relu => Self::Relu,
        }
    }
}

impl BlockSpec {
    /// Name of the kind, as in a spec.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Convp(_) => "convp",
            Self::Conv(_) => "conv",
            Self::Pool(_) => "pool",
            Self::Fc(_) => "fc",
        }
    }

    /// Whether the outputs are signs.
    pub fn ends_in_sign(&self) -> bool {
        match self {
            Self::Convp(_) => true,
            Self::Fc(spec) => spec.activation == Activation::Sign,
            Self::Conv(_) | Self::Pool(_) => false,
        }
    }
}

impl HeadSpec {
    /// The blocks, each with its span in the text; `head` has the span of the whole head.
    pub(super) fn blocks(head: &Spanned<Self>) -> Vec<Spanned<BlockSpec>> {
        match head.get_ref() {
            Self::One(block) => vec![Spanned::new(head.span(), block.clone())],
            Self::Several(blocks) => blocks.clone(),
        }
    }
}

/// Written by hand, since serde's untagged enums lose the spans in the text.
impl<'de> Deserialize<'de> for HeadSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrSeveral;

        impl<'de> Visitor<'de> for OneOrSeveral {
            type Value = HeadSpec;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a block or a list of blocks")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<HeadSpec, A::Error> {
                BlockSpec::deserialize(MapAccessDeserializer::new(map)).map(HeadSpec::One)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<HeadSpec, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(HeadSpec::Several)
            }
        }

        deserializer.deserialize_any(OneOrSeveral)
    }
}

impl ConvpSpec {
    /// Window of the convolution.
    pub fn conv_window(&self) -> Window {
        Window { kernel: self.kernel, stride: self.stride, pad: self.pad }
    }

    /// Window of the pooling.
    pub fn pool_window(&self) -> Window {
        Window { kernel: self.pool, stride: self.pool_stride, pad: self.pool_pad }
    }
}

impl ConvSpec {
    /// Window of the convolution.
    pub fn window(&self) -> Window {
        Window { kernel: self.kernel, stride: self.stride, pad: self.pad }
    }
}

impl PoolSpec {
    /// Window of the pooling.
    pub fn window(&self) -> Window {
        Window { kernel: self.size, stride: self.stride, pad: self.pad }
    }
}

impl FcSpec {
    /// Whether batch norm follows the layer; a bias follows otherwise.
    pub fn has_norm(&self) -> bool {
        self.binary || self.activation != Activation::None
    }
}

fn number<const N: usize>() -> usize {
    N
}

fn default_true() -> bool {
    true
}

fn relu() -> FloatActivation {
    FloatActivation::Relu
}

fn is_true(value: &bool) -> bool {
    *value
}

fn is_relu(value: &FloatActivation) -> bool {
    *value == FloatActivation::Relu
}

fn is_none(value: &FloatActivation) -> bool {
    *value == FloatActivation::None
}
