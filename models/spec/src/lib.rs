//! The network spec: a TOML file with the layers of a network, by tier.
//!
//! The spec knows shapes and costs, and no tensor library. [`manifest()`] makes the manifest of its bundle.
//!
//! A module imports only modules to its right or in the lines below. The test `module_orders` checks this diagram:
//!
//! ```text
//! checks          manifest  cost  shapes  fit
//! texts           blocks  file_error
//! ```

mod blocks;
mod cost;
pub mod file_error;
mod fit;
mod manifest;
mod shapes;

use std::path::{Path, PathBuf};

use headwater_inference::manifest::{Aggregation, Configuration, ScoreEncoding};
pub use headwater_kernels::Window;
use headwater_toml_file::{Mistake, line_at, with_lines};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use self::fit::Misfit;
use crate::file_error::FileError;

pub use blocks::{
    Activation, AvgPoolSpec, BlockSpec, ConvSpec, ConvpSpec, FcSpec, FloatActivation, HeadSpec, PoolSpec,
};
pub use cost::{Cost, SectionCost};
pub use fit::LayerShape;
pub use manifest::manifest;
pub use shapes::{SectionShapes, Shapes};

/// A parsed spec, with its text for messages that name a line.
#[derive(Clone, Debug)]
pub struct Spec {
    /// File of the text.
    pub file: PathBuf,
    /// Contents of the TOML file, for messages that quote a line.
    pub text: String,
    /// The tables of the text.
    pub network: NetworkSpec,
    /// Shapes of every section.
    pub shapes: Shapes,
}

/// The tables of a spec file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkSpec {
    /// Name, labels, configuration.
    pub network: Header,
    /// The section that every device slot runs.
    pub device: DeviceSpec,
    /// The exit `local`, in configurations with that exit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<Spanned<LocalSpec>>,
    /// The edges between devices and cloud, in configurations with edges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge: Option<Spanned<EdgeSpec>>,
    /// The section and the exit in the cloud.
    pub cloud: CloudSpec,
    /// Wire encodings of scores and features.
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
    pub configuration: Spanned<Configuration>,
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
    /// Blocks up to the map; none where devices send their views.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<Spanned<Vec<Spanned<BlockSpec>>>>,
    /// Blocks from the map to the scores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Spanned<HeadSpec>>,
    /// Channels of the map that are sent, the first ones; the head reads all of them. All are sent when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_channels: Option<Spanned<usize>>,
}

/// `[local]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LocalSpec {
    /// Aggregation of the scores.
    pub aggregation: Aggregation,
}

/// `[edge]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeSpec {
    /// Slots of each edge; one edge with all slots when left out. Each edge has its own weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Spanned<Vec<Vec<usize>>>>,
    /// Aggregation of the maps of an edge's devices.
    pub aggregation: Aggregation,
    /// Blocks up to the map for the cloud.
    pub blocks: Spanned<Vec<Spanned<BlockSpec>>>,
    /// Blocks from that map to the scores of the edge.
    pub head: Spanned<HeadSpec>,
    /// Aggregation of the scores of several edges for the exit `edge`; mp when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fusion: Option<Spanned<Aggregation>>,
}

/// `[cloud]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CloudSpec {
    /// Aggregation of the features.
    pub aggregation: Aggregation,
    /// Blocks up to the logits.
    pub blocks: Spanned<Vec<Spanned<BlockSpec>>>,
}

/// `[wire]`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WireSpec {
    /// Encoding of the scores of the devices; floats when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scores: Option<Spanned<ScoreEncoding>>,
    /// Encoding of the maps of the devices; that of the last device block when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<Spanned<WireFeatures>>,
}

/// Encoding of the maps of the devices in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WireFeatures {
    /// Signs, one bit an element.
    Bits,
    /// Signs, entropy-coded with contexts that are counted after training.
    Coded,
    /// The pixels of a view.
    Pixels,
    /// Floats.
    F32,
}

impl Spec {
    /// Reads and checks a spec file.
    ///
    /// # Errors
    /// [`FileError`]: unreadable, not TOML, unknown or missing keys, or shapes that do not fit; with the line.
    pub fn read(file: &Path) -> Result<Self, FileError> {
        Self::parse(file, &file_error::read("network spec", file)?)
    }

    /// Whether messages carry coded maps.
    pub fn codes_features(&self) -> bool {
        let features = self.network.wire.features.as_ref();
        features.is_some_and(|features| *features.get_ref() == WireFeatures::Coded)
    }

    /// Parses and checks the text of a spec; `file` is for messages only.
    ///
    /// # Errors
    /// See [`Spec::read`].
    pub fn parse(file: &Path, text: &str) -> Result<Self, FileError> {
        let of_file = |mistakes| FileError::of(file, mistakes);
        let network: NetworkSpec = headwater_toml_file::read(text).map_err(of_file)?;
        let found = &network.network.name;
        if !is_name(found) {
            let message =
                format!("expected 1 to 64 of a-z A-Z 0-9 . _ -, a letter or digit first, found {found:?}");
            return Err(of_file(with_lines(text, vec![Mistake::of_key("network.name", message)])));
        }
        let shapes = Shapes::of(&network).map_err(|Misfit { at, what, expected, found }| {
            let message = format!("expected {expected}, found {found}");
            of_file(vec![Mistake { line: Some(line_at(text, at.start)), ..Mistake::of_key(what, message) }])
        })?;
        Ok(Self { file: file.to_owned(), text: text.to_owned(), network, shapes })
    }
}

/// Whether a text can name a network, a bundle and a run folder.
fn is_name(text: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    text.len() <= 64
        && text.bytes().all(is_known)
        && text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
}

impl NetworkSpec {
    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.network.labels.get_ref().len()
    }

    /// DDNN configuration.
    pub fn configuration(&self) -> Configuration {
        *self.network.configuration.get_ref()
    }

    /// `[channels, height, width]` of a view.
    pub fn view(&self) -> [usize; 3] {
        *self.device.input.get_ref()
    }

    /// Encoding of the scores of the devices.
    pub fn scores(&self) -> ScoreEncoding {
        self.wire.scores.as_ref().map_or(ScoreEncoding::F32, |scores| *scores.get_ref())
    }

    /// Number of device slots.
    pub fn slots(&self) -> usize {
        *self.device.count.get_ref()
    }

    /// Aggregation of the scores of the devices; unused without the exit `local`.
    pub fn local_aggregation(&self) -> Aggregation {
        self.local.as_ref().map_or(Aggregation::Mp, |local| local.get_ref().aggregation)
    }

    /// Aggregation of the maps of an edge's devices; unused without edges.
    pub fn edge_aggregation(&self) -> Aggregation {
        self.edge.as_ref().map_or(Aggregation::Mp, |edge| edge.get_ref().aggregation)
    }

    /// Aggregation of the scores of several edges; unused with fewer.
    pub fn fusion(&self) -> Aggregation {
        let fusion = self.edge.as_ref().and_then(|edge| edge.get_ref().fusion.as_ref());
        fusion.map_or(Aggregation::Mp, |fusion| *fusion.get_ref())
    }
}

#[cfg(test)]
mod tests;
