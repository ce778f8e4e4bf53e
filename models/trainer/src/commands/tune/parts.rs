//! Parts of the data for `tune`, run through the bundle, and the reasons for which the calibration part allows no promise.

use std::collections::BTreeSet;

use anyhow::Context;
use headwater_calibration::data::{Parts, Samples};
use headwater_calibration::evaluation::bundle_logits_watched;
use headwater_calibration::part_logits::EvaluatedPart;
use headwater_calibration::promise::outcomes::Outcomes;
use headwater_calibration::promise::presence::draw_masks;
use headwater_calibration::promise::{CalibrationPart, Target, Units, binomial};
use headwater_calibration::sample_cost::NetworkCost;
use headwater_calibration::tuning::Fitted;
use headwater_calibration::tuning::frontier::CostedPart;
use headwater_inference::bundle::Bundle;
use headwater_inference::engine::TractEngine;
use headwater_inference::policy::Bound;
use headwater_samples::Part;

use super::super::cores;
use super::super::kept_apart::learnt_calibration_part;
use super::super::progress::StatusLine;
use super::{Failure, Tune, usage};

/// Number of masks of missing devices that are drawn for each calibration sample of a `net` promise.
const NET_MASKS: u64 = 4;

impl Tune {
    /// The samples of a part. A recording is one group unless a block length is stated: its frames depend on each other.
    pub(super) fn samples(&self, parts: &Parts, part: Part) -> Result<Samples, Failure> {
        let samples = parts.part(part, None, cores());
        let Some(frames) = self.block_length else {
            let groups =
                if parts.data.is_recording() { vec![0; samples.len()] } else { samples.groups.clone() };
            return Ok(Samples { groups, ..samples });
        };
        let blocks = samples.in_blocks(frames);
        if blocks.is_empty() {
            return usage(format!(
                "--block-length: expected two blocks of {frames} frames or more in the part {}, found fewer",
                part.name()
            ));
        }
        Ok(blocks)
    }

    /// The validation part, which must not be empty; refuses `--block-length` and `--largest-group` for data without frames or groups.
    pub(super) fn validation_samples(&self, parts: &Parts) -> Result<Samples, Failure> {
        let data = self.dataset.name();
        if self.block_length.is_some() && !parts.data.is_recording() {
            return usage(format!(
                "--block-length: expected the frames of a recording (folders named FRAME-OBJECT), found {data} without frames"
            ));
        }
        let samples = self.samples(parts, Part::Validation)?;
        if samples.is_empty() {
            return usage(format!(
                "{data}: expected a validation part to choose thresholds on, found none; --split divides data without parts"
            ));
        }
        if self.largest_group.is_some() && samples.groups.is_empty() {
            return usage(
                "--largest-group: expected data whose samples form groups, found independent samples",
            );
        }
        Ok(samples)
    }

    /// Runs the bundle over the samples of a part, once for each draw of missing devices: one draw for the validation part, one or several
    /// for the calibration part.
    pub(super) fn run_part(
        &self,
        bundle: &Bundle,
        samples: Samples,
        part: Part,
        status: &mut StatusLine,
    ) -> Result<Vec<EvaluatedPart>, Failure> {
        let masks = match (part, self.promise) {
            (Part::Calibration, Bound::Net) if self.missing > 0.0 && self.by_missing.is_none() => NET_MASKS,
            _ => 1,
        };
        let (all, name) = (samples.len(), part.name());
        status.stage(&format!("{name}: {all} samples"));
        let (seen, mut samples) = (samples.seen.clone(), samples);
        // Masks differ from network to network and from part to part, so that no choice depends on the masks of a test.
        let network = bundle.network_id().0.iter().take(8).fold(0, |bits, byte| bits << 8 | u64::from(*byte));
        let run = |mask| {
            if self.missing > 0.0 {
                samples.seen = draw_masks(&seen, self.missing, [network, part as u64, mask]);
            }
            let logits = bundle_logits_watched(bundle, &TractEngine, &samples, &mut |done| {
                status.show(|| format!("{name}: {done} of {all} samples"));
            })
            .with_context(|| format!("running the bundle on the part {name}"))?;
            samples.check_read()?;
            Ok(EvaluatedPart { samples: samples.clone().without_pixels(), logits })
        };
        (0..masks).map(run).collect()
    }

    /// The calibration part, once for each draw of missing devices; the inner error is the reason for which the part allows no promise.
    pub(super) fn calibration(
        &self,
        bundle: &Bundle,
        parts: &Parts,
        status: &mut StatusLine,
    ) -> Result<Result<Vec<EvaluatedPart>, String>, Failure> {
        let (data, count) = (self.dataset.name(), parts.data.len(Part::Calibration));
        if count == 0 {
            return Ok(Err(format!("{data}: expected a calibration part, found none")));
        }
        let learnt = learnt_calibration_part(bundle, &self.bundle, &self.dataset, count, self.kept_apart);
        let obstacle = parts.data.promise_obstacle();
        let obstacle = obstacle
            .map(|obstacle| format!("{data}: expected a calibration part for a promise, found {obstacle}"));
        match learnt.or(obstacle) {
            Some(why) => Ok(Err(why)),
            None => {
                let samples = self.samples(parts, Part::Calibration)?;
                self.run_part(bundle, samples, Part::Calibration, status).map(Ok)
            }
        }
    }

    /// The outcomes of a calibration part with its independent units: groups if the data has groups, otherwise samples. The error is the reason
    /// for which the part allows no promise.
    pub(super) fn part_of_promise(
        &self,
        fitted: &Fitted,
        parts: &Parts,
        validation: &Samples,
        calibration: &[EvaluatedPart],
    ) -> Result<CalibrationPart, String> {
        let shown = |part: &EvaluatedPart| {
            let (logits, samples) = part.logits.with_class(&part.samples);
            (Outcomes::of(&logits, &samples, &fitted.policy), samples.groups.clone())
        };
        let (masks, groups): (Vec<Outcomes>, Vec<Vec<u32>>) = calibration.iter().map(shown).unzip();
        let units = self.units(parts, validation, &groups[0])?;
        Ok(CalibrationPart { masks, units })
    }

    /// The independent units of a calibration part whose samples have these groups; the error is the reason for which the samples allow no promise.
    pub(super) fn units(&self, parts: &Parts, validation: &Samples, groups: &[u32]) -> Result<Units, String> {
        let data = self.dataset.name();
        Ok(match self.largest_group {
            _ if parts.data.is_recording() && self.block_length.is_none() => {
                return Err(format!(
                    "{data}: expected independent samples, found the frames of one recording, which depend on each other: together they are one \
                     group, and one group allows no promise; --block-length N states after how many frames they no longer do"
                ));
            }
            _ if groups.is_empty() => Units::Samples,
            None => {
                return Err(format!(
                    "{data}: samples of the calibration part share scenes or objects; give --largest-group N, the most samples that a group can have"
                ));
            }
            Some(largest) => {
                let count = validation.group_count();
                let typical =
                    count.map_or(f64::from(largest), |count| validation.len() as f64 / count as f64);
                Units::Groups { of: groups.to_vec(), largest, typical }
            }
        })
    }
}

/// A part with the costs of the network.
pub(super) fn costed<'a>(
    part: &'a EvaluatedPart,
    class_prior: &'a [f32],
    cost: &'a NetworkCost,
) -> CostedPart<'a> {
    CostedPart { logits: &part.logits, samples: &part.samples, class_prior, cost }
}

/// Text: how many independent samples a promise needs at least, and how many for the bundle's thresholds, by their losses on validation.
pub(super) fn needed(bundle: &Bundle, validation: &EvaluatedPart, target: &Target) -> String {
    let (logits, samples) = validation.logits.with_class(&validation.samples);
    let outcomes = Outcomes::of(&logits, &samples, bundle.policy());
    let (lost, won) = outcomes.losses_and_wins(bundle.policy());
    let least = binomial::least_samples(target.loss, target.delta());
    let promise = format!(
        "; a promise of {} points at {} % needs at least {least} independent samples that nothing else has used",
        rounded(100.0 * target.loss),
        rounded(100.0 * target.confidence)
    );
    let present = target.samples_needed(lost, won).map_or_else(
        || {
            format!(
                "; no number is enough for the present thresholds, which lose {:.2} points on validation",
                100.0 * target.bound.risk(lost, won)
            )
        },
        |needed| format!("; about {needed} independent samples for the present thresholds, by their losses on validation"),
    );
    promise + &present
}

/// Rounds to four decimals, which removes the rounding error of a share times 100.
pub(super) fn rounded(percent: f64) -> f64 {
    (1e4 * percent).round() / 1e4
}

/// Remark about data whose parts together have too few groups for a promise; empty for other data.
pub(super) fn too_few_groups(parts: &Parts, target: &Target) -> String {
    let of_part = |part: Part| {
        let groups = (0..parts.data.len(part)).filter_map(move |index| parts.data.group(part, index));
        groups.collect::<BTreeSet<u32>>().len()
    };
    let groups: usize = Part::ALL.into_iter().map(of_part).sum();
    if groups == 0 || groups as u64 >= binomial::least_samples(target.loss, target.delta()) {
        return String::new();
    }
    format!(
        "; the samples of one object or scene count once, and all parts together have {groups} objects or scenes: this data allows no promise"
    )
}
