//! The values of a policy by key, as text.

use std::fmt;

use headwater_protocol::Exit;
use serde::Serialize;
use serde_json::Value;

use super::Policy;
use super::key::{CLAIM_ABOVE, NO_ANSWER};
use super::waits::WAITS;

/// A value that differs between two policies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyDifference {
    /// The key with its section, such as `local.threshold`.
    pub key: String,
    /// The earlier value, as in a policy file.
    pub old: String,
    /// The later value.
    pub new: String,
}

/// A value of a policy. Its text is as in a policy file; `none` if there is no value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct PolicyValue(pub(super) Value);

impl fmt::Display for PolicyDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} -> {}", self.key, self.old, self.new)
    }
}

impl Policy {
    /// Every key of [`Policy::keys`] with its value, such as `local.threshold` and 0.5.
    ///
    /// # Panics
    /// Never: numbers and names become JSON.
    pub fn values(&self) -> Vec<(String, PolicyValue)> {
        // The values go through text, which has the shortest digits of an `f32`; a JSON value made directly would have all digits of the `f64`.
        let text = serde_json::to_string(self).expect("numbers and names become JSON");
        let policy: Value = serde_json::from_str(&text).expect("the text is JSON");
        let value = |key: &String| match key.rsplit_once('.') {
            Some((exit, name)) => PolicyValue(policy[exit][name].clone()),
            // A policy does not write `no_answer` if it is the default.
            None if key == NO_ANSWER => PolicyValue(serde_json::json!(self.no_answer)),
            None => PolicyValue(policy[key].clone()),
        };
        let keys = Self::keys(self.exits.iter().map(|(exit, _)| exit)).into_iter();
        keys.map(|key| (key.clone(), value(&key))).collect()
    }

    /// The values of `later` that differ from this policy's.
    pub fn differences(&self, later: &Self) -> Vec<PolicyDifference> {
        let old = self.values();
        let old_of = |key: &str| old.iter().find(|(own, _)| own == key).map(|(_, value)| value);
        let changed = later.values().into_iter().filter(|(key, new)| old_of(key) != Some(new));
        let difference = |(key, new): (String, PolicyValue)| PolicyDifference {
            old: old_of(&key).map_or_else(|| "none".into(), ToString::to_string),
            new: new.to_string(),
            key,
        };
        changed.map(difference).collect()
    }

    /// Keys of a policy file for these exits.
    pub fn keys(exits: impl IntoIterator<Item = Exit>) -> Vec<String> {
        let of_exit = |exit: Exit| {
            ["rule", "temperature", "threshold", "weights"].map(|name| format!("{}.{name}", exit.name()))
        };
        let waits = WAITS.iter().map(|wait| wait.key.to_owned());
        let waits = waits.chain([NO_ANSWER, CLAIM_ABOVE].map(str::to_owned));
        waits.chain(exits.into_iter().flat_map(of_exit)).collect()
    }
}

impl PolicyValue {
    /// The value of a key that a policy does not have.
    pub fn none() -> Self {
        Self(Value::Null)
    }

    /// True when the policy has no such value, such as the weights of an exit whose rule is not `learned`.
    pub fn is_none(&self) -> bool {
        self.0.is_null()
    }
}

impl fmt::Display for PolicyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |all: Vec<String>| all.join(", ");
        match &self.0 {
            Value::Array(values) => write!(f, "[{}]", list(values.iter().map(Value::to_string).collect())),
            Value::Object(values) => {
                let values = values.iter().map(|(name, value)| format!("{name} = {value}"));
                write!(f, "{{ {} }}", list(values.collect()))
            }
            Value::Null => f.write_str("none"),
            // JSON and TOML write booleans, numbers and strings alike.
            value @ (Value::Bool(_) | Value::Number(_) | Value::String(_)) => write!(f, "{value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Confidence, ExitRule, ExitThreshold, LearnedWeights, NoAnswer, Threshold, Weight};
    use super::*;

    fn with_weights() -> Policy {
        let weight = |value| Weight::new(value).unwrap();
        let weights = LearnedWeights {
            bias: weight(-4.5),
            entropy: weight(3.0),
            margin: weight(0.1),
            present: weight(-0.1),
            disagreement: weight(2.0),
        };
        let claim_above = Some(Confidence::new(0.25).unwrap());
        let mut policy = Policy { no_answer: NoAnswer::ClassPrior, claim_above, ..Policy::default() };
        Exit::FIRST.iter().for_each(|exit| policy.of_mut(*exit).weights = Some(weights));
        policy
    }

    #[test]
    fn every_value_of_a_policy_has_a_key_and_every_key_a_value() {
        assert!(with_weights().values().iter().all(|(_, value)| !value.is_none()));
        let policy = serde_json::to_value(with_weights()).unwrap();
        let keys = Policy::keys(Exit::FIRST);
        let mut known = 0;
        for (key, value) in policy.as_object().unwrap() {
            let names: Vec<String> = match value.as_object() {
                Some(exit) => exit.keys().map(|name| format!("{key}.{name}")).collect(),
                None => vec![key.clone()],
            };
            known += names.len();
            assert!(names.iter().all(|name| keys.contains(name)), "{names:?}");
        }
        assert_eq!(known, keys.len());
    }

    #[test]
    fn weights_are_one_value() {
        let (old, new) = (Policy::default(), with_weights());
        let found = old.differences(&new)[3].to_string();
        let expected = "{ bias = -4.5, disagreement = 2.0, entropy = 3.0, margin = 0.1, present = -0.1 }";
        assert_eq!(found, format!("local.weights none -> {expected}"));
    }

    #[test]
    fn differences_are_shown_as_in_a_file() {
        let old = Policy::default();
        assert_eq!(old.differences(&old), []);
        let mut new = Policy { window_ms: 40, ..old.clone() };
        new.of_mut(Exit::LOCAL).threshold =
            Threshold::ByPresent([0.3, 1.0].map(|value| ExitThreshold::new(value).unwrap()).to_vec());
        new.of_mut(Exit::EDGE).rule = ExitRule::MaxProbability;
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
