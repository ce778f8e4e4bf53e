//! A policy file, in place of the bundle's: what the exit of a device that is alone goes by.

use std::path::Path;

use headwater_inference::policy::Policy;
use headwater_protocol::PolicyId;

use crate::config::DeviceConfig;
use crate::error::DeviceError;

impl DeviceConfig {
    /// Takes a policy from a TOML file in place of the bundle's.
    ///
    /// # Errors
    /// [`DeviceError::Policy`] when it cannot be read, or with what is wrong in it.
    pub fn read_policy(&mut self, path: &Path) -> Result<(), DeviceError> {
        let fail = |reason: String| DeviceError::Policy { path: path.into(), reason };
        let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
        self.policy = Some(read(&text).map_err(fail)?);
        Ok(())
    }
}

fn read(text: &str) -> Result<(Policy, PolicyId), String> {
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
        let error = read(text).unwrap_err();
        assert!(expected.iter().all(|part| error.contains(part)), "{error}");
    }

    #[test]
    fn thresholds_are_read_and_the_id_is_that_of_the_file() {
        let text = "[device]\nthreshold = 0.25\n";
        let (policy, id) = read(text).unwrap();
        assert!(matches!(policy.device.threshold, Threshold::One(threshold) if f32::from(threshold) == 0.25));
        assert_eq!(id, Policy::id_of(text.as_bytes()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        check("[device]\nthreshold = 1.5", &["threshold", "1.5", "[0, 1]"]);
        check("[device]\nthreshhold = 0.5", &["threshhold", "expected"]);
        check("window_ms = 0", &["window_ms", "0"]);
        check("[device", &["line 1"]);
    }
}
