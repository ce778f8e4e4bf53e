//! Thresholds and temperatures on made-up logits; `tests/costs.rs` tests choices by loss, bytes and compute.

mod costs;

use headwater_inference::cost::DeviceBody;
use headwater_inference::policy::Bound;
use headwater_protocol::SlotSet;

use super::splits::Pool;
use super::*;
use crate::account::PartReport;
use crate::promise::by_missing::{MissingRange, Paths};
use crate::random::Random;

/// Logits of two exits over two classes. Each sample has the margin at `local`, and whether `local` and `cloud` are right.
fn two_exit_part(samples: &[(f32, bool, bool)]) -> (PartLogits, Samples) {
    let edge: Vec<_> = samples.iter().map(|(_, _, cloud)| (0.0, *cloud)).collect();
    let (mut logits, samples) = three_exit_part(samples, &edge);
    logits.exits.remove(Exit::EDGE);
    (logits, samples)
}

/// Logits of three exits; `edge` has the margin at that exit, and whether the exit is right.
fn three_exit_part(samples: &[(f32, bool, bool)], edge: &[(f32, bool)]) -> (PartLogits, Samples) {
    let count = samples.len();
    // The exit `local` always answers class 0; another exit that agrees with it answers class 0 too.
    let row = |margin: f32, agrees: bool| if agrees { [margin, 0.0] } else { [0.0, margin] };
    let local = samples.iter().flat_map(|(margin, ..)| [*margin, 0.0]).collect();
    let edge = samples.iter().zip(edge);
    let edge = edge.flat_map(|((_, right, _), (margin, edge))| row(*margin, right == edge)).collect();
    let cloud = samples.iter().flat_map(|(_, right, cloud)| row(1.0, right == cloud)).collect();
    let exits = [(Exit::LOCAL, local), (Exit::EDGE, edge), (Exit::CLOUD, cloud)];
    let devices = vec![vec![0.0; 2 * count]];
    let logits =
        PartLogits { classes: 2, devices, exits: exits.into_iter().collect(), map_bytes: Vec::new() };
    let samples = Samples {
        shape: [1, 1, 1],
        slots: 1,
        classes: 2,
        labels: samples.iter().map(|(_, right, _)| u16::from(!right)).collect(),
        seen: vec![SlotSet::first(1); count],
        ..Samples::default()
    };
    (logits, samples)
}

fn target(points: f64) -> Target {
    Target { bound: Bound::Losses, loss: points / 100.0, confidence: 0.95 }
}

/// The policy within the target by the loss that was measured on the part that the path was fitted on.
fn measured(fitted: &Fitted, target: &Target) -> Policy {
    fitted.within(&fitted.limit(target, Err(String::new())), target, "made-up")
}

/// The policy that a calibration part allows.
fn promised(fitted: &Fitted, target: &Target, (logits, samples): (&PartLogits, &Samples)) -> Policy {
    let limit = fitted.limit(target, fitted.calibration_part(logits, samples));
    fitted.within(&limit, target, "made-up")
}

fn report(logits: &PartLogits, samples: &Samples, policy: &Policy) -> PartReport {
    PartReport::of(logits, samples, &[0.5, 0.5], policy, DeviceBody { always: 8, unsure: 256, map: 256 })
}

#[test]
fn the_measured_threshold_is_the_last_one_before_the_loss_exceeds_the_target() {
    let (logits, samples) = two_exit_part(&[
        (9.0, true, true),
        (8.0, true, true),
        (7.0, false, true),
        (6.0, true, true),
        (5.0, false, true),
    ]);
    for (points, leave) in [(0.1, 2.0), (19.9, 2.0), (20.0, 4.0), (40.0, 5.0)] {
        let fitted = Fitted::of(&logits, &samples, &target(points)).unwrap();
        let report = report(&logits, &samples, &measured(&fitted, &target(points)));
        assert_eq!(report.share[Exit::LOCAL], leave / 5.0, "{points} points");
        assert!(report.overall >= report.every[Exit::CLOUD] - points / 100.0 - 1e-6);
    }
}

#[test]
fn wins_make_up_for_losses_in_a_net_target_only() {
    let (logits, samples) =
        two_exit_part(&[(9.0, true, false), (8.0, true, true), (7.0, false, true), (6.0, true, true)]);
    for (bound, leave) in [(Bound::Net, 1.0), (Bound::Losses, 0.5)] {
        let target = Target { bound, ..target(0.1) };
        let fitted = Fitted::of(&logits, &samples, &target).unwrap();
        assert_eq!(
            report(&logits, &samples, &measured(&fitted, &target)).share[Exit::LOCAL],
            leave,
            "{bound:?}"
        );
    }
}

#[test]
fn a_temperature_corrects_logits_that_are_too_sure() {
    let rows: Vec<_> = (0..100).map(|i| (10.0, i % 4 != 0, true)).collect();
    let (logits, samples) = two_exit_part(&rows);
    let temperature = super::temperature(&logits.exits[Exit::LOCAL], &samples).unwrap().get();
    let confidence = 1.0 / (1.0 + (-10.0 / temperature).exp());
    assert!((confidence - 0.75).abs() < 0.01, "three of four are right, confidence {confidence}");
}

/// Temperature of `local` on samples with equal margins, of which every `wrong`th is wrong.
fn fitted_temperature(count: usize, margin: f32, wrong: usize) -> f32 {
    let rows: Vec<_> = (0..count).map(|i| (margin, i % wrong != wrong - 1, true)).collect();
    let (logits, samples) = two_exit_part(&rows);
    super::temperature(&logits.exits[Exit::LOCAL], &samples).unwrap().get()
}

#[test]
fn at_a_thousand_samples_the_prior_moves_a_temperature_by_less_than_a_percent() {
    for (margin, wrong) in [(10.0f32, 4), (10.0, 10), (10.0, 100), (1.0, 10), (1.0, 100)] {
        // Without the prior, the confidence is the share of right answers.
        let expected = margin / ((wrong - 1) as f32).ln();
        let found = fitted_temperature(1000, margin, wrong);
        assert!((found / expected - 1.0).abs() < 0.01, "{wrong}: {found}, expected {expected}");
    }
}

#[test]
fn a_part_without_a_wrong_answer_drives_no_temperature_to_its_bound() {
    for count in [10, 100, 1000] {
        let found = fitted_temperature(count, 5.0, usize::MAX);
        assert!((0.3..3.0).contains(&found), "{count} samples: {found}");
    }
}

/// Margins fall from sample to sample at both exits. `local` is wrong on every sixteenth sample, `edge` on every twelfth, the cloud on
/// none.
fn two_exits(count: usize) -> (PartLogits, Samples) {
    let margin = |i: usize| 20.0 * (1.0 - i as f32 / count as f32);
    let local: Vec<_> = (0..count).map(|i| (margin(i), i % 16 != 15, true)).collect();
    let edge: Vec<_> = (0..count).map(|i| (margin(i), i % 12 != 11)).collect();
    three_exit_part(&local, &edge)
}

#[test]
fn several_exits_together_lose_no_more_than_the_target() {
    let (logits, samples) = two_exits(4800);
    for points in [0.1, 1.0, 2.0, 50.0] {
        let fitted = Fitted::of(&logits, &samples, &target(points)).unwrap();
        let report = report(&logits, &samples, &measured(&fitted, &target(points)));
        let lost = report.every[Exit::CLOUD] - report.overall;
        assert!(lost <= points / 100.0 + 1e-6, "{points} points, {report:?}");
        let shares: f64 = report.share.iter().map(|(_, share)| share).sum();
        assert!((shares - 1.0).abs() < 1e-9, "{report:?}");
    }
}

#[test]
fn a_promise_is_stricter_than_what_was_measured_and_names_its_part() {
    let (logits, samples) = two_exits(4800);
    let target = target(2.0);
    let fitted = Fitted::of(&logits, &samples, &target).unwrap();
    let policy = promised(&fitted, &target, (&logits, &samples));
    let share = |policy: &Policy| 1.0 - report(&logits, &samples, policy).share[Exit::CLOUD];
    assert!(share(&policy) > 0.1 && share(&policy) < share(&measured(&fitted, &target)));
    let promise = policy.promises.first().expect("4,800 samples are enough");
    assert_eq!((promise.loss, promise.part.samples, promise.part.data.as_str()), (0.02, 4800, "made-up"));
    // Two points at 95 % need at least ln 0.05 / ln 0.98 = 148.3 samples.
    let few = |count: usize| {
        let (logits, samples) = two_exits(count);
        promised(&fitted, &target, (&logits, &samples)).promises
    };
    assert_eq!((few(148).len(), few(149).len()), (0, 1));
}

/// Two exits of which `local` is wrong on every tenth sample, at any margin. On these samples the device answers the other class, so
/// that the disagreement of the device alone shows that `local` is wrong.
fn part_with_disagreement(count: usize) -> (PartLogits, Samples) {
    let margin = |i: usize| 1.0 + (i * 7 % 100) as f32 / 25.0;
    let rows: Vec<_> = (0..count).map(|i| (margin(i), i % 10 != 3, true)).collect();
    let (mut logits, samples) = two_exit_part(&rows);
    let device = rows.iter().flat_map(|(_, right, _)| if *right { [1.0, 0.0] } else { [0.0, 1.0] });
    logits.devices = vec![device.collect()];
    (logits, samples)
}

#[test]
fn the_learned_rule_is_taken_where_devices_tell_more_than_the_logits() {
    let (logits, samples) = part_with_disagreement(2000);
    let fitted = Fitted::of(&logits, &samples, &target(0.5)).unwrap();
    assert_eq!(fitted.policy.of(Exit::LOCAL).rule, ExitRule::Learned);
    assert!(
        fitted.policy.of(Exit::LOCAL).weights.unwrap().disagreement.get() > 1.0,
        "{:?}",
        fitted.policy.of(Exit::LOCAL)
    );
    assert_eq!(
        (fitted.policy.of(Exit::CLOUD).rule, fitted.policy.of(Exit::CLOUD).weights),
        (ExitRule::Entropy, None)
    );
    let measured = measured(&fitted, &target(0.5));
    assert_eq!(measured.check(), Ok(()));
    let share = report(&logits, &samples, &measured).share[Exit::LOCAL];
    // Nine of ten samples are right at `local`, and one in 200 may be lost.
    assert!((0.9..0.906).contains(&share), "{share}");
}

#[test]
fn the_learned_rule_is_not_offered_on_few_events() {
    let (logits, samples) = part_with_disagreement(490);
    let fitted = Fitted::of(&logits, &samples, &target(0.5)).unwrap();
    assert_ne!(fitted.policy.of(Exit::LOCAL).rule, ExitRule::Learned);
    assert_eq!(fitted.policy.of(Exit::LOCAL).weights, None);
    let (logits, samples) = part_with_disagreement(500);
    let fitted = Fitted::of(&logits, &samples, &target(0.5)).unwrap();
    assert_eq!(fitted.policy.of(Exit::LOCAL).rule, ExitRule::Learned);
}

#[test]
fn numbers_of_missing_slots_without_a_certificate_send_everything_on() {
    let (logits, mut samples) = two_exits(4800);
    samples.slots = 4;
    // Most samples have 4 slots with a view, a quarter have 3, a fortieth 2 and a fortieth 1.
    let present = |i: usize| match i % 40 {
        3 => 2,
        7 => 1,
        other if other % 4 == 2 => 3,
        _ => 4,
    };
    samples.seen = (0..samples.len()).map(|i| SlotSet::first(present(i))).collect();
    let target = target(2.0);
    let fitted = Fitted::of(&logits, &samples, &target).unwrap();
    let outcomes = Outcomes::of(&logits, &samples, &fitted.policy);
    let paths = Paths::new(&fitted.path, &outcomes, &target, MissingRange { slots: 4, most: 2 });
    let part = CalibrationPart { masks: vec![outcomes], units: Units::Samples };
    let found = paths.certify(&target, &part, ORDER_SEED).unwrap();
    let counts: Vec<(u32, u32)> =
        found.iter().map(|found| (found.count.missing, found.count.samples)).collect();
    assert_eq!(counts, [(0, 3360), (1, 1200), (2, 120)]);
    assert!(
        matches!(found[0].result, Certified::Promised(_))
            && matches!(found[1].result, Certified::Promised(_))
    );
    assert_eq!(found[2].result, Certified::TooFew { least: 149 });

    let policy = fitted.by_missing(4, &found);
    assert_eq!(policy.check(), Ok(()));
    for exit in [Exit::LOCAL, Exit::EDGE] {
        let threshold = &policy.of(exit).threshold;
        assert_eq!([1, 2].map(|present| threshold.at(present)), [ExitThreshold::NEVER; 2], "{exit:?}");
        assert!(
            [3, 4].iter().all(|present| threshold.at(*present) >= ExitThreshold::ONLY_CERTAIN),
            "{exit:?}"
        );
    }
    let of = |present: usize| {
        let of: Vec<usize> = (0..samples.len()).filter(|i| samples.seen[*i].len() == present).collect();
        report(&logits.subset(&of), &samples.subset(&of), &policy)
    };
    assert_eq!([1, 2].map(|present| of(present).share[Exit::CLOUD]), [1.0, 1.0]);
    for present in [3, 4] {
        let found = of(present);
        assert!(found.share[Exit::CLOUD] < 0.9, "{present} present: {found:?}");
        assert!(found.overall >= found.every[Exit::CLOUD] - 0.02, "{present} present: {found:?}");
    }
}

/// Samples with random margins: the smaller the margin, the more often the first exit is wrong.
fn random_part(count: usize, seed: u64) -> (PartLogits, Samples) {
    let mut random = Random::new(seed, &[]);
    let rows: Vec<_> = (0..count)
        .map(|_| {
            let margin = random.unit();
            (5.0 * margin, random.unit() < 0.7 + 0.3 * margin, true)
        })
        .collect();
    two_exit_part(&rows)
}

#[test]
fn promises_on_random_splits_are_broken_about_as_often_as_predicted() {
    let pool = Pool::new(random_part(1500, 1), random_part(1500, 2), &Units::Samples);
    let target = target(3.0);
    let found = pool.split(&target, 60).unwrap();
    assert_eq!(found, pool.split(&target, 60).unwrap());
    assert!(found.promised > 50, "{found:?}");
    // 9 is the 99.9 % quantile of a binomial count of 60 at 5 %.
    assert!(found.violations <= 9 && found.predicted > 0.0 && found.predicted <= 0.05, "{found:?}");
    let share = f64::from(found.violations) / 60.0;
    assert!(found.interval[0] <= share && share <= found.interval[1], "{found:?}");
    assert!(found.leaves_first > 0.1 && found.leaves_first < 0.9, "{found:?}");
}

#[test]
fn exits_that_are_never_wrong_break_no_promise_in_groups_either() {
    let rows: Vec<_> = (0..4000).map(|i| (1.0 + (i % 7) as f32, true, true)).collect();
    let part = || {
        let (logits, mut samples) = two_exit_part(&rows);
        samples.groups = (0..4000).map(|sample| sample / 4).collect();
        (logits, samples)
    };
    let units = Units::Groups { of: part().1.groups, largest: 4, typical: 4.0 };
    let target = Target { bound: Bound::Net, ..target(1.0) };
    let found = Pool::new(part(), part(), &units).split(&target, 8).unwrap();
    assert_eq!((found.splits, found.promised, found.violations, found.leaves_first), (8, 8, 0, 1.0));
    assert!((found.predicted - 0.05).abs() < 1e-12 && found.interval[0] == 0.0);
}

#[test]
fn without_a_step_no_sample_leaves_early() {
    // All samples are equally sure, and wrong at the first exit.
    let rows: Vec<_> = (0..100).map(|_| (1e6, false, true)).collect();
    let (logits, samples) = two_exit_part(&rows);
    let fitted = Fitted::of(&logits, &samples, &target(1.0)).unwrap();
    let policy = measured(&fitted, &target(1.0));
    assert_eq!(fitted.measured_step(&target(1.0)), None);
    assert_eq!(report(&logits, &samples, &policy).share[Exit::CLOUD], 1.0);
}
