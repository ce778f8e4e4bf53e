//! A policy file in place of the bundle's policy, for the exit of a device (configurations b, d).

use std::path::Path;

use headwater_inference::policy::Policy;
use headwater_protocol::PolicyId;

use crate::config::DeviceConfig;
use crate::error::DeviceError;

impl DeviceConfig {
    /// Reads a policy from a TOML file, in place of the bundle's.
    ///
    /// # Errors
    /// [`DeviceError::Stored`] when the file cannot be read, or with the mistake in it.
    pub fn read_policy(&mut self, path: &Path) -> Result<(), DeviceError> {
        let text = std::fs::read_to_string(path).map_err(|error| DeviceError::policy(path, error))?;
        self.policy = Some(parse(&text).map_err(|reason| DeviceError::policy(path, reason))?);
        Ok(())
    }
}

fn parse(text: &str) -> Result<(Policy, PolicyId), String> {
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
        let error = parse(text).unwrap_err();
        assert!(expected.iter().all(|part| error.contains(part)), "{error}");
    }

    #[test]
    fn thresholds_are_read_and_the_id_is_that_of_the_file() {
        let text = "[device]\nthreshold = 0.25\n";
        let (policy, id) = parse(text).unwrap();
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
