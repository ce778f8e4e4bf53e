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

use headwater_inference::manifest::{Aggregation, Configuration, Preprocessing, ScoreEncoding};
pub use headwater_kernels::Window;
use headwater_protocol::{Fit, Roi};
use headwater_toml_file::{Mistake, line_at, with_lines};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use self::fit::Misfit;
use crate::file_error::FileError;

pub use blocks::{Activation, BlockSpec, ConvSpec, ConvpSpec, FcSpec, FloatActivation, HeadSpec, PoolSpec};
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
    /// The tables of the text, parsed.
    pub network: NetworkSpec,
    /// Shapes of every section.
    pub shapes: Shapes,
}

/// Requirements on the data of a spec that leaves its labels out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unlabelled {
    /// Conversion of images to views.
    pub view: Preprocessing,
    /// Number of device slots.
    pub slots: usize,
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

/// The table `[network]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Name of the network, its bundle and its run folder: 1 to 64 of `a-z A-Z 0-9 . _ -`, a letter or digit first.
    pub name: String,
    /// DDNN configuration.
    pub configuration: Spanned<Configuration>,
    /// Class names, at least 2; the index of a name is the class. A spec file may leave them out where the data gives them.
    #[serde(default = "no_labels")]
    pub labels: Spanned<Vec<String>>,
}

/// Labels of a spec that leaves them out: an empty list at no place of the text.
fn no_labels() -> Spanned<Vec<String>> {
    Spanned::new(0..0, Vec::new())
}

impl Header {
    /// Returns true when the text of the spec has the key `labels`, even with an empty list.
    fn has_labels(&self) -> bool {
        self.labels.span() != (0..0)
    }
}

/// The table `[device]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSpec {
    /// Device slots, each with its own weights.
    pub count: Spanned<usize>,
    /// `[channels, height, width]` of a view.
    pub input: Spanned<[usize; 3]>,
    /// For each slot, the region of its frames that becomes the view; whole frames when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regions: Option<Spanned<Vec<Roi>>>,
    /// Fit of a frame or its region into the view; stretched when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<Fit>,
    /// Blocks from the view to the map; `None` if devices send their views.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<Spanned<Vec<Spanned<BlockSpec>>>>,
    /// Blocks from the map to the scores; `None` if devices send their views.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Spanned<HeadSpec>>,
    /// Number of channels of the map that are sent, from the first; all channels when left out. The head reads all channels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_channels: Option<Spanned<usize>>,
}

/// The table `[local]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LocalSpec {
    /// Aggregation of the scores.
    pub aggregation: Aggregation,
}

/// The table `[edge]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeSpec {
    /// Slots of each edge; one edge with all slots when left out. Each edge has its own weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Spanned<Vec<Vec<usize>>>>,
    /// Aggregation of the maps of an edge's devices.
    pub aggregation: Aggregation,
    /// Blocks from the joined maps of the devices to the map for the cloud.
    pub blocks: Spanned<Vec<Spanned<BlockSpec>>>,
    /// Blocks from that map to the scores of the edge.
    pub head: Spanned<HeadSpec>,
    /// Aggregation of the scores of several edges for the exit `edge`; mp when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fusion: Option<Spanned<Aggregation>>,
}

/// The table `[cloud]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CloudSpec {
    /// Aggregation of the maps of the devices, or of the edges if there are edges.
    pub aggregation: Aggregation,
    /// Blocks from the joined maps to the logits.
    pub blocks: Spanned<Vec<Spanned<BlockSpec>>>,
}

/// The table `[wire]`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WireSpec {
    /// Encoding of the scores of the devices; floats when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scores: Option<Spanned<ScoreEncoding>>,
    /// Encoding of the maps of the devices; when left out, pixels for views, bits for signs, floats for other maps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<Spanned<WireFeatures>>,
}

/// Encoding of the maps of the devices in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WireFeatures {
    /// Signs, one bit per element.
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
    /// [`FileError`]: unreadable, not TOML, unknown or missing keys, a bad name, or shapes that do not fit; with the line.
    pub fn read(file: &Path) -> Result<Self, FileError> {
        Self::read_with_labels(file, &[])
    }

    /// Reads and checks a spec file. A spec without labels gets `labels`, also in [`Spec::text`].
    ///
    /// # Errors
    /// The errors of [`Spec::read`], and a spec without labels if `labels` is empty.
    pub fn read_with_labels(file: &Path, labels: &[String]) -> Result<Self, FileError> {
        Self::parse_with_labels(file, &file_error::read("network spec", file)?, labels)
    }

    /// Requirements on the data of a spec file that leaves its labels out; `None` for a spec with labels.
    ///
    /// # Errors
    /// [`FileError`]: unreadable, not TOML, unknown or missing keys. Shapes are checked once the labels are known.
    pub fn without_labels(file: &Path) -> Result<Option<Unlabelled>, FileError> {
        Self::parse_without_labels(file, &file_error::read("network spec", file)?)
    }

    /// Requirements on the data of the text of a spec that leaves its labels out; `file` is for messages only.
    ///
    /// # Errors
    /// See [`Spec::without_labels`].
    pub fn parse_without_labels(file: &Path, text: &str) -> Result<Option<Unlabelled>, FileError> {
        let network: NetworkSpec =
            headwater_toml_file::read(text).map_err(|mistakes| FileError::of(file, mistakes))?;
        let found = Unlabelled { view: network.preprocessing(), slots: network.slots() };
        Ok((!network.network.has_labels()).then_some(found))
    }

    /// Returns true when messages carry coded maps.
    pub fn codes_features(&self) -> bool {
        let features = self.network.wire.features.as_ref();
        features.is_some_and(|features| *features.get_ref() == WireFeatures::Coded)
    }

    /// Parses and checks the text of a spec; `file` is for messages only.
    ///
    /// # Errors
    /// See [`Spec::read`].
    pub fn parse(file: &Path, text: &str) -> Result<Self, FileError> {
        Self::parse_with_labels(file, text, &[])
    }

    /// Parses and checks the text of a spec. A spec without labels gets `labels`, also in [`Spec::text`].
    ///
    /// # Errors
    /// See [`Spec::read_with_labels`].
    pub fn parse_with_labels(file: &Path, text: &str, labels: &[String]) -> Result<Self, FileError> {
        let of_file = |mistakes| FileError::of(file, mistakes);
        let mut network: NetworkSpec = headwater_toml_file::read(text).map_err(of_file)?;
        let lacks_labels = !network.network.has_labels();
        if lacks_labels {
            if labels.is_empty() {
                let text = "expected class names, found none; `headwater-train train` and `table` take them from the data";
                return Err(of_file(vec![Mistake::of_key("network.labels", text)]));
            }
            network.network.labels = Spanned::new(0..0, labels.to_vec());
        }
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
        if lacks_labels {
            // The checks above name lines of the file without labels; the text of the returned spec has labels.
            return Self::parse(file, &with_labels(file, text, &network.network)?);
        }
        Ok(Self { file: file.to_owned(), text: text.to_owned(), network, shapes })
    }
}

/// The text of a spec with its labels inserted behind `configuration`, in the form of TOML in which the text writes the table `network`.
fn with_labels(file: &Path, text: &str, header: &Header) -> Result<String, FileError> {
    let labels = header.labels.get_ref();
    let list = toml::Value::Array(labels.iter().cloned().map(toml::Value::String).collect());
    let (before, after) = text.split_at(header.configuration.span().end);
    let has_labels = |text: &String| {
        let read = headwater_toml_file::read::<NetworkSpec>(text);
        read.is_ok_and(|read| read.network.labels.get_ref() == labels)
    };
    // The table `network` may have its keys on lines, be an inline table, or have dotted keys.
    let texts = ["\n", ", ", "\nnetwork."].map(|way| format!("{before}{way}labels = {list}{after}"));
    texts.into_iter().find(has_labels).ok_or_else(|| {
        let text = "expected class names, or a place for them behind `configuration`, found neither";
        FileError::of(file, vec![Mistake::of_key("network.labels", text)])
    })
}

/// Returns true when a text can name a network, a bundle and a run folder.
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

    /// Aggregation of the scores of several edges; unused with fewer than two edges.
    pub fn fusion(&self) -> Aggregation {
        let fusion = self.edge.as_ref().and_then(|edge| edge.get_ref().fusion.as_ref());
        fusion.map_or(Aggregation::Mp, |fusion| *fusion.get_ref())
    }
}

#[cfg(test)]
mod tests;
