//! Figures of steps, the frontier, and choices by targets.

use std::path::Path;

use headwater_inference::cascade::ExitAnswer;
use headwater_inference::exit::Assessment;
use headwater_inference::policy::NoAnswer;

use super::*;
use crate::data::AbsentView;
use crate::sample_cost::{CostSum, NetworkCost};
use crate::tuning::choice::{Choice, Criteria, Measure, TargetError, Targets};
use crate::tuning::frontier::{CostedPart, Setting, frontier, settings};
use headwater_spec::Spec;
use headwater_spec::manifest;

/// A network of six slots, two edges and three exits.
fn network() -> Spec {
    Spec::parse(Path::new("f"), include_str!("../../../../networks/ddnn-f.toml")).unwrap()
}

/// Settings of made-up samples, each with one view.
fn made_up() -> Vec<Setting> {
    let (logits, samples) = two_exits(1200);
    let cost = NetworkCost::of(&manifest(&network(), Vec::new()));
    let fitted = Fitted::of(&logits, &samples, &target(1.0)).unwrap();
    let part = CostedPart { logits: &logits, samples: &samples, class_prior: &[0.5, 0.5], cost: &cost };
    settings(&fitted, &part, &mut |_| {})
}

fn bytes(setting: &Setting) -> f64 {
    setting.figures.mean.body_bytes
}

fn criteria(settings: &[Setting], targets: Targets) -> Criteria {
    let loss = targets.loss_points.unwrap_or(100.0);
    let within = settings.iter().take_while(|setting| setting.figures.lost * 100.0 <= loss).count();
    Criteria { targets, bound: Bound::Losses, last_within_loss: within - 1 }
}

#[test]
fn the_first_setting_has_no_early_exit_and_loses_nothing() {
    let settings = made_up();
    assert!(settings.len() > 20, "{}", settings.len());
    let first = &settings[0].figures;
    assert_eq!((first.lost, first.won, first.left[Exit::CLOUD]), (0.0, 0.0, 1.0));
    assert!(settings[1..].iter().all(|other| bytes(other) <= bytes(&settings[0])));
}

#[test]
fn no_setting_of_the_frontier_is_beaten_and_every_other_one_is() {
    let settings = made_up();
    let measures =
        |index: usize| Measure::ALL.map(|measure| measure.of(&settings[index].figures, Bound::Losses));
    let is_no_worse = |a: usize, b: usize| measures(a).iter().zip(measures(b)).all(|(a, b)| *a <= b);
    let found = frontier(&settings, Bound::Losses);
    assert!(found.len() > 2 && found.len() < settings.len(), "{found:?}");
    for index in &found {
        let beaten_by = (0..settings.len())
            .find(|other| is_no_worse(*other, *index) && measures(*other) != measures(*index));
        assert_eq!(beaten_by, None, "{index}");
    }
    for other in (0..settings.len()).filter(|index| !found.contains(index)) {
        assert!(found.iter().any(|index| is_no_worse(*index, other)), "{other} belongs to the frontier");
    }
}

#[test]
fn a_target_of_bytes_alone_takes_the_first_setting_of_the_frontier_that_keeps_the_target() {
    let settings = made_up();
    let most = f64::midpoint(bytes(&settings[0]), bytes(settings.last().unwrap()));
    let targets = Targets { body_bytes: Some(most), ..Targets::default() };
    let found = frontier(&settings, Bound::Losses);
    let first = found.into_iter().find(|index| bytes(&settings[*index]) <= most).unwrap();
    assert_eq!(criteria(&settings, targets).choose(&settings), Choice::Met(first));
}

#[test]
fn a_target_of_the_loss_takes_the_setting_that_saves_most() {
    let settings = made_up();
    let targets = Targets { loss_points: Some(1.0), ..Targets::default() };
    let criteria = criteria(&settings, targets);
    let Choice::Met(chosen) = criteria.choose(&settings) else { panic!("a loss can be kept") };
    assert!(chosen > 0 && chosen <= criteria.last_within_loss);
    assert!((0..=criteria.last_within_loss).all(|index| bytes(&settings[chosen]) <= bytes(&settings[index])));
    let with_macs = Targets { macs: Some(f64::MAX), ..targets };
    let Choice::Met(chosen) = (Criteria { targets: with_macs, ..criteria }).choose(&settings) else {
        panic!("any compute will do")
    };
    let macs = |index: usize| settings[index].figures.mean.macs;
    assert!((0..=criteria.last_within_loss).all(|index| macs(chosen) <= macs(index)));
}

#[test]
fn exits_that_are_sure_and_too_often_wrong_are_not_taken_for_a_target_of_wrong_answers() {
    let settings = made_up();
    let loose = Targets { loss_points: Some(50.0), ..Targets::default() };
    let chosen = |targets: Targets| match criteria(&settings, targets).choose(&settings) {
        Choice::Met(index) => &settings[index].figures,
        Choice::NotMet { .. } => panic!("the setting without early exits keeps it"),
    };
    assert!(chosen(loose).sure_wrong > 0.02);
    let careful = chosen(Targets { wrong: Some(2.0), ..loose });
    assert!(careful.sure_wrong <= 0.02 && careful.left[Exit::CLOUD] < 1.0, "{careful:?}");
    assert!(chosen(Targets { wrong: Some(2.0), ..Targets::default() }).sure_wrong <= 0.02);
}

#[test]
fn wrong_answers_of_sure_exits_count_among_all_answers_and_not_where_none_is_given() {
    // Ten samples are sure at `local`, the first of them wrong.
    let rows: Vec<_> = (0..100).map(|at| (if at < 10 { 20.0 } else { 0.0 }, at > 0, true)).collect();
    let (logits, mut samples) = two_exit_part(&rows);
    let cost = NetworkCost::of(&manifest(&network(), Vec::new()));
    let policy = Policy::default();
    let sure_wrong = |samples: &Samples, policy: &Policy| {
        CostedPart { logits: &logits, samples, class_prior: &[1.0, 0.0], cost: &cost }
            .figures(policy)
            .sure_wrong
    };
    let one_of_hundred = sure_wrong(&samples, &policy);
    samples.seen[0] = SlotSet::EMPTY;
    let undecided = sure_wrong(&samples, &policy);
    let by_prior = sure_wrong(&samples, &Policy { no_answer: NoAnswer::ClassPrior, ..policy });
    assert_eq!([one_of_hundred, undecided, by_prior], [0.01, 0.0, 0.01]);
}

#[test]
fn targets_that_contradict_each_other_name_the_nearest_on_both_sides() {
    let settings = made_up();
    let least = settings.iter().map(bytes).fold(f64::INFINITY, f64::min);
    let targets = Targets { loss_points: Some(0.2), body_bytes: Some(least + 1.0), ..Targets::default() };
    let criteria = criteria(&settings, targets);
    let Choice::NotMet { unreachable, nearest } = criteria.choose(&settings) else {
        panic!("a contradiction")
    };
    assert_eq!(unreachable, []);
    let [bytes_kept, loss_kept] = [Measure::Bytes, Measure::Loss].map(|kept| {
        nearest.iter().find(|nearest| nearest.kept == [kept]).expect("each can be kept alone").setting
    });
    assert_eq!(nearest.len(), 2);
    let within = 0..=criteria.last_within_loss;
    assert!(within.contains(&loss_kept));
    assert!(within.clone().all(|index| bytes(&settings[loss_kept]) <= bytes(&settings[index])));
    assert!(bytes(&settings[bytes_kept]) <= least + 1.0);
    let keeping = settings.iter().filter(|setting| bytes(setting) <= least + 1.0);
    assert!(keeping.clone().all(|other| settings[bytes_kept].figures.lost <= other.figures.lost));
}

#[test]
fn a_target_that_cannot_be_kept_even_alone_is_named() {
    let settings = made_up();
    let targets = Targets { loss_points: Some(1.0), macs: Some(1.0), ..Targets::default() };
    let Choice::NotMet { unreachable, nearest } = criteria(&settings, targets).choose(&settings) else {
        panic!("one multiply-accumulate is too few")
    };
    assert_eq!(unreachable, [Measure::Macs]);
    assert_eq!(nearest.iter().map(|nearest| nearest.kept.clone()).collect::<Vec<_>>(), [[Measure::Loss]]);
}

#[test]
fn senseless_targets_are_refused_with_the_least_possible() {
    let check = |targets: Targets| targets.check(40.0).and_then(|()| targets.check_macs(1000.5));
    let none = Targets::default();
    assert_eq!(check(none), Ok(()));
    for loss in [0.0, -1.0, 100.0, 1e-9, f64::INFINITY] {
        assert_eq!(check(Targets { loss_points: Some(loss), ..none }), Err(TargetError::Loss(loss)));
    }
    assert!(check(Targets { loss_points: Some(f64::NAN), ..none }).is_err());
    for percent in [0.0, 51.0, f64::NAN] {
        assert!(check(Targets { wrong: Some(percent), ..none }).is_err(), "{percent}");
    }
    for found in [0.0, -5.0, 39.9, f64::INFINITY] {
        let expected = TargetError::Bytes { found, least: 40.0 };
        assert_eq!(check(Targets { body_bytes: Some(found), ..none }), Err(expected));
    }
    assert!(check(Targets { body_bytes: Some(f64::NAN), ..none }).is_err());
    let macs = |found| check(Targets { macs: Some(found), ..none });
    assert_eq!(macs(1000.0), Err(TargetError::Macs { found: 1000.0, least: 1001.0 }));
    assert_eq!((macs(1001.0), check(Targets { body_bytes: Some(40.0), ..none })), (Ok(()), Ok(())));
}

#[test]
fn mean_costs_are_those_of_the_report_with_coded_maps_too() {
    let manifest = manifest(&network(), Vec::new());
    let (body, cost) = (DeviceBody::of(&manifest), NetworkCost::of(&manifest));
    let (mut logits, mut samples) = two_exits(400);
    samples.slots = 3;
    samples.seen = (0..400).map(|sample| SlotSet::first(sample % 4)).collect();
    logits.devices = vec![vec![0.0; 800]; 3];
    let prior = [0.5, 0.5];
    let fitted = Fitted::of(&logits, &samples, &target(1.0)).unwrap();
    let policy = measured(&fitted, &target(1.0));
    for map_bytes in [vec![], (0..3).map(|slot| (0..400).map(|at| (at + slot) as f32).collect()).collect()] {
        logits.map_bytes = map_bytes;
        let report = PartReport::of(&logits, &samples, &prior, &policy, body);
        let part = CostedPart { logits: &logits, samples: &samples, class_prior: &prior, cost: &cost };
        let figures = part.figures(&policy);
        assert!((figures.mean.body_bytes - report.body_bytes).abs() < 1e-9, "{figures:?} {report:?}");
        assert!((figures.accuracy - report.overall).abs() < 1e-12);
        assert_eq!(figures.left, report.share);
        assert!(figures.left[Exit::LOCAL] > 0.3 && figures.left[Exit::LOCAL] < 1.0, "{figures:?}");
        let measured = part.measured_cost(&policy);
        let [low, high] = measured.body_bytes.interval.unwrap();
        assert!(low < figures.mean.body_bytes && figures.mean.body_bytes < high);
    }
}

#[test]
fn a_sample_computes_on_the_devices_that_see_it_and_in_the_tiers_that_it_reaches() {
    let network = network();
    let cost = NetworkCost::of(&manifest(&network, Vec::new()));
    let (logits, mut samples) = two_exits(4);
    samples.slots = 6;
    samples.seen = [0, 2, 2, 6].map(SlotSet::first).to_vec();
    let exits = [Exit::LOCAL, Exit::LOCAL, Exit::EDGE, Exit::CLOUD];
    let answers = exits.map(|exit| ExitAnswer { exit, assessment: Assessment::of_prior(&[0.5, 0.5]) });
    let costs = network.cost();
    let (device, local) = (costs.device.macs as f64, costs.local.macs as f64);
    let edges = (costs.edges.iter().map(|edge| edge.macs).sum::<u64>() + costs.edge.macs) as f64;
    let cloud = costs.cloud.macs as f64;
    let macs = |samples: &Samples| -> Vec<f64> {
        cost.of_samples(&logits, samples, &answers).iter().map(|cost| cost.macs).collect()
    };
    let views = |count: f64| count * device + local;
    assert_eq!(macs(&samples), [0.0, views(2.0), views(2.0) + edges, views(6.0) + edges + cloud]);
    assert_eq!(cost.least_macs(&samples), (2.0 * views(2.0) + views(6.0)) / 4.0);
    samples.absent = AbsentView::Black;
    assert_eq!(macs(&samples), [0.0, views(6.0), views(6.0) + edges, views(6.0) + edges + cloud]);
    let sum: CostSum = cost.of_samples(&logits, &samples, &answers).into_iter().sum();
    assert_eq!((sum.samples, sum.views), (4.0, 10.0));
}
