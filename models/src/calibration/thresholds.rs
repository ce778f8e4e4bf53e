//! The thresholds of all exits in front of the cloud, such that together they keep the wish.
//!
//! **One exit.** Thresholds are tried from the strictest on, and the first whose bound on the loss is too large ends the search (fixed
//! sequence testing; Angelopoulos et al. 2021, "Learn then Test", section 3.2). By default samples that the exit wins over the cloud do
//! not make up for those it loses (the positive part of the gap; Jazbec et al. 2024, "Fast yet Safe", section 3): what is counted then
//! bounds the loss from above, whatever the wins on new data will be. To take the largest that passes anywhere would be to choose
//! the luckiest of thousands, and the promise on new data would not hold.
//!
//! **Several exits.** The wish is split: each of `k` exits may cost `1/k` of the points, at a level that leaves `1/k` of the risk. A
//! sample leaves at one exit only, so what all exits lose is the sum of what each loses, and that is within the wish when each is
//! within its part; that all are holds with the wished probability by the union bound. An exit's losses are counted over every
//! sample it is sure enough of, also over those that leave before it. So its search does not depend on the thresholds in front of it
//! (a sequence chosen with the same data would be no fixed one), and what is counted is at least what it loses in the cascade.
//! Wins, where the recipe lets them count, are those that come about: of samples that no exit in front took.

use headwater_inference::policy::{ExitPolicy, ExitThreshold, PolicyError};
use headwater_protocol::Exit;

use crate::data::Samples;
use crate::evaluation::ExitLogits;
use crate::loss::best;
use crate::recipe::ExitRecipe;

/// The search, exit by exit from the first.
pub(super) struct Search<'a> {
    logits: &'a ExitLogits,
    samples: &'a Samples,
    prior: &'a [f32],
    count_wins: bool,
    /// Share of the samples that one exit may lose.
    allowed: f64,
    standard_errors: f64,
    /// Samples that an exit before took.
    left: Vec<bool>,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        logits: &'a ExitLogits,
        samples: &'a Samples,
        prior: &'a [f32],
        wish: ExitRecipe,
    ) -> Self {
        let exits = logits.exits.iter().count().saturating_sub(1).max(1) as f64;
        Self {
            logits,
            samples,
            prior,
            count_wins: wish.count_wins,
            allowed: f64::from(wish.max_loss_points) / 100.0 / exits + 1e-9,
            standard_errors: split(f64::from(wish.standard_errors), exits),
            left: vec![false; samples.len()],
        }
    }

    /// The threshold of the next exit, whose rule and temperature are `exit`'s.
    pub(super) fn next(&mut self, at: Exit, exit: &ExitPolicy) -> Result<ExitThreshold, PolicyError> {
        let right = |at| right(&self.logits.exits[at], self.samples, self.prior);
        let (here, cloud) = (right(at), right(Exit::Cloud));
        let rows = self.logits.exits[at].chunks_exact(self.samples.classes).enumerate();
        let sure = rows.filter(|(sample, _)| self.samples.seen[*sample] != 0);
        let mut sure: Vec<(f32, usize)> =
            sure.filter_map(|(sample, row)| Some((exit.uncertainty(row)?, sample))).collect();
        sure.sort_by(|a, b| a.0.total_cmp(&b.0));

        let count = self.samples.len().max(1) as f64;
        let (mut gained, mut decided_otherwise, mut chosen) = (0i64, 0u32, 0.0f32);
        for (index, &(uncertainty, sample)) in sure.iter().enumerate() {
            let wins = self.count_wins && !self.left[sample] && here[sample] && !cloud[sample];
            let gain = i64::from(wins) - i64::from(cloud[sample] && !here[sample]);
            gained += gain;
            decided_otherwise += u32::from(gain != 0);
            // Each sample loses one, nothing, or wins one: mean and standard error of paired differences.
            let loss = -gained as f64 / count;
            let deviation = (f64::from(decided_otherwise) / count - loss * loss).max(0.0).sqrt();
            let bound = loss + self.standard_errors * deviation / count.sqrt();
            let next = sure.get(index + 1).map_or(1.0, |next| next.0);
            if bound > self.allowed {
                break;
            }
            if next > uncertainty {
                chosen = if index + 1 == sure.len() { 1.0 } else { f32::midpoint(uncertainty, next) };
            }
        }
        let chosen = chosen.clamp(0.0, 1.0);
        for (uncertainty, sample) in sure {
            self.left[sample] |= uncertainty <= chosen;
        }
        ExitThreshold::new(chosen)
    }
}

/// Standard errors for each of `parts` tests so that all hold together with the probability that `standard_errors` stands for.
///
/// The tail of the normal distribution is `density(z) mills(z)` with a falling Mills ratio, and `density(sqrt(z² + 2 ln k))` is
/// `density(z) / k`; so beyond that point lies at most a `k`-th of the tail beyond `z`. No standard errors stay none: then nothing is
/// promised beyond what was measured.
fn split(standard_errors: f64, parts: f64) -> f64 {
    if standard_errors > 0.0 { (standard_errors * standard_errors + 2.0 * parts.ln()).sqrt() } else { 0.0 }
}

/// Whether each sample is right by these logits; the class prior answers where no device sees it.
pub(super) fn right(logits: &[f32], samples: &Samples, prior: &[f32]) -> Vec<bool> {
    let rows = logits.chunks_exact(samples.classes).zip(samples.labels.iter().zip(&samples.seen));
    rows.map(|(row, (label, seen))| best(if *seen == 0 { prior } else { row }) == usize::from(*label))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_exit_keeps_its_standard_errors_and_two_need_more() {
        assert_eq!(split(1.64, 1.0), 1.64);
        // 1.955 would do for half of 5 %; the closed form is a little more careful.
        assert!((split(1.64, 2.0) - 2.019).abs() < 1e-3);
        assert_eq!(split(0.0, 2.0), 0.0);
    }
}
