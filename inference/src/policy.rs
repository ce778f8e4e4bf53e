//! The policy: thresholds and timing. It belongs to the tier that applies the exit and may change while the network stays.

use headwater_protocol::{Exit, PolicyId};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// `policy.json` in a bundle, or a TOML file an operator writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// Exit of the head on a device, where it is the only one.
    pub device: ExitPolicy,
    /// Exit over the devices' aggregated scores.
    pub local: ExitPolicy,
    /// Exit of the edge section.
    pub edge: ExitPolicy,
    /// The last exit. Its threshold is not used: whatever reaches it leaves there.
    pub cloud: ExitPolicy,
    /// Time a sample may collect summaries, from its first message.
    pub window_ms: u32,
    /// Time the leader waits for features after it asked.
    pub features_ms: u32,
    /// Time from capture by which a sample is decided, whatever is missing.
    pub deadline_ms: u32,
    /// Time a sample from a device's spool may collect summaries: long enough for the others to come back from the same outage.
    pub late_ms: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            device: ExitPolicy::default(),
            local: ExitPolicy::default(),
            edge: ExitPolicy::default(),
            cloud: ExitPolicy { threshold: Threshold::One(ExitThreshold::ALWAYS), ..ExitPolicy::default() },
            window_ms: 50,
            features_ms: 50,
            deadline_ms: 300,
            late_ms: 2000,
        }
    }
}

/// Rule, temperature and threshold of one exit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExitPolicy {
    /// What is compared with the threshold.
    pub rule: ExitRule,
    /// Divides the logits before the softmax; calibration fits it on validation data. Above 0.
    pub temperature: Temperature,
    /// At or below it the sample leaves.
    pub threshold: Threshold,
}

impl Default for ExitPolicy {
    fn default() -> Self {
        Self {
            rule: ExitRule::Entropy,
            temperature: Temperature::ONE,
            threshold: Threshold::One(ExitThreshold(0.5)),
        }
    }
}

/// How unsure an exit is, in `[0, 1]`: 0 certain, 1 knows nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitRule {
    /// Normalised entropy `-sum p ln p / ln C` (DDNN, section III-D).
    Entropy,
    /// One minus the largest probability.
    MaxProbability,
    /// One minus the difference of the two largest probabilities.
    Margin,
}

/// One threshold, or one by number of present slots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, try_from = "RawThreshold")]
pub enum Threshold {
    /// The same however many slots are present.
    One(ExitThreshold),
    /// Element `k - 1` applies when `k` slots are present; the last one for more.
    ByPresent(Vec<ExitThreshold>),
}

impl Threshold {
    /// The threshold when `present` slots contributed.
    pub fn at(&self, present: u32) -> ExitThreshold {
        match self {
            Self::One(threshold) => *threshold,
            Self::ByPresent(list) => {
                let index = (present.max(1) as usize - 1).min(list.len().saturating_sub(1));
                list.get(index).copied().unwrap_or(ExitThreshold::NEVER)
            }
        }
    }
}

/// What stands in the file; checked number by number, so that the error names the number and not the form.
#[derive(Deserialize)]
#[serde(untagged)]
enum RawThreshold {
    One(f32),
    ByPresent(Vec<f32>),
}

impl TryFrom<RawThreshold> for Threshold {
    type Error = PolicyError;
    fn try_from(raw: RawThreshold) -> Result<Self, PolicyError> {
        Ok(match raw {
            RawThreshold::One(value) => Self::One(ExitThreshold::new(value)?),
            RawThreshold::ByPresent(values) => {
                Self::ByPresent(values.into_iter().map(ExitThreshold::new).collect::<Result<_, _>>()?)
            }
        })
    }
}

/// Cut-off of one exit, in `[0, 1]`; a sample whose uncertainty is at or below it leaves there.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f32", into = "f32")]
pub struct ExitThreshold(f32);

impl ExitThreshold {
    /// Every sample leaves.
    pub const ALWAYS: Self = Self(1.0);
    /// Only a sample of no uncertainty at all leaves.
    pub const NEVER: Self = Self(0.0);

    /// # Errors
    /// [`PolicyError::Threshold`] for NaN or anything outside `[0, 1]`.
    pub fn new(value: f32) -> Result<Self, PolicyError> {
        if (0.0..=1.0).contains(&value) { Ok(Self(value)) } else { Err(PolicyError::Threshold(value)) }
    }

    /// The number.
    pub fn get(self) -> f32 {
        self.0
    }
}

impl TryFrom<f32> for ExitThreshold {
    type Error = PolicyError;
    fn try_from(value: f32) -> Result<Self, PolicyError> {
        Self::new(value)
    }
}

impl From<ExitThreshold> for f32 {
    fn from(value: ExitThreshold) -> Self {
        value.0
    }
}

/// Divisor of the logits before the softmax (Guo et al. 2017, section 4.2), finite and above 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f32", into = "f32")]
pub struct Temperature(f32);

impl Temperature {
    /// Leaves the logits as they are.
    pub const ONE: Self = Self(1.0);

    /// # Errors
    /// [`PolicyError::Temperature`] unless `value` is finite and above 0.
    pub fn new(value: f32) -> Result<Self, PolicyError> {
        if value.is_finite() && value > 0.0 { Ok(Self(value)) } else { Err(PolicyError::Temperature(value)) }
    }

    /// The number.
    pub fn get(self) -> f32 {
        self.0
    }
}

impl TryFrom<f32> for Temperature {
    type Error = PolicyError;
    fn try_from(value: f32) -> Result<Self, PolicyError> {
        Self::new(value)
    }
}

impl From<Temperature> for f32 {
    fn from(value: Temperature) -> Self {
        value.0
    }
}

impl Policy {
    /// Id of a policy from its bytes as stored, JSON or TOML: the first eight bytes of their SHA-256.
    pub fn id_of(stored: &[u8]) -> PolicyId {
        let hash: [u8; 32] = Sha256::digest(stored).into();
        PolicyId(std::array::from_fn(|i| hash[i]))
    }

    /// Rule, temperature and threshold of an exit.
    pub fn of(&self, exit: Exit) -> &ExitPolicy {
        match exit {
            Exit::Device => &self.device,
            Exit::Local => &self.local,
            Exit::Edge => &self.edge,
            Exit::Cloud => &self.cloud,
        }
    }

    /// The same, to be changed.
    pub fn of_mut(&mut self, exit: Exit) -> &mut ExitPolicy {
        match exit {
            Exit::Device => &mut self.device,
            Exit::Local => &mut self.local,
            Exit::Edge => &mut self.edge,
            Exit::Cloud => &mut self.cloud,
        }
    }

    /// Checks what the types alone cannot: times above zero and in order, threshold lists not empty.
    ///
    /// # Errors
    /// The first rule that is broken, with the key and the value found.
    pub fn check(&self) -> Result<(), PolicyError> {
        for (key, found) in [
            ("window_ms", self.window_ms),
            ("features_ms", self.features_ms),
            ("deadline_ms", self.deadline_ms),
            ("late_ms", self.late_ms),
        ] {
            if found == 0 || found > MAX_WAIT_MS {
                return Err(PolicyError::Wait { key, found });
            }
        }
        if self.deadline_ms < self.window_ms {
            return Err(PolicyError::DeadlineBeforeWindow {
                deadline_ms: self.deadline_ms,
                window_ms: self.window_ms,
            });
        }
        for exit in Exit::ALL {
            if matches!(&self.of(exit).threshold, Threshold::ByPresent(list) if list.is_empty()) {
                return Err(PolicyError::NoThreshold { exit: exit.name() });
            }
        }
        Ok(())
    }
}

/// Longest wait a policy may ask for: a minute. A header carries ages up to 65,535 ms.
pub const MAX_WAIT_MS: u32 = 60_000;

/// A policy that cannot be used.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PolicyError {
    /// Outside `[0, 1]` or NaN.
    #[error("exit threshold: expected a number in [0, 1], found {0}")]
    Threshold(f32),
    /// Not finite or not above 0.
    #[error("temperature: expected a finite number above 0, found {0}")]
    Temperature(f32),
    /// A wait of zero or of more than a minute.
    #[error("{key}: expected 1 to {MAX_WAIT_MS} milliseconds, found {found}")]
    Wait {
        /// The key in the policy.
        key: &'static str,
        /// Its value.
        found: u32,
    },
    /// A sample would have to be decided before its window closes.
    #[error(
        "deadline_ms ({deadline_ms}) is below window_ms ({window_ms}): raise the deadline or shorten the window"
    )]
    DeadlineBeforeWindow {
        /// Milliseconds.
        deadline_ms: u32,
        /// Milliseconds.
        window_ms: u32,
    },
    /// An empty list of thresholds.
    #[error(
        "{exit}.threshold: expected one number or a list by number of present slots, found an empty list"
    )]
    NoThreshold {
        /// Name of the exit.
        exit: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_outside_zero_to_one_is_refused_by_name() {
        for bad in [-0.1, 1.1, f32::NAN, f32::INFINITY] {
            assert!(ExitThreshold::new(bad).is_err(), "{bad}");
        }
        let error = serde_json::from_str::<Policy>(r#"{"local":{"threshold":1.5}}"#).unwrap_err();
        assert!(error.to_string().contains("expected a number in [0, 1], found 1.5"), "{error}");
        assert!(ExitThreshold::new(0.0).is_ok() && ExitThreshold::new(1.0).is_ok());
    }

    #[test]
    fn a_threshold_list_is_chosen_by_present_slots() {
        let list = Threshold::ByPresent([0.1, 0.2, 0.3].map(|v| ExitThreshold::new(v).unwrap()).to_vec());
        for (present, expected) in [(0, 0.1), (1, 0.1), (2, 0.2), (3, 0.3), (6, 0.3)] {
            assert_eq!(list.at(present).get(), expected, "{present} present");
        }
    }

    #[test]
    fn the_default_policy_holds_and_survives_a_round_trip() {
        let policy = Policy::default();
        assert_eq!(policy.check(), Ok(()));
        let text = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<Policy>(&text).unwrap(), policy);
    }

    #[test]
    fn a_deadline_before_the_window_is_refused() {
        let policy = Policy { deadline_ms: 10, ..Policy::default() };
        assert!(matches!(policy.check(), Err(PolicyError::DeadlineBeforeWindow { .. })));
    }
}
