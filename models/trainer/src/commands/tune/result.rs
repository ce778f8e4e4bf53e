//! The result of `tune` as text, as JSON, and as the file of the frontier.

use anyhow::Context;
use headwater_calibration::number_file::write_whole;
use headwater_calibration::tuning::choice::{Choice, Measure};
use headwater_calibration::tuning::claims::ClaimLimit;
use headwater_calibration::tuning::frontier::{CostedPart, Figures};
use headwater_calibration::tuning::interval::{CONFIDENCE, Measured, MeasuredCost};
use headwater_calibration::tuning::splits::SplitReport;
use headwater_inference::policy::{Bound, Policy, PromiseKind};
use headwater_protocol::Exit;
use serde_json::{Map, Value, json};

use super::super::output::{counted, print};
use super::super::print_json;
use super::certificates::certificate_json;
use super::{Failure, Tune, Tuned};

/// Text beside every mean cost.
const NOT_PROMISED: &str = "measured, not promised";

impl Tune {
    /// Prints the chosen setting.
    pub(super) fn print_chosen(
        &self,
        tuned: &Tuned<'_>,
        index: usize,
        policy: &Policy,
        claims: Option<&ClaimLimit>,
    ) -> Result<(), Failure> {
        let (part_name, part) = tuned.measuring_part();
        let cost = part.measured_cost(policy);
        let figures = part.figures(policy);
        let chosen = &tuned.validation.figures(policy);
        if self.json {
            let mut measured = figures_json(&figures, tuned.criteria.bound);
            measured["part"] = part_name.into();
            measured["samples"] = part.samples.len().into();
            measured["groups"] = json!(part.samples.group_count());
            measured["body_bytes"] = json!(cost.body_bytes);
            measured["macs"] = json!(cost.macs);
            measured["interval_confidence"] = CONFIDENCE.into();
            measured["costs_are"] = NOT_PROMISED.into();
            measured["above"] = tuned.missed_targets(&figures).iter().map(|measure| measure.flag()).collect();
            let mut value = self.json_of(tuned, Some(policy));
            value["chosen"] = json!({
                "thresholds": thresholds(tuned, policy),
                "validation": figures_json(chosen, tuned.criteria.bound),
                "measured": measured,
            });
            value["chosen"]["claims"] = tuned.claims_json(policy, claims);
            value["promises"] = json!(policy.promises);
            value["policy"] = json!(policy);
            if !tuned.certificates.is_empty() {
                value["by_missing"] = tuned.certificates.iter().map(certificate_json).collect();
            }
            if let Some(splits) = &tuned.splits {
                value["splits"] = json!(splits);
            }
            return print_json(&value);
        }
        let mut text = policy.promise_line() + "\n";
        text += &self.certificate_lines(tuned);
        let why = tuned.limit.as_ref().map(|limit| &limit.why_measured);
        if let Some(why) = why.filter(|why| !why.is_empty()) {
            text += &format!("the loss is measured on validation: {why}\n");
        }
        if index == 0 && tuned.certificates.is_empty() {
            let which = match tuned.limit {
                Some(_) => "no setting with an early exit keeps these targets",
                None => "of the settings that keep these targets, none with an early exit loses less",
            };
            text += &format!("{which}: every sample goes to the last exit, and nothing is lost\n");
            if tuned.limit.as_ref().is_some_and(|limit| limit.tested.is_some() && limit.step.is_none()) {
                text += "a larger --loss, or a network trained anew, is a second test on the same calibration part: --simultaneous 2 counts it\n";
            }
        }
        for (name, part) in tuned.shown_parts() {
            let samples = counted(part.samples.len(), "sample");
            text += &format!("{name:<12} {samples}: {}\n", tuned.accuracy_text(&part.figures(policy)));
        }
        text += &tuned.claim_lines(policy, claims);
        let samples = sample_count(part.samples.len(), part.samples.group_count());
        text += &format!("costs on {part_name}, {samples}, {NOT_PROMISED}:\n");
        let above = tuned.missed_targets(&figures);
        text += &tuned.cost_line("body bytes per device and sample", Measure::Bytes, cost.body_bytes, chosen);
        text += &tuned.cost_line("multiply-accumulates per sample", Measure::Macs, cost.macs, chosen);
        for measure in above {
            text += &format!(
                "  above {} here, though kept on validation, where the thresholds were chosen{}\n",
                measure.flag(),
                if index == tuned.settings.len() - 1 {
                    ": no setting costs less".to_owned()
                } else {
                    format!(": a smaller {} leaves room", measure.flag())
                }
            );
        }
        if part_name == "validation" {
            text += "  the intervals do not count that the setting was chosen on the same samples\n";
        }
        text += &tuned.splits.as_ref().map_or_else(String::new, split_lines);
        match &self.out {
            Some(out) => text += &format!("written: {}\n", out.display()),
            None => text += "no bundle was written; --out FILE writes one with these thresholds\n",
        }
        print(&(text + &self.frontier_line()))
    }

    /// Prints the frontier, for a command without a target.
    pub(super) fn print_frontier(&self, tuned: &Tuned<'_>) -> Result<(), Failure> {
        if self.json {
            return print_json(&self.frontier_json(tuned));
        }
        let mut text = format!(
            "{} that no other beats in loss, bytes and compute, on {}:\n",
            counted(tuned.frontier.len(), "setting"),
            counted(tuned.validation.samples.len(), "validation sample")
        );
        let ends = [tuned.frontier.first(), tuned.frontier.last()];
        for (end, (index, _)) in ["from", "to"].iter().zip(ends.into_iter().flatten()) {
            text += &format!("{end:<5} {}\n", tuned.cost_text(&tuned.settings[*index].figures));
        }
        print(&(text + &self.frontier_line()))
    }

    /// Writes the file of the frontier; does nothing without `--frontier`.
    pub(super) fn write_frontier(&self, tuned: &Tuned<'_>) -> Result<(), Failure> {
        if let Some(file) = &self.frontier {
            let text =
                serde_json::to_string_pretty(&self.frontier_json(tuned)).context("writing JSON")? + "\n";
            write_whole(file, text.as_bytes()).with_context(|| format!("writing {}", file.display()))?;
        }
        Ok(())
    }

    fn frontier_line(&self) -> String {
        let file = self.frontier.as_ref();
        file.map_or_else(String::new, |file| format!("written: {}\n", file.display()))
    }

    /// The JSON result without figures: the targets, and `met`. `chosen` is the policy that keeps all targets; `None` if there is none.
    pub(super) fn json_of(&self, tuned: &Tuned<'_>, chosen: Option<&Policy>) -> Value {
        let targets = tuned.criteria.targets;
        let limit = tuned.limit.as_ref();
        let loss_is = limit.zip(chosen).map(|(limit, policy)| match &limit.tested {
            Some(_) if policy.promises.iter().any(|promise| promise.kind != PromiseKind::Wrong) => "promised",
            Some(_) => "none",
            None => "measured",
        });
        json!({
            "network_id": tuned.bundle.network_id().to_string(),
            "data": self.dataset.identity(),
            "targets": { "loss_points": targets.loss_points, "body_bytes": targets.body_bytes, "macs": targets.macs, "wrong": targets.wrong },
            "warning": tuned.warning,
            "bound": tuned.criteria.bound,
            "met": chosen.is_some(),
            "loss_is": loss_is,
            "why_measured": limit.map(|limit| &limit.why_measured).filter(|why| !why.is_empty()),
        })
    }

    /// The frontier as JSON: figures and costs on the validation part.
    fn frontier_json(&self, tuned: &Tuned<'_>) -> Value {
        let bound = tuned.criteria.bound;
        let entry = |(index, cost): &(usize, MeasuredCost)| {
            let setting = &tuned.settings[*index];
            let mut value = figures_json(&setting.figures, bound);
            value["thresholds"] = thresholds(tuned, &setting.policy);
            value["body_bytes"] = json!(cost.body_bytes);
            value["macs"] = json!(cost.macs);
            value
        };
        let chosen = tuned
            .chosen()
            .map(|index| entry(&(index, tuned.validation.measured_cost(&tuned.settings[index].policy))));
        let settings: Vec<Value> = tuned.frontier.iter().map(entry).collect();
        json!({
            "network_id": tuned.bundle.network_id().to_string(),
            "data": self.dataset.identity(),
            "warning": tuned.warning,
            "part": "validation",
            "samples": tuned.validation.samples.len(),
            "groups": tuned.validation.samples.group_count(),
            "bound": bound,
            "interval_confidence": CONFIDENCE,
            "costs_are": NOT_PROMISED,
            "chosen": chosen,
            "settings": settings,
        })
    }
}

impl<'a> Tuned<'a> {
    /// The part that costs are measured on, with its name: the calibration part if it may be used, since no cost was chosen on it;
    /// otherwise the validation part.
    pub(super) fn measuring_part(&self) -> (&'static str, CostedPart<'a>) {
        self.calibration.map_or(("validation", self.validation), |part| ("calibration", part))
    }

    /// The validation part, and the part that costs are measured on if that is another one.
    pub(super) fn shown_parts(&self) -> impl Iterator<Item = (&'static str, CostedPart<'a>)> {
        let calibration = self.calibration.map(|part| ("calibration", part));
        [("validation", self.validation)].into_iter().chain(calibration)
    }

    /// True when the loss of a setting is promised. Setting 0 has no early exits: nothing is lost, and nothing was tested.
    pub(super) fn is_promised(&self, setting: usize) -> bool {
        setting > 0 && self.limit.as_ref().is_some_and(|limit| limit.tested.is_some())
    }

    /// Index of the chosen setting; `None` if a target is not met, or if no target was given.
    pub(super) fn chosen(&self) -> Option<usize> {
        match &self.choice {
            Some(Choice::Met(index)) => Some(*index),
            Some(Choice::NotMet { .. }) | None => None,
        }
    }

    /// Costs that are above their target in `measured`, the figures on the part that costs are measured on.
    fn missed_targets(&self, measured: &Figures) -> Vec<Measure> {
        let is_above = |measure: &Measure| {
            let target = self.criteria.targets.of(*measure);
            target.is_some_and(|target| measure.of(measured, self.criteria.bound) > target)
        };
        [Measure::Bytes, Measure::Macs].into_iter().filter(is_above).collect()
    }

    /// Text such as `89.70 % right, 0.16 points lost (lost 0.92 %, won 0.76 %); leave at local 83.0 %, cloud 17.0 %`.
    fn accuracy_text(&self, figures: &Figures) -> String {
        let left = figures.left.iter().map(|(exit, share)| format!("{} {:.1} %", exit.name(), 100.0 * share));
        let left: Vec<String> = left.collect();
        format!(
            "{:.2} % right, {} (lost {:.2} %, won {:.2} %); leave at {}",
            100.0 * figures.accuracy,
            points(figures, self.criteria.bound),
            100.0 * figures.lost,
            100.0 * figures.won,
            left.join(", ")
        )
    }

    /// Text such as `83.1 body bytes, 1234567 multiply-accumulates, 0.16 points lost`.
    pub(super) fn cost_text(&self, figures: &Figures) -> String {
        format!(
            "{:.1} body bytes, {:.0} multiply-accumulates, {}",
            figures.mean.body_bytes,
            figures.mean.macs,
            points(figures, self.criteria.bound)
        )
    }

    /// Line such as `  83.6 body bytes per device and sample (95 % interval 82.1 to 85.2); at most 90 asked for, 83.1 on validation`.
    fn cost_line(&self, unit: &str, measure: Measure, found: Measured, chosen: &Figures) -> String {
        let places = if measure == Measure::Bytes { 1 } else { 0 };
        let interval = found.interval.map_or_else(
            || "no interval: too few independent samples or groups".to_owned(),
            |[low, high]| format!("{} % interval {low:.places$} to {high:.places$}", 100.0 * CONFIDENCE),
        );
        let target = self.criteria.targets.of(measure).map_or_else(String::new, |target| {
            let on_validation = measure.of(chosen, self.criteria.bound);
            format!("; at most {target} asked for, {on_validation:.places$} on validation")
        });
        format!("  {:.places$} {unit} ({interval}){target}\n", found.mean)
    }
}

/// `0.16 points lost`, or `0.16 points won` for a negative loss.
fn points(figures: &Figures, bound: Bound) -> String {
    let points = Measure::Loss.of(figures, bound);
    if points < 0.0 { format!("{:.2} points won", -points) } else { format!("{points:.2} points lost") }
}

/// Thresholds of the exits before the last one, by name.
fn thresholds(tuned: &Tuned<'_>, policy: &Policy) -> Value {
    let mut exits: Vec<Exit> = tuned.validation.logits.exits.iter().map(|(exit, _)| exit).collect();
    exits.pop();
    let of = |exit: Exit| (exit.name().to_owned(), json!(policy.of(exit).threshold));
    exits.into_iter().map(of).collect::<Map<String, Value>>().into()
}

/// Figures on a part, with both measures of the loss in points and mean costs.
pub(super) fn figures_json(figures: &Figures, bound: Bound) -> Value {
    let mut value = json!(figures);
    value["loss_points"] = json!(Measure::Loss.of(figures, bound));
    value["net_points"] = json!(Measure::Loss.of(figures, Bound::Net));
    value["losses_points"] = json!(Measure::Loss.of(figures, Bound::Losses));
    value["body_bytes"] = json!(figures.mean.body_bytes);
    value["macs"] = json!(figures.mean.macs);
    value
}

fn split_lines(report: &SplitReport) -> String {
    let SplitReport { splits, promised, violations, interval, predicted, leaves_first } = report;
    let [low, high] = interval.map(|share| 100.0 * share);
    format!(
        "splits       {violations} of {splits} break the promise: {:.1} % (95 % interval {low:.1} to {high:.1} %; {:.1} % expected at most); {promised} \
         make one, and {:.1} % of samples leave at the first exit\n",
        100.0 * f64::from(*violations) / f64::from((*splits).max(1)),
        100.0 * predicted,
        100.0 * leaves_first,
    )
}

/// Text such as `5000 samples` or `5000 samples in 40 groups`.
pub(super) fn sample_count(samples: usize, groups: Option<usize>) -> String {
    let groups = groups.map_or_else(String::new, |groups| format!(" in {}", counted(groups, "group")));
    counted(samples, "sample") + &groups
}
