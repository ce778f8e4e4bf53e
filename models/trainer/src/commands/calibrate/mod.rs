//! `headwater-train calibrate`: `refusal.rs` what allows no promise, `shown.rs` the result as text and JSON.

mod refusal;
mod shown;

use std::num::NonZero;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use headwater_calibration::data::{Parts, Samples};
use headwater_calibration::evaluation::bundle_logits;
use headwater_calibration::number_file::write_whole;
use headwater_calibration::part_logits::PartLogits;
use headwater_calibration::promise::by_missing::{Certificate, Certified, MissingRange, Paths};
use headwater_calibration::promise::outcomes::Outcomes;
use headwater_calibration::promise::presence::draw_masks;
use headwater_calibration::promise::{CalibrationPart, Target, Units};
use headwater_calibration::tuning::splits::{Pool, SplitReport};
use headwater_calibration::tuning::{Fitted, ORDER_SEED};
use headwater_inference::bundle::Bundle;
use headwater_inference::engine::TractEngine;
use headwater_inference::policy::{Bound, MissingCount, Policy, Promise};
use headwater_samples::Part;

use super::dataset::Dataset;
use super::output_files::{OutputFile, check_output_files};
use super::promise_target::{BoundName, PromiseTarget, confidence_of_each};
use super::{Failure, open_bundle};

/// Arguments of `calibrate`.
#[derive(Args)]
pub(crate) struct Calibrate {
    /// Bundle whose exits are to promise something.
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,
    #[command(flatten)]
    dataset: Dataset,
    /// Measure to bound: `net`, the accuracy lost against the last exit; `losses`, the stricter one, answers that are wrong where the last exit is
    /// right, whatever an earlier exit wins.
    #[arg(long, value_enum, default_value = "net")]
    promise: BoundName,
    /// Largest loss, in points: 0.5 is 5 of 1,000 samples.
    #[arg(long, value_name = "POINTS", default_value_t = 0.5)]
    loss: f64,
    /// Probability with which the promise holds over the draw of the calibration part.
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    confidence: f64,
    /// Most samples that can share a scene or an object, for data with groups: the promise is tested over groups, and is for such groups. What is known
    /// beforehand, not the largest group of the calibration part.
    #[arg(long, value_name = "N")]
    largest_group: Option<u32>,
    /// States that frames of a recording that are N apart no longer depend on each other: every second block of N frames is a group of the promise, and the
    /// blocks between them are left out. Without it a recording is one group, which allows no promise.
    #[arg(long, value_name = "N")]
    block_length: Option<NonZero<u32>>,
    /// Promises that shall hold together: each is tested at a K-th of the risk. One that is looked at alone needs no more than 1.
    #[arg(long, value_name = "K", default_value_t = 1)]
    simultaneous: u32,
    /// Probability with which each device is missing, for each sample by itself: the promise is then for such odds. A calibration sample counts as the
    /// mean over masks drawn by them.
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    missing: f64,
    /// Promise for each number of slots without a view (devices that do not see the object, and with --missing devices that are missing) by itself, from 0
    /// to M: each has thresholds of its own, and samples with more, or of a number without a promise, go to the last exit. --simultaneous M+1 makes all
    /// promises hold together.
    #[arg(long, value_name = "M")]
    by_missing: Option<u32>,
    /// Report too how often such a promise is broken on N random splits of the validation and calibration samples. 200 take minutes. It checks the
    /// arithmetic; samples that depend on each other, or that the network has learnt, it cannot see.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000), conflicts_with = "by_missing")]
    splits: Option<u32>,
    /// States that the network has learnt none of the calibration samples, where its report names other data than --data. Whoever is wrong here gets a
    /// promise that means nothing.
    #[arg(long)]
    kept_apart: bool,
    /// File of the bundle with the new policy, which may be BUNDLE, then replaced; without it nothing is written.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the result as one JSON object (docs/promise.md).
    #[arg(long)]
    json: bool,
}

/// Masks of missing devices that are drawn for each sample of a `net` promise.
const NET_MASKS: u64 = 4;

impl Calibrate {
    /// Runs the command.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let target = self.target()?;
        check_output_files(&OutputFile::asked([("--out", &self.out)])).map_err(Failure::usage)?;
        let bundle = open_bundle(&self.bundle)?;
        self.check_slots(&bundle)?;
        let parts = self.open_parts(&bundle, &target)?;
        let [validation] = &self.run_part(&bundle, &parts, Part::Validation, 1)?[..] else {
            return Err(anyhow::anyhow!("validation: expected one mask a sample").into());
        };
        let fitted = Fitted::of(&validation.logits, &validation.samples, &target)?;
        let masks = match target.bound {
            Bound::Net if self.missing > 0.0 && self.by_missing.is_none() => NET_MASKS,
            Bound::Net | Bound::Losses => 1,
        };
        let calibration = self.run_part(&bundle, &parts, Part::Calibration, masks)?;
        let outcomes =
            calibration.iter().map(|part| Outcomes::of(&part.logits, &part.samples, &fitted.policy));
        let part = CalibrationPart {
            masks: outcomes.collect(),
            units: self.units(&calibration[0].samples, &validation.samples)?,
        };
        let found = self.choose((&bundle, &fitted), &target, validation, &part)?;
        let policy = found.policy.with_waits_of(bundle.policy());
        let pool = || {
            let halves =
                [validation, &calibration[0]].map(|part| (part.logits.clone(), part.samples.clone()));
            let [validation, calibration] = halves;
            Pool::new(validation, calibration, &part.units)
        };
        let splits = self.splits.map(|splits| pool().split(&target, splits));
        let found = Found { policy, splits: splits.transpose().map_err(Failure::usage)?, ..found };
        if let Some(out) = &self.out {
            let bytes = bundle.with_policy(&found.policy).context("writing the bundle")?;
            write_whole(out, &bytes).with_context(|| format!("writing {}", out.display()))?;
        }
        self.print(&bundle, &found, [validation, &calibration[0]])
    }

    /// The policy with its promise: one for all samples, or one for each number of slots without a view.
    fn choose(
        &self,
        (bundle, fitted): (&Bundle, &Fitted),
        target: &Target,
        validation: &PartOfBundle,
        part: &CalibrationPart,
    ) -> Result<Found, Failure> {
        let blocks =
            self.block_length.map(|frames| format!(", blocks of {frames} frames")).unwrap_or_default();
        let promise = target.promise(&(self.dataset.identity() + &blocks), part, self.missing);
        let Some(most) = self.by_missing else {
            let policy = fitted
                .promised(target, part, ORDER_SEED)
                .map_err(|error| self.of_part(&error, bundle, validation, target))?;
            let policy = policy.ok_or_else(|| {
                anyhow::anyhow!(
                    "no thresholds keep this promise: the strictest ones on the path lose too much on the calibration part; ask for a larger \
                     --loss, or train longer; either is a second test on the same part: give --simultaneous 2, and so on, to count them all"
                )
            })?;
            let policy = Policy { promise: Some(promise), ..policy };
            return Ok(Found { policy, certificates: Vec::new(), splits: None });
        };
        let slots = validation.samples.slots as u32;
        let outcomes = Outcomes::of(&validation.logits, &validation.samples, &fitted.policy);
        let paths = Paths::new(&fitted.path, &outcomes, target, MissingRange { slots, most });
        let certificates = paths
            .certify(target, part, ORDER_SEED)
            .map_err(|error| self.of_part(&error, bundle, validation, target))?;
        let promised = certificates.iter().filter(|found| matches!(found.result, Certified::Promised(_)));
        let by_missing: Vec<MissingCount> = promised.map(|found| found.count).collect();
        if by_missing.is_empty() {
            let lines: Vec<String> = certificates.iter().map(|found| self.certificate_line(found)).collect();
            return Err(anyhow::anyhow!(
                "no thresholds keep this promise for any number of missing slots: {}",
                lines.join("; ")
            )
            .into());
        }
        let promise = Promise { by_missing, ..promise };
        let policy = Policy { promise: Some(promise), ..fitted.by_missing(slots, &certificates) };
        Ok(Found { policy, certificates, splits: None })
    }

    /// The target of the arguments.
    fn target(&self) -> Result<Target, Failure> {
        if !(self.missing >= 0.0 && self.missing < 1.0) {
            return Err(Failure::usage(anyhow::anyhow!(
                "--missing: expected 0 to below 1, found {}",
                self.missing
            )));
        }
        let Self { promise, loss, confidence, simultaneous, .. } = *self;
        PromiseTarget { bound: promise, loss_points: loss, confidence, simultaneous }.check()
    }

    /// Confidence of each of the promises that shall hold together.
    fn confidence_of_each(&self) -> f64 {
        confidence_of_each(self.confidence, self.simultaneous)
    }

    /// Units of the calibration part: samples, or groups where the data has them.
    fn units(&self, calibration: &Samples, validation: &Samples) -> Result<Units, Failure> {
        match (self.largest_group, calibration.groups.is_empty()) {
            (None, true) => Ok(Units::Samples),
            (Some(_), true) => Err(Failure::usage(anyhow::anyhow!(
                "--largest-group: expected data whose samples form groups, found independent samples"
            ))),
            (None, false) => Err(Failure::usage(anyhow::anyhow!(
                "{}: samples of the calibration part share scenes or objects; give --largest-group N, the most samples that a group can have",
                self.dataset.data
            ))),
            (Some(largest), false) => {
                let typical = validation
                    .group_count()
                    .map_or(f64::from(largest), |groups| validation.len() as f64 / groups as f64);
                Ok(Units::Groups { of: calibration.groups.clone(), largest, typical })
            }
        }
    }

    /// Runs the bundle over a part, once for each of `masks` draws of missing devices for each sample.
    fn run_part(
        &self,
        bundle: &Bundle,
        parts: &Parts,
        part: Part,
        masks: u64,
    ) -> Result<Vec<PartOfBundle>, Failure> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let mut samples = parts.part(part, None, threads);
        if let Some(frames) = self.block_length {
            samples = samples.in_blocks(frames);
            if samples.is_empty() {
                return Err(Failure::usage(anyhow::anyhow!(
                    "--block-length: expected two blocks of {frames} frames or more in the part {}, found fewer",
                    part.name()
                )));
            }
        }
        let seen = samples.seen.clone();
        // Masks differ from network to network and from part to part: nothing is chosen on those of a test.
        let network = bundle.network_id().0.iter().take(8).fold(0, |bits, byte| bits << 8 | u64::from(*byte));
        let run = |mask| {
            if self.missing > 0.0 {
                samples.seen = draw_masks(&seen, self.missing, [network, part as u64, mask]);
            }
            let logits = bundle_logits(bundle, &TractEngine, &samples)?;
            let (labels, groups) = (samples.labels.clone(), samples.groups.clone());
            let samples = Samples {
                labels,
                groups,
                seen: samples.seen.clone(),
                pixels: Vec::new(),
                part_indices: Vec::new(),
                ..samples
            };
            Ok(PartOfBundle { samples, logits })
        };
        (0..masks).map(run).collect()
    }
}

/// A part without its pixels, and the logits of a bundle for it.
struct PartOfBundle {
    samples: Samples,
    logits: PartLogits,
}

/// Result of the command.
struct Found {
    /// The policy with its promise.
    policy: Policy,
    /// Certificates by number of slots without a view, from 0; empty without `--by-missing`.
    certificates: Vec<Certificate>,
    /// Broken promises on random splits, where they were asked for.
    splits: Option<SplitReport>,
}
