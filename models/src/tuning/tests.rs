//! Thresholds and temperatures on made-up logits.

use headwater_inference::cost::DeviceBody;
use headwater_protocol::SlotSet;

use super::*;
use crate::report::PartReport;

/// Logits of two exits over two classes. Each sample has the margin at `local`, and whether `local` and `cloud` are right.
fn two_exit_part(samples: &[(f32, bool, bool)]) -> (PartLogits, Samples) {
    let edge: Vec<_> = samples.iter().map(|(_, _, cloud)| (0.0, *cloud)).collect();
    let (mut logits, samples) = three_exit_part(samples, &edge);
    *logits.exits.slot(Exit::Edge) = None;
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
    let exits = [(Exit::Local, local), (Exit::Edge, edge), (Exit::Cloud, cloud)];
    let devices = vec![vec![0.0; 2 * count]];
    let logits = PartLogits { classes: 2, devices, exits: exits.into_iter().collect() };
    let samples = Samples {
        shape: [1, 1, 1],
        slots: 1,
        classes: 2,
        labels: samples.iter().map(|(_, right, _)| u16::from(!right)).collect(),
        seen: vec![SlotSet::first(1); count],
        pixels: vec![0; count],
    };
    (logits, samples)
}

/// The default policy with thresholds for the target; the temperatures stay at one.
fn tuned(logits: &PartLogits, samples: &Samples, target: ExitTarget) -> Policy {
    let mut policy = Policy::default();
    choose_thresholds(&mut policy, logits, samples, &[0.5, 0.5], target).unwrap();
    policy
}

fn report(logits: &PartLogits, samples: &Samples, policy: &Policy) -> PartReport {
    PartReport::of(logits, samples, &[0.5, 0.5], policy, DeviceBody { always: 8, unsure: 256 })
}

#[test]
fn the_threshold_is_the_largest_up_to_which_no_threshold_misses_the_target() {
    let (logits, samples) = two_exit_part(&[
        (9.0, true, true),
        (8.0, true, true),
        (7.0, false, true),
        (6.0, true, true),
        (5.0, false, true),
    ]);
    for (points, leave) in [(0.0, 2.0), (19.9, 2.0), (20.0, 4.0), (40.0, 5.0)] {
        let target = ExitTarget { max_loss_points: points, standard_errors: 0.0, count_wins: true };
        let report = report(&logits, &samples, &tuned(&logits, &samples, target));
        assert_eq!(report.share[Exit::Local], leave / 5.0, "{points} points");
        assert!(report.overall >= report.every[Exit::Cloud] - f64::from(points) / 100.0 - 1e-6);
    }
}

#[test]
fn a_threshold_after_one_that_misses_the_target_is_not_chosen() {
    let (logits, samples) =
        two_exit_part(&[(9.0, true, true), (8.0, false, true), (7.0, true, false), (6.0, true, false)]);
    let target = ExitTarget { max_loss_points: 0.0, standard_errors: 0.0, count_wins: true };
    let report = report(&logits, &samples, &tuned(&logits, &samples, target));
    assert_eq!(report.share[Exit::Local], 0.25);
}

#[test]
fn wins_make_up_for_losses_only_with_count_wins() {
    let (logits, samples) =
        two_exit_part(&[(9.0, true, false), (8.0, true, true), (7.0, false, true), (6.0, true, true)]);
    for (count_wins, leave) in [(true, 1.0), (false, 0.5)] {
        let target = ExitTarget { max_loss_points: 0.0, standard_errors: 0.0, count_wins };
        let report = report(&logits, &samples, &tuned(&logits, &samples, target));
        assert_eq!(report.share[Exit::Local], leave, "count_wins = {count_wins}");
    }
}

#[test]
fn standard_errors_make_the_threshold_stricter() {
    let rows: Vec<_> = (0..1000).map(|i| (20.0 - i as f32 * 0.015, i % 20 != 0, true)).collect();
    let (logits, samples) = two_exit_part(&rows);
    let share = |standard_errors| {
        let target = ExitTarget { max_loss_points: 1.0, standard_errors, count_wins: true };
        report(&logits, &samples, &tuned(&logits, &samples, target)).share[Exit::Local]
    };
    // One of twenty is lost: 10 of 1000 are lost among the first 200 or so.
    assert!((share(0.0) - 0.2).abs() < 0.02, "{}", share(0.0));
    // 5 + 1.64 sqrt(5) is below 10, 6 + 1.64 sqrt(6) is just above.
    assert!((share(1.64) - 0.11).abs() < 0.02, "{}", share(1.64));
}

#[test]
fn a_temperature_corrects_logits_that_are_too_sure() {
    let rows: Vec<_> = (0..100).map(|i| (10.0, i % 4 != 0, true)).collect();
    let (logits, samples) = two_exit_part(&rows);
    let temperature = super::temperature(&logits.exits[Exit::Local], &samples).unwrap().get();
    let confidence = 1.0 / (1.0 + (-10.0 / temperature).exp());
    assert!((confidence - 0.75).abs() < 0.01, "three of four are right, confidence {confidence}");
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
fn two_exits_together_lose_no_more_than_the_target() {
    let (logits, samples) = two_exits(4800);
    for (points, standard_errors) in [(0.0, 0.0), (1.0, 0.0), (2.0, 1.64), (50.0, 1.64)] {
        let target = ExitTarget { max_loss_points: points, standard_errors, count_wins: false };
        let report = report(&logits, &samples, &tuned(&logits, &samples, target));
        let lost = report.every[Exit::Cloud] - report.overall;
        assert!(lost <= f64::from(points) / 100.0 + 1e-6, "{points} points, {report:?}");
        let shares: f64 = report.share.iter().map(|(_, share)| share).sum();
        assert!((shares - 1.0).abs() < 1e-9, "{report:?}");
    }
}

#[test]
fn each_of_two_exits_may_lose_half_of_the_target() {
    let (logits, samples) = two_exits(4800);
    let target = ExitTarget { max_loss_points: 1.0, standard_errors: 0.0, count_wins: false };
    let report = report(&logits, &samples, &tuned(&logits, &samples, target));
    // Half a point of 4800 samples is 24: the 25th loss of `local` is sample 399, the 25th of `edge` 299, which leave before it.
    assert!((report.share[Exit::Local] - 399.0 / 4800.0).abs() < 1e-9, "{report:?}");
    assert_eq!(report.share[Exit::Edge], 0.0);
    assert!(report.accuracy[Exit::Local] > 0.93 && report.accuracy[Exit::Cloud] == 1.0, "{report:?}");
}

#[test]
fn a_win_on_a_sample_that_left_earlier_does_not_count() {
    // Sample 0 leaves at `local`; at `edge` it would be won over the cloud and make up for sample 1, which is lost there.
    let local = [(9.0, true, false), (0.1, true, true), (0.1, true, true)];
    let edge = [(9.0, true), (8.0, false), (7.0, true)];
    let (logits, samples) = three_exit_part(&local, &edge);
    let target = ExitTarget { max_loss_points: 0.0, standard_errors: 0.0, count_wins: true };
    let policy = tuned(&logits, &samples, target);
    assert_eq!(report(&logits, &samples, &policy).share[Exit::Edge], 0.0, "{policy:?}");
}

#[test]
fn one_exit_keeps_its_standard_errors_and_two_need_more() {
    assert_eq!(split(1.64, 1.0), 1.64);
    // 1.955 would do for half of 5 %; the closed form is a little more careful.
    assert!((split(1.64, 2.0) - 2.019).abs() < 1e-3);
    assert_eq!(split(0.0, 2.0), 0.0);
}
