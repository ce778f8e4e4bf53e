//! `headwater-train calibrate`.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use headwater_inference::bundle::Bundle;
use headwater_inference::engine::TractEngine;
use headwater_inference::policy::{Bound, Policy};
use headwater_models::data::{Parts, Samples};
use headwater_models::evaluation::{PartLogits, bundle_logits};
use headwater_models::promise::outcomes::Outcomes;
use headwater_models::promise::presence::draw_masks;
use headwater_models::promise::{CalibrationPart, Target, Units, binomial};
use headwater_models::report::PartAccount;
use headwater_models::tuning::{Fitted, ORDER_SEED};
use headwater_samples::Part;
use serde_json::json;

use super::dataset::Dataset;
use super::output::print;
use super::{Failure, print_json};

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
    /// Most samples that share a scene or an object, for data with groups: the promise is tested over groups.
    #[arg(long, value_name = "N")]
    largest_group: Option<u32>,
    /// Promises that shall hold together: each is tested at a K-th of the risk. One that is looked at alone needs no more than 1.
    #[arg(long, value_name = "K", default_value_t = 1)]
    simultaneous: u32,
    /// Probability with which each device is missing, for each sample by itself: the promise is then for such odds. A calibration sample counts as the
    /// mean over masks drawn by them.
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    missing: f64,
    /// File of the bundle with the new policy; without it nothing is written.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the result as one JSON object (docs/promise.md).
    #[arg(long)]
    json: bool,
}

/// Masks of missing devices that are drawn for each sample of a `net` promise.
const NET_MASKS: u64 = 4;

/// Bounds on the command line.
#[derive(Clone, Copy, ValueEnum)]
enum BoundName {
    Net,
    Losses,
}

impl Calibrate {
    /// Runs the command.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let target = self.target()?;
        let bundle = Bundle::open(&self.bundle).map_err(Failure::usage)?;
        let parts = self.dataset.open_for_bundle(&bundle, &self.bundle)?;
        self.check_calibration_part(&bundle, &parts, &target)?;
        let validation = self.run_part(&bundle, &parts, Part::Validation, 0)?;
        let fitted = Fitted::of(&validation.logits, &validation.samples, &target)?;
        let masks = match target.bound {
            Bound::Net if self.missing > 0.0 => NET_MASKS,
            Bound::Net | Bound::Losses => 1,
        };
        let calibration: Vec<PartOfBundle> = (0..masks)
            .map(|mask| self.run_part(&bundle, &parts, Part::Calibration, mask))
            .collect::<Result<_, Failure>>()?;
        let outcomes =
            calibration.iter().map(|part| Outcomes::of(&part.logits, &part.samples, &fitted.policy));
        let part = CalibrationPart { masks: outcomes.collect(), units: self.units(&calibration[0].samples)? };
        let promised = fitted.promised(&target, &part, ORDER_SEED).map_err(Failure::usage)?;
        let Some(policy) = promised else {
            return Err(anyhow::anyhow!(
                "no thresholds keep this promise: the strictest ones on the path lose too much on the calibration part; ask for a larger \
                 --loss, or train longer"
            )
            .into());
        };
        let promise = target.promise(&self.dataset.identity(), &part, self.missing);
        let policy = Policy { promise: Some(promise), ..policy.with_waits_of(bundle.policy()) };
        if let Some(out) = &self.out {
            let bytes = bundle.with_policy(&policy).context("writing the bundle")?;
            std::fs::write(out, bytes).with_context(|| format!("writing {}", out.display()))?;
        }
        self.print(&bundle, &policy, [&validation, &calibration[0]])
    }

    /// The target of the arguments.
    fn target(&self) -> Result<Target, Failure> {
        let mistake = |text: String| Err(Failure::usage(anyhow::anyhow!(text)));
        if !(self.loss > 0.0 && self.loss < 100.0) {
            return mistake(format!("--loss: expected points above 0 and below 100, found {}", self.loss));
        }
        if !(self.confidence >= 0.5 && self.confidence < 1.0) {
            return mistake(format!("--confidence: expected 0.5 to below 1, found {}", self.confidence));
        }
        if !(self.missing >= 0.0 && self.missing < 1.0) {
            return mistake(format!("--missing: expected 0 to below 1, found {}", self.missing));
        }
        if self.simultaneous == 0 {
            return mistake("--simultaneous: expected 1 or more, found 0".into());
        }
        let bound = match self.promise {
            BoundName::Net => Bound::Net,
            BoundName::Losses => Bound::Losses,
        };
        let confidence = 1.0 - (1.0 - self.confidence) / f64::from(self.simultaneous);
        Ok(Target { bound, loss: self.loss / 100.0, confidence })
    }

    /// Units of the calibration part: samples, or groups where the data has them.
    fn units(&self, calibration: &Samples) -> Result<Units, Failure> {
        match (self.largest_group, calibration.groups.is_empty()) {
            (None, true) => Ok(Units::Samples),
            (Some(_), true) => Err(Failure::usage(anyhow::anyhow!(
                "--largest-group: expected data whose samples form groups, found independent samples"
            ))),
            (None, false) => Err(Failure::usage(anyhow::anyhow!(
                "{}: samples of the calibration part share scenes or objects; give --largest-group N, the most samples that a group can have",
                self.dataset.data
            ))),
            (Some(largest), false) => Ok(Units::Groups { of: calibration.groups.clone(), largest }),
        }
    }

    /// Refuses data without a calibration part, and a network that has learnt it.
    fn check_calibration_part(&self, bundle: &Bundle, parts: &Parts, target: &Target) -> Result<(), Failure> {
        let samples = parts.data.len(Part::Calibration);
        if samples > 0 {
            return self.check_kept_apart(bundle, samples);
        }
        // The size that the present thresholds would need, by their losses on the validation part.
        let validation = self.run_part(bundle, parts, Part::Validation, 0)?;
        let outcomes = Outcomes::of(&validation.logits, &validation.samples, bundle.policy());
        let (lost, won) = outcomes.losses_and_wins(bundle.policy());
        let needed = target.samples_needed(lost, won).map_or_else(
            || {
                format!(
                    "no number is enough for the present thresholds, which lose {:.2} points on validation",
                    100.0 * (lost - won)
                )
            },
            |needed| format!("about {needed} for the present thresholds, by their losses on validation"),
        );
        Err(Failure::usage(anyhow::anyhow!(
            "{}: expected a calibration part, found none: without one the loss of the exits is measured, not promised. A promise of {} points \
             at {} needs at least {} independent samples that nothing else has used; {needed}",
            self.dataset.data,
            self.loss,
            target.confidence,
            binomial::least_samples(target.loss, target.delta()),
        )))
    }

    /// Refuses a network whose weights may have seen the calibration part: one that was trained on the same data when it had no such part, or
    /// another one.
    fn check_kept_apart(&self, bundle: &Bundle, samples: usize) -> Result<(), Failure> {
        let report = bundle.report();
        let trained_on = report.and_then(|report| report["run"]["data"].as_str());
        let kept_apart = report.and_then(|report| report["calibration_samples"].as_u64());
        let refuse = |found: &str| {
            Err(Failure::usage(anyhow::anyhow!(
                "{}: expected a network that was trained with these {samples} calibration samples kept apart, found {found}: what its exits lose on \
                 samples that it has learnt says nothing about new ones; train it again",
                self.bundle.display()
            )))
        };
        match trained_on {
            None => refuse("one without a training report"),
            Some(data) if data == self.dataset.identity() && kept_apart != Some(samples as u64) => {
                refuse("one that was trained before they were")
            }
            Some(_) => Ok(()),
        }
    }

    /// Runs the bundle over a part, with the devices of a drawn mask missing.
    fn run_part(
        &self,
        bundle: &Bundle,
        parts: &Parts,
        part: Part,
        mask: u64,
    ) -> Result<PartOfBundle, Failure> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let mut samples = parts.part(part, None, threads);
        if self.missing > 0.0 {
            samples.seen = draw_masks(&samples.seen, self.missing, mask);
        }
        let logits = bundle_logits(bundle, &TractEngine, &samples)?;
        Ok(PartOfBundle { samples, logits })
    }

    fn print(
        &self,
        bundle: &Bundle,
        policy: &Policy,
        [validation, calibration]: [&PartOfBundle; 2],
    ) -> Result<(), Failure> {
        let manifest = bundle.manifest();
        let account = |part: &PartOfBundle| {
            let account = PartAccount::of(&part.logits, &part.samples, &manifest.class_prior, policy);
            let outcomes = Outcomes::of(&part.logits, &part.samples, policy);
            let (lost, won) = outcomes.losses_and_wins(policy);
            let count = part.samples.len() as f64;
            let shares = account.exits.map(|_, left| left.samples as f64 / count);
            (shares, lost, won, part.samples.len())
        };
        let shown = [("validation", account(validation)), ("calibration", account(calibration))];
        let promise = policy.promise.as_ref().expect("made above");
        if self.json {
            let parts = shown.iter().map(|(name, (shares, lost, won, samples))| {
                let left: serde_json::Map<String, serde_json::Value> =
                    shares.iter().map(|(exit, share)| (exit.name().to_owned(), json!(share))).collect();
                let figures = json!({"samples": samples, "lost": lost, "won": won, "left": left});
                ((*name).to_owned(), figures)
            });
            let parts: serde_json::Map<String, serde_json::Value> = parts.collect();
            return print_json(&json!({
                "network_id": bundle.network_id().to_string(),
                "promise": promise,
                "policy": policy,
                "parts": parts,
            }));
        }
        let mut text = format!("promised: {promise}\n");
        for (name, (shares, lost, won, samples)) in &shown {
            let left: Vec<String> = shares
                .iter()
                .map(|(exit, share)| format!("{} {:.1} %", exit.name(), 100.0 * share))
                .collect();
            text += &format!(
                "{name:<12} {samples} samples leave at {}; lost {:.2} %, won {:.2} %\n",
                left.join(", "),
                100.0 * lost,
                100.0 * won
            );
        }
        match &self.out {
            Some(out) => text += &format!("written: {}\n", out.display()),
            None => text += "nothing was written; --out FILE writes the bundle with this policy\n",
        }
        print(&text)
    }
}

/// A part and the logits of a bundle for it.
struct PartOfBundle {
    samples: Samples,
    logits: PartLogits,
}
