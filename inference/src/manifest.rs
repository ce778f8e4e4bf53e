//! `network.json`: what a bundle says about the trained network.
//!
//! The manifest is everything a tier must know to run its part: labels, shapes, encodings, sections. The network id is the
//! SHA-256 of the bytes of this file as stored, so tiers agree on all of it or refuse each other.

mod check;

use headwater_protocol::Slot;
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
    /// The feature map that a device sends on request.
    pub features: FeatureMap,
    /// How the score vectors of the devices are joined for the exit `local`.
    pub local_aggregation: Aggregation,
    /// How the feature maps of the devices are joined for the cloud section.
    pub cloud_aggregation: Aggregation,
    /// All sections, device sections first, by slot.
    pub sections: Vec<SectionManifest>,
    /// The spec this network was trained from, for people and for `inspect`.
    pub spec: serde_json::Value,
}

/// DDNN configuration of the network (see the table in the design).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Configuration {
    /// Several devices, local aggregator, cloud.
    C,
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

/// Shape of the binary feature map of one device, `[channels, height, width]`, one bit per element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeatureMap {
    /// Filters of the last device block (`f`).
    pub channels: u32,
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
}

/// One section: a part of the network that one tier runs in one piece.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SectionManifest {
    /// `device-0`, …, `local`, `cloud`.
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

impl FeatureMap {
    /// Bits of one map, `f * o` in DDNN's formula.
    pub fn bits(&self) -> usize {
        self.channels as usize * self.height as usize * self.width as usize
    }

    /// Bytes of one map on the wire, `f * o / 8` rounded up.
    pub fn packed_bytes(&self) -> usize {
        self.bits().div_ceil(8)
    }

    /// Bits of one channel's map (`o` in DDNN's formula).
    pub fn bits_per_channel(&self) -> usize {
        self.height as usize * self.width as usize
    }
}

impl SectionManifest {
    /// Name of the device section of a slot.
    pub fn device_name(slot: Slot) -> String {
        format!("device-{slot}")
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
