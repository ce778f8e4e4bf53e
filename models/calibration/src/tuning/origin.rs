//! Origin of temperatures, rule and thresholds, in words and figures.

use std::fmt;

use serde::Serialize;

use super::{Fitted, LossLimit};
use crate::data::Samples;
use crate::promise::outcomes::Outcomes;

/// Origin of temperatures, rule and thresholds: `thresholds` of `report.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThresholdOrigin {
    /// Logits that were used, in words.
    pub from: String,
    /// Number of samples of the part that show a class.
    pub samples: usize,
    /// Number of groups with a sample that shows a class; `None` for independent samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<usize>,
    /// Share of these samples with the last exit right and the given answer wrong, without a correction for the choice of thresholds.
    pub lost: f64,
    /// Share of these samples with the last exit wrong and the given answer right.
    pub won: f64,
}

/// Part on whose logits thresholds are fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FittedPart {
    /// The validation part, with the logits of the network itself.
    Validation,
    /// The train part, with out-of-fold logits.
    OutOfFold,
}

impl ThresholdOrigin {
    /// The origin of thresholds from the samples of a part, at the last step within a limit.
    pub fn new(part: FittedPart, samples: &Samples, fitted: &Fitted, limit: &LossLimit) -> Self {
        let (count, groups) = (samples.len() - samples.of_nothing(), samples.group_count_with_class());
        let (kind, of) = match part {
            FittedPart::Validation => ("logits", "validation"),
            FittedPart::OutOfFold => ("out-of-fold logits", "training"),
        };
        let in_groups = groups.map_or_else(String::new, |groups| format!(" in {groups} groups"));
        let tested = limit.tested.as_ref().and_then(|part| part.masks.first()).map(Outcomes::len);
        let choice = match (tested.filter(|_| !fitted.path.is_empty()), limit.step) {
            (Some(tested), Some(_)) => format!(", among which {tested} calibration samples chose"),
            (Some(tested), None) => {
                format!(
                    "; no sample leaves early, since {tested} calibration samples speak against every step"
                )
            }
            (None, _) if limit.why_measured.is_empty() => String::new(),
            (None, _) => format!("; no promise: {}", limit.why_measured),
        };
        let from = format!("{kind} of {count} {of} samples{in_groups}{choice}");
        let (lost, won) =
            limit.step.map_or((0.0, 0.0), |step| (fitted.path[step].lost, fitted.path[step].won));
        Self { from, samples: count, groups, lost, won }
    }
}

impl fmt::Display for ThresholdOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thresholds from {}", self.from)
    }
}
