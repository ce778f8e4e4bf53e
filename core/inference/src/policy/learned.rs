//! Weights of the rule `learned`.

use serde::{Deserialize, Serialize};

use super::PolicyError;

/// Weights of a logistic regression: its probability is the uncertainty of an exit with the rule `learned`. Tuning fits the weights on
/// validation data. Each weight except the bias is the change of the log odds per unit of its input.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearnedWeights {
    /// Log odds if every input is 0.
    pub bias: Weight,
    /// Weight of the normalised entropy, an input in `[0, 1]`.
    pub entropy: Weight,
    /// Weight of one minus the difference of the two largest probabilities, an input in `[0, 1]`.
    pub margin: Weight,
    /// Weight of the number of present slots.
    pub present: Weight,
    /// Weight of the share of present devices whose most likely class differs from the exit's, an input in `[0, 1]`.
    pub disagreement: Weight,
}

/// A finite number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f32")]
pub struct Weight(pub(super) f32);

impl Weight {
    /// # Errors
    /// [`PolicyError::Weight`] for NaN and infinities.
    pub fn new(value: f32) -> Result<Self, PolicyError> {
        if value.is_finite() { Ok(Self(value)) } else { Err(PolicyError::Weight(value)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{ExitPolicy, Policy};

    const WEIGHTS: &str = r#"{"bias":-4.5,"entropy":3.0,"margin":0.25,"present":-0.1,"disagreement":2.0}"#;

    #[test]
    fn weights_survive_a_round_trip_beside_the_rule() {
        let text = format!(r#"{{"local":{{"rule":"learned","weights":{WEIGHTS}}}}}"#);
        let policy: Policy = serde_json::from_str(&text).unwrap();
        assert_eq!(policy.check(), Ok(()));
        let stored = serde_json::to_string(&policy).unwrap();
        assert!(stored.contains(WEIGHTS), "{stored}");
        assert_eq!(serde_json::from_str::<Policy>(&stored).unwrap(), policy);
    }

    #[test]
    fn a_policy_without_weights_is_stored_as_before_there_were_any() {
        let stored = serde_json::to_string(&ExitPolicy::default()).unwrap();
        assert_eq!(stored, r#"{"rule":"entropy","temperature":1.0,"threshold":0.5}"#);
    }

    #[test]
    fn weights_that_are_missing_unknown_or_not_finite_are_refused() {
        let check = |text: &str, expected: &str| {
            let error = serde_json::from_str::<LearnedWeights>(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected} in {error}");
        };
        check(&WEIGHTS.replace("-4.5", "1e300"), "number out of range");
        check(&WEIGHTS.replace("margin", "margins"), "unknown field `margins`");
        check(&WEIGHTS.replace(r#","disagreement":2.0"#, ""), "missing field `disagreement`");
        assert!(Weight::new(f32::NAN).is_err() && Weight::new(f32::MAX).is_ok());
    }
}
