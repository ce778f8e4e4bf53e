//! The result of `calibrate` as text and as JSON.

use headwater_calibration::account::PartAccount;
use headwater_calibration::promise::by_missing::{Certificate, Certified};
use headwater_calibration::promise::outcomes::Outcomes;
use headwater_calibration::tuning::splits::SplitReport;
use headwater_inference::bundle::Bundle;
use serde_json::{Value, json};

use super::super::output::print;
use super::super::print_json;
use super::{Calibrate, Failure, Found, PartOfBundle};

/// Figures of a part under the new policy.
struct Figures {
    part: &'static str,
    samples: usize,
    lost: f64,
    won: f64,
    /// Share that leaves at each exit, with its name.
    left: Vec<(&'static str, f64)>,
}

impl Calibrate {
    pub(super) fn print(
        &self,
        bundle: &Bundle,
        found: &Found,
        [validation, calibration]: [&PartOfBundle; 2],
    ) -> Result<(), Failure> {
        let prior = &bundle.manifest().class_prior;
        let figures = [("validation", validation), ("calibration", calibration)].map(|(part, of)| {
            let account = PartAccount::of(&of.logits, &of.samples, prior, &found.policy);
            let outcomes = Outcomes::of(&of.logits, &of.samples, &found.policy);
            let (lost, won) = outcomes.losses_and_wins(&found.policy);
            let samples = of.samples.len();
            let share = |left: usize| left as f64 / samples.max(1) as f64;
            let left = account.exits.iter().map(|(exit, left)| (exit.name(), share(left.samples)));
            Figures { part, samples, lost, won, left: left.collect() }
        });
        if self.json {
            return print_json(&json_of(bundle, found, &figures));
        }
        print(&self.text(found, &figures))
    }

    fn text(&self, found: &Found, figures: &[Figures]) -> String {
        let mut text = found.policy.promise_line() + "\n";
        for certificate in &found.certificates {
            text += &format!("{}\n", self.certificate_line(certificate));
        }
        let counts = found.certificates.len() as u32;
        if counts > 1 && self.simultaneous >= counts {
            text += &format!("all of these hold together, with {} % confidence\n", 100.0 * self.confidence);
        } else if counts > 1 {
            text +=
                &format!("each of these holds by itself; --simultaneous {counts} makes them hold together\n");
        }
        for Figures { part, samples, lost, won, left } in figures {
            let left: Vec<String> =
                left.iter().map(|(exit, share)| format!("{exit} {:.1} %", 100.0 * share)).collect();
            text += &format!(
                "{part:<12} {samples} samples leave at {}; lost {:.2} %, won {:.2} %\n",
                left.join(", "),
                100.0 * lost,
                100.0 * won
            );
        }
        text += &found.splits.as_ref().map_or_else(String::new, split_lines);
        match &self.out {
            Some(out) => text += &format!("written: {}\n", out.display()),
            None => text += "nothing was written; --out FILE writes the bundle with this policy\n",
        }
        text
    }

    /// `0 views absent: at most 0.5 points, 95 %, 1912 samples`.
    pub(super) fn certificate_line(&self, certificate: &Certificate) -> String {
        let Certificate { count, result } = certificate;
        let confidence = 100.0 * self.confidence_of_each();
        let groups = count.groups.map_or_else(String::new, |groups| format!(" in {groups} groups"));
        let samples = format!("{} samples{groups}", count.samples);
        let said = match result {
            Certified::Promised(_) => {
                format!("at most {} points, {} %, {samples}", self.loss, (1e4 * confidence).round() / 1e4)
            }
            Certified::TooFew { least } => {
                format!("no promise, {samples}, fewer than {least}: every sample goes to the last exit")
            }
            Certified::LosesTooMuch => format!(
                "no promise, {samples}, on which the strictest thresholds lose too much: every sample goes to the last exit"
            ),
        };
        let views = if count.missing == 1 { "view" } else { "views" };
        format!("{} {views} absent: {said}", count.missing)
    }
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

fn json_of(bundle: &Bundle, found: &Found, figures: &[Figures]) -> Value {
    let parts = figures.iter().map(|Figures { part, samples, lost, won, left }| {
        let left: serde_json::Map<String, Value> =
            left.iter().map(|(exit, share)| ((*exit).to_owned(), json!(share))).collect();
        ((*part).to_owned(), json!({"samples": samples, "lost": lost, "won": won, "left": left}))
    });
    let parts: serde_json::Map<String, Value> = parts.collect();
    let mut value = json!({
        "network_id": bundle.network_id().to_string(),
        "promise": found.policy.promise,
        "policy": found.policy,
        "parts": parts,
    });
    if !found.certificates.is_empty() {
        value["by_missing"] = found.certificates.iter().map(certificate_json).collect();
    }
    if let Some(splits) = &found.splits {
        value["splits"] = json!(splits);
    }
    value
}

fn certificate_json(Certificate { count, result }: &Certificate) -> Value {
    let mut value = json!(count);
    let (promised, reason) = match result {
        Certified::Promised(_) => (true, Value::Null),
        Certified::TooFew { least } => (false, json!({"fewer_than": least})),
        Certified::LosesTooMuch => (false, json!("loses_too_much")),
    };
    value["promised"] = promised.into();
    if !promised {
        value["reason"] = reason;
    }
    value
}
