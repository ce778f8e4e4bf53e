//! Simulations of calibration parts whose risk is known, which count how often thresholds with a risk of the whole budget are promised.

use headwater_protocol::Exit;

use super::by_missing::{Certified, MissingRange, Paths};
use super::*;

pub(super) const DRAWS: u64 = 20_000;
/// 99.9 % quantile of the binomial distribution of 20,000 draws at 5 %.
pub(super) const MOST_VIOLATIONS: u64 = 1_096;
/// Number of draws in the slower simulations, with several numbers of missing slots or a sequence from a validation part.
pub(super) const FEWER_DRAWS: u64 = 4_000;
/// 99.9 % quantile of the binomial distribution of 4,000 draws at 5 %.
pub(super) const MOST_OF_FEWER: u64 = 244;

/// Simulated outcomes, for which the last step of the path has a risk of exactly the budget.
#[derive(Clone, Copy, Debug)]
struct World {
    bound: Bound,
    /// Number of independent units of a calibration part.
    units: usize,
    /// Samples of a unit, which are lost or won together.
    unit_samples: usize,
    exits: usize,
    /// Wins per net loss: a net loss of `x` comes from `x (1 + wins)` lost and `x wins` won samples.
    wins: f64,
}

const TARGET: Target = Target { bound: Bound::Net, loss: 0.005, confidence: 0.95 };

/// Number of draws in which each event happens, counted on two threads.
pub(super) fn counts<const N: usize>(draws: u64, events: impl Fn(u64) -> [bool; N] + Sync) -> [u64; N] {
    let count = |worker: u64| {
        let mut counts = [0; N];
        for draw in (worker..draws).step_by(2) {
            counts.iter_mut().zip(events(draw)).for_each(|(count, happens)| *count += u64::from(happens));
        }
        counts
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| count(1));
        let (own, other) = (count(0), other.join().expect("a worker counts"));
        std::array::from_fn(|event| own[event] + other[event])
    })
}

/// `count` independent units of `samples` samples each.
pub(super) fn units(count: usize, samples: usize) -> Units {
    let of = (0..count as u32).flat_map(|unit| std::iter::repeat_n(unit, samples)).collect();
    match samples {
        1 => Units::Samples,
        size => Units::Groups { of, largest: size as u32, typical: size as f64 },
    }
}

impl World {
    /// Path of three steps, with thresholds 0.25, 0.5 and 0.8 at every exit.
    fn path(self) -> Vec<Step> {
        let step = |threshold: f64| {
            let leaving = self.leaving(threshold);
            let (lost, won) = self.shares();
            let thresholds = vec![threshold as f32; self.exits];
            Step { thresholds, saved: leaving, lost: lost * leaving, won: won * leaving }
        };
        [0.25, 0.5, 0.8].map(step).into()
    }

    /// Share of samples that leave early: uncertainties are uniform in `[0, 1)` and independent between exits.
    fn leaving(self, threshold: f64) -> f64 {
        1.0 - (1.0 - threshold).powi(self.exits as i32)
    }

    /// Shares of lost and won samples among the samples that leave; their difference makes the risk of the last step equal to the budget.
    fn shares(self) -> (f64, f64) {
        let net = TARGET.loss / self.leaving(0.8);
        (net * (1.0 + self.wins), net * self.wins)
    }

    fn draw(self, random: &mut Random) -> CalibrationPart {
        let (lost, won) = self.shares();
        let exits = &[Exit::LOCAL, Exit::EDGE][..self.exits];
        let unit = |random: &mut Random| {
            let drawn = random.next() as f64 / 2f64.powi(64);
            let loss = i8::from(drawn < lost) - i8::from(drawn >= lost && drawn < lost + won);
            ([random.unit(), random.unit()], loss)
        };
        let drawn = (0..self.units)
            .map(|_| unit(random))
            .flat_map(|unit| std::iter::repeat_n(unit, self.unit_samples));
        let masks = vec![Outcomes::made_up(exits, drawn)];
        CalibrationPart { masks, units: units(self.units, self.unit_samples) }
    }

    /// Number of draws in which `makes_promise` promises the last step, whose risk is the budget.
    fn violations(
        self,
        makes_promise: impl Fn(&[Step], &CalibrationPart, u64) -> Option<usize> + Sync,
    ) -> u64 {
        let path = self.path();
        let [violations] = counts(DRAWS, |draw| {
            let part = self.draw(&mut Random::new(20_261_123, &[draw, self.units as u64]));
            [makes_promise(&path, &part, draw) == Some(path.len() - 1)]
        });
        violations
    }

    fn promises(self) -> u64 {
        let target = Target { bound: self.bound, ..TARGET };
        self.violations(|path, part, seed| {
            target.last_step(path, part, seed).expect("the part is large enough")
        })
    }
}

/// Worlds of three sizes, with one or two early exits, and for a net loss with and without wins.
fn worlds(bound: Bound, unit_samples: usize) -> Vec<World> {
    let sizes = [598, 1_000, 5_000];
    let wins: &[f64] = if bound == Bound::Net { &[0.0, 2.0] } else { &[0.0] };
    let worlds = sizes.into_iter().flat_map(|units| {
        [1, 2].into_iter().flat_map(move |exits| {
            wins.iter().map(move |&wins| World { bound, units, unit_samples, exits, wins })
        })
    });
    worlds.collect()
}

#[test]
fn promises_of_the_net_loss_over_samples_or_groups_of_four_are_broken_no_more_often_than_they_say() {
    for world in [1, 4].into_iter().flat_map(|unit_samples| worlds(Bound::Net, unit_samples)) {
        let violations = world.promises();
        assert!(violations <= MOST_VIOLATIONS, "{world:?}: {violations} of {DRAWS}");
    }
}

#[test]
fn promises_of_the_losses_are_broken_as_often_as_the_binomial_distribution_says() {
    for world in worlds(Bound::Losses, 1) {
        let units = world.units as u64;
        let most = binomial::most_losses(units, TARGET.loss, TARGET.delta()).expect("enough samples");
        let exact = binomial::at_most(most, units, TARGET.loss);
        let deviation = (DRAWS as f64 * exact * (1.0 - exact)).sqrt();
        let violations = world.promises();
        let surplus = violations as f64 - DRAWS as f64 * exact;
        assert!(surplus.abs() <= 3.0 * deviation, "{world:?}: {violations} of {DRAWS}, exactly {exact}");
        assert!(violations <= MOST_VIOLATIONS, "{world:?}: {violations} of {DRAWS}");
    }
}

#[test]
fn promises_are_made_where_the_risk_leaves_room() {
    // The target allows twice the risk of the last step.
    let target = Target { loss: 2.0 * TARGET.loss, ..TARGET };
    // With wins the variance of the losses is five times as large, and the room is 2.2 standard errors of their mean.
    let cases = [
        (Bound::Net, 1, 0.0, 0.9),
        (Bound::Net, 2, 0.0, 0.9),
        (Bound::Net, 1, 2.0, 0.4),
        (Bound::Losses, 2, 0.0, 0.9),
    ];
    for (bound, exits, wins, least) in cases {
        let world = World { bound, units: 5_000, unit_samples: 1, exits, wins };
        let target = Target { bound, ..target };
        let made =
            world.violations(|path, part, seed| target.last_step(path, part, seed).expect("large enough"));
        assert!(made as f64 >= least * DRAWS as f64, "{world:?}: {made} of {DRAWS}");
    }
}

/// The last step by a normal approximation: measured losses plus 1.64 standard errors.
fn normal_approximation(path: &[Step], part: &CalibrationPart) -> Option<usize> {
    let samples = part.masks[0].len();
    let passes = |step: &&Step| {
        let lost = (0..samples).filter(|sample| part.masks[0].outcome(*sample, &step.thresholds).loss() > 0);
        let lost = lost.count() as f64 / samples as f64;
        lost + 1.64 * (lost * (1.0 - lost) / samples as f64).sqrt() <= TARGET.loss
    };
    path.iter().take_while(passes).count().checked_sub(1)
}

#[test]
fn the_normal_approximation_breaks_its_promise_too_often() {
    for world in worlds(Bound::Losses, 1) {
        let violations = world.violations(|path, part, _| normal_approximation(path, part));
        assert!(violations > MOST_VIOLATIONS, "{world:?}: {violations} of {DRAWS}");
    }
}

/// Number of draws in which each of three certificates promises the last step, whose risk is the budget; and number of draws in
/// which any certificate promises that step, if each is tested at a third of the risk. In each sample 0, 1 or 2 of 6 slots have no
/// view, drawn independently.
fn violations_by_missing(world: World) -> ([u64; 3], u64) {
    let (path, target) = (world.path(), Target { bound: world.bound, ..TARGET });
    let share_of_risk = Target { confidence: 1.0 - TARGET.delta() / 3.0, ..target };
    let nothing = Outcomes::made_up(&[Exit::LOCAL, Exit::EDGE][..world.exits], std::iter::empty());
    let paths = Paths::new(&path, &nothing, &target, MissingRange { slots: 6, most: 2 });
    let last = Certified::Promised(path[path.len() - 1].thresholds.clone());
    let [none, one, two, any] = counts(FEWER_DRAWS, |draw| {
        let mut random = Random::new(20_261_124, &[draw]);
        let mut part = world.draw(&mut random);
        let present = |_| match random.unit() {
            below if below < 0.4 => 6,
            below if below < 0.7 => 5,
            _ => 4,
        };
        let outcomes = part.masks.remove(0);
        let present = (0..outcomes.len()).map(present).collect();
        part.masks.push(outcomes.seen_by(present));
        let broken = |target: &Target| {
            let found = paths.certify(target, &part, draw).expect("one mask a sample");
            <[_; 3]>::try_from(found).expect("one for each number").map(|found| found.result == last)
        };
        let [none, one, two] = broken(&target);
        [none, one, two, broken(&share_of_risk).contains(&true)]
    });
    ([none, one, two], any)
}

#[test]
fn certificates_by_missing_slots_are_broken_no_more_often_than_they_say_alone_and_together() {
    for (bound, wins) in [(Bound::Net, 2.0), (Bound::Losses, 0.0)] {
        let world = World { bound, units: 4_000, unit_samples: 1, exits: 2, wins };
        let (each, together) = violations_by_missing(world);
        assert!(
            each.iter().all(|violations| *violations <= MOST_OF_FEWER),
            "{world:?}: {each:?} of {FEWER_DRAWS}"
        );
        assert!(together <= MOST_OF_FEWER, "{world:?}: {together} of {FEWER_DRAWS}");
        assert!(each.iter().all(|violations| *violations > 0), "{world:?}: some are made: {each:?}");
    }
}
