//! Simulations of the promise about wrong answers: the true share of wrong answers is known, and the tests count how often a share is promised.

use headwater_inference::policy::Confidence;

use super::simulation::{DRAWS, FEWER_DRAWS, MOST_OF_FEWER, MOST_VIOLATIONS, counts, units};
use super::wrong::{ClaimPart, WrongTarget};
use super::*;
use crate::account::Claims;

const TARGET: WrongTarget = WrongTarget { wrong: 0.02, confidence: 0.95, settings: 1 };

/// Answers whose confidences are uniform in `[0, 1)`; an answer with a confidence below 0.5 is wrong with probability `doubt`.
#[derive(Clone, Copy, Debug)]
struct World {
    /// Number of independent units of a part.
    units: usize,
    /// Samples of a unit, which have one confidence and are wrong together.
    unit_samples: usize,
    doubt: f64,
}

/// Value of [`World::doubt`] with which, at a `claim_above` of 0.1, a share `wrong` of the answers given is wrong.
fn doubt(wrong: f64) -> f64 {
    wrong * (1.0 - 0.1) / (0.5 - 0.1)
}

impl World {
    /// Share of the answers given that are wrong.
    fn wrong(self, claim_above: Confidence) -> f64 {
        let claim_above = f64::from(claim_above.get());
        self.doubt * (0.5 - claim_above).max(0.0) / (1.0 - claim_above).max(f64::MIN_POSITIVE)
    }

    fn draw(self, random: &mut Random) -> ClaimPart {
        let mut claims = Claims { up_to: Vec::new(), is_wrong: Vec::new() };
        for _ in 0..self.units {
            let up_to = random.unit();
            let is_wrong = up_to < 0.5 && f64::from(random.unit()) < self.doubt;
            for _ in 0..self.unit_samples {
                claims.up_to.push(up_to);
                claims.is_wrong.push(is_wrong);
            }
        }
        ClaimPart { masks: vec![claims], units: units(self.units, self.unit_samples) }
    }

    /// Number of draws in which `is_violated` holds.
    fn count(self, draws: u64, is_violated: impl Fn(&mut Random, u64) -> bool + Sync) -> u64 {
        let [count] = counts(draws, |draw| {
            [is_violated(&mut Random::new(20_261_127, &[draw, self.units as u64]), draw)]
        });
        count
    }

    /// Number of draws in which the last confidence of a fixed sequence, 0.1, is promised.
    fn promised_to_the_end(self) -> u64 {
        let sequence = [0.5, 0.25, 0.1].map(|level| Confidence::new(level).expect("in range"));
        self.count(DRAWS, |random, draw| {
            let found = TARGET.last(&sequence, &self.draw(random), draw);
            found.expect("the part is large enough") == sequence.last().copied()
        })
    }
}

#[test]
fn promises_about_wrong_answers_are_broken_no_more_often_than_they_say() {
    for (units, unit_samples) in [(200, 1), (1_000, 1), (5_000, 1), (600, 4), (2_000, 4)] {
        let world = World { units, unit_samples, doubt: doubt(TARGET.wrong) };
        let violations = world.promised_to_the_end();
        assert!(violations <= MOST_VIOLATIONS, "{world:?}: {violations} of {DRAWS}");
    }
}

#[test]
fn promises_about_wrong_answers_are_made_where_they_hold_with_room() {
    for (units, unit_samples) in [(2_000, 1), (6_000, 4)] {
        let world = World { units, unit_samples, doubt: doubt(TARGET.wrong / 2.0) };
        let made = world.promised_to_the_end();
        assert!(made as f64 >= 0.9 * DRAWS as f64, "{world:?}: {made} of {DRAWS}");
    }
}

#[test]
fn a_sequence_from_a_validation_part_breaks_its_promise_no_more_often() {
    let world = World { units: 400, unit_samples: 1, doubt: doubt(TARGET.wrong) };
    let validation = World { units: 300, ..world };
    let found = |random: &mut Random, draw: u64| {
        let sequence = TARGET.sequence(&validation.draw(random).masks[0], world.units);
        TARGET.last(&sequence, &world.draw(random), draw).expect("large enough")
    };
    let is_violated =
        |found: Option<Confidence>| found.is_some_and(|found| world.wrong(found) > TARGET.wrong);
    let violations = world.count(FEWER_DRAWS, |random, draw| is_violated(found(random, draw)));
    assert!(violations <= MOST_OF_FEWER, "{violations} of {FEWER_DRAWS}");
    let made = world.count(FEWER_DRAWS, |random, draw| found(random, draw).is_some());
    assert!(made > FEWER_DRAWS / 2, "{made} of {FEWER_DRAWS}");
}
