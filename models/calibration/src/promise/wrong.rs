//! The promise about wrong answers: of the answers given, at most a stated share is wrong. An undecided sample is no answer.
//!
//! ```text
//! validation  ──> sequence of `claim_above`: from a strict one that should pass its test down to 0
//! calibration ──> each value is tested at the full risk, from the first on; the last value before a failure is taken
//! ```
//!
//! This bounds the selective risk (Geifman and El-Yaniv 2017, "Selective Classification for Deep Neural Networks", section 3) by a sequence
//! that is fixed beforehand (Angelopoulos et al. 2021, "Learn then Test", section 3.2) in place of their union bound. Under a fixed
//! `claim_above`, the wrong ones among `n` answers to independent samples are a binomial count of `n`: the test is exact, whatever
//! share is answered. Where samples form groups or count as a mean over masks, betting tests the sum over each unit of its wrong answers
//! less the allowed share of its answers.

use headwater_inference::policy::{Answered, Bound, Confidence, Promise, PromiseKind};

use super::betting::UnitLoss;
use super::outcomes::quantiles;
use super::{PromiseError, Target, Units, binomial};
use crate::account::{Claims, Given};
use crate::random::Random;

/// Largest number of confidences in a sequence, not counting 0.
const LEVELS: usize = 200;

/// Largest difference in the chance to pass between the best confidence and the first one of a sequence.
const NEARLY: f64 = 0.05;

/// Confidence of the interval of the share that is answered.
const INTERVAL_CONFIDENCE: f64 = 0.95;

/// Share of wrong answers that is promised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WrongTarget {
    /// Largest share of the answers given that may be wrong, in `(0, 1)`.
    pub wrong: f64,
    /// Probability that the promise holds, in `(0, 1)`, over the draw of the calibration part.
    pub confidence: f64,
    /// Number of settings of the exits among which the calibration part chose; 1 if the setting was fixed before. Each setting is tested
    /// at an equal part of the risk, so that the promise holds for the chosen one.
    pub settings: u32,
}

/// Answers on which a promise about wrong answers is tested. Nothing but the setting of the exits was chosen with these samples.
#[derive(Clone, Debug)]
pub struct ClaimPart {
    /// Answers to all samples, once per mask of missing devices that was drawn for every sample.
    pub masks: Vec<Claims>,
    /// Independent units of the part.
    pub units: Units,
}

impl WrongTarget {
    /// Largest probability with which the test of one setting passes though the true share of wrong answers is above `wrong`.
    pub fn risk(&self) -> f64 {
        (1.0 - self.confidence) / f64::from(self.settings)
    }

    /// The confidences to try on a calibration part of `units` independent units, fixed on the validation part: from the strictest one
    /// whose estimated chance to pass its test is nearly the best, down to 0.
    pub fn sequence(&self, validation: &Claims, units: usize) -> Vec<Confidence> {
        let is_reached = |up_to: &f32| (0.0..=1.0).contains(up_to);
        let mut levels = quantiles(validation.up_to.iter().copied().filter(is_reached), LEVELS);
        levels.reverse();
        levels.push(Confidence::NONE.get());
        levels.dedup();
        let mut sequence: Vec<Confidence> =
            levels.into_iter().filter_map(|level| Confidence::new(level).ok()).collect();
        let chance = |claim_above: &Confidence| {
            let Given { answered, wrong } = validation.given(0..validation.len(), *claim_above);
            // The share of wrong answers is estimated after Krichevsky and Trofimov 1981; the number of answers is taken 10 % lower.
            let wrong = (wrong as f64 + 0.5) / (answered as f64 + 1.0);
            let answers = (0.9 * units as f64 * answered as f64 / validation.len().max(1) as f64) as u64;
            let most = binomial::most_losses(answers, self.wrong, self.risk());
            most.map_or(0.0, |most| binomial::at_most(most, answers, wrong))
        };
        let chances: Vec<f64> = sequence.iter().map(chance).collect();
        let best = chances.iter().copied().fold(0.0, f64::max);
        let first = chances.iter().position(|chance| *chance >= best - NEARLY);
        sequence.split_off(first.unwrap_or(0))
    }

    /// The last confidence of a sequence up to which every test on the calibration part passes; `None` if the first test fails. `seed`
    /// gives the order of the units.
    ///
    /// # Errors
    /// [`PromiseError`] when the part allows no promise.
    pub fn last(
        &self,
        sequence: &[Confidence],
        part: &ClaimPart,
        seed: u64,
    ) -> Result<Option<Confidence>, PromiseError> {
        let samples = part.masks.first().map_or(0, Claims::len);
        let members = part.units.members(samples)?;
        let units = members.ends.len();
        let as_loss = Target { bound: Bound::Net, loss: self.wrong, confidence: 1.0 - self.risk() };
        as_loss.check(&part.units, part.masks.len(), units as u64)?;
        let order = Random::new(seed, &[units as u64]).permutation(units);
        let (betting, size) = (as_loss.betting(&part.units), part.units.typical_size());
        let passes = |claim_above: &&Confidence| match (&part.units, &part.masks[..]) {
            (Units::Samples, [claims]) => {
                let Given { answered, wrong } = claims.given(0..samples, **claim_above);
                binomial::at_most(wrong, answered, self.wrong) <= self.risk()
            }
            (_, _) => {
                let losses =
                    order.iter().map(|unit| part.unit_loss(members.of(*unit as usize), **claim_above));
                betting.passes(losses, self.wrong * size * size)
            }
        };
        Ok(sequence.iter().take_while(passes).last().copied())
    }

    /// The last confidence of a sequence up to which the measured share of wrong answers is within the target; `None` if it is above the
    /// target at the first confidence.
    pub fn measured(&self, sequence: &[Confidence], claims: &Claims) -> Option<Confidence> {
        let is_within = |claim_above: &&Confidence| {
            let Given { answered, wrong } = claims.given(0..claims.len(), **claim_above);
            wrong as f64 <= self.wrong * answered as f64
        };
        sequence.iter().take_while(is_within).last().copied()
    }

    /// The promise that a passed test on a part of a data set makes; `missing` is the probability with which each device was missing.
    pub fn promise(&self, data: &str, part: &ClaimPart, claim_above: Confidence, missing: f64) -> Promise {
        let samples = part.masks.first().map_or(0, Claims::len);
        let answered = part.masks.iter().map(|claims| claims.given(0..samples, claim_above).answered);
        let (answered, trials) = (answered.sum::<u64>(), (samples * part.masks.len()) as u64);
        let is_count = part.units == Units::Samples && part.masks.len() == 1;
        let interval = is_count.then(|| binomial::interval(answered, trials, INTERVAL_CONFIDENCE));
        let answered = Some(Answered { share: answered as f64 / trials.max(1) as f64, interval });
        let as_loss = Target { bound: Bound::Net, loss: self.wrong, confidence: self.confidence };
        let promise = as_loss.promise_on(data, (samples as u32, &part.units), missing);
        Promise { kind: PromiseKind::Wrong, answered, ..promise }
    }
}

impl ClaimPart {
    /// The wrong answers of a unit as the loss and the answers given as the size, both as means over the masks.
    fn unit_loss(&self, unit: &[u32], claim_above: Confidence) -> UnitLoss {
        let mut sum = Given::default();
        for claims in &self.masks {
            let Given { answered, wrong } =
                claims.given(unit.iter().map(|sample| *sample as usize), claim_above);
            (sum.answered, sum.wrong) = (sum.answered + answered, sum.wrong + wrong);
        }
        let masks = self.masks.len().max(1) as f64;
        UnitLoss { loss: sum.wrong as f64 / masks, size: sum.answered as f64 / masks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples with confidences from 0 up to 1; every second answer with a confidence below `doubtful` is wrong.
    fn claims(count: usize, doubtful: f32) -> Claims {
        let up_to: Vec<f32> = (0..count).map(|at| at as f32 / count as f32).collect();
        let is_wrong = up_to.iter().enumerate().map(|(at, up_to)| *up_to < doubtful && at % 2 == 0).collect();
        Claims { up_to, is_wrong }
    }

    const TARGET: WrongTarget = WrongTarget { wrong: 0.02, confidence: 0.95, settings: 1 };

    fn last(target: &WrongTarget, claims: Claims, units: Units) -> Result<Option<f32>, PromiseError> {
        let sequence =
            target.sequence(&claims, units.groups().map_or(claims.len(), |groups| groups as usize));
        let part = ClaimPart { masks: vec![claims], units };
        target.last(&sequence, &part, 1).map(|found| found.map(Confidence::get))
    }

    #[test]
    fn the_sequence_begins_where_a_test_should_pass_and_ends_where_every_answer_is_claimed() {
        let sequence = TARGET.sequence(&claims(1000, 0.4), 1000);
        // Two percent at 95 % need 149 answers if none is wrong, and 236 if one is wrong.
        assert!((0.5..0.76).contains(&sequence[0].get()), "{:?}", sequence[0]);
        assert_eq!(sequence.last(), Some(&Confidence::NONE));
        assert!(sequence.is_sorted_by(|before, after| before > after));
    }

    #[test]
    fn a_promise_answers_fewer_than_what_was_measured_and_says_how_many() {
        let claims = claims(1000, 0.4);
        let measured = TARGET.measured(&TARGET.sequence(&claims, 1000), &claims).unwrap().get();
        let promised = last(&TARGET, claims.clone(), Units::Samples).unwrap().unwrap();
        assert!(promised > measured && promised < 0.41, "{promised} {measured}");
        let part = ClaimPart { masks: vec![claims], units: Units::Samples };
        let promise = TARGET.promise("made-up", &part, Confidence::new(promised).unwrap(), 0.0);
        let share = promise.answered.unwrap().share;
        let [low, high] = promise.answered.unwrap().interval.unwrap();
        assert!(
            (share - (1.0 - f64::from(promised))).abs() < 0.01 && low < share && share < high,
            "{promise}"
        );
    }

    #[test]
    fn samples_that_are_right_are_all_answered_and_ones_that_are_wrong_allow_no_promise() {
        assert_eq!(last(&TARGET, claims(1000, 0.0), Units::Samples), Ok(Some(0.0)));
        let wrong = Claims { is_wrong: vec![true; 1000], ..claims(1000, 0.0) };
        assert_eq!(last(&TARGET, wrong, Units::Samples), Ok(None));
        // Two percent at 95 % need ln 0.05 / ln 0.98 = 148.3 answers.
        let few = last(&TARGET, claims(148, 0.0), Units::Samples);
        assert!(matches!(few, Err(PromiseError::TooFew { found: 148, least: 149, .. })), "{few:?}");
        let settings = WrongTarget { settings: 100, ..TARGET };
        assert!(last(&settings, claims(149, 0.0), Units::Samples).is_err());
    }

    #[test]
    fn groups_count_once() {
        let grouped = |count: usize| Units::Groups {
            of: (0..count as u32).map(|sample| sample / 4).collect(),
            largest: 4,
            typical: 4.0,
        };
        let alone = last(&TARGET, claims(4000, 0.4), Units::Samples).unwrap().unwrap();
        let in_groups = last(&TARGET, claims(4000, 0.4), grouped(4000)).unwrap().unwrap();
        assert!(in_groups > alone && in_groups < 0.5, "{in_groups} {alone}");
        let few = last(&TARGET, claims(400, 0.0), grouped(400));
        assert!(matches!(few, Err(PromiseError::TooFew { found: 100, .. })), "{few:?}");
    }
}
