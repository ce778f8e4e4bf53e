//! Retained messages by which devices and edges introduce themselves; JSON, because people read them.

use serde::{Deserialize, Serialize};

use crate::ids::{Boot, DeviceId, EdgeIndex, NetworkId, SampleId, Slot};

/// Message on `dev/{id}/status`, retained; the `down` form is the device's last will.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Up or down.
    pub state: DeviceState,
    /// The start that this status belongs to. The will of an earlier start must not end a later one.
    pub boot: Boot,
}

/// Whether a device or an edge is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceState {
    /// The connection stands.
    Up,
    /// The device or edge left, or its last will came.
    Down,
}

/// Message on `dev/{id}/birth`, retained: identity of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Birth {
    /// Id of the device, as in the topic.
    pub device: DeviceId,
    /// The slot that the device fills.
    pub slot: Slot,
    /// Number of this start.
    pub boot: Boot,
    /// Name and version of the software.
    pub software: String,
    /// The network that it runs.
    pub network: NetworkId,
    /// Sample id at the device's start, where ids come from its clock. Short ids in headers are widened near it until a newer id is
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<SampleId>,
    /// Optional features of the protocol that the device supports; receivers ignore names that they do not know.
    #[serde(default)]
    pub capabilities: Vec<String>,
}

/// Message on `edge/{id}/status`, retained; the `down` form is the edge's last will.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeStatus {
    /// Up or down.
    pub state: DeviceState,
    /// The start that this status belongs to.
    pub boot: Boot,
    /// Position of the edge in the network.
    pub edge: EdgeIndex,
    /// The network that it runs.
    pub network: NetworkId,
    /// Name and version of the software.
    pub software: String,
}
