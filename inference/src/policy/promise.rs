//! The promise of a calibrated policy: a bound on what its exits lose against the last exit.

use std::fmt;

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

/// With probability `confidence` over the draw of the calibration part, samples like those of the part lose at most `loss`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promise {
    /// Measure that is bounded.
    pub bound: Bound,
    /// Largest loss as a share of the samples, in `(0, 1)`.
    pub loss: f64,
    /// Probability, in `(0, 1)`.
    pub confidence: f64,
    /// Name of the data set.
    pub data: String,
    /// Samples of its calibration part.
    pub samples: u32,
    /// Groups that they form where samples share a scene, an object or a recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<u32>,
    /// Probability that a device is missing, for each device by itself; 0 promises for samples with all devices.
    pub missing: f64,
}

impl Policy {
    /// The promise as a line, or that there is none.
    pub fn promise_line(&self) -> String {
        self.promise.as_ref().map_or_else(
            || "measured, not promised: nothing bounds the loss of the early exits on new data".to_owned(),
            |promise| format!("promised: {promise}"),
        )
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bound, loss, confidence, data, samples, groups, missing } = self;
        let points = loss * 100.0;
        match bound {
            Bound::Net => write!(f, "at most {points} points less accurate than the last exit")?,
            Bound::Losses => write!(f, "at most {points} % of answers wrong that the last exit has right")?,
        }
        write!(
            f,
            ", with {} % confidence, for data like the calibration part of {data} ({samples} samples",
            confidence * 100.0
        )?;
        if let Some(groups) = groups {
            write!(f, " in {groups} groups")?;
        }
        match *missing > 0.0 {
            true => write!(f, ", each device missing with probability {missing})"),
            false => write!(f, ", no device missing)"),
        }
    }
}
