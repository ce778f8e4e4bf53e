//! A promise for each number of slots without a view: `--by-missing`.

use headwater_calibration::part_logits::EvaluatedPart;
use headwater_calibration::promise::by_missing::{Certificate, Certified, MissingRange, Paths};
use headwater_calibration::promise::outcomes::Outcomes;
use headwater_calibration::promise::{CalibrationPart, Target};
use headwater_calibration::tuning::{Fitted, ORDER_SEED};
use headwater_inference::policy::{MissingCount, Policy, Presence, Promise};
use serde_json::{Value, json};

use super::super::output::counted;
use super::parts::rounded;
use super::result::sample_count;
use super::{Failure, Tune, Tuned};

impl Tune {
    /// The certificates of 0 to `most` slots without a view.
    pub(super) fn certificates(
        &self,
        fitted: &Fitted,
        validation: &EvaluatedPart,
        (target, part): (&Target, &CalibrationPart),
        most: u32,
    ) -> Result<Vec<Certificate>, Failure> {
        let slots = validation.samples.slots as u32;
        let (logits, samples) = validation.logits.with_class(&validation.samples);
        let outcomes = Outcomes::of(&logits, &samples, &fitted.policy);
        let paths = Paths::new(&fitted.path, &outcomes, target, MissingRange { slots, most });
        paths.certify(target, part, ORDER_SEED).map_err(Failure::usage)
    }

    /// The policy of the certificates; fails if no number of slots without a view has a promise.
    pub(super) fn certified(&self, tuned: &Tuned<'_>, fitted: &Fitted) -> Result<Policy, Failure> {
        let certificates = &tuned.certificates;
        let promised = certificates.iter().filter(|found| matches!(found.result, Certified::Promised(_)));
        let by_missing: Vec<MissingCount> = promised.map(|found| found.count).collect();
        if by_missing.is_empty() {
            return Err(anyhow::anyhow!(
                "no thresholds keep this promise for any number of missing slots:\n{}",
                self.certificate_lines(tuned)
            )
            .into());
        }
        let part = tuned.limit.as_ref().and_then(|limit| limit.tested.as_ref());
        let promise = part.map(|part| {
            let promise = self.promise_on(&tuned.target, part);
            Promise { presence: Presence { by_missing, ..promise.presence }, ..promise }
        });
        let slots = tuned.validation.samples.slots as u32;
        Ok(Policy { promises: Vec::from_iter(promise), ..fitted.by_missing(slots, certificates) })
    }

    /// A line for each number of slots without a view, such as `0 views absent: at most 0.5 points, 95 %, 1912 samples`, and a line that
    /// says whether all promises hold together.
    pub(super) fn certificate_lines(&self, Tuned { certificates, target, .. }: &Tuned<'_>) -> String {
        let line = |Certificate { count, result }: &Certificate| {
            let samples = sample_count(count.samples as usize, count.groups.map(|groups| groups as usize));
            let said = match result {
                Certified::Promised(_) => {
                    let [points, percent] =
                        [target.loss, target.confidence].map(|share| rounded(100.0 * share));
                    format!("at most {points} points, {percent} %, {samples}")
                }
                Certified::TooFew { least } => {
                    format!("no promise, {samples}, fewer than {least}: every sample goes to the last exit")
                }
                Certified::LosesTooMuch => format!(
                    "no promise, {samples}, on which the strictest thresholds lose too much: every sample goes to the last exit"
                ),
            };
            format!("{} absent: {said}\n", counted(count.missing as usize, "view"))
        };
        let lines: String = certificates.iter().map(line).collect();
        let together = match certificates.len() as u32 {
            0 | 1 => String::new(),
            counts if self.simultaneous >= counts => {
                format!("all of these hold together, with {} % confidence\n", 100.0 * self.confidence)
            }
            counts => {
                format!("each of these holds by itself; --simultaneous {counts} makes them hold together\n")
            }
        };
        lines + &together
    }
}

/// A certificate as JSON.
pub(super) fn certificate_json(Certificate { count, result }: &Certificate) -> Value {
    let mut value = json!(count);
    value["promised"] = matches!(result, Certified::Promised(_)).into();
    match result {
        Certified::Promised(_) => {}
        Certified::TooFew { least } => value["reason"] = json!({"fewer_than": least}),
        Certified::LosesTooMuch => value["reason"] = json!("loses_too_much"),
    }
    value
}
