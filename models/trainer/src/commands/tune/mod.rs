//! `headwater-train tune`.
//!
//! - `parts.rs` runs the bundle over the parts of the data, and gives the reason for which the data allows no promise;
//! - `claims.rs` chooses the least confidence of an answer that is given;
//! - `certificates.rs` tests a promise for each number of slots without a view;
//! - `result.rs` prints the result as text and JSON;
//! - `unmet_targets.rs` says which targets cannot be met, and which settings come nearest.

mod certificates;
mod claims;
mod parts;
mod result;
mod unmet_targets;

use std::num::NonZero;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use headwater_calibration::number_file::write_whole;
use headwater_calibration::promise::by_missing::Certificate;
use headwater_calibration::promise::{CalibrationPart, Target};
use headwater_calibration::sample_cost::NetworkCost;
use headwater_calibration::tuning::choice::{Choice, Criteria, Targets, check_loss};
use headwater_calibration::tuning::frontier::{CostedPart, Setting, frontier, settings};
use headwater_calibration::tuning::interval::MeasuredCost;
use headwater_calibration::tuning::splits::{Pool, SplitReport};
use headwater_calibration::tuning::{Fitted, LossLimit};
use headwater_inference::bundle::Bundle;
use headwater_inference::policy::{Bound, Policy, Promise};
use headwater_protocol::PolicyName;
use headwater_samples::Part;

use super::dataset::Dataset;
use super::kept_apart::learnt_samples_warning;
use super::output::print_error;
use super::output_files::check_output_file;
use super::progress::StatusLine;
use super::saved::bundle_file;
use super::target::{Asked, Key};
use super::{Failure, open_bundle, usage};
use parts::{costed, needed, too_few_groups};

/// Loss, in points, for which the rule of the exits is chosen if no loss is asked for.
const USUAL_LOSS_POINTS: f64 = 0.5;

/// Confidence of a promise if no confidence is given.
const USUAL_CONFIDENCE: f64 = 0.95;

const EXAMPLES: &str = "\
Examples:
  Save as much as half a point of accuracy allows:
    headwater-train tune runs/mine/bundle.hwb --data photos --loss 0.5 --out tuned.hwb
  A radio carries 12 bytes per device and sample: what does that cost?
    headwater-train tune runs/mine/bundle.hwb --data photos --bytes 12
  Both together, as every command with targets takes them:
    headwater-train tune runs/mine/bundle.hwb --data photos --target \"loss<=0.5,bytes<=12\"
  Answer only where at most two of a hundred answers are wrong, and say how many samples that leaves undecided:
    headwater-train tune runs/mine/bundle.hwb --data photos --wrong 2 --out careful.hwb
  Look at everything that can be had before asking for something:
    headwater-train tune runs/mine/bundle.hwb --data photos --frontier frontier.json
  Promise half a point for each number of absent views up to two, all together at 95 %, where each device is missing once in 20 samples:
    headwater-train tune runs/mine/bundle.hwb --data photos --loss 0.5 --missing 0.05 --by-missing 2 --simultaneous 3

With --loss the setting that saves most is taken: fewest bytes, or least compute where only --macs is given too. Without --loss it is the setting
that loses least. A smaller target sends more samples on (--loss) or answers more of them early (--bytes, --macs).

Exit codes: 0 done, 1 the targets cannot be met (the nearest that can is printed), 2 bad usage, a target that nothing could keep, or data that allows no
promise where one is required.";

/// Arguments of `tune`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Tune {
    /// Bundle whose thresholds are to be chosen, or run folder with its bundle.
    #[arg(value_name = "RUN|BUNDLE")]
    bundle: PathBuf,
    #[command(flatten)]
    dataset: Dataset,
    /// Targets, such as `loss<=0.5,wrong<=2,bytes<=20,macs<=2.5e6`; --loss, --wrong, --bytes and --macs are short forms of one each.
    #[arg(long = "target", value_name = "TARGETS")]
    asked: Option<Asked>,
    /// Most wrong answers, in percent of the answers given: the samples with the least confident answers become undecided. Promised where the calibration
    /// part allows a promise, else measured. An answer to a photo of nothing (folder `_none`) is wrong.
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true)]
    wrong: Option<f64>,
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
    #[arg(long, value_parser = bound_parser(), default_value = "net")]
    promise: Bound,
    /// Probability with which a promised loss holds over the draw of the calibration part.
    #[arg(long, value_name = "P", default_value_t = USUAL_CONFIDENCE, allow_negative_numbers = true)]
    confidence: f64,
    /// Losses that are tried on the same calibration part, or promises that shall hold together, this one included: each is tested at a K-th of the
    /// risk. Other --bytes and --macs are no further test.
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    simultaneous: u32,
    /// Refuse where the loss could only be measured, and say what a promise needs.
    #[arg(long)]
    require_promise: bool,
    /// Most samples that can share a scene or an object, for data with groups: the promise is tested over groups, and is for such groups. What is known
    /// beforehand, not the largest group of the calibration part.
    #[arg(long, value_name = "N")]
    largest_group: Option<u32>,
    /// States that frames of a recording that are N apart no longer depend on each other: every second block of N frames is a group of the promise, and the
    /// blocks between them are left out. Without it a recording is one group, which allows no promise.
    #[arg(long, value_name = "N")]
    block_length: Option<NonZero<u32>>,
    /// Probability with which each device is missing, for each sample by itself: promise and figures are then for such odds. A calibration sample counts
    /// as the mean over masks drawn by them.
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    missing: f64,
    /// Promise for each number of slots without a view (devices that do not see the object, and with --missing devices that are missing) by itself, from 0
    /// to M: each has thresholds of its own, and samples with more, or of a number without a promise, go to the last exit. --simultaneous M+1 makes all
    /// promises hold together.
    #[arg(long, value_name = "M", conflicts_with_all = ["frontier", "splits"])]
    by_missing: Option<u32>,
    /// Report too how often such a promise is broken on N random splits of the validation and calibration samples. 200 take minutes. It checks the
    /// arithmetic; samples that depend on each other, or that the network has learnt, it cannot see.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    splits: Option<u32>,
    /// States that the network has learnt none of the calibration samples, where its report names other data than --data. Whoever is wrong here gets a
    /// promise that means nothing.
    #[arg(long)]
    kept_apart: bool,
    /// File for the frontier as JSON: every setting that no other beats in loss, bytes and compute (docs/tune.md).
    #[arg(long, value_name = "FILE")]
    frontier: Option<PathBuf>,
    /// Name of the chosen policy in the bundle, in use from then on; policies of other names stay (key `use` of a policy file).
    #[arg(long = "policy", value_name = "NAME", default_value = "calibrated")]
    policy_name: PolicyName,
    /// File to write the bundle with the chosen thresholds to. It may be BUNDLE itself, which is then replaced. Without --out no bundle is written.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the result as one JSON object (docs/tune.md).
    #[arg(long)]
    json: bool,
}

/// Reads the name of a bound.
fn bound_parser() -> impl TypedValueParser<Value = Bound> {
    let names = PossibleValuesParser::new(["net", "losses"]);
    names.map(|name| if name == "net" { Bound::Net } else { Bound::Losses })
}

/// Settings of a bundle, the parts they were measured on, and the choice.
struct Tuned<'a> {
    bundle: &'a Bundle,
    /// The reason for which the figures may say nothing of new samples; `None` if there is no such reason.
    warning: Option<String>,
    target: Target,
    criteria: Criteria,
    /// Last step of the path that keeps the loss; `None` without a target of the loss.
    limit: Option<LossLimit>,
    validation: CostedPart<'a>,
    /// The calibration part; `None` if it must not be used.
    calibration: Option<CostedPart<'a>>,
    settings: Vec<Setting>,
    /// Indices of the settings that no other setting beats, with their costs on the validation part; empty without `--frontier`.
    frontier: Vec<(usize, MeasuredCost)>,
    /// The choice; `None` without a target.
    choice: Option<Choice>,
    /// Certificates by number of slots without a view, from 0; empty without `--by-missing`.
    certificates: Vec<Certificate>,
    /// Broken promises on random splits; `None` without `--splits`.
    splits: Option<SplitReport>,
}

impl Tune {
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        let targets = self.take_targets()?;
        self.bundle = bundle_file(&self.bundle)?;
        let target = self.target()?;
        self.check_files().map_err(Failure::usage)?;
        let bundle = open_bundle(&self.bundle)?;
        let slots = u32::from(bundle.manifest().slots);
        if let Some(found) = self.by_missing.filter(|found| *found >= slots) {
            return usage(format!(
                "--by-missing: expected less than the {slots} slots of the network, found {found}: the class prior answers a sample without a view"
            ));
        }
        let prior = &bundle.manifest().class_prior;
        let cost = NetworkCost::of(bundle.manifest());
        targets.check(cost.least_body_bytes()).map_err(Failure::usage)?;
        let parts = self.dataset.open_for_bundle(&bundle, &self.bundle)?;
        let warning =
            learnt_samples_warning(&bundle, &self.bundle, &self.dataset).filter(|_| !self.kept_apart);
        warning.iter().for_each(|warning| print_error(&format!("warning: {warning}")));
        let samples = self.validation_samples(&parts)?;
        targets.check_macs(cost.least_macs(&samples)).map_err(Failure::usage)?;
        let mut status = StatusLine::of_slow_work();
        let validation = self.run_part(&bundle, samples, Part::Validation, &mut status)?.swap_remove(0);
        let calibration = self.calibration(&bundle, &parts, &mut status)?;

        status.stage("choosing the rule of the exits and the order of the thresholds");
        let fitted = Fitted::of(&validation.logits, &validation.samples, &target)?;
        let part = calibration.as_ref().map_err(|why| match parts.data.len(Part::Calibration) {
            0 => format!("{why}{}{}", needed(&bundle, &validation, &target), too_few_groups(&parts, &target)),
            _ => why.clone(),
        });
        let part = part.and_then(|part| self.part_of_promise(&fitted, &parts, &validation.samples, part));
        let limit = self.loss.map(|_| {
            let mut limit = fitted.limit(&target, part.clone());
            if limit.tested.is_none() && part.as_ref().is_ok_and(|part| part.units.groups().is_none()) {
                limit.why_measured += &needed(&bundle, &validation, &target);
            }
            limit
        });
        let is_required = self.require_promise || self.by_missing.is_some() || self.splits.is_some();
        if let Some(limit) = limit.as_ref().filter(|limit| is_required && limit.tested.is_none()) {
            return usage(limit.why_measured.clone());
        }
        let certificates = match (&part, self.by_missing) {
            (Ok(part), Some(most)) => self.certificates(&fitted, &validation, (&target, part), most)?,
            (Err(_), _) | (_, None) => Vec::new(),
        };
        let splits = match (part, self.splits, &calibration) {
            (Ok(part), Some(splits), Ok(calibration)) => {
                let halves = [&validation, &calibration[0]];
                let [first, second] = halves.map(|half| {
                    let (logits, samples) = half.logits.with_class(&half.samples);
                    (logits.into_owned(), samples.into_owned())
                });
                let pool = Pool::new(first, second, &part.units);
                Some(pool.split(&target, splits).map_err(Failure::usage)?)
            }
            _ => None,
        };
        let validation = costed(&validation, prior, &cost);
        let settings = settings(&fitted, &validation, &mut |done| {
            status.show(|| format!("figures of {done} of {} settings", fitted.path.len() + 1));
        });
        let last_within_loss = limit.as_ref().map_or(settings.len() - 1, LossLimit::setting);
        let criteria = Criteria { targets, bound: target.bound, last_within_loss };
        let kept = self.frontier.as_ref().map_or_else(Vec::new, |_| frontier(&settings, target.bound));
        let costs = kept.iter().enumerate().map(|(done, index)| {
            status.show(|| format!("intervals of {done} of {} settings", kept.len()));
            (*index, validation.measured_cost(&settings[*index].policy))
        });
        let frontier = costs.collect();
        status.clear();
        let tuned = Tuned {
            choice: targets.has_any().then(|| criteria.choose(&settings)),
            frontier,
            bundle: &bundle,
            warning,
            target,
            criteria,
            limit,
            validation,
            calibration: calibration.as_ref().ok().map(|masks| costed(&masks[0], prior, &cost)),
            settings,
            certificates,
            splits,
        };
        self.write_frontier(&tuned)?;
        match &tuned.choice {
            Some(Choice::NotMet { unreachable, nearest }) => self.refuse(&tuned, unreachable, nearest),
            Some(Choice::Met(index)) => {
                let policy = self.policy(&tuned, &fitted, *index)?;
                let (policy, claims) = self.claimed(policy, &tuned, &calibration, &parts)?;
                let policies = bundle.policies().clone().with(self.policy_name.clone(), policy);
                if let Some(out) = &self.out {
                    let bytes = bundle.with_policies(&policies).context("writing the bundle")?;
                    write_whole(out, &bytes).with_context(|| format!("writing {}", out.display()))?;
                }
                self.print_chosen(&tuned, *index, policies.in_use(), claims.as_ref())
            }
            None => self.print_frontier(&tuned),
        }
    }

    /// Moves the targets of `--target` into the fields of the short forms. Refuses arguments whose targets are missing or too many; without any target,
    /// `--frontier` must be given and `--out` must not.
    fn take_targets(&mut self) -> Result<Targets, Failure> {
        let given = [
            (Key::Loss, self.loss),
            (Key::Wrong, self.wrong),
            (Key::Bytes, self.bytes),
            (Key::Macs, self.macs),
        ];
        let mut asked = self.asked.take().unwrap_or_default();
        for (key, short) in given {
            asked = asked.with(key, short).or_else(usage)?;
        }
        let elsewhere = "`tune` knows no times and keeps no others";
        asked.only(&given.map(|(key, _)| key), elsewhere).or_else(usage)?;
        [self.loss, self.wrong, self.bytes, self.macs] = given.map(|(key, _)| asked.of(key));
        if self.require_promise && self.loss.is_none() && self.wrong.is_none() {
            return usage("--require-promise: expected a target of --loss or --wrong with it, found none");
        }
        let of_loss = [("--by-missing", self.by_missing.is_some()), ("--splits", self.splits.is_some())];
        if let Some((flag, _)) = of_loss.iter().find(|(_, is_given)| *is_given && self.loss.is_none()) {
            return usage(format!("{flag}: expected a target of the loss (--loss) with it, found none"));
        }
        if self.by_missing.is_some() && [self.wrong, self.bytes, self.macs].iter().any(Option::is_some) {
            return usage("--by-missing: expected no target beside the loss with it, found one");
        }
        let targets =
            Targets { loss_points: self.loss, body_bytes: self.bytes, macs: self.macs, wrong: self.wrong };
        match (targets.has_any(), &self.out, &self.frontier) {
            (false, Some(_), _) => usage(
                "--out: expected a target (--loss, --wrong, --bytes or --macs), found none: which thresholds?",
            ),
            (false, None, None) => usage(
                "expected a target (--loss, --wrong, --bytes or --macs), or --frontier to see what can be had; found none",
            ),
            _ => Ok(targets),
        }
    }

    /// The target of the promise; the first argument that is out of range is named.
    fn target(&self) -> Result<Target, Failure> {
        let Self { promise, confidence, missing, simultaneous, .. } = *self;
        let loss_points = self.loss.unwrap_or(USUAL_LOSS_POINTS);
        check_loss(loss_points).map_err(Failure::usage)?;
        if !(0.5..1.0).contains(&confidence) {
            return usage(format!("--confidence: expected 0.5 to below 1, found {confidence}"));
        }
        if !(0.0..1.0).contains(&missing) {
            return usage(format!("--missing: expected 0 to below 1, found {missing}"));
        }
        let confidence = 1.0 - (1.0 - confidence) / f64::from(simultaneous);
        Ok(Target { bound: promise, loss: loss_points / 100.0, confidence })
    }

    /// Checks the files that are to be written; the file of the frontier must not overwrite the bundle that is read.
    fn check_files(&self) -> Result<(), anyhow::Error> {
        let frontier = self.frontier.as_deref().map(|file| ("--frontier", file));
        let bundle = Some(("BUNDLE", self.bundle.as_path()));
        frontier.map_or(Ok(()), |file| check_output_file(file, bundle))?;
        self.out.as_deref().map_or(Ok(()), |file| check_output_file(("--out", file), frontier))
    }

    /// The promise that a passed test on a part makes.
    fn promise_on(&self, target: &Target, part: &CalibrationPart) -> Promise {
        target.promise(&self.promised_data(), part, self.missing)
    }

    /// Name of the data of a promise.
    fn promised_data(&self) -> String {
        let blocks =
            self.block_length.map(|frames| format!(", blocks of {frames} frames")).unwrap_or_default();
        self.dataset.identity() + &blocks
    }

    /// The policy of a setting, with a promise if its loss is promised, and with the timing of the bundle's policy.
    fn policy(&self, tuned: &Tuned<'_>, fitted: &Fitted, index: usize) -> Result<Policy, Failure> {
        let limit = tuned.limit.as_ref();
        let policy = match self.by_missing {
            Some(_) => self.certified(tuned, fitted)?,
            None => {
                let promise = limit.and_then(|limit| {
                    limit.promise(index.checked_sub(1), |part| self.promise_on(&tuned.target, part))
                });
                Policy { promises: Vec::from_iter(promise), ..tuned.settings[index].policy.clone() }
            }
        };
        Ok(policy.with_waits_of(tuned.bundle.policy()))
    }
}
