//! The blocks of a section, as written in a spec. Each kind of block has a file and a row in `kinds!`.

mod conv;
mod convp;
mod fc;
mod pool;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use toml::Spanned;

use super::Window;

pub use conv::ConvSpec;
pub use convp::ConvpSpec;
pub use fc::FcSpec;
pub use pool::PoolSpec;

/// Shape and cost of one kind of block.
pub trait BlockKind {
    /// Shape of the output over `input`, both `[channels, height, width]`; a vector is `[values, 1, 1]`.
    ///
    /// # Errors
    /// [`BlockMisfit`]: the block does not fit the input.
    fn output(&self, input: [usize; 3], classes: usize) -> Result<[usize; 3], BlockMisfit>;

    /// Trainable parameters, multiply-accumulates, and values of the largest map between the layers of the block.
    fn cost(&self, input: [usize; 3], output: [usize; 3]) -> BlockCost;

    /// Returns true when the outputs are signs, +1 or -1.
    fn ends_in_sign(&self) -> bool {
        false
    }

    /// Returns true when the block flattens its input and gives a vector, which has no rows and columns for the window of a later block.
    fn is_flat(&self) -> bool {
        false
    }

    /// Reason why a flat block does not give one number per class: it has an activation, or another number of outputs. `None` if it does.
    fn instead_of_classes(&self, _classes: usize) -> Option<String> {
        None
    }
}

/// A contradiction between a block and its input.
#[derive(Clone, Debug)]
pub struct BlockMisfit {
    /// Values that fit, in words.
    pub expected: String,
    /// Value that was found.
    pub found: String,
}

/// Cost of one block for one sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCost {
    /// Trainable parameters.
    pub parameters: u64,
    /// Multiply-accumulates.
    pub macs: u64,
    /// Values of the map between a convolution and its pooling; 0 for blocks without such a map.
    pub intermediate: u64,
}

/// Declares [`BlockSpec`] with a variant for each kind.
macro_rules! kinds {
    ($($(#[$doc:meta])* $Kind:ident($name:literal, $Spec:ident),)*) => {
        /// One block.
        #[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
        #[serde(tag = "kind", deny_unknown_fields)]
        pub enum BlockSpec {
            $($(#[$doc])* #[serde(rename = $name)] $Kind($Spec),)*
        }

        impl BlockSpec {
            /// Name of the kind, as in a spec.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$Kind(_) => $name,)*
                }
            }

            /// The block as its kind, which computes shape and cost.
            pub fn kind(&self) -> &dyn BlockKind {
                match self {
                    $(Self::$Kind(spec) => spec,)*
                }
            }
        }
    };
}

kinds! {
    /// Binary convolution, max pool, batch norm, sign.
    Convp("convp", ConvpSpec),
    /// Float convolution, batch norm or bias, relu or nothing.
    Conv("conv", ConvSpec),
    /// Max pool or average pool.
    Pool("pool", PoolSpec),
    /// Fully connected layer over the flattened input.
    Fc("fc", FcSpec),
}

/// The blocks from features to scores: one block, or several that run one after the other, as in a branch of `BranchyNet`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum HeadSpec {
    /// One block.
    One(BlockSpec),
    /// Blocks in order.
    Several(Vec<Spanned<BlockSpec>>),
}

/// Activation after a float convolution or a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FloatActivation {
    /// No activation.
    #[default]
    None,
    /// `max(z, 0)`.
    Relu,
}

/// Activation at the end of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Activation {
    /// No activation: scores or logits.
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

impl HeadSpec {
    /// The blocks, each with its span in the text; a single block has the span of the whole head.
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

impl BlockMisfit {
    fn new(expected: impl Into<String>, found: &impl ToString) -> Self {
        Self { expected: expected.into(), found: found.to_string() }
    }
}

/// Largest side of a window, and largest stride.
const MAX_SIDE: usize = 64;

/// Number of positions of a window over a map, `[rows, columns]`; an error if the window does not fit the map.
fn slide(window: Window, [_, h, w]: [usize; 3]) -> Result<[usize; 2], BlockMisfit> {
    let Window { kernel, stride, pad } = window;
    if !(1..=MAX_SIDE).contains(&kernel) {
        return Err(BlockMisfit::new(format!("a window of 1 to {MAX_SIDE}"), &kernel));
    }
    if !(1..=MAX_SIDE).contains(&stride) {
        return Err(BlockMisfit::new(format!("a stride of 1 to {MAX_SIDE}"), &stride));
    }
    if pad >= kernel {
        return Err(BlockMisfit::new(format!("a padding below the window's side {kernel}"), &pad));
    }
    let (padded_h, padded_w) = (h + 2 * pad, w + 2 * pad);
    if kernel > padded_h.min(padded_w) {
        let expected = format!("a window of at most {padded_h}x{padded_w} (map {h}x{w}, padding {pad})");
        return Err(BlockMisfit::new(expected, &format!("{kernel}x{kernel}")));
    }
    Ok([window.positions(h), window.positions(w)])
}

fn len(shape: [usize; 3]) -> u64 {
    shape.iter().product::<usize>() as u64
}

fn number<const N: usize>() -> usize {
    N
}
