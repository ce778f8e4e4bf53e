//! Configuration of a device.

use std::path::Path;

use headwater_inference::policy::Policy;
use headwater_link::Endpoint;
use headwater_protocol::{DeviceId, GroupId, PolicyId, SiteId, Slot};
use serde::Deserialize;

use crate::error::DeviceError;
use crate::settings::DeviceOptions;

/// Configuration of one device. [`crate::DeviceSettings`] explains and bounds the values.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceConfig {
    /// Site of the device.
    pub site: SiteId,
    /// Group whose samples the device sees.
    pub group: GroupId,
    /// Name of the device, unique in its group.
    pub id: DeviceId,
    /// Slot of the network that the device fills.
    pub slot: Slot,
    /// The broker.
    pub broker: Endpoint,
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
    pub fn new(site: SiteId, group: GroupId, id: DeviceId, slot: Slot, broker: Endpoint) -> Self {
        let options = headwater_settings::defaults().expect("every option has a default");
        Self { site, group, id, slot, broker, policy: None, capture: Capture::Trigger, options }
    }

    /// Reads a policy from a TOML file, in place of the bundle's.
    ///
    /// # Errors
    /// [`DeviceError::Stored`] when the file cannot be read, or with the mistake in it.
    pub fn read_policy(&mut self, path: &Path) -> Result<(), DeviceError> {
        let text = std::fs::read_to_string(path).map_err(|error| DeviceError::policy(path, error))?;
        self.policy = Some(parse_policy(&text).map_err(|reason| DeviceError::policy(path, reason))?);
        Ok(())
    }
}

fn parse_policy(text: &str) -> Result<(Policy, PolicyId), String> {
    let policy: Policy = toml::from_str(text).map_err(|error| error.to_string())?;
    policy.check().map_err(|error| error.to_string())?;
    Ok((policy, Policy::id_of(text.as_bytes())))
}

#[cfg(test)]
mod tests {
    use headwater_inference::policy::Threshold;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let error = parse_policy(text).unwrap_err();
        assert!(expected.iter().all(|part| error.contains(part)), "{error}");
    }

    #[test]
    fn thresholds_are_read_and_the_id_is_that_of_the_file() {
        let text = "[device]\nthreshold = 0.25\n";
        let (policy, id) = parse_policy(text).unwrap();
        assert!(matches!(policy.device.threshold, Threshold::One(threshold) if threshold.get() == 0.25));
        assert_eq!(id, Policy::id_of(text.as_bytes()));
    }

    #[test]
    fn mistakes_are_named() {
        check("[device]\nthreshold = 1.5", &["threshold", "1.5", "[0, 1]"]);
        check("[device]\nthreshhold = 0.5", &["threshhold", "expected"]);
        check("window_ms = 0", &["window_ms", "0"]);
        check("[device", &["line 1"]);
    }
}
