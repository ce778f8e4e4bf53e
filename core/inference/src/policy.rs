//! The policy: thresholds and timing. The tier that applies an exit owns that exit's policy; a policy may change while the network stays.
//!
//! ```text
//! policy.json of a bundle ([`Policies`], calibrated) ──┐
//!                                                      ├── [`PolicyChanges::apply_to`] ──> policy in effect, named in decisions by its id
//! policy file of an operator (changes) ────────────────┘
//! ```

mod changes;
mod edit;
mod key;
mod learned;
mod live;
mod named;
mod promise;
mod values;
mod waits;

use headwater_protocol::{ByExit, Exit, PolicyId, PolicyName};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

pub use changes::{PolicyChanges, PolicyFileError};
pub use edit::PolicyEdit;
pub use learned::{LearnedWeights, Weight};
pub use live::{LivePolicy, Reread};
pub use named::Policies;
pub use promise::{Answered, Bound, CalibrationData, MissingCount, Presence, Promise, PromiseKind};
pub use values::{PolicyDifference, PolicyValue};
use waits::WAITS;

/// Thresholds and timing: a policy of a bundle, with the changes of an operator's file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Policy {
    /// Rule, temperature and threshold by exit. The threshold of a network's last exit is unused: every sample that gets there leaves.
    #[serde(flatten)]
    pub exits: ByExit<ExitPolicy>,
    /// Time in which a sample collects summaries, from its first message.
    pub window_ms: u32,
    /// Time that the leader waits for requested features.
    pub features_ms: u32,
    /// Time from capture until a sample must be decided, with or without the missing messages.
    pub deadline_ms: u32,
    /// Time in which a sample from a device's spool collects summaries: other devices return from the same outage meanwhile.
    pub late_ms: u32,
    /// Result of a sample that no exit answers.
    #[serde(skip_serializing_if = "NoAnswer::is_undecided")]
    pub no_answer: NoAnswer,
    /// Least confidence at which an answer of which no exit was sure is claimed; below it the sample is undecided. `None` claims every
    /// answer. An answer of which an exit was sure is always claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_above: Option<Confidence>,
    /// Bounds on the loss of the exits; empty if nothing is promised. The policy's id does not cover promises.
    #[serde(skip)]
    pub promises: Vec<Promise>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            exits: Exit::FIRST
                .map(|exit| {
                    let is_cloud = exit == Exit::CLOUD;
                    let threshold = if is_cloud { ExitThreshold::ALWAYS } else { ExitThreshold(0.5) };
                    (exit, ExitPolicy { threshold: Threshold::One(threshold), ..ExitPolicy::default() })
                })
                .into_iter()
                .collect(),
            window_ms: 50,
            features_ms: 50,
            deadline_ms: 300,
            late_ms: 2000,
            no_answer: NoAnswer::Undecided,
            claim_above: None,
            promises: Vec::new(),
        }
    }
}

/// Result of a sample that no exit answers: no device has a view, or the cloud fails and no exit comes before the cloud.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoAnswer {
    /// No class.
    #[default]
    Undecided,
    /// The most frequent class of the training samples, with confidence 0.
    ClassPrior,
}

impl NoAnswer {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
    fn is_undecided(&self) -> bool {
        *self == Self::Undecided
    }
}

/// Rule, temperature and threshold of one exit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExitPolicy {
    /// Measure of uncertainty, compared with the threshold.
    pub rule: ExitRule,
    /// Divisor of the logits before the softmax, above 0; tuning fits the temperature on validation data.
    pub temperature: Temperature,
    /// A sample leaves when its uncertainty is at or below the threshold.
    pub threshold: Threshold,
    /// Weights of the rule `learned`; other rules do not read them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<LearnedWeights>,
}

impl ExitPolicy {
    const DEFAULT: Self = Self {
        rule: ExitRule::Entropy,
        temperature: Temperature::ONE,
        threshold: Threshold::One(ExitThreshold(0.5)),
        weights: None,
    };
}

impl Default for ExitPolicy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Measure of an exit's uncertainty, in `[0, 1]`; 0 is certain. Entropy and margin reach 1 at a uniform distribution; `learned` reaches
/// 0 and 1 only by rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitRule {
    /// Normalised entropy `-sum p ln p / ln C` (DDNN, section III-D).
    Entropy,
    /// One minus the largest probability.
    MaxProbability,
    /// One minus the difference of the two largest probabilities.
    Margin,
    /// Probability, by [`LearnedWeights`], that this exit's answer is wrong and the last exit's answer is right.
    Learned,
}

impl ExitRule {
    /// Name in policies and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Entropy => "entropy",
            Self::MaxProbability => "max_probability",
            Self::Margin => "margin",
            Self::Learned => "learned",
        }
    }
}

/// One threshold, or one by number of present slots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, try_from = "RawThreshold")]
pub enum Threshold {
    /// One threshold for any number of present slots.
    One(ExitThreshold),
    /// Thresholds by number of present slots: element `k - 1` applies to `k` slots, the last element also to more slots.
    ByPresent(Vec<ExitThreshold>),
}

impl Threshold {
    /// The threshold if `present` slots contributed; 0 counts as 1.
    pub fn at(&self, present: u32) -> ExitThreshold {
        match self {
            Self::One(threshold) => *threshold,
            Self::ByPresent(list) => {
                let index = (present.max(1) as usize - 1).min(list.len().saturating_sub(1));
                list.get(index).copied().unwrap_or(ExitThreshold::ONLY_CERTAIN)
            }
        }
    }
}

/// A threshold as stored. Each number is checked alone, so that an error names the number.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number in [0, 1], or a list of them by number of present slots")]
enum RawThreshold {
    One(f32),
    ByPresent(Vec<f32>),
}

impl TryFrom<RawThreshold> for Threshold {
    type Error = PolicyError;
    fn try_from(raw: RawThreshold) -> Result<Self, PolicyError> {
        Ok(match raw {
            RawThreshold::One(value) => Self::One(ExitThreshold::new(value)?),
            RawThreshold::ByPresent(values) if values.is_empty() => return Err(PolicyError::NoThreshold),
            RawThreshold::ByPresent(values) => {
                Self::ByPresent(values.into_iter().map(ExitThreshold::new).collect::<Result<_, _>>()?)
            }
        })
    }
}

/// Largest uncertainty at which a sample leaves an exit, in `[0, 1]`; -1 if no sample leaves.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f32")]
pub struct ExitThreshold(f32);

impl ExitThreshold {
    /// Every sample leaves whose uncertainty is defined.
    pub const ALWAYS: Self = Self(1.0);
    /// Only a sample with an uncertainty of 0 leaves.
    pub const ONLY_CERTAIN: Self = Self(0.0);
    /// No sample leaves, not even one with an uncertainty of 0.
    pub const NEVER: Self = Self(-1.0);

    /// # Errors
    /// [`PolicyError::Threshold`] for NaN, and for a number outside `[0, 1]` other than the -1 of [`ExitThreshold::NEVER`].
    pub fn new(value: f32) -> Result<Self, PolicyError> {
        let is_in_range = (0.0..=1.0).contains(&value) || value == Self::NEVER.0;
        if is_in_range { Ok(Self(value)) } else { Err(PolicyError::Threshold(value)) }
    }
}

/// A confidence in `[0, 1]`: one minus an uncertainty.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f32")]
pub struct Confidence(f32);

impl Confidence {
    /// The least confidence, which every answer reaches.
    pub const NONE: Self = Self(0.0);
    /// The largest confidence, which only a certain answer reaches.
    pub const ALL: Self = Self(1.0);

    /// # Errors
    /// [`PolicyError::Confidence`] for NaN and for a number outside `[0, 1]`.
    pub fn new(value: f32) -> Result<Self, PolicyError> {
        if (0.0..=1.0).contains(&value) { Ok(Self(value)) } else { Err(PolicyError::Confidence(value)) }
    }
}

/// Divisor of the logits before the softmax (Guo et al. 2017, section 4.2), finite and above 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f32")]
pub struct Temperature(f32);

impl Temperature {
    /// The temperature that leaves the logits as they are.
    pub const ONE: Self = Self(1.0);

    /// # Errors
    /// [`PolicyError::Temperature`] unless `value` is finite and above 0.
    pub fn new(value: f32) -> Result<Self, PolicyError> {
        if value.is_finite() && value > 0.0 { Ok(Self(value)) } else { Err(PolicyError::Temperature(value)) }
    }
}

/// Gives each type a function `get`, and reads it from JSON through its function `new`.
macro_rules! checked_numbers {
    ($($number:ident),+) => {$(
        impl $number {
            /// The number.
            pub fn get(self) -> f32 {
                self.0
            }
        }

        impl TryFrom<f32> for $number {
            type Error = PolicyError;
            fn try_from(value: f32) -> Result<Self, PolicyError> {
                Self::new(value)
            }
        }
    )+};
}

checked_numbers!(ExitThreshold, Confidence, Temperature, Weight);

impl Policy {
    /// Id: the first eight bytes of the SHA-256 of the values as JSON.
    ///
    /// # Panics
    /// Never: numbers and names become JSON.
    pub fn id(&self) -> PolicyId {
        let values = serde_json::to_vec(self).expect("numbers and names become JSON");
        let hash: [u8; 32] = Sha256::digest(values).into();
        PolicyId(std::array::from_fn(|i| hash[i]))
    }

    /// This policy's exits and promises with the waits and `no_answer` of another policy, and the `claim_above` of the other policy if
    /// this policy has none.
    #[must_use]
    pub fn with_waits_of(self, other: &Self) -> Self {
        let Self { window_ms, features_ms, deadline_ms, late_ms, no_answer, .. } = *other;
        let claim_above = self.claim_above.or(other.claim_above);
        Self { window_ms, features_ms, deadline_ms, late_ms, no_answer, claim_above, ..self }
    }

    /// True when an answer of which no exit was sure is claimed as the sample's class. Under the rule `learned` the confidence says nothing
    /// about the answer's class, so no such answer is claimed while `claim_above` is more than 0.
    pub fn claims(&self, exit: Exit, confidence: f32) -> bool {
        let is_of_answer = self.of(exit).rule != ExitRule::Learned;
        let least = self.claim_above.unwrap_or(Confidence::NONE);
        least == Confidence::NONE || is_of_answer && confidence >= least.get()
    }

    /// Longest time, ms, for which devices may collect answers into one message. Answers of several devices to one sample may arrive this
    /// far apart, so it is at most half the window; each answer may come this much later, so it is at most a quarter of the deadline.
    pub fn max_batch_ms(&self) -> u32 {
        (self.window_ms / 2).min(self.deadline_ms / 4)
    }

    /// Rule, temperature and threshold of an exit; the default if the policy does not state the exit.
    pub fn of(&self, exit: Exit) -> &ExitPolicy {
        self.exits.get(exit).unwrap_or(&ExitPolicy::DEFAULT)
    }

    /// Rule, temperature and threshold of an exit, to be changed; the default is added if the policy does not state the exit.
    pub fn of_mut(&mut self, exit: Exit) -> &mut ExitPolicy {
        self.exits.get_or_insert_with(exit, ExitPolicy::default)
    }

    /// This policy with `policy` for the exit.
    #[must_use]
    pub fn with(mut self, exit: Exit, policy: ExitPolicy) -> Self {
        self.exits.insert(exit, policy);
        self
    }

    /// Checks that the policy states every exit of a network.
    ///
    /// # Errors
    /// The first exit that the policy does not state.
    pub fn check_exits(&self, exits: &[Exit]) -> Result<(), PolicyError> {
        let unstated = exits.iter().find(|exit| self.exits.get(**exit).is_none());
        unstated.map_or(Ok(()), |exit| Err(PolicyError::NoExit(*exit)))
    }

    /// Checks the rules that types alone cannot express: waits of 1 to [`MAX_WAIT_MS`], no deadline before the end of the window, no empty
    /// list of thresholds, weights for a learned rule.
    ///
    /// # Errors
    /// The first broken rule, with its key and value.
    pub fn check(&self) -> Result<(), PolicyError> {
        for wait in &WAITS {
            check_wait(wait.key, (wait.value)(self))?;
        }
        if self.deadline_ms < self.window_ms {
            return Err(PolicyError::DeadlineBeforeWindow {
                deadline_ms: self.deadline_ms,
                window_ms: self.window_ms,
            });
        }
        for (exit, policy) in self.exits.iter() {
            if matches!(&policy.threshold, Threshold::ByPresent(list) if list.is_empty()) {
                return Err(PolicyError::NoThreshold);
            }
            if policy.rule == ExitRule::Learned && policy.weights.is_none() {
                return Err(PolicyError::NoWeights(exit));
            }
        }
        Ok(())
    }
}

/// Largest wait in a policy: one minute, since a header carries ages up to 65,535 ms.
pub const MAX_WAIT_MS: u32 = 60_000;

fn check_wait(key: &'static str, found: u32) -> Result<(), PolicyError> {
    if found == 0 || found > MAX_WAIT_MS { Err(PolicyError::Wait { key, found }) } else { Ok(()) }
}

/// A policy that cannot be used.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PolicyError {
    /// A threshold that is NaN or outside `[0, 1]`, other than -1.
    #[error("exit threshold: expected a number in [0, 1], found {0}; -1 lets no sample leave")]
    Threshold(f32),
    /// A confidence that is NaN or outside `[0, 1]`.
    #[error("confidence: expected a number in [0, 1], found {0}")]
    Confidence(f32),
    /// A temperature that is not finite or not above 0.
    #[error("temperature: expected a finite number above 0, found {0}")]
    Temperature(f32),
    /// A wait of zero or of more than a minute.
    #[error("{key}: expected 1 to {MAX_WAIT_MS} milliseconds, found {found}")]
    Wait {
        /// The key in the policy.
        key: &'static str,
        /// The value in the policy, in milliseconds.
        found: u32,
    },
    /// The deadline is before the end of the window.
    #[error(
        "deadline_ms ({deadline_ms}) is below window_ms ({window_ms}): raise the deadline or shorten the window"
    )]
    DeadlineBeforeWindow {
        /// The deadline in milliseconds.
        deadline_ms: u32,
        /// The window in milliseconds.
        window_ms: u32,
    },
    /// An empty list of thresholds.
    #[error("exit threshold: expected one number or a list by number of present slots, found an empty list")]
    NoThreshold,
    /// An exit of the network that the policy does not state.
    #[error("{}: expected rule, temperature and threshold of this exit of the network, found none", .0.name())]
    NoExit(Exit),
    /// One of several policies of a bundle cannot be used.
    #[error("policy {name}: {error}")]
    Named {
        /// Name of the policy.
        name: PolicyName,
        /// Mistake in the policy.
        error: Box<PolicyError>,
    },
    /// No policy in a bundle, or more than 16.
    #[error("policies: expected 1 to 16, found {0}")]
    Policies(usize),
    /// Two policies with the same name.
    #[error("policies: expected names that differ, found {0} twice")]
    NameTwice(PolicyName),
    /// A promise that names no policy.
    #[error("promises: expected the names of its policies, found none")]
    PromiseOfNone,
    /// A promise or a policy file names a policy that the bundle does not have.
    #[error("expected the name of a policy of the bundle, found {0}")]
    UnknownName(PolicyName),
    /// A weight that is NaN or infinite.
    #[error("weight: expected a finite number, found {0}")]
    Weight(f32),
    /// The rule `learned` at an exit without weights.
    #[error(
        "{exit}.rule: expected weights beside the rule \"learned\", found none: state {exit}.weights, or choose another rule", exit = .0.name()
    )]
    NoWeights(Exit),
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
        let text = serde_json::to_string(&Threshold::One(ExitThreshold::NEVER)).unwrap();
        assert_eq!(serde_json::from_str::<Threshold>(&text).unwrap(), Threshold::One(ExitThreshold::NEVER));
    }

    #[test]
    fn a_threshold_list_is_chosen_by_present_slots() {
        let list = Threshold::ByPresent([0.1, 0.2, 0.3].map(|v| ExitThreshold::new(v).unwrap()).to_vec());
        for (present, expected) in [(0, 0.1), (1, 0.1), (2, 0.2), (3, 0.3), (6, 0.3)] {
            assert_eq!(list.at(present).get(), expected, "{present} present");
        }
    }

    #[test]
    fn the_default_policy_is_valid_and_survives_a_round_trip() {
        let policy = Policy::default();
        assert_eq!(policy.check(), Ok(()));
        let text = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<Policy>(&text).unwrap(), policy);
    }

    #[test]
    fn a_policy_that_claims_every_answer_keeps_its_id_and_another_names_its_confidence() {
        let policy = Policy::default();
        assert!(!serde_json::to_string(&policy).unwrap().contains("claim"));
        assert!(policy.claims(Exit::CLOUD, 0.0));
        let careful: Policy = serde_json::from_str(r#"{"claim_above":0.5}"#).unwrap();
        assert!(careful.claims(Exit::CLOUD, 0.5) && !careful.claims(Exit::CLOUD, 0.49));
        assert_ne!(careful.id(), policy.id());
        let text = serde_json::to_string(&careful).unwrap();
        assert_eq!(serde_json::from_str::<Policy>(&text).unwrap(), careful);
        assert_eq!(policy.with_waits_of(&careful).claim_above, careful.claim_above);
        let error = serde_json::from_str::<Policy>(r#"{"claim_above":1.5}"#).unwrap_err().to_string();
        assert!(error.contains("confidence: expected a number in [0, 1], found 1.5"), "{error}");
    }

    #[test]
    fn the_number_of_a_learned_rule_claims_nothing() {
        let learned = ExitPolicy { rule: ExitRule::Learned, ..ExitPolicy::default() };
        let policy = |least| Policy { claim_above: Some(Confidence(least)), ..Policy::default() };
        assert!(!policy(0.1).with(Exit::LOCAL, learned.clone()).claims(Exit::LOCAL, 1.0));
        assert!(policy(0.0).with(Exit::LOCAL, learned).claims(Exit::LOCAL, 0.0), "0 switches it off");
    }

    #[test]
    fn a_policy_has_thresholds_for_further_exits_and_refuses_other_keys() {
        let policy: Policy =
            serde_json::from_str(r#"{"window_ms":70,"cloud.1":{"threshold":0.25,"temperature":2.5}}"#)
                .unwrap();
        let further = Exit::from_name("cloud.1").unwrap();
        assert_eq!(policy.of(further).threshold, Threshold::One(ExitThreshold(0.25)));
        assert_eq!((policy.window_ms, policy.of(Exit::LOCAL)), (70, &ExitPolicy::default()));
        let text = serde_json::to_string(&policy).unwrap();
        assert!(
            text.contains(r#""cloud.1":{"rule":"entropy","temperature":2.5,"threshold":0.25}"#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Policy>(&text).unwrap(), policy);
        let values = policy.values();
        let found =
            values.iter().find(|(key, _)| key == "cloud.1.threshold").map(|(_, value)| value.to_string());
        assert_eq!(found.as_deref(), Some("0.25"));
        for (bad, expected) in [
            (r#"{"cloud.8":{}}"#, "unknown field `cloud.8`, expected one of `device`"),
            (r#"{"window_ms":1,"window_ms":1}"#, "`window_ms` twice"),
        ] {
            let error = serde_json::from_str::<Policy>(bad).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_learned_rule_without_weights_is_refused_with_its_exit() {
        let mut policy = Policy::default();
        policy.of_mut(Exit::EDGE).rule = ExitRule::Learned;
        let error = policy.check().unwrap_err();
        assert_eq!(error, PolicyError::NoWeights(Exit::EDGE));
        let expected = "edge.rule: expected weights beside the rule \"learned\", found none: state edge.weights, or choose another rule";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_deadline_before_the_window_is_refused() {
        let policy = Policy { deadline_ms: 10, ..Policy::default() };
        assert!(matches!(policy.check(), Err(PolicyError::DeadlineBeforeWindow { .. })));
    }
}
