//! `network.json`: the manifest of a trained network.
//!
//! The manifest has everything that a tier needs to run its part: labels, shapes, encodings, sections. The network id is the SHA-256 of
//! the file as stored, so tiers with the same id agree on the whole manifest.

mod check;

use std::collections::BTreeMap;

use headwater_map_coder::{MapShape, ShapeError};
pub use headwater_protocol::ScoreEncoding;
use headwater_protocol::{Exit, ExitWord, Fit, Framing, Limits, Roi, Slot, message_sizes};
use serde::{Deserialize, Serialize};

pub use check::{MAX_CLASSES, MAX_ELEMENTS, ManifestError, PRIOR_SUM_TOLERANCE};

/// Version of `network.json` that this build reads and writes.
pub const FORMAT_VERSION: u32 = 2;

/// The trained part of a bundle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkManifest {
    /// Format version of the file; [`FORMAT_VERSION`].
    pub format: u32,
    /// Name of the network, as in its spec.
    pub name: String,
    /// DDNN configuration, `a` to `f`.
    pub configuration: Configuration,
    /// Class names; their number is the number of classes.
    pub labels: Vec<String>,
    /// Share of each class in the training part; the sum is 1. The policy may let the most frequent class answer samples that no
    /// device saw.
    pub class_prior: Vec<f32>,
    /// Conversion of a frame to the input of a device section.
    pub preprocessing: Preprocessing,
    /// Number of device slots.
    pub slots: u8,
    /// Exits in order from the input; empty if they are the configuration's, one of each word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exits: Vec<Exit>,
    /// Encoding of scores in messages.
    pub scores: ScoreEncoding,
    /// For each slot, the scores that its levels stand for; empty if scores are floats.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub score_levels: Vec<ScoreLevels>,
    /// The map that a device sends: features, or the view if devices have no section.
    pub features: FeatureMap,
    /// Join of the devices' scores for the exit `local`; ignored in networks without that exit.
    pub local_aggregation: Aggregation,
    /// The edges between devices and cloud, in configurations that have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge: Option<EdgeTier>,
    /// Join of the maps for the cloud's section: the devices' maps, or the edges'.
    pub cloud_aggregation: Aggregation,
    /// All sections, device sections first, by slot.
    pub sections: Vec<SectionManifest>,
    /// Least and largest score for any class, by section, as recorded at export for sections with scores and without a packed form.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub score_limits: BTreeMap<String, [f32; 2]>,
    /// The spec from which the network was trained, for people and for `inspect`.
    pub spec: serde_json::Value,
}

/// The edges of a network. Each edge runs its own section over the maps of its slots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeTier {
    /// Slots of each edge; every slot belongs to one edge.
    pub groups: Vec<Vec<Slot>>,
    /// Join of the maps of an edge's devices for the edge's section.
    pub aggregation: Aggregation,
    /// Join of the scores of the edges for the exit `edge`.
    pub fusion: Aggregation,
    /// The map that an edge sends to the cloud.
    pub features: FeatureMap,
}

/// Configuration of the network (DDNN, figure 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Configuration {
    /// Cloud only: devices send their views.
    A,
    /// One device with an exit, cloud.
    B,
    /// Several devices, local aggregator, cloud.
    C,
    /// One device with an exit, an edge, cloud.
    D,
    /// Several devices, an edge, cloud.
    E,
    /// Several devices, several edges, cloud.
    F,
}

/// Join of scores or maps over the sources that are present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Aggregation {
    /// Elementwise maximum (MP).
    Mp,
    /// Elementwise mean (AP).
    Ap,
    /// Concatenation with the presence mask (CC), followed by a section.
    Cc,
}

/// From frame to section input: cut out the slot's region, fit it into `[channels, height, width]`, divide by 255.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preprocessing {
    /// Number of colour planes, 1 or 3.
    pub channels: u32,
    /// Number of rows.
    pub height: u32,
    /// Number of columns.
    pub width: u32,
    /// Conversion of a pixel to a number.
    pub scale: PixelScale,
    /// Fit of a frame or its region into the view; `None` if it is stretched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<Fit>,
    /// For each slot, the region of its frames; empty for whole frames.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<Roi>,
}

/// Conversion of a pixel in `0..=255` to a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PixelScale {
    /// `x / 255`. The mean is not subtracted, because zero padding needs 0 to be black.
    Unit,
}

/// Scores that the levels of a slot stand for: level `q` is `least + q * step`. Chosen on validation data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScoreLevels {
    /// Score of level 0.
    pub least: f32,
    /// Score difference between neighbouring levels.
    pub step: f32,
}

/// A map that one tier sends to the next, `[channels, height, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeatureMap {
    /// Number of channels: filters of the last block (`f`), or colour planes of a view.
    pub channels: u32,
    /// Number of rows.
    pub height: u32,
    /// Number of columns.
    pub width: u32,
    /// Encoding of an element in messages.
    #[serde(default, skip_serializing_if = "FeatureEncoding::is_bits")]
    pub encoding: FeatureEncoding,
}

/// Encoding of a map's elements in messages, in CHW order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureEncoding {
    /// Signs, one bit an element, least significant bit first.
    #[default]
    Bits,
    /// The pixels of a view, one byte an element; the next section gets `x / 255`.
    Pixels,
    /// Little-endian `f32`, four bytes an element.
    F32,
}

/// One section: the part of the network that one tier runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SectionManifest {
    /// Name: `device-0`, …, `local`, `edge-0`, …, `edge` (over the scores of several edges) or `cloud`.
    pub name: String,
    /// The tier that runs the section.
    pub tier: Tier,
    /// The device slot, for device sections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<Slot>,
    /// Input of the section.
    pub input: SectionInput,
    /// Outputs, in the order of the ONNX outputs.
    pub outputs: Vec<SectionOutput>,
    /// Number of trainable parameters.
    pub parameters: u64,
    /// Number of multiply-accumulates for one sample.
    pub macs: u64,
    /// SHA-256 of the section's ONNX member as stored, hex; the writer fills the hash in.
    #[serde(default)]
    pub sha256: String,
    /// SHA-256 of the section's packed member as stored, hex; `None` without a packed form. The writer fills the hash in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed_sha256: Option<String>,
    /// SHA-256 of the context table of the section's map as stored, hex; `None` if messages carry the map uncoded. The writer fills the
    /// hash in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contexts_sha256: Option<String>,
}

/// The tier that runs a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// End device.
    Device,
    /// Aggregator.
    Edge,
    /// Cloud service.
    Cloud,
}

/// Input of a section: kind and shape without the batch dimension.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SectionInput {
    /// Kind of the elements. The engine scales pixels by [`Preprocessing::scale`].
    pub kind: InputKind,
    /// Shape of one sample, e.g. `[3, 32, 32]`.
    pub shape: Vec<usize>,
}

/// Kind of a section's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// `u8` pixels, CHW.
    Pixels,
    /// `f32`.
    Floats,
}

/// One output of a section: name and shape without the batch dimension.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SectionOutput {
    /// Name of the ONNX output: `scores`, `features` or `logits`; with an index for a further exit, such as `logits.1`.
    pub name: String,
    /// Kind of the elements.
    pub kind: OutputKind,
    /// Shape of one sample.
    pub shape: Vec<usize>,
}

/// Kind of a section's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputKind {
    /// `f32`.
    F32,
    /// ±1 values, packed: CHW order, least significant bit first, 1 = +1, tail bits zero.
    Bits,
}

impl NetworkManifest {
    /// Number of classes, `|C|`.
    pub fn classes(&self) -> usize {
        self.labels.len()
    }

    /// Bytes of the largest result of a group with or without `details`.
    pub fn largest_result(&self, has_details: bool) -> usize {
        let label = self.labels.iter().map(String::len).max().unwrap_or_default();
        let details = if has_details { message_sizes::details(self.slots.into(), self.classes()) } else { 0 };
        message_sizes::largest_result(label, self.slots.into()) + details
    }

    /// The exits of the network, from the input.
    pub fn exits(&self) -> &[Exit] {
        if self.exits.is_empty() { self.configuration.exits() } else { &self.exits }
    }

    /// Exits of a word, from the input.
    pub fn exits_of(&self, word: ExitWord) -> impl Iterator<Item = Exit> {
        self.exits().iter().copied().filter(move |exit| exit.word() == word)
    }

    /// Body lengths of the messages between the network's tiers.
    pub fn limits(&self) -> Limits {
        let has_section = self.configuration.has_device_section();
        Limits {
            classes: self.classes(),
            scores: self.scores,
            feature_bits: self.features.bits(),
            codes_features: self.codes_features(),
            // Devices with a section never send views.
            view_bytes: if has_section { 0 } else { self.preprocessing.view_bytes() },
            edge_bits: self.edge.as_ref().map_or(0, |edge| edge.features.bits()),
        }
    }

    /// The section of that name; `None` if the network has none.
    pub fn section(&self, name: &str) -> Option<&SectionManifest> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// Bytes of the body of one summary, `4|C|` for [`ScoreEncoding::F32`].
    pub fn score_bytes(&self) -> usize {
        self.scores.bytes(self.classes())
    }

    /// True when devices send their maps entropy-coded.
    pub fn codes_features(&self) -> bool {
        self.sections.iter().any(|section| section.contexts_sha256.is_some())
    }

    /// Number of maps that the cloud section joins: one for each slot, or one for each edge.
    pub fn cloud_sources(&self) -> usize {
        self.edge.as_ref().map_or(usize::from(self.slots), |edge| edge.groups.len())
    }

    /// The map that each of the [`NetworkManifest::cloud_sources`] sends.
    pub fn cloud_map(&self) -> FeatureMap {
        self.edge.as_ref().map_or(self.features, |edge| edge.features)
    }
}

impl Preprocessing {
    /// Bytes of one view.
    pub fn view_bytes(&self) -> usize {
        self.channels as usize * self.height as usize * self.width as usize
    }

    /// Conversion of a frame to the view of a slot, as in training.
    pub fn framing(&self, slot: Slot) -> Framing {
        Framing { roi: self.regions.get(slot.index()).copied(), fit: self.fit.unwrap_or_default() }
    }
}

impl Configuration {
    /// The exits of the configuration, from the input, unless a network names its own.
    pub const fn exits(self) -> &'static [Exit] {
        match self {
            Self::A => &[Exit::CLOUD],
            Self::B => &[Exit::DEVICE, Exit::CLOUD],
            Self::C => &[Exit::LOCAL, Exit::CLOUD],
            Self::D => &[Exit::DEVICE, Exit::EDGE, Exit::CLOUD],
            Self::E | Self::F => &[Exit::LOCAL, Exit::EDGE, Exit::CLOUD],
        }
    }

    /// True when the configuration has this exit; false for a further exit of a word, such as `cloud.1`.
    pub fn has(self, exit: Exit) -> bool {
        self.exits().contains(&exit)
    }

    /// True when devices run a section. Devices without a section send their views.
    pub const fn has_device_section(self) -> bool {
        !matches!(self, Self::A)
    }

    /// True when devices send their map unasked, because no exit outside the device decides before the map is needed.
    pub const fn pushes_maps(self) -> bool {
        matches!(self, Self::A | Self::B | Self::D)
    }

    /// Letter in DDNN's figure 2.
    pub const fn letter(self) -> char {
        (b'a' + self as u8) as char
    }
}

impl FeatureEncoding {
    /// True when bytes of the right length are a valid map: every float is finite.
    pub fn takes(self, bytes: &[u8]) -> bool {
        let finite = |four: &[u8]| four.try_into().is_ok_and(|four| f32::from_le_bytes(four).is_finite());
        self != Self::F32 || bytes.chunks(4).all(finite)
    }

    fn is_bits(&self) -> bool {
        *self == Self::Bits
    }
}

impl FeatureMap {
    /// The shape for the coder of maps.
    ///
    /// # Errors
    /// [`ShapeError`] for a map that the coder does not support.
    pub fn coder_shape(&self) -> Result<MapShape, ShapeError> {
        let [channels, height, width] = self.shape();
        MapShape::new(channels, height, width)
    }

    /// Shape of the map, `[channels, height, width]`.
    pub fn shape(&self) -> [usize; 3] {
        [self.channels, self.height, self.width].map(|side| side as usize)
    }

    /// Elements of one map, `f * o` in DDNN's formula.
    pub fn elements(&self) -> usize {
        self.shape().iter().product()
    }

    /// Bits of one map on the wire, uncoded.
    pub fn bits(&self) -> usize {
        let element_bits = match self.encoding {
            FeatureEncoding::Bits => 1,
            FeatureEncoding::Pixels => 8,
            FeatureEncoding::F32 => 32,
        };
        self.elements() * element_bits
    }

    /// Bytes of one map on the wire, uncoded; `f * o / 8` rounded up for signs.
    pub fn packed_bytes(&self) -> usize {
        self.bits().div_ceil(8)
    }

    /// Elements of one channel (`o` in DDNN's formula).
    pub fn plane(&self) -> usize {
        self.height as usize * self.width as usize
    }
}

impl SectionManifest {
    /// Name of the device section of a slot.
    pub fn device_name(slot: Slot) -> String {
        format!("device-{slot}")
    }

    /// Name of the section of an edge.
    pub fn edge_name(edge: usize) -> String {
        format!("edge-{edge}")
    }

    /// Elements of one sample's input.
    pub fn input_len(&self) -> usize {
        self.input.shape.iter().product()
    }
}

impl SectionOutput {
    /// Elements of one sample's output.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}
