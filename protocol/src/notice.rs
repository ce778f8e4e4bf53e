//! What a device or an edge says of itself, retained at the broker, in JSON because people read it.

use serde::{Deserialize, Serialize};

use crate::ids::{Boot, DeviceId, EdgeIndex, NetworkId, SampleId, Slot};

/// `dev/{id}/status`, retained; the `down` form is the device's last will.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Up or down.
    pub state: DeviceState,
    /// The life this status speaks of: a will of an earlier life must not end a later one.
    pub boot: Boot,
}

/// Whether a device or an edge is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceState {
    /// Connected and answering.
    Up,
    /// Gone, by itself or by its last will.
    Down,
}

/// `dev/{id}/birth`, retained: who the device is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Birth {
    /// Its id, as in the topic.
    pub device: DeviceId,
    /// The slot it fills.
    pub slot: Slot,
    /// This life.
    pub boot: Boot,
    /// Name and version of its software.
    pub software: String,
    /// The network it runs.
    pub network: NetworkId,
    /// Where ids of samples come from its clock: the id of the moment of its start. Headers carry the low half of an id, and the rest is
    /// found near this one while nothing newer is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<SampleId>,
    /// What it can do beyond the version's basics; unknown words are ignored.
    #[serde(default)]
    pub capabilities: Vec<String>,
}

/// `edge/{id}/status`, retained: which edge of the network it is; the `down` form is its last will.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeStatus {
    /// Up or down.
    pub state: DeviceState,
    /// The life this status speaks of.
    pub boot: Boot,
    /// Position of the edge in the network.
    pub edge: EdgeIndex,
    /// The network it runs.
    pub network: NetworkId,
    /// Name and version of its software.
    pub software: String,
}
