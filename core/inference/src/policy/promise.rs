//! The promise of a calibrated policy: a bound on the loss of its exits against the last exit, or on the share of wrong answers.

use std::fmt;

use headwater_protocol::PolicyName;
use serde::{Deserialize, Serialize};

use super::Policy;

/// Measure that a promise bounds, as a mean over undegraded samples with the same views and the same presence at every exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// [last exit right] - [given answer right]: the accuracy that is lost.
    Net,
    /// [last exit right and given answer wrong]: losses alone, however many samples an earlier exit wins.
    Losses,
}

impl Bound {
    /// The measure, from the shares of samples that are lost and won.
    pub fn risk(self, lost: f64, won: f64) -> f64 {
        match self {
            Self::Net => lost - won,
            Self::Losses => lost,
        }
    }
}

/// Kind of a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromiseKind {
    /// The loss by [`Bound::Net`].
    Net,
    /// The loss by [`Bound::Losses`].
    Losses,
    /// The wrong ones among the answers given: selective risk (Geifman and El-Yaniv 2017, section 2). Undecided samples are no answers.
    Wrong,
}

impl From<Bound> for PromiseKind {
    fn from(bound: Bound) -> Self {
        match bound {
            Bound::Net => Self::Net,
            Bound::Losses => Self::Losses,
        }
    }
}

/// Share of the calibration samples that get an answer, for a promise of the kind `wrong`. The share is measured, not promised.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answered {
    /// Share of the samples, in `[0, 1]`.
    pub share: f64,
    /// 95 % interval of the share; `None` where samples form groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
}

/// With probability `confidence` over the draw of the calibration part, samples drawn like this part lose at most `loss`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promise {
    /// Measure that the promise bounds.
    pub kind: PromiseKind,
    /// Policies that the promise is about.
    pub policies: Vec<PolicyName>,
    /// Largest loss as a share of the samples, in `(0, 1)`; of the kind `wrong`, largest share of wrong ones among the answers given.
    pub loss: f64,
    /// Probability with which the promise holds, in `(0, 1)`.
    pub confidence: f64,
    /// Presence of the devices under which the promise holds.
    pub presence: Presence,
    /// Samples on which the promise was tested.
    pub part: CalibrationData,
    /// Samples that get an answer; `None` unless the kind is `wrong`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<Answered>,
}

/// Presence of devices under which a promise holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Presence {
    /// Probability with which each device is missing, independently of the others; 0 if the promise is for samples with all devices.
    pub missing: f64,
    /// Numbers of slots without a view for which the promise holds, each by itself; a sample with any other number goes to the last exit.
    /// Empty if the promise holds over all samples of the part together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_missing: Vec<MissingCount>,
}

/// The calibration part of a promise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibrationData {
    /// Name of the data set.
    pub data: String,
    /// Number of samples.
    pub samples: u32,
    /// Number of groups of samples that share a scene, an object or a recording; `None` if samples share none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<u32>,
    /// Largest number of samples that such a group can have, as declared beforehand; the promise is for groups up to this size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_group: Option<u32>,
}

/// Calibration samples with one number of slots without a view: a device is missing, or does not see the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MissingCount {
    /// Number of slots without a view.
    pub missing: u32,
    /// Number of samples.
    pub samples: u32,
    /// Number of groups of samples that share a scene, an object or a recording; `None` if samples share none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<u32>,
}

impl fmt::Display for MissingCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { missing, samples, groups } = self;
        let views = if *missing == 1 { "view" } else { "views" };
        write!(f, "{missing} {views} absent ({samples} samples")?;
        groups.map_or(Ok(()), |groups| write!(f, " in {groups} groups"))?;
        write!(f, ")")
    }
}

impl Policy {
    /// A line with the promises, or a line that says that nothing is promised.
    pub fn promise_line(&self) -> String {
        if self.promises.is_empty() {
            return "measured, not promised: nothing bounds the loss of the early exits on new data"
                .to_owned();
        }
        let promises: Vec<_> = self.promises.iter().map(|promise| format!("promised: {promise}")).collect();
        promises.join("; ")
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, policies: _, loss, confidence, presence, part, answered } = self;
        let Presence { missing, by_missing } = presence;
        let CalibrationData { data, samples, groups, largest_group } = part;
        // The numbers are rounded, because dividing the risk into shares leaves digits without meaning.
        let rounded = |number: f64| (number * 1e4).round() / 1e4;
        let points = rounded(loss * 100.0);
        match kind {
            PromiseKind::Net => write!(f, "at most {points} points less accurate than the last exit")?,
            PromiseKind::Losses => {
                write!(f, "at most {points} % of answers wrong that the last exit has right")?;
            }
            PromiseKind::Wrong => write!(f, "at most {points} % of the answers given are wrong")?,
        }
        write!(
            f,
            ", with {} % confidence, for data like the calibration part of {data} ({samples} samples",
            rounded(confidence * 100.0)
        )?;
        if let Some(groups) = groups {
            write!(f, " in {groups} groups")?;
        }
        if let Some(largest) = largest_group {
            write!(f, " of at most {largest}")?;
        }
        match *missing > 0.0 {
            true => write!(f, ", each device missing with probability {missing})")?,
            false => write!(f, ", no device missing)")?,
        }
        if let Some(Answered { share, interval }) = answered {
            write!(f, "; {:.1} % of the samples get an answer", 100.0 * share)?;
            if let Some([low, high]) = interval.map(|interval| interval.map(|share| 100.0 * share)) {
                write!(f, " (95 % interval {low:.1} to {high:.1})")?;
            }
        }
        if by_missing.is_empty() {
            return Ok(());
        }
        let counts: Vec<String> = by_missing.iter().map(ToString::to_string).collect();
        write!(
            f,
            "; for each number of slots without a view by itself: {}; all other samples go to the last exit",
            counts.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promise() -> Promise {
        Promise {
            kind: Bound::Net.into(),
            policies: vec![PolicyName::new("calibrated").unwrap()],
            loss: 0.005,
            confidence: 1.0 - 0.05 / 2.0,
            presence: Presence { missing: 0.0, by_missing: Vec::new() },
            part: CalibrationData { data: "drawn".into(), samples: 5000, groups: None, largest_group: None },
            answered: None,
        }
    }

    #[test]
    fn a_promise_states_its_kind_policies_presence_and_part() {
        let text = serde_json::to_string(&promise()).unwrap();
        assert_eq!(
            text,
            r#"{"kind":"net","policies":["calibrated"],"loss":0.005,"confidence":0.975,"presence":{"missing":0.0},"part":{"data":"drawn","samples":5000}}"#
        );
        assert_eq!(serde_json::from_str::<Promise>(&text).unwrap(), promise());
    }

    #[test]
    fn a_promise_on_groups_says_how_large_they_may_be() {
        let mut promise = promise();
        (promise.part.groups, promise.part.largest_group) = (Some(700), Some(8));
        let said = promise.to_string();
        assert!(said.contains("(5000 samples in 700 groups of at most 8, no device missing)"), "{said}");
        let text = serde_json::to_string(&promise).unwrap();
        assert_eq!(serde_json::from_str::<Promise>(&text).unwrap(), promise);
    }

    #[test]
    fn a_promise_about_wrong_answers_says_how_many_samples_get_an_answer() {
        let answered = Some(Answered { share: 0.912, interval: Some([0.9, 0.92]) });
        let promise = Promise { kind: PromiseKind::Wrong, loss: 0.02, answered, ..promise() };
        let said = promise.to_string();
        assert!(said.starts_with("at most 2 % of the answers given are wrong, with 97.5 %"), "{said}");
        assert!(
            said.ends_with("; 91.2 % of the samples get an answer (95 % interval 90.0 to 92.0)"),
            "{said}"
        );
        let text = serde_json::to_string(&promise).unwrap();
        assert!(text.starts_with(r#"{"kind":"wrong","#), "{text}");
        assert_eq!(serde_json::from_str::<Promise>(&text).unwrap(), promise);
    }

    #[test]
    fn a_promise_by_number_of_missing_slots_names_the_numbers() {
        let counts =
            [(0, 1912), (1, 1420)].map(|(missing, samples)| MissingCount { missing, samples, groups: None });
        let mut promise = promise();
        promise.presence.by_missing = counts.to_vec();
        let said = promise.to_string();
        assert!(said.contains("with 97.5 % confidence"), "{said}");
        assert!(said.ends_with("by itself: 0 views absent (1912 samples), 1 view absent (1420 samples); all other samples go to the last exit"), "{said}");
        let text = serde_json::to_string(&promise).unwrap();
        assert_eq!(serde_json::from_str::<Promise>(&text).unwrap(), promise);
    }
}
