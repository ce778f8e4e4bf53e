//! The way of a sample through the exits, as its decision records it.

use serde::{Deserialize, Serialize};

use crate::exit::Exit;
use crate::words::words;

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

words! {
    /// Reason why a sample left at its exit and not at a deeper one.
    LeaveReason {
        /// The confidence reached the threshold.
        Sure = "sure",
        /// The last exit of the network, where every sample leaves.
        LastExit = "last_exit",
        /// No deeper exit answered before the deadline.
        Deadline = "deadline",
        /// The cloud was not reached, refused, or was not asked; `degraded` says which.
        CloudFailed = "cloud_failed",
        /// The features of no device reached the next exit.
        NoFeatures = "no_features",
        /// No device had a view, so no exit was applied.
        NoView = "no_view",
    }
    /// A reason of a later version, or none.
    Unknown
}

words! {
    /// Origin of the capture time in a decision.
    TimeSource {
        /// The id times the period: the time for which the devices' clocks scheduled the capture.
        Clock = "clock",
        /// The id itself: milliseconds since 1970, from the source of the frames.
        Source = "source",
        /// The leader's wall clock when the first answer with an age came, less that age.
        Age = "age",
    }
    /// An origin of a later version, or none: the time is not known.
    Unknown
}
