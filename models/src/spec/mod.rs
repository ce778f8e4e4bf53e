//! The network spec: a TOML file that says which network is trained and where it is cut.

mod cost;
mod error;
mod shapes;

use std::ops::Range;
use std::path::{Path, PathBuf};

use headwater_inference::manifest::{Aggregation, Configuration, ScoreEncoding};
use serde::{Deserialize, Serialize};
use toml::Spanned;

pub use cost::{Cost, LinkBytes, SectionCost};
pub use error::SpecError;
pub use shapes::{LayerShape, Shapes};

use crate::fused::{Activation, Window};

/// A parsed spec, with the text it came from for messages that name a line.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Where the text came from.
    pub file: PathBuf,
    /// The text itself.
    pub text: String,
    /// What it says.
    pub network: NetworkSpec,
    /// The shapes it leads to.
    pub shapes: Shapes,
}

/// The tables of a spec file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkSpec {
    /// Name, labels, configuration.
    pub network: Header,
    /// The part on each device slot.
    pub device: DeviceSpec,
    /// The exit `local`.
    pub local: LocalSpec,
    /// The part in the cloud.
    pub cloud: CloudSpec,
    /// How scores and features travel.
    #[serde(default)]
    pub wire: WireSpec,
}

/// `[network]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Name of the network.
    pub name: String,
    /// DDNN configuration.
    pub configuration: Configuration,
    /// Class names.
    pub labels: Spanned<Vec<String>>,
}

/// `[device]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSpec {
    /// Device slots, each with its own weights.
    pub count: Spanned<usize>,
    /// `[channels, height, width]` of a view.
    pub input: Spanned<[usize; 3]>,
    /// Blocks up to the features.
    pub blocks: Spanned<Vec<Spanned<BlockSpec>>>,
    /// From the features to the scores.
    pub head: Spanned<BlockSpec>,
}

/// `[local]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LocalSpec {
    /// How scores are joined.
    pub aggregation: Aggregation,
}

/// `[cloud]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CloudSpec {
    /// How features are joined.
    pub aggregation: Aggregation,
    /// Blocks up to the logits.
    pub blocks: Spanned<Vec<Spanned<BlockSpec>>>,
}

/// `[wire]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WireSpec {
    /// How scores travel.
    pub scores: ScoreEncoding,
    /// How features travel.
    pub features: FeatureEncoding,
}

impl Default for WireSpec {
    fn default() -> Self {
        Self { scores: ScoreEncoding::F32, features: FeatureEncoding::Bits }
    }
}

/// How features travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureEncoding {
    /// One bit an element.
    Bits,
}

/// One block.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum BlockSpec {
    /// Binary convolution, max pool, batch norm, sign.
    Convp(ConvpSpec),
    /// Float convolution, batch norm, relu.
    Conv(ConvSpec),
    /// Max pool.
    Pool(PoolSpec),
    /// Fully connected layer over the flattened input.
    Fc(FcSpec),
}

/// `kind = "convp"`; the defaults are DDNN's device block.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ConvpSpec {
    /// Output channels.
    pub filters: usize,
    /// Side of the kernel.
    #[serde(default = "three")]
    pub kernel: usize,
    /// Step of the convolution.
    #[serde(default = "one")]
    pub stride: usize,
    /// Zero padding of the convolution.
    #[serde(default = "one")]
    pub pad: usize,
    /// Side of the pooling window.
    #[serde(default = "three")]
    pub pool: usize,
    /// Step of the pooling; 2 on devices, 1 in DDNN's cloud.
    #[serde(default = "two")]
    pub pool_stride: usize,
    /// Padding of the pooling, never chosen.
    #[serde(default = "one")]
    pub pool_pad: usize,
}

/// `kind = "conv"`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ConvSpec {
    /// Output channels.
    pub filters: usize,
    /// Side of the kernel.
    #[serde(default = "three")]
    pub kernel: usize,
    /// Step.
    #[serde(default = "one")]
    pub stride: usize,
    /// Zero padding.
    #[serde(default = "one")]
    pub pad: usize,
}

/// `kind = "pool"`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PoolSpec {
    /// Side of the window.
    #[serde(default = "two")]
    pub size: usize,
    /// Step.
    #[serde(default = "two")]
    pub stride: usize,
    /// Padding, never chosen.
    #[serde(default)]
    pub pad: usize,
}

/// `kind = "fc"`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FcSpec {
    /// Outputs; the number of classes when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<usize>,
    /// 1-bit weights and batch norm; else float weights and bias.
    #[serde(default)]
    pub binary: bool,
    /// Behind it; `none` for scores and logits.
    #[serde(default)]
    pub activation: FcActivation,
}

/// What follows a fully connected layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FcActivation {
    /// Nothing: scores or logits.
    #[default]
    None,
    /// Batch norm and relu.
    Relu,
    /// Batch norm and sign.
    Sign,
}

impl From<FcActivation> for Activation {
    fn from(value: FcActivation) -> Self {
        match value {
            FcActivation::None => Self::None,
            FcActivation::Relu => Self::Relu,
            FcActivation::Sign => Self::Sign,
        }
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

impl Spec {
    /// Reads and checks a spec file.
    ///
    /// # Errors
    /// [`SpecError`]: unreadable, not TOML, unknown or missing keys, or shapes that do not fit; with the line.
    pub fn read(file: &Path) -> Result<Self, SpecError> {
        let text = std::fs::read_to_string(file)
            .map_err(|source| SpecError::Unreadable { file: file.to_owned(), source })?;
        Self::parse(file, &text)
    }

    /// Parses and checks the text of a spec; `file` is for messages only.
    ///
    /// # Errors
    /// As [`Spec::read`].
    pub fn parse(file: &Path, text: &str) -> Result<Self, SpecError> {
        let network: NetworkSpec = toml::from_str(text).map_err(|error| SpecError::Syntax {
            file: file.to_owned(),
            line: line_of(text, error.span().unwrap_or_default()),
            message: error.message().to_owned(),
        })?;
        let shapes = Shapes::work_out(&network).map_err(|misfit| SpecError::Misfit {
            file: file.to_owned(),
            line: line_of(text, misfit.at),
            what: misfit.what,
            expected: misfit.expected,
            found: misfit.found,
        })?;
        Ok(Self { file: file.to_owned(), text: text.to_owned(), network, shapes })
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.network.network.labels.get_ref().len()
    }

    /// Number of device slots.
    pub fn slots(&self) -> usize {
        *self.network.device.count.get_ref()
    }
}

fn line_of(text: &str, span: Range<usize>) -> usize {
    1 + text.bytes().take(span.start).filter(|byte| *byte == b'\n').count()
}

fn one() -> usize {
    1
}

fn two() -> usize {
    2
}

fn three() -> usize {
    3
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shipped spec with `from` replaced by `to`.
    #[track_caller]
    fn changed(from: &str, to: &str) -> Result<Spec, SpecError> {
        let text = include_str!("../../networks/ddnn-c.toml");
        assert!(text.contains(from), "{from:?} is not in the shipped spec");
        Spec::parse(Path::new("ddnn-c.toml"), &text.replace(from, to))
    }

    #[track_caller]
    fn refuses(from: &str, to: &str, message: &str) {
        let error = changed(from, to).expect_err("must be refused").to_string();
        assert_eq!(error, message);
    }

    #[test]
    fn the_shipped_specs_fit() {
        let spec = changed("ddnn-c", "ddnn-c").unwrap();
        assert_eq!(spec.shapes.features, [8, 16, 16]);
        assert_eq!(spec.shapes.cloud_input, [54, 16, 16]);
        let published = include_str!("../../networks/ddnn-c-published.toml");
        let published = Spec::parse(Path::new("published"), published).unwrap();
        assert_eq!(published.shapes.features, [4, 16, 16]);
    }

    #[test]
    fn zero_devices_are_refused_with_the_line() {
        refuses(
            "count = 6",
            "count = 0",
            "ddnn-c.toml:10: device.count: expected 1 to 32 device slots, found 0",
        );
    }

    #[test]
    fn a_window_larger_than_its_map_is_refused_with_the_line() {
        refuses(
            "filters = 64, kernel = 3, stride = 2, pad = 1",
            "filters = 64, kernel = 11, stride = 2, pad = 1",
            "ddnn-c.toml:25: cloud block 3 (conv): expected a window of at most 10x10 (map 8x8, padding 1), found 11x11",
        );
    }

    #[test]
    fn features_that_are_not_binary_are_refused_with_the_line() {
        refuses(
            r#"{ kind = "convp", filters = 8 }"#,
            r#"{ kind = "conv", filters = 8 }"#,
            "ddnn-c.toml:13: last device block: expected a block that ends in sign (convp), since features travel as bits, found conv",
        );
    }

    #[test]
    fn a_cloud_that_does_not_end_in_the_classes_is_refused_with_the_line() {
        refuses(
            r#"{ kind = "fc" },"#,
            r#"{ kind = "fc", outputs = 7 },"#,
            "ddnn-c.toml:26: last cloud block: expected an fc block with 10 outputs (one a class) and no activation, found 7 outputs",
        );
    }

    #[test]
    fn an_unknown_key_and_an_unknown_block_are_refused_with_the_line() {
        let error = changed("count = 6", "count = 6\ncuont = 7").unwrap_err().to_string();
        assert!(error.starts_with("ddnn-c.toml:11: ") && error.contains("cuont"), "{error}");
        let error = changed(r#"kind = "fc" }"#, r#"kind = "fcc" }"#).unwrap_err().to_string();
        assert!(error.contains("fcc"), "{error}");
        let error = changed("filters = 8", "filtres = 8").unwrap_err().to_string();
        assert!(error.contains("filtres"), "{error}");
    }

    #[test]
    fn the_costs_follow_the_formula() {
        let spec = changed("ddnn-c", "ddnn-c").unwrap();
        let cost = spec.cost();
        assert_eq!((cost.link.scores, cost.link.features, cost.link.raw), (40, 256, 3072));
        assert_eq!(cost.device.macs, 27 * 8 * 32 * 32 + 2048 * 10);
        assert_eq!(cost.device.parameters, 27 * 8 + 2 * 8 + 2048 * 10 + 2 * 10);
        assert_eq!(cost.cloud.macs, 54 * 9 * 32 * 256 + 32 * 9 * 48 * 64 + 48 * 9 * 64 * 16 + 1024 * 10);
    }
}
