//! The least confidence of an answer that is given: `--target "wrong<=2"`.

use headwater_calibration::account::{ClaimFigures, Claims, Given};
use headwater_calibration::data::{Parts, Samples};
use headwater_calibration::part_logits::{EvaluatedPart, PartLogits};
use headwater_calibration::promise::wrong::{ClaimPart, WrongTarget};
use headwater_calibration::tuning::claims::ClaimLimit;
use headwater_calibration::tuning::frontier::CostedPart;
use headwater_inference::policy::{Confidence, Policy};
use serde_json::{Value, json};

use super::super::part_report;
use super::{Failure, Tune, Tuned, usage};

impl Tune {
    /// The policy of the chosen setting with the least confidence that keeps the target of wrong answers; unchanged without such a target.
    pub(super) fn claimed(
        &self,
        policy: Policy,
        tuned: &Tuned<'_>,
        calibration: &Result<Vec<EvaluatedPart>, String>,
        parts: &Parts,
    ) -> Result<(Policy, Option<ClaimLimit>), Failure> {
        let Some(percent) = tuned.criteria.targets.wrong else { return Ok((policy, None)) };
        let CostedPart { logits, samples, class_prior, .. } = tuned.validation;
        let steps = tuned.settings.len() - 1;
        let target = WrongTarget {
            wrong: percent / 100.0,
            confidence: tuned.target.confidence,
            settings: tuned.limit.as_ref().map_or(1, |limit| limit.settings_tested(steps)),
        };
        let claims =
            |logits: &PartLogits, samples: &Samples| Claims::of(logits, samples, class_prior, &policy);
        let part = calibration.as_ref().map_err(Clone::clone).and_then(|masks| {
            let units = self.units(parts, samples, &masks[0].samples.groups)?;
            let masks = masks.iter().map(|part| claims(&part.logits, &part.samples)).collect();
            Ok(ClaimPart { masks, units })
        });
        let validation = claims(logits, samples);
        let Some(limit) = ClaimLimit::of(target, &validation, part) else {
            let Given { answered, wrong } = validation.given(0..samples.len(), Confidence::NONE);
            return Err(anyhow::anyhow!(
                "cannot be met: no least confidence keeps --wrong {percent} under the thresholds that keep the other targets; on validation {:.2} % of all \
                 answers are wrong, and {:.2} % are wrong and given by exits before the last one, which are sure of them; ask for a larger --wrong, or a smaller --loss, which sends \
                 more samples to the last exit",
                100.0 * wrong as f64 / answered.max(1) as f64,
                100.0 * tuned.validation.figures(&policy).sure_wrong
            )
            .into());
        };
        if self.require_promise && limit.tested.is_none() {
            return usage(limit.why_measured);
        }
        Ok((limit.applied_to(policy, &self.promised_data(), self.missing), Some(limit)))
    }
}

impl Tuned<'_> {
    /// Lines about the answers that are given, on validation and on the part that costs are measured on; empty if every answer is given.
    pub(super) fn claim_lines(&self, policy: &Policy, limit: Option<&ClaimLimit>) -> String {
        let lines = self.shown_parts().filter_map(|(name, part)| {
            Some(format!("{name:<12} {}\n", part_report::claims(claim_figures(&part, policy)?)))
        });
        let mut text: String = lines.collect();
        if let Some(least) = policy.claim_above {
            text += &format!(
                "claim_above  {}: below it an answer that no exit is sure of is undecided\n",
                least.get()
            );
        }
        if let Some(why) = limit.map(|limit| &limit.why_measured).filter(|why| !why.is_empty()) {
            text += &format!("the wrong answers are measured on validation: {why}\n");
        }
        text
    }

    /// Figures of the answers that are given, as JSON; null if every answer is given.
    pub(super) fn claims_json(&self, policy: &Policy, limit: Option<&ClaimLimit>) -> Value {
        let wrong_is = limit.map(|limit| if limit.tested.is_some() { "promised" } else { "measured" });
        match claim_figures(&self.validation, policy) {
            None => Value::Null,
            Some(validation) => json!({
                "claim_above": policy.claim_above,
                "validation": validation,
                "measured": claim_figures(&self.measuring_part().1, policy),
                "wrong_is": wrong_is,
                "why_measured": limit.map(|limit| &limit.why_measured).filter(|why| !why.is_empty()),
            }),
        }
    }
}

fn claim_figures(part: &CostedPart<'_>, policy: &Policy) -> Option<ClaimFigures> {
    ClaimFigures::of(part.logits, part.samples, part.class_prior, policy)
}
