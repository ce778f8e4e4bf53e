//! Configuration of a device.

use headwater_inference::policy::Policy;
use headwater_protocol::{DeviceId, GroupId, PolicyId, SiteId, Slot};
use headwater_transport::BrokerAccess;
use serde::Deserialize;

use crate::settings::DeviceOptions;

/// Configuration of one device. [`crate::DeviceSettings`] explains and bounds the values.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Site of the device.
    pub site: SiteId,
    /// Group whose samples the device sees.
    pub group: GroupId,
    /// Name of the device, unique in its group.
    pub id: DeviceId,
    /// Slot of the network that the device fills.
    pub slot: Slot,
    /// The broker, and what the device shows it.
    pub broker: BrokerAccess,
    /// Policy in place of the bundle's, with its id; for a device with an exit (configurations b, d).
    pub policy: Option<(Policy, PolicyId)>,
    /// Cause of a capture.
    pub capture: Capture,
    /// Values with a default.
    pub options: DeviceOptions,
}

/// Engine of a device's section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineChoice {
    /// The packed form; ONNX in tract if the bundle has none.
    Packed,
    /// ONNX in tract.
    Tract,
    /// ONNX in ONNX Runtime; in tract if no library is named and none is found.
    Ort,
}

/// Cause of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// A message on the group's topic `trigger`.
    Trigger,
    /// The device's clock: sample `k` at `k * period_ms` since 1970, the middle of its period.
    Clock {
        /// Milliseconds between samples; the same at every device of the group.
        period_ms: u64,
    },
    /// The source: each frame is a sample, whose id is the wall clock in milliseconds. For a group of one device, without triggers.
    Source,
}

/// Action for a frame that cannot be read. Such a frame is always logged and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnBrokenFrame {
    /// No answer for its samples: the slot is missing.
    Skip,
    /// The device does not start.
    Fatal,
}

impl Capture {
    /// Milliseconds between captures by the clock.
    pub(crate) fn period_ms(self) -> Option<u64> {
        match self {
            Self::Clock { period_ms } => Some(period_ms),
            Self::Trigger | Self::Source => None,
        }
    }
}

impl DeviceConfig {
    /// A device with every other value at its default.
    ///
    /// # Panics
    /// Never: a test holds that every option has a default.
    pub fn new(
        site: SiteId,
        group: GroupId,
        id: DeviceId,
        slot: Slot,
        broker: impl Into<BrokerAccess>,
    ) -> Self {
        let options = headwater_settings::defaults().expect("every option has a default");
        let broker = broker.into();
        Self { site, group, id, slot, broker, policy: None, capture: Capture::Trigger, options }
    }
}
