//! The choice of thresholds by loss: the last step of the path that keeps a target. `train`, `tune` and tables use it.

use headwater_inference::policy::{Policy, Promise};

use super::{Fitted, ORDER_SEED};
use crate::data::Samples;
use crate::part_logits::PartLogits;
use crate::promise::outcomes::Outcomes;
use crate::promise::{CalibrationPart, Target, Units};

/// The last step of a path that keeps a target; all steps before it keep the target too.
#[derive(Clone, Debug)]
pub struct LossLimit {
    /// Index of the step; `None` if no sample may leave early.
    pub step: Option<usize>,
    /// The calibration part on which the steps passed their tests; `None` if the loss was only measured, on the part that the path
    /// was fitted on.
    pub tested: Option<CalibrationPart>,
    /// Reason why the loss was measured and not tested; empty if the loss was tested, or if there is no calibration part.
    pub why_measured: String,
}

impl LossLimit {
    /// Index of the last setting that keeps the target: 0 has no early exit, `n` is step `n - 1`.
    pub fn setting(&self) -> usize {
        self.step.map_or(0, |step| step + 1)
    }

    /// The promise of a step within the limit; `None` if no sample leaves early (nothing is lost) or nothing was tested.
    pub fn promise(
        &self,
        step: Option<usize>,
        of: impl FnOnce(&CalibrationPart) -> Promise,
    ) -> Option<Promise> {
        step.and(self.tested.as_ref()).map(of)
    }
}

/// The samples of a calibration part as independent units.
///
/// # Errors
/// The reason why the samples allow no promise, in words; empty if there are no samples.
pub fn independent_units(samples: &Samples) -> Result<Units, String> {
    if samples.is_empty() {
        return Err(String::new());
    }
    if samples.groups.is_empty() {
        return Ok(Units::Samples);
    }
    Err("samples of the calibration part share scenes or objects; `headwater-train tune --largest-group N` promises over groups"
        .to_owned())
}

impl Fitted {
    /// Tests the path on the calibration part `part`. If `part` is an error or allows no promise, the loss is measured on the part that
    /// the path was fitted on.
    pub fn limit(&self, target: &Target, part: Result<CalibrationPart, String>) -> LossLimit {
        let tested = part.and_then(|part| {
            let step = target.last_step(&self.path, &part, ORDER_SEED).map_err(|error| error.to_string())?;
            Ok((step, part))
        });
        match tested {
            Ok((step, part)) => LossLimit { step, tested: Some(part), why_measured: String::new() },
            Err(why_measured) => LossLimit { step: self.measured_step(target), tested: None, why_measured },
        }
    }

    /// A calibration part of the given samples, each an independent unit.
    ///
    /// # Errors
    /// The reason why the samples allow no promise, in words; empty if there are no samples.
    pub fn calibration_part(
        &self,
        logits: &PartLogits,
        samples: &Samples,
    ) -> Result<CalibrationPart, String> {
        let units = independent_units(samples)?;
        let (logits, samples) = logits.with_class(samples);
        let outcomes = Outcomes::of(&logits, &samples, &self.policy);
        Ok(CalibrationPart { masks: vec![outcomes], units })
    }

    /// The policy of the last step within a limit, with a promise for the data set `data` if that step was tested.
    pub fn within(&self, limit: &LossLimit, target: &Target, data: &str) -> Policy {
        let promise = limit.promise(limit.step, |part| target.promise(data, part, 0.0));
        Policy { promises: Vec::from_iter(promise), ..self.with_thresholds(limit.step) }
    }
}
