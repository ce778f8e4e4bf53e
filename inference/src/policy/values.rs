//! The values of a policy by key, as text.

use std::fmt;

use serde_json::Value;

use super::Policy;

/// A value that differs between two policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyDifference {
    /// The key with its section, such as `local.threshold`.
    pub key: String,
    /// The earlier value, as in a policy file.
    pub old: String,
    /// The later value.
    pub new: String,
}

impl fmt::Display for PolicyDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} -> {}", self.key, self.old, self.new)
    }
}

impl Policy {
    /// Every key that a policy file can state, with its value, such as `("local.threshold", "0.5")`: waits first, then the exits in their order.
    ///
    /// # Panics
    /// Never: numbers and names become JSON.
    pub fn values(&self) -> Vec<(String, String)> {
        // The shortest text of a number is made from the `f32`; a JSON value holds all digits of its `f64`.
        let text = serde_json::to_string(self).expect("numbers and names become JSON");
        let policy: Value = serde_json::from_str(&text).expect("the text is JSON");
        let mut found = Vec::new();
        let is_set_by_files = |(key, _): &(&String, &Value)| *key != "promise";
        for (key, value) in policy.as_object().into_iter().flatten().filter(is_set_by_files) {
            match value.as_object() {
                Some(exit) => {
                    found.extend(exit.iter().map(|(name, value)| (format!("{key}.{name}"), shown(value))));
                }
                None => found.push((key.clone(), shown(value))),
            }
        }
        let place = |key: &str| Self::KEYS.iter().position(|known| *known == key);
        found.sort_by_key(|(key, _)| place(key));
        found
    }

    /// Values that differ in `later`.
    pub fn differences(&self, later: &Self) -> Vec<PolicyDifference> {
        let pairs = self.values().into_iter().zip(later.values());
        let changed = pairs.filter(|((_, old), (_, new))| old != new);
        changed.map(|((key, old), (_, new))| PolicyDifference { key, old, new }).collect()
    }

    /// Every key of a policy file.
    pub const KEYS: [&str; 16] = [
        "window_ms",
        "features_ms",
        "deadline_ms",
        "late_ms",
        "device.rule",
        "device.temperature",
        "device.threshold",
        "local.rule",
        "local.temperature",
        "local.threshold",
        "edge.rule",
        "edge.temperature",
        "edge.threshold",
        "cloud.rule",
        "cloud.temperature",
        "cloud.threshold",
    ];
}

/// A value as in a policy file: numbers, words and lists look alike in JSON and TOML.
fn shown(value: &Value) -> String {
    match value.as_array() {
        Some(list) => format!("[{}]", list.iter().map(Value::to_string).collect::<Vec<_>>().join(", ")),
        None => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ExitRule, ExitThreshold, Threshold};
    use super::*;

    #[test]
    fn every_value_has_a_known_key_in_order() {
        let keys: Vec<_> = Policy::default().values().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, Policy::KEYS);
    }

    #[test]
    fn differences_are_shown_as_in_a_file() {
        let old = Policy::default();
        assert_eq!(old.differences(&old), []);
        let mut new = Policy { window_ms: 40, ..old.clone() };
        new.local.threshold =
            Threshold::ByPresent([0.3, 1.0].map(|value| ExitThreshold::new(value).unwrap()).to_vec());
        new.edge.rule = ExitRule::MaxProbability;
        let found: Vec<_> = old.differences(&new).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "window_ms 50 -> 40",
                "local.threshold 0.5 -> [0.3, 1.0]",
                "edge.rule \"entropy\" -> \"max_probability\""
            ]
        );
    }
}
