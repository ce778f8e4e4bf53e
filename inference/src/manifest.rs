//! `network.json`: what a bundle says about the trained network.
//!
//! The manifest is everything a tier must know to run its part: labels, shapes, encodings, sections. The network id is the
//! SHA-256 of the bytes of this file as stored, so tiers agree on all of it or refuse each other.

mod check;

use headwater_protocol::{Exit, Limits, Slot, SlotSet};
use serde::{Deserialize, Serialize};

pub use check::{CLASSES_MAX, ELEMENTS_MAX, ManifestError, PRIOR_SUM_TOLERANCE};

/// Version of `network.json` that this build reads and writes.
pub const FORMAT_VERSION: u32 = 1;

/// The trained part of a bundle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkManifest {
    /// Version of this file's form; [`FORMAT_VERSION`].
    pub format: u32,
    /// Name of the network, as in its spec.
    pub name: String,
    /// DDNN configuration, `a` to `f`.
    pub configuration: Configuration,
    /// Class names; their number is the number of classes.
    pub labels: Vec<String>,
    /// Share of each class in the training part; answers a sample that no device saw. Sums to 1.
    pub class_prior: Vec<f32>,
    /// How a frame becomes the input of a device section.
    pub preprocessing: Preprocessing,
    /// Number of device slots.
    pub slots: u8,
    /// How scores travel.
    pub scores: ScoreEncoding,
    /// The map that a device sends upward: features, or its whole view where it has no section.
    pub features: FeatureMap,
    /// How the score vectors of the devices are joined for the exit `local`; not looked at where there is none.
    pub local_aggregation: Aggregation,
    /// The edges between devices and cloud, in configurations that have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge: Option<EdgeTier>,
    /// How the maps that reach the cloud are joined for its section: the devices', or those of the edges.
    pub cloud_aggregation: Aggregation,
    /// All sections, device sections first, by slot.
    pub sections: Vec<SectionManifest>,
    /// The spec this network was trained from, for people and for `inspect`.
    pub spec: serde_json::Value,
}

/// The edges of a network: each runs a section of its own over the maps of its slots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeTier {
    /// Slots of each edge; every slot belongs to one.
    pub groups: Vec<Vec<Slot>>,
    /// How the maps of an edge's devices are joined for its section.
    pub aggregation: Aggregation,
    /// How the scores of the edges are joined for the exit `edge`.
    pub fusion: Aggregation,
    /// The map that an edge sends to the cloud.
    pub features: FeatureMap,
}

/// DDNN configuration of the network (DDNN, figure 2; see the table in the design).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Configuration {
    /// Cloud alone: devices send their views.
    A,
    /// One device with an exit of its own, cloud.
    B,
    /// Several devices, local aggregator, cloud.
    C,
    /// One device with an exit of its own, an edge, cloud.
    D,
    /// Several devices, an edge, cloud.
    E,
    /// Several devices, several edges, cloud.
    F,
}

/// How the views of several devices are joined, over those present.
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

/// From frame to section input: resize to `[channels, height, width]`, divide by 255.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preprocessing {
    /// Colour planes, 1 or 3.
    pub channels: u32,
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
    /// How a pixel becomes a number.
    pub scale: PixelScale,
}

/// How a pixel in `0..=255` becomes a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PixelScale {
    /// `x / 255`; no mean subtraction, which zero padding would break.
    Unit,
}

/// How class scores travel in a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScoreEncoding {
    /// Little-endian `f32`, 4 bytes a class (DDNN's `4|C|`).
    F32,
}

/// A map that one tier sends to the next, `[channels, height, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeatureMap {
    /// Filters of the last block (`f`).
    pub channels: u32,
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
    /// How an element travels.
    #[serde(default, skip_serializing_if = "FeatureEncoding::is_bits")]
    pub encoding: FeatureEncoding,
}

/// How the elements of a map travel, in CHW order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureEncoding {
    /// Signs, one bit an element, least significant bit first.
    #[default]
    Bits,
    /// The pixels of a view, one byte an element; the section behind them gets `x / 255`.
    Pixels,
    /// Little-endian `f32`, four bytes an element.
    F32,
}

/// One section: a part of the network that one tier runs in one piece.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SectionManifest {
    /// `device-0`, …, `local`, `edge-0`, …, `edge` (which joins the scores of several edges), `cloud`.
    pub name: String,
    /// The tier that runs it.
    pub tier: Tier,
    /// The device slot, for device sections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<Slot>,
    /// What the section takes.
    pub input: SectionInput,
    /// What it gives, in the order of the ONNX outputs.
    pub outputs: Vec<SectionOutput>,
    /// Trainable parameters.
    pub parameters: u64,
    /// Multiply-accumulates for one sample.
    pub macs: u64,
    /// SHA-256 of the section's ONNX member as stored, hex. Filled in by the writer.
    #[serde(default)]
    pub sha256: String,
    /// SHA-256 of the section's packed member as stored, hex; `None` where it has no packed form. Filled in by the writer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed_sha256: Option<String>,
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
    /// Pixels are scaled by the engine as [`Preprocessing::scale`] says; floats go in as they are.
    pub kind: InputKind,
    /// Shape of one sample, e.g. `[3, 32, 32]`.
    pub shape: Vec<usize>,
}

/// What a section takes.
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
    /// Name of the ONNX output: `scores`, `features` or `logits`.
    pub name: String,
    /// Floats, or signs that the engine packs into bits.
    pub kind: OutputKind,
    /// Shape of one sample.
    pub shape: Vec<usize>,
}

/// What a section gives.
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

    /// Body lengths of the messages that the network's tiers exchange.
    pub fn limits(&self) -> Limits {
        let has_section = self.configuration.has_device_section();
        Limits {
            score_bytes: self.score_bytes(),
            feature_bits: self.features.bits(),
            // Where devices have a section no view is ever sent, and none is to be taken.
            view_bytes: if has_section { 0 } else { self.preprocessing.view_bytes() },
            edge_bits: self.edge.as_ref().map_or(0, |edge| edge.features.bits()),
        }
    }

    /// The section of that name.
    pub fn section(&self, name: &str) -> Option<&SectionManifest> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// Bytes of the body of one summary, `4|C|` for [`ScoreEncoding::F32`].
    pub fn score_bytes(&self) -> usize {
        match self.scores {
            ScoreEncoding::F32 => 4 * self.classes(),
        }
    }
}

impl Preprocessing {
    /// Bytes of one view.
    pub fn view_bytes(&self) -> usize {
        self.channels as usize * self.height as usize * self.width as usize
    }
}

impl Configuration {
    /// The exits of the configuration, shallowest first.
    pub const fn exits(self) -> &'static [Exit] {
        match self {
            Self::A => &[Exit::Cloud],
            Self::B => &[Exit::Device, Exit::Cloud],
            Self::C => &[Exit::Local, Exit::Cloud],
            Self::D => &[Exit::Device, Exit::Edge, Exit::Cloud],
            Self::E | Self::F => &[Exit::Local, Exit::Edge, Exit::Cloud],
        }
    }

    /// Whether a sample may leave there.
    pub fn has(self, exit: Exit) -> bool {
        self.exits().contains(&exit)
    }

    /// Whether devices run a section; without one they send their views.
    pub const fn has_device_section(self) -> bool {
        !matches!(self, Self::A)
    }

    /// Whether devices send their map without being asked: there is nobody in front of the next tier who could be sure.
    pub const fn pushes_maps(self) -> bool {
        matches!(self, Self::A | Self::B | Self::D)
    }

    /// The letter in DDNN's figure 2.
    pub const fn letter(self) -> char {
        match self {
            Self::A => 'a',
            Self::B => 'b',
            Self::C => 'c',
            Self::D => 'd',
            Self::E => 'e',
            Self::F => 'f',
        }
    }
}

impl NetworkManifest {
    /// Number of maps that the cloud section joins: one a slot, or one an edge.
    pub fn cloud_sources(&self) -> usize {
        self.edge.as_ref().map_or(usize::from(self.slots), |edge| edge.groups.len())
    }

    /// The map that each of those sends.
    pub fn cloud_map(&self) -> FeatureMap {
        self.edge.as_ref().map_or(self.features, |edge| edge.features)
    }
}

impl EdgeTier {
    /// Slots of each edge.
    pub fn slots_by_edge(&self) -> impl Iterator<Item = SlotSet> {
        self.groups.iter().map(|slots| slots.iter().copied().collect())
    }
}

impl FeatureEncoding {
    /// Bits of one element on the wire.
    pub const fn element_bits(self) -> usize {
        match self {
            Self::Bits => 1,
            Self::Pixels => 8,
            Self::F32 => 32,
        }
    }

    /// Whether bytes of the right length are a map: floats must be finite, any bits and pixels are good.
    pub fn takes(self, bytes: &[u8]) -> bool {
        let finite = |four: &[u8]| four.try_into().is_ok_and(|four| f32::from_le_bytes(four).is_finite());
        self != Self::F32 || bytes.chunks(4).all(finite)
    }

    fn is_bits(&self) -> bool {
        *self == Self::Bits
    }
}

impl FeatureMap {
    /// `[channels, height, width]`.
    pub fn shape(&self) -> [usize; 3] {
        [self.channels, self.height, self.width].map(|side| side as usize)
    }

    /// Elements of one map, `f * o` in DDNN's formula.
    pub fn elements(&self) -> usize {
        self.shape().iter().product()
    }

    /// Bits of one map on the wire.
    pub fn bits(&self) -> usize {
        self.elements() * self.encoding.element_bits()
    }

    /// Bytes of one map on the wire, `f * o / 8` rounded up for signs.
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
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether the output has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
