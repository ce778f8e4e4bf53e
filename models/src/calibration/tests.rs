//! Thresholds, temperatures and what they do, on made-up logits.

use super::*;

/// Two classes, always class 0; the first number is how sure, the others say whether the exits `local` and `cloud` have it right.
fn made(samples: &[(f32, bool, bool)]) -> (ExitLogits, Samples) {
    let edge: Vec<_> = samples.iter().map(|(_, _, cloud)| (0.0, *cloud)).collect();
    let (mut logits, samples) = cascade(samples, &edge);
    *logits.exits.slot(Exit::Edge) = None;
    (logits, samples)
}

/// The same with how sure the exit `edge` is and whether it has the sample right.
fn cascade(samples: &[(f32, bool, bool)], edge: &[(f32, bool)]) -> (ExitLogits, Samples) {
    let count = samples.len();
    // The class of a logit row says whether the exit agrees with the exit `local`, which always says class 0.
    let row = |gap: f32, agrees: bool| if agrees { [gap, 0.0] } else { [0.0, gap] };
    let local = samples.iter().flat_map(|(gap, ..)| [*gap, 0.0]).collect();
    let edge = samples.iter().zip(edge);
    let edge = edge.flat_map(|((_, right, _), (gap, edge))| row(*gap, right == edge)).collect();
    let cloud = samples.iter().flat_map(|(_, right, cloud)| row(1.0, right == cloud)).collect();
    let exits = [(Exit::Local, local), (Exit::Edge, edge), (Exit::Cloud, cloud)];
    let devices = vec![vec![0.0; 2 * count]];
    let logits = ExitLogits { classes: 2, devices, exits: exits.into_iter().collect() };
    let samples = Samples {
        shape: [1, 1, 1],
        slots: 1,
        classes: 2,
        labels: samples.iter().map(|(_, right, _)| u16::from(!right)).collect(),
        seen: vec![1; count],
        pixels: vec![0; count],
    };
    (logits, samples)
}

/// The default policy with thresholds chosen as wished; its temperatures stay at one.
fn chosen(logits: &ExitLogits, samples: &Samples, wish: ExitRecipe) -> Policy {
    let mut policy = Policy::default();
    let mut search = thresholds::Search::new(logits, samples, &[0.5, 0.5], wish);
    for exit in [Exit::Local, Exit::Edge].into_iter().filter(|exit| logits.exits.get(*exit).is_some()) {
        policy.of_mut(exit).threshold = Threshold::One(search.next(exit, policy.of(exit)).unwrap());
    }
    policy
}

fn outcome(logits: &ExitLogits, samples: &Samples, policy: &Policy) -> Outcome {
    Outcome::of(logits, samples, &[0.5, 0.5], policy, DeviceBytes { always: 8, unsure: 256 })
}

#[test]
fn the_threshold_is_the_largest_up_to_which_none_costs_more_than_allowed() {
    let (logits, samples) = made(&[
        (9.0, true, true),
        (8.0, true, true),
        (7.0, false, true),
        (6.0, true, true),
        (5.0, false, true),
    ]);
    for (points, leave) in [(0.0, 2.0), (19.9, 2.0), (20.0, 4.0), (40.0, 5.0)] {
        let wish = ExitRecipe { max_loss_points: points, standard_errors: 0.0, count_wins: true };
        let outcome = outcome(&logits, &samples, &chosen(&logits, &samples, wish));
        assert_eq!(outcome.share[Exit::Local], leave / 5.0, "{points} points");
        assert!(outcome.overall >= outcome.every[Exit::Cloud] - f64::from(points) / 100.0 - 1e-6);
    }
}

#[test]
fn a_lucky_threshold_behind_one_that_costs_too_much_is_not_taken() {
    let (logits, samples) =
        made(&[(9.0, true, true), (8.0, false, true), (7.0, true, false), (6.0, true, false)]);
    let wish = ExitRecipe { max_loss_points: 0.0, standard_errors: 0.0, count_wins: true };
    let outcome = outcome(&logits, &samples, &chosen(&logits, &samples, wish));
    assert_eq!(outcome.share[Exit::Local], 0.25);
}

#[test]
fn wins_make_up_for_losses_only_where_the_recipe_says_so() {
    let (logits, samples) =
        made(&[(9.0, true, false), (8.0, true, true), (7.0, false, true), (6.0, true, true)]);
    for (count_wins, leave) in [(true, 1.0), (false, 0.5)] {
        let wish = ExitRecipe { max_loss_points: 0.0, standard_errors: 0.0, count_wins };
        let outcome = outcome(&logits, &samples, &chosen(&logits, &samples, wish));
        assert_eq!(outcome.share[Exit::Local], leave, "count_wins = {count_wins}");
    }
}

#[test]
fn standard_errors_make_the_threshold_careful() {
    let rows: Vec<_> = (0..1000).map(|i| (20.0 - i as f32 * 0.015, i % 20 != 0, true)).collect();
    let (logits, samples) = made(&rows);
    let share = |standard_errors| {
        let wish = ExitRecipe { max_loss_points: 1.0, standard_errors, count_wins: true };
        outcome(&logits, &samples, &chosen(&logits, &samples, wish)).share[Exit::Local]
    };
    // One of twenty is lost: 10 of 1000 are lost among the first 200 or so.
    assert!((share(0.0) - 0.2).abs() < 0.02, "{}", share(0.0));
    // 5 + 1.64 sqrt(5) is below 10, 6 + 1.64 sqrt(6) is just above.
    assert!((share(1.64) - 0.11).abs() < 0.02, "{}", share(1.64));
}

#[test]
fn a_temperature_corrects_logits_that_are_too_sure() {
    let rows: Vec<_> = (0..100).map(|i| (10.0, i % 4 != 0, true)).collect();
    let (logits, samples) = made(&rows);
    let temperature = fit_temperature(&logits.exits[Exit::Local], &samples);
    let confidence = 1.0 / (1.0 + (-10.0 / temperature).exp());
    assert!((confidence - 0.75).abs() < 0.01, "three of four are right, confidence {confidence}");
}

/// Sureness falls from sample to sample at both exits; every sixteenth is lost at `local`, every twelfth at `edge`.
fn two_exits(count: usize) -> (ExitLogits, Samples) {
    let gap = |i: usize| 20.0 * (1.0 - i as f32 / count as f32);
    let local: Vec<_> = (0..count).map(|i| (gap(i), i % 16 != 15, true)).collect();
    let edge: Vec<_> = (0..count).map(|i| (gap(i), i % 12 != 11)).collect();
    cascade(&local, &edge)
}

#[test]
fn two_exits_together_lose_no_more_than_is_wished() {
    let (logits, samples) = two_exits(4800);
    for (points, standard_errors) in [(0.0, 0.0), (1.0, 0.0), (2.0, 1.64), (50.0, 1.64)] {
        let wish = ExitRecipe { max_loss_points: points, standard_errors, count_wins: false };
        let outcome = outcome(&logits, &samples, &chosen(&logits, &samples, wish));
        let lost = outcome.every[Exit::Cloud] - outcome.overall;
        assert!(lost <= f64::from(points) / 100.0 + 1e-6, "{points} points wished, {outcome:?}");
        let shares: f64 = outcome.share.iter().map(|(_, share)| share).sum();
        assert!((shares - 1.0).abs() < 1e-9, "{outcome:?}");
    }
}

#[test]
fn each_of_two_exits_may_lose_half_and_what_is_not_lost_leaves_early() {
    let (logits, samples) = two_exits(4800);
    let wish = ExitRecipe { max_loss_points: 1.0, standard_errors: 0.0, count_wins: false };
    let outcome = outcome(&logits, &samples, &chosen(&logits, &samples, wish));
    // Half a point of 4800 samples is 24: the 25th loss of `local` is sample 399, the 25th of `edge` 299, which leave before it.
    assert!((outcome.share[Exit::Local] - 399.0 / 4800.0).abs() < 1e-9, "{outcome:?}");
    assert_eq!(outcome.share[Exit::Edge], 0.0);
    assert!(outcome.accuracy[Exit::Local] > 0.93 && outcome.accuracy[Exit::Cloud] == 1.0, "{outcome:?}");
}

#[test]
fn a_win_of_a_sample_that_left_before_does_not_count() {
    // Sample 0 leaves at `local`; at `edge` it would be won over the cloud and make up for sample 1, which is lost there.
    let local = [(9.0, true, false), (0.1, true, true), (0.1, true, true)];
    let edge = [(9.0, true), (8.0, false), (7.0, true)];
    let (logits, samples) = cascade(&local, &edge);
    let wish = ExitRecipe { max_loss_points: 0.0, standard_errors: 0.0, count_wins: true };
    let policy = chosen(&logits, &samples, wish);
    assert_eq!(outcome(&logits, &samples, &policy).share[Exit::Edge], 0.0, "{policy:?}");
}

#[test]
fn bytes_follow_the_table_of_configurations() {
    use headwater_inference::manifest::{Configuration, FeatureEncoding, FeatureMap};
    let map = |encoding| FeatureMap { channels: 8, height: 16, width: 16, encoding };
    let bytes = |configuration, encoding| {
        let DeviceBytes { always, unsure } = DeviceBytes::of(configuration, 10, &map(encoding));
        (always, unsure)
    };
    assert_eq!(bytes(Configuration::A, FeatureEncoding::Pixels), (2048, 0));
    assert_eq!(bytes(Configuration::B, FeatureEncoding::F32), (0, 40 + 8192));
    assert_eq!(bytes(Configuration::F, FeatureEncoding::Bits), (40, 256));
}
