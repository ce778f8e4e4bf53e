//! The choice of `claim_above` by the share of the answers given that are wrong, for `headwater-train train` and `tune`.

use headwater_inference::policy::{Confidence, Policy};

use super::{LossLimit, ORDER_SEED};
use crate::account::Claims;
use crate::promise::wrong::{ClaimPart, WrongTarget};

/// A `claim_above` that keeps a target.
#[derive(Clone, Debug)]
pub struct ClaimLimit {
    target: WrongTarget,
    /// The least confidence at which an answer is given.
    pub claim_above: Confidence,
    /// The calibration part on which `claim_above` passed its test; `None` if the share was only measured, on the validation part.
    pub tested: Option<ClaimPart>,
    /// Reason why the share was measured and not tested; empty if the share was tested, or if there is no calibration part.
    pub why_measured: String,
}

impl ClaimLimit {
    /// Tests confidences on the calibration part `part`. If `part` is an error or allows no promise, the share is measured on the
    /// validation part. `None` if no confidence keeps the target. All answers must be given under one setting of the exits.
    pub fn of(target: WrongTarget, validation: &Claims, part: Result<ClaimPart, String>) -> Option<Self> {
        let units = part.as_ref().map_or(validation.len(), |part| {
            let samples = part.masks.first().map_or(0, Claims::len);
            part.units.groups().map_or(samples, |groups| groups as usize)
        });
        let sequence = target.sequence(validation, units);
        let tested = part.and_then(|part| {
            let found = target.last(&sequence, &part, ORDER_SEED).map_err(|error| error.to_string())?;
            Ok((found, part))
        });
        let (claim_above, tested, why_measured) = match tested {
            Ok((found, part)) => (found, Some(part), String::new()),
            Err(why_measured) => (target.measured(&sequence, validation), None, why_measured),
        };
        claim_above.map(|claim_above| Self { target, claim_above, tested, why_measured })
    }

    /// The policy with this `claim_above`, and with a promise for the data set `data` if it was tested; `missing` is the probability
    /// with which each device was missing.
    #[must_use]
    pub fn applied_to(&self, mut policy: Policy, data: &str, missing: f64) -> Policy {
        policy.claim_above = Some(self.claim_above);
        let promise =
            self.tested.as_ref().map(|part| self.target.promise(data, part, self.claim_above, missing));
        policy.promises.extend(promise);
        policy
    }
}

impl LossLimit {
    /// Number of settings among which the calibration part chose, with the setting without early exits; 1 if the loss was only measured.
    pub fn settings_tested(&self, path_steps: usize) -> u32 {
        if self.tested.is_some() { path_steps as u32 + 1 } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use headwater_inference::policy::PromiseKind;

    use super::*;
    use crate::promise::Units;

    /// A thousand samples with confidences from 0 up to 1; below 0.4 every second answer is wrong.
    fn claims() -> Claims {
        let up_to: Vec<f32> = (0..1000u16).map(|at| f32::from(at) / 1000.0).collect();
        let is_wrong = (0..1000).map(|at| at < 400 && at % 2 == 0).collect();
        Claims { up_to, is_wrong }
    }

    #[test]
    fn what_was_tested_is_promised_and_answers_fewer_than_what_was_measured() {
        let target = WrongTarget { wrong: 0.02, confidence: 0.95, settings: 1 };
        let of = |target: WrongTarget, part: Result<ClaimPart, String>| {
            let limit = ClaimLimit::of(target, &claims(), part).expect("a confidence keeps the target");
            limit.applied_to(Policy::default(), "made-up", 0.0)
        };
        let part = || Ok(ClaimPart { masks: vec![claims()], units: Units::Samples });
        let (promised, measured) = (of(target, part()), of(target, Err("no part".to_owned())));
        assert!(promised.claim_above > measured.claim_above && measured.claim_above > Some(Confidence::NONE));
        assert_eq!(measured.promises, []);
        let [promise] = &promised.promises[..] else { panic!("one promise") };
        assert_eq!((promise.kind, promise.loss, promise.confidence), (PromiseKind::Wrong, 0.02, 0.95));
        let among_many = of(WrongTarget { settings: 100, ..target }, part());
        assert!(among_many.claim_above > promised.claim_above, "each of a hundred is tested at less risk");
        assert_eq!(among_many.promises[0].confidence, 0.95);
    }

    #[test]
    fn answers_that_are_all_wrong_keep_no_target() {
        let wrong = Claims { is_wrong: vec![true; 1000], ..claims() };
        let target = WrongTarget { wrong: 0.02, confidence: 0.95, settings: 1 };
        let part = ClaimPart { masks: vec![wrong.clone()], units: Units::Samples };
        assert!(ClaimLimit::of(target, &wrong, Ok(part)).is_none());
        assert!(ClaimLimit::of(target, &wrong, Err(String::new())).is_none());
    }
}
