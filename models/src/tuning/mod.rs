//! Tuning: a temperature and a threshold for each exit, from the validation part alone.

mod temperature;
#[cfg(test)]
mod tests;
mod thresholds;

use headwater_inference::policy::{Policy, PolicyError, Threshold};
use headwater_protocol::Exit;

use crate::data::Samples;
use crate::evaluation::PartLogits;
use crate::recipe::ExitTarget;

/// A policy from the validation part.
///
/// Each exit before the cloud gets the largest threshold up to which no threshold costs more than the exit's share of the target.
///
/// # Errors
/// [`PolicyError`] when a fitted number is out of range, which only logits that are not finite cause.
pub fn policy(
    logits: &PartLogits,
    validation: &Samples,
    class_prior: &[f32],
    target: ExitTarget,
) -> Result<Policy, PolicyError> {
    let mut policy = Policy::default();
    for (exit, logits) in logits.exits.iter() {
        policy.of_mut(exit).temperature = temperature::fit(logits, validation)?;
    }
    let mut search = thresholds::Search::new(logits, validation, class_prior, target);
    for exit in logits.exits.iter().map(|(exit, _)| exit).filter(|exit| *exit != Exit::Cloud) {
        policy.of_mut(exit).threshold = Threshold::One(search.next(exit, policy.of(exit))?);
    }
    Ok(policy)
}
