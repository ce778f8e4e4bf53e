//! Data and networks that allow no promise.

use std::collections::BTreeSet;

use headwater_calibration::data::Parts;
use headwater_calibration::promise::outcomes::Outcomes;
use headwater_calibration::promise::{PromiseError, Target, binomial};
use headwater_inference::bundle::Bundle;
use headwater_samples::Part;
use headwater_samples::data_set::OpenOptions;

use super::super::kept_apart::KeptApart;
use super::{Calibrate, Failure, PartOfBundle};

impl Calibrate {
    /// Refuses a number of missing slots that leaves none.
    pub(super) fn check_slots(&self, bundle: &Bundle) -> Result<(), Failure> {
        let slots = u32::from(bundle.manifest().slots);
        match self.by_missing {
            Some(found) if found >= slots => Err(Failure::usage(anyhow::anyhow!(
                "--by-missing: expected less than the {slots} slots of the network, found {found}: the class prior answers a sample without \
                 a view"
            ))),
            Some(_) | None => Ok(()),
        }
    }

    /// Opens the data for the network. Refuses data without a calibration part first, then data of other slots or classes, then a network
    /// that has learnt the calibration part.
    pub(super) fn open_parts(&self, bundle: &Bundle, target: &Target) -> Result<Parts, Failure> {
        match self.dataset.open_for_bundle(bundle, &self.bundle) {
            Ok(parts) if parts.data.len(Part::Calibration) > 0 => {
                let samples = parts.data.len(Part::Calibration);
                KeptApart { bundle, file: &self.bundle, dataset: &self.dataset, is_stated: self.kept_apart }
                    .check(samples)
                    .map_err(Failure::usage)?;
                if let Some(obstacle) = parts.data.promise_obstacle() {
                    return Err(Failure::usage(anyhow::anyhow!(
                        "{}: expected a calibration part for a promise, found {obstacle}",
                        self.dataset.data
                    )));
                }
                self.check_blocks(&parts)?;
                Ok(parts)
            }
            Ok(parts) => {
                let validation = self.run_part(bundle, &parts, Part::Validation, 1)?;
                let needed = validation.first().map_or_else(String::new, |part| needed(bundle, part, target));
                Err(self.without_calibration_part(&parts, target, &needed))
            }
            // Data that does not fit the network may have no calibration part either.
            Err(other) => match self.dataset.open(OpenOptions::default()) {
                Ok(parts) if parts.data.len(Part::Calibration) == 0 => {
                    Err(self.without_calibration_part(&parts, target, ""))
                }
                Ok(_) | Err(_) => Err(other),
            },
        }
    }

    /// Refuses a recording whose frames would count as independent, and blocks of other data.
    fn check_blocks(&self, parts: &Parts) -> Result<(), Failure> {
        let data = &self.dataset.data;
        match (parts.data.is_recording(), self.block_length) {
            (true, None) => Err(Failure::usage(anyhow::anyhow!(
                "{data}: expected independent samples, found the frames of one recording, which depend on each other: together they are one group, \
                 and one group allows no promise; --block-length N states after how many frames they no longer do"
            ))),
            (false, Some(_)) => Err(Failure::usage(anyhow::anyhow!(
                "--block-length: expected the frames of a recording (folders named FRAME-OBJECT), found {data} without frames"
            ))),
            (true, Some(_)) | (false, None) => Ok(()),
        }
    }

    /// The refusal of a calibration part on which nothing can be promised; of one that is too small with the size that the present thresholds would need.
    pub(super) fn of_part(
        &self,
        error: &PromiseError,
        bundle: &Bundle,
        validation: &PartOfBundle,
        target: &Target,
    ) -> Failure {
        let needed = match error {
            PromiseError::TooFew { .. } => needed(bundle, validation, target),
            PromiseError::GroupedLosses
            | PromiseError::SeveralMasks(_)
            | PromiseError::GroupTooLarge { .. } => String::new(),
        };
        Failure::usage(anyhow::anyhow!("{}: {error}{needed}", self.dataset.data))
    }

    /// The refusal of data without a calibration part.
    fn without_calibration_part(&self, parts: &Parts, target: &Target, needed: &str) -> Failure {
        let least = binomial::least_samples(target.loss, target.delta());
        Failure::usage(anyhow::anyhow!(
            "{}: expected a calibration part, found none: without one the loss of the exits is measured, not promised. A promise of {} points \
             at {} % needs at least {least} independent samples that nothing else has used{needed}{}",
            self.dataset.data,
            self.loss,
            (1e6 * target.confidence).round() / 1e4,
            too_few_groups(parts, least),
        ))
    }
}

/// The number of independent samples that the present thresholds would need, by their losses on the validation part.
fn needed(bundle: &Bundle, validation: &PartOfBundle, target: &Target) -> String {
    let outcomes = Outcomes::of(&validation.logits, &validation.samples, bundle.policy());
    let (lost, won) = outcomes.losses_and_wins(bundle.policy());
    target.samples_needed(lost, won).map_or_else(
        || {
            format!(
                "; no number is enough for the present thresholds, which lose {:.2} points on validation",
                100.0 * target.bound.risk(lost, won)
            )
        },
        |needed| format!("; about {needed} independent samples for the present thresholds, by their losses on validation"),
    )
}

/// Remark about data whose parts together have too few groups for a promise; empty for other data.
fn too_few_groups(parts: &Parts, least: u64) -> String {
    let of_part = |part: Part| {
        let groups = (0..parts.data.len(part)).filter_map(move |index| parts.data.group(part, index));
        groups.collect::<BTreeSet<u32>>().len()
    };
    let groups: usize = Part::ALL.into_iter().map(of_part).sum();
    if groups == 0 || groups as u64 >= least {
        return String::new();
    }
    format!(
        "; the samples of one object or scene count once, and all parts together have {groups} objects or scenes: this data allows no promise"
    )
}
