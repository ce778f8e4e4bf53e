//! `headwater-train tune`.
//!
//! - `parts.rs` runs the bundle over the parts of the data;
//! - `result.rs` prints the result as text and JSON;
//! - `unmet_targets.rs` says what stands against targets, and what comes nearest;
//! - `plot.rs` draws the frontier.

mod parts;
mod plot;
mod result;
mod unmet_targets;

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use headwater_calibration::number_file::write_whole;
use headwater_calibration::promise::Target;
use headwater_calibration::sample_cost::NetworkCost;
use headwater_calibration::tuning::Fitted;
use headwater_calibration::tuning::choice::{Choice, Criteria, Targets};
use headwater_calibration::tuning::frontier::{CostedPart, Setting, frontier, settings};
use headwater_calibration::tuning::interval::MeasuredCost;
use headwater_inference::bundle::Bundle;
use headwater_inference::policy::{Bound, Policy};

use super::dataset::Dataset;
use super::kept_apart::learnt_samples_warning;
use super::output::print_error;
use super::output_files::{OutputFile, check_not_read, check_output_files};
use super::progress::SlowStatus;
use super::promise_target::{BoundName, PromiseTarget};
use super::{Failure, open_bundle};
use parts::{LossLimit, PartOfBundle, loss_limit};

/// Loss, in points, for which the rule of the exits is chosen where no loss is asked for; `calibrate` has the same default.
const USUAL_LOSS_POINTS: f64 = 0.5;

/// Confidence of a promise where none is asked for.
const USUAL_CONFIDENCE: f64 = 0.95;

const EXAMPLES: &str = "\
Examples:
  Save as much as half a point of accuracy allows:
    headwater-train tune runs/mine/bundle.hwb --data-dir \"$HEADWATER_DATA/fashion-mnist\" --loss 0.5 --out tuned.hwb
  A radio carries 12 bytes per device and sample: what does that cost?
    headwater-train tune runs/mine/bundle.hwb --data-dir \"$HEADWATER_DATA/fashion-mnist\" --bytes 12
  Look at everything that can be had before asking for something:
    headwater-train tune runs/mine/bundle.hwb --data-dir \"$HEADWATER_DATA/fashion-mnist\" --frontier frontier.json --plot frontier.svg

With --loss the setting that saves most is taken: fewest bytes, or least compute where only --macs is given too. Without --loss it is the setting
that loses least. A smaller target sends more samples on (--loss) or answers more of them early (--bytes, --macs).

Exit codes: 0 done, 1 the targets cannot be met (the nearest that can is printed), 2 bad usage, or a target that nothing could keep.";

/// Arguments of `tune`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Tune {
    /// Bundle whose thresholds are to be chosen.
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,
    #[command(flatten)]
    dataset: Dataset,
    /// Largest loss against the last exit, in points: 0.5 is 5 of 1,000 samples. Promised where the calibration part allows a promise, else measured.
    #[arg(long, value_name = "POINTS", allow_negative_numbers = true)]
    loss: Option<f64>,
    /// Most body bytes per device and sample, as a mean over slots with a view. Measured, never promised.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    bytes: Option<f64>,
    /// Most multiply-accumulates per sample, as a mean over all tiers together: 2.5e6. Measured, never promised.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    macs: Option<f64>,
    /// Measure of the loss: `net`, the accuracy lost against the last exit; `losses`, the stricter one, answers that are wrong where the last exit is
    /// right, whatever an earlier exit wins.
    #[arg(long, value_enum, default_value = "net")]
    promise: BoundName,
    /// Probability with which a promised loss holds over the draw of the calibration part.
    #[arg(long, value_name = "P", default_value_t = USUAL_CONFIDENCE, allow_negative_numbers = true)]
    confidence: f64,
    /// Losses that are tried on the same calibration part, this one included: each is tested at a K-th of the risk. Other --bytes and --macs are no
    /// further test.
    #[arg(long, value_name = "K", default_value_t = 1)]
    simultaneous: u32,
    /// States that the network has learnt none of the calibration samples, where its report names other data than --data.
    #[arg(long)]
    kept_apart: bool,
    /// File for the frontier as JSON: every setting that no other beats in loss, bytes and compute (docs/tune.md).
    #[arg(long, value_name = "FILE")]
    frontier: Option<PathBuf>,
    /// File for the frontier as an SVG picture, for light and dark pages.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// File of the bundle with the chosen thresholds, which may be BUNDLE, then replaced; without it no bundle is written.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the result as one JSON object (docs/tune.md).
    #[arg(long)]
    json: bool,
}

/// Settings of a bundle, the parts they were measured on, and the choice.
struct Tuned<'a> {
    bundle: &'a Bundle,
    /// Why the figures may say nothing of new samples.
    warning: Option<String>,
    criteria: Criteria,
    /// How far the loss is kept; `None` without a target of the loss.
    limit: Option<LossLimit>,
    validation: CostedPart<'a>,
    /// The calibration part where it may be used, else the reason why not.
    calibration: Result<CostedPart<'a>, &'a str>,
    settings: Vec<Setting>,
    /// Settings that no other beats, with their costs on the validation part; empty where nobody asked for them.
    frontier: Vec<(usize, MeasuredCost)>,
    /// The choice; `None` without a target.
    choice: Option<Choice>,
}

impl Tune {
    /// Runs the command.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let (target, targets) = (self.target()?, self.targets()?);
        self.check_files().map_err(Failure::usage)?;
        let bundle = open_bundle(&self.bundle)?;
        let prior = &bundle.manifest().class_prior;
        let cost = NetworkCost::of(bundle.manifest());
        targets.check(cost.least_body_bytes()).map_err(Failure::usage)?;
        let parts = self.dataset.open_for_bundle(&bundle, &self.bundle)?;
        let warning =
            learnt_samples_warning(&bundle, &self.bundle, &self.dataset).filter(|_| !self.kept_apart);
        warning.iter().for_each(|warning| print_error(&format!("warning: {warning}")));
        let samples = self.validation_samples(&parts)?;
        targets.check_macs(cost.least_macs(&samples)).map_err(Failure::usage)?;
        let mut status = SlowStatus::new();
        let validation = PartOfBundle::run(&bundle, samples, "validation", &mut status)?;
        let calibration = self.calibration(&bundle, &parts, &mut status)?;

        status.stage("choosing the rule of the exits and the order of the thresholds");
        let fitted = Fitted::of(&validation.logits, &validation.samples, &target)?;
        let limit = self.loss.map(|_| loss_limit(&fitted, &target, &calibration));
        let validation = validation.costed(prior, &cost);
        let settings = settings(&fitted, &validation, &mut |done| {
            status.show(|| format!("figures of {done} of {} settings", fitted.path.len() + 1));
        });
        let last_within_loss = limit.as_ref().map_or(settings.len() - 1, |limit| limit.last);
        let criteria = Criteria { targets, bound: target.bound, last_within_loss };
        let has_target = !targets.measures().is_empty();
        let frontier = self.frontier_costs(&validation, &settings, target.bound, &mut status);
        status.clear();
        let tuned = Tuned {
            choice: has_target.then(|| criteria.choose(&settings)),
            frontier,
            bundle: &bundle,
            warning,
            criteria,
            limit,
            validation,
            calibration: calibration.as_ref().map(|part| part.costed(prior, &cost)).map_err(String::as_str),
            settings,
        };
        self.write_frontier(&tuned)?;
        match &tuned.choice {
            Some(Choice::NotMet { unreachable, nearest }) => self.refuse(&tuned, unreachable, nearest),
            Some(Choice::Met(index)) => {
                let policy = self.policy(&tuned, *index, &target);
                if let Some(out) = &self.out {
                    let bytes = bundle.with_policy(&policy).context("writing the bundle")?;
                    write_whole(out, &bytes).with_context(|| format!("writing {}", out.display()))?;
                }
                self.print_chosen(&tuned, *index, &policy)
            }
            None => self.print_frontier(&tuned),
        }
    }

    /// The target of the promise.
    fn target(&self) -> Result<Target, Failure> {
        let Self { promise, confidence, simultaneous, .. } = *self;
        let loss_points = self.loss.unwrap_or(USUAL_LOSS_POINTS);
        PromiseTarget { bound: promise, loss_points, confidence, simultaneous }.check()
    }

    /// The targets; without one a file of the frontier must be asked for.
    fn targets(&self) -> Result<Targets, Failure> {
        let targets = Targets { loss_points: self.loss, body_bytes: self.bytes, macs: self.macs };
        let has_target = !targets.measures().is_empty();
        let mistake = |text: &str| Err(Failure::usage(anyhow::anyhow!(text.to_owned())));
        if !has_target && self.out.is_some() {
            return mistake(
                "--out: expected a target (--loss, --bytes or --macs), found none: which thresholds?",
            );
        }
        if !has_target && self.frontier.is_none() && self.plot.is_none() {
            return mistake(
                "expected a target (--loss, --bytes or --macs), or --frontier or --plot to see what can be had; found none",
            );
        }
        Ok(targets)
    }

    /// Checks the files that are to be written; the frontier must not take the place of the bundle.
    fn check_files(&self) -> Result<(), anyhow::Error> {
        let frontier = [("--frontier", &self.frontier), ("--plot", &self.plot)];
        check_output_files(&OutputFile::asked(frontier.into_iter().chain([("--out", &self.out)])))?;
        check_not_read(&OutputFile::asked(frontier), &OutputFile { flag: "BUNDLE", file: &self.bundle })
    }

    /// Settings that no other beats with their costs, where a file of them is asked for.
    fn frontier_costs(
        &self,
        validation: &CostedPart<'_>,
        settings: &[Setting],
        bound: Bound,
        status: &mut SlowStatus,
    ) -> Vec<(usize, MeasuredCost)> {
        if self.frontier.is_none() && self.plot.is_none() {
            return Vec::new();
        }
        let found = frontier(settings, bound);
        let costs = found.iter().enumerate().map(|(done, index)| {
            status.show(|| format!("intervals of {done} of {} settings", found.len()));
            (*index, validation.measured_cost(&settings[*index].policy))
        });
        costs.collect()
    }

    /// The policy of a setting, with a promise where the loss of the setting is promised. The waits are those of the bundle.
    fn policy(&self, tuned: &Tuned<'_>, index: usize, target: &Target) -> Policy {
        let policy = tuned.settings[index].policy.clone().with_waits_of(tuned.bundle.policy());
        let tested = tuned.limit.as_ref().and_then(|limit| limit.tested.as_ref());
        // Without early exits nothing is lost, and nothing was tested.
        let promise = tested.filter(|_| index > 0);
        let promise = promise.map(|part| target.promise(&self.dataset.identity(), part, 0.0));
        Policy { promise, ..policy }
    }
}
