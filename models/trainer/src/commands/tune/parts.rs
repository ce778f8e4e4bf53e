//! Parts of the data for `tune`, run through the bundle, and how far along the path the loss is kept.

use anyhow::Context;
use headwater_calibration::data::{Parts, Samples};
use headwater_calibration::evaluation::bundle_logits_watched;
use headwater_calibration::part_logits::PartLogits;
use headwater_calibration::promise::outcomes::Outcomes;
use headwater_calibration::promise::{CalibrationPart, Target, Units};
use headwater_calibration::sample_cost::NetworkCost;
use headwater_calibration::tuning::frontier::CostedPart;
use headwater_calibration::tuning::{Fitted, ORDER_SEED};
use headwater_inference::bundle::Bundle;
use headwater_inference::engine::TractEngine;
use headwater_samples::Part;

use super::super::kept_apart::KeptApart;
use super::super::progress::SlowStatus;
use super::{Failure, Tune};

/// A part without its pixels, and the logits of a bundle for it.
pub(super) struct PartOfBundle {
    pub(super) samples: Samples,
    pub(super) logits: PartLogits,
}

/// The last setting that keeps the loss; all before it keep the loss too. Setting 0 has no early exit, setting `n` is step `n - 1` of the path.
pub(super) struct LossLimit {
    /// Index of the setting.
    pub(super) last: usize,
    /// The part whose test the settings have passed; `None` where the loss is measured.
    pub(super) tested: Option<CalibrationPart>,
    /// Why the loss is measured; empty where it is promised.
    pub(super) why_measured: String,
}

impl PartOfBundle {
    /// Runs the bundle over the samples of a part.
    pub(super) fn run(
        bundle: &Bundle,
        samples: Samples,
        part: &str,
        status: &mut SlowStatus,
    ) -> Result<Self, Failure> {
        let all = samples.len();
        status.stage(&format!("{part}: {all} samples"));
        let logits = bundle_logits_watched(bundle, &TractEngine, &samples, &mut |done| {
            status.show(|| format!("{part}: {done} of {all} samples"));
        })
        .with_context(|| format!("running the bundle on the part {part}"))?;
        Ok(Self { samples: samples.without_pixels(), logits })
    }

    /// The part with the costs of the network.
    pub(super) fn costed<'a>(&'a self, class_prior: &'a [f32], cost: &'a NetworkCost) -> CostedPart<'a> {
        CostedPart { logits: &self.logits, samples: &self.samples, class_prior, cost }
    }
}

impl Tune {
    /// The validation part, which must not be empty.
    pub(super) fn validation_samples(&self, parts: &Parts) -> Result<Samples, Failure> {
        let samples = samples(parts, Part::Validation);
        if samples.is_empty() {
            return Err(Failure::usage(anyhow::anyhow!(
                "{}: expected a validation part to choose thresholds on, found none; --split divides data without parts",
                self.dataset.data
            )));
        }
        Ok(samples)
    }

    /// The calibration part; the reason where there is none, or one that the network may have learnt.
    pub(super) fn calibration(
        &self,
        bundle: &Bundle,
        parts: &Parts,
        status: &mut SlowStatus,
    ) -> Result<Result<PartOfBundle, String>, Failure> {
        let (data, count) = (&self.dataset.data, parts.data.len(Part::Calibration));
        if count == 0 {
            return Ok(Err(format!("{data} has no calibration part")));
        }
        let kept_apart =
            KeptApart { bundle, file: &self.bundle, dataset: &self.dataset, is_stated: self.kept_apart };
        if let Err(error) = kept_apart.check(count) {
            return Ok(Err(error.to_string()));
        }
        if let Some(obstacle) = parts.data.promise_obstacle() {
            return Ok(Err(format!("{data}: {obstacle}")));
        }
        PartOfBundle::run(bundle, samples(parts, Part::Calibration), "calibration", status).map(Ok)
    }
}

/// The samples of a part. A recording is one group: its frames depend on each other.
fn samples(parts: &Parts, part: Part) -> Samples {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let samples = parts.part(part, None, threads);
    let groups = if parts.data.is_recording() { vec![0; samples.len()] } else { samples.groups.clone() };
    Samples { groups, ..samples }
}

/// How far the loss is kept: as promised on the calibration part where that allows a promise, else as measured on the validation part.
pub(super) fn loss_limit(
    fitted: &Fitted,
    target: &Target,
    calibration: &Result<PartOfBundle, String>,
) -> LossLimit {
    let after = |step: Option<usize>| step.map_or(0, |step| step + 1);
    let measured =
        |why_measured| LossLimit { last: after(fitted.measured_step(target)), tested: None, why_measured };
    let calibration = match calibration {
        Ok(calibration) if calibration.samples.groups.is_empty() => calibration,
        Ok(_) => {
            return measured(
                "samples of the calibration part depend on each other; `headwater-train calibrate` can promise over groups".to_owned(),
            );
        }
        Err(why) => return measured(why.clone()),
    };
    let outcomes = Outcomes::of(&calibration.logits, &calibration.samples, &fitted.policy);
    let part = CalibrationPart { masks: vec![outcomes], units: Units::Samples };
    match target.last_step(&fitted.path, &part, ORDER_SEED) {
        Ok(step) => LossLimit { last: after(step), tested: Some(part), why_measured: String::new() },
        Err(error) => measured(error.to_string()),
    }
}
