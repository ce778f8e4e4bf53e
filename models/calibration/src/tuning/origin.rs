//! Origin of temperatures, rule and thresholds, in words and figures.

use std::fmt;

use serde::Serialize;

use crate::data::Samples;
use crate::promise::path::Step;

/// Origin of temperatures, rule and thresholds: `thresholds` of `report.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThresholdOrigin {
    /// Logits that were used, in words.
    pub from: String,
    /// Samples.
    pub samples: usize,
    /// Groups that they form where samples share a scene or an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<usize>,
    /// Share of these samples with the last exit right and the given answer wrong, as measured: without a correction for the choice.
    pub lost: f64,
    /// Share of these samples with the last exit wrong and the given answer right.
    pub won: f64,
}

/// Part whose logits thresholds are fitted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FittedPart {
    /// The validation part, with the logits of the network itself.
    Validation,
    /// The train part, with out-of-fold logits.
    OutOfFold,
}

impl ThresholdOrigin {
    /// The origin of thresholds from the samples of a part; `step` is the step that was taken, `None` where no sample leaves early.
    pub fn new(part: FittedPart, samples: &Samples, step: Option<&Step>) -> Self {
        let (count, groups) = (samples.len(), samples.group_count());
        let kind = match part {
            FittedPart::Validation => "logits",
            FittedPart::OutOfFold => "out-of-fold logits",
        };
        let of = match part {
            FittedPart::Validation => "validation",
            FittedPart::OutOfFold => "training",
        };
        let in_groups = groups.map_or_else(String::new, |groups| format!(" in {groups} groups"));
        let from = format!("{kind} of {count} {of} samples{in_groups}");
        let (lost, won) = step.map_or((0.0, 0.0), |step| (step.lost, step.won));
        Self { from, samples: count, groups, lost, won }
    }

    /// The origin of thresholds that let no sample leave early, since a calibration part of `samples` speaks against every step.
    #[must_use]
    pub fn rejected_by(self, samples: usize) -> Self {
        let from = format!(
            "{}; no sample leaves early, since {samples} calibration samples speak against every step",
            self.from
        );
        Self { from, lost: 0.0, won: 0.0, ..self }
    }

    /// The origin of thresholds among which a calibration part of `samples` chose.
    #[must_use]
    pub fn chosen_by(self, samples: usize) -> Self {
        Self { from: format!("{}, among which {samples} calibration samples chose", self.from), ..self }
    }

    /// The origin of thresholds that were measured although there is a calibration part.
    #[must_use]
    pub fn without_promise(self, obstacle: &str) -> Self {
        Self { from: format!("{}; no promise: {obstacle}", self.from), ..self }
    }
}

impl fmt::Display for ThresholdOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thresholds from {}", self.from)
    }
}
