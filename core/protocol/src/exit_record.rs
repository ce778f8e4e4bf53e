//! The record in a decision of how its sample went through the exits.

use serde::{Deserialize, Serialize};

use crate::exit::Exit;

/// An exit that was applied to a sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AppliedExit {
    /// The exit.
    pub exit: Exit,
    /// One minus the exit's uncertainty, in `[0, 1]`.
    pub confidence: f32,
    /// Lowest confidence at which this sample leaves at the exit: one minus the policy's threshold.
    ///
    /// `None` at the last exit, where every sample leaves, and for a device that decided under a policy of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold_confidence: Option<f32>,
}

/// Reason why a sample left at its exit and not at a deeper one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LeaveReason {
    /// The confidence reached the threshold.
    Sure,
    /// The last exit of the network, where every sample leaves.
    LastExit,
    /// No deeper exit answered before the deadline.
    Deadline,
    /// The cloud was not reached, refused, or was not asked; `degraded` says which.
    CloudFailed,
    /// The features of no device reached the next exit.
    NoFeatures,
    /// No device had a view, so no exit was applied.
    NoView,
    /// A reason of a later version, or none.
    #[default]
    #[serde(other)]
    Unknown,
}

impl LeaveReason {
    /// Name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sure => "sure",
            Self::LastExit => "last_exit",
            Self::Deadline => "deadline",
            Self::CloudFailed => "cloud_failed",
            Self::NoFeatures => "no_features",
            Self::NoView => "no_view",
            Self::Unknown => "unknown",
        }
    }

    /// Whether the decision does not say the reason.
    pub(crate) fn is_unknown(&self) -> bool {
        *self == Self::Unknown
    }
}

/// Origin of the capture time in a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TimeSource {
    /// The id times the period: the time for which the devices' clocks scheduled the capture.
    Clock,
    /// The id itself: milliseconds since 1970, from the source of the frames.
    Source,
    /// The leader's wall clock when the first answer came, less the age that the answer names.
    Age,
    /// An origin of a later version, or none: the time is not known.
    #[default]
    #[serde(other)]
    Unknown,
}

impl TimeSource {
    /// Name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clock => "clock",
            Self::Source => "source",
            Self::Age => "age",
            Self::Unknown => "unknown",
        }
    }

    /// Whether the time is not known.
    pub(crate) fn is_unknown(&self) -> bool {
        *self == Self::Unknown
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::*;

    #[test]
    fn names_equal_the_json_and_words_of_later_versions_are_read() {
        for reason in [
            LeaveReason::Sure,
            LeaveReason::LastExit,
            LeaveReason::Deadline,
            LeaveReason::CloudFailed,
            LeaveReason::NoFeatures,
            LeaveReason::NoView,
            LeaveReason::Unknown,
        ] {
            assert_eq!(to_value(reason).unwrap(), json!(reason.name()));
        }
        for source in [TimeSource::Clock, TimeSource::Source, TimeSource::Age, TimeSource::Unknown] {
            assert_eq!(to_value(source).unwrap(), json!(source.name()));
        }
        assert_eq!(from_value::<LeaveReason>(json!("bored")).unwrap(), LeaveReason::Unknown);
        assert_eq!(from_value::<TimeSource>(json!("sundial")).unwrap(), TimeSource::Unknown);
    }
}
