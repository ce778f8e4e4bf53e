//! The record in a decision: when the sample was captured, which exits were applied, and why it left.

use headwater_protocol::{AppliedExit, LeaveReason, TimeSource, UtcTime};

use super::*;
use crate::leader::smoothing::Smoothing;
use crate::policy::Confidence;

/// Threshold of the exit `local` in these tests, as a confidence.
const LOCAL_THRESHOLD: Option<f32> = Some(0.5);

fn exits(decision: &Decision) -> Vec<(Exit, Option<f32>)> {
    decision.exits.iter().map(|applied| (applied.exit, applied.threshold_confidence)).collect()
}

#[track_caller]
fn last(group: &Group) -> Decision {
    let decided = group.done.iter().rev().find_map(|action| {
        let Action::Decide(decision) = action else { return None };
        Some(decision.clone())
    });
    decided.expect("a decision")
}

/// Every device of a new group answers a sample of this numbering in time, the first device with an age of 7 ms.
#[track_caller]
fn check_captured(numbering: Option<Numbering>, sample: u64, expected: (Option<u64>, TimeSource)) {
    let mut group = Group::new();
    if let Some(numbering) = numbering {
        group.event(Event::Numbering(numbering));
    }
    group.trigger(sample);
    for (index, age_ms) in [(0, 7), (1, 0), (2, 0)] {
        group.event(aged(index, sample, age_ms, DeviceAnswer::Summary(&SURE)));
        group.now = group.now.plus_ms(1);
    }
    let found = last(&group);
    assert_eq!((found.captured_at.map(UtcTime::ms), found.captured_by), expected);
}

#[test]
fn the_time_of_capture_comes_from_the_id_or_from_the_age_of_the_first_answer() {
    let clock = Numbering::Clock { period_ms: 1000 };
    check_captured(Some(clock), WALL_MS / 1000, (Some(WALL_MS), TimeSource::Clock));
    check_captured(Some(Numbering::Source), WALL_MS + 3, (Some(WALL_MS + 3), TimeSource::Source));
    // The group begins one second after the leader's start.
    let by_age = (Some(WALL_MS + 1000 - 7), TimeSource::Age);
    check_captured(Some(Numbering::Trigger), 17, by_age);
    check_captured(None, 17, by_age);
}

#[test]
fn a_triggered_sample_from_a_spool_or_under_a_clock_that_was_never_set_has_no_time() {
    let mut group = Group::new();
    (0..3).for_each(|index| _ = group.late(index, 90, &SURE));
    assert_eq!((last(&group).captured_at, last(&group).captured_by), (None, TimeSource::Unknown));

    let mut leader = Group::new().leader;
    let mut actions = Vec::new();
    for index in 0..SLOTS as u8 {
        let event = aged(index, 1, 3, DeviceAnswer::Summary(&SURE));
        let now = Now { since_start: Micros::from_ms(1000), wall_ms: 5000 };
        leader.handle(now, Generation::Current, event, &mut actions);
    }
    assert_eq!(decision(&actions).captured_at, None);
}

#[test]
fn the_first_answer_in_time_tells_the_age_even_after_features_that_overtook_it() {
    let mut group = Group::alone();
    group.features(0, 1);
    group.after_ms(1);
    group.event(aged(0, 1, 5, DeviceAnswer::Summary(&UNSURE)));
    group.after_ms(9);
    let found = decision(&group.cloud(1, &SURE));
    assert_eq!(found.captured_at.map(UtcTime::ms), Some(WALL_MS + 1000 + 1 - 5));
    assert_eq!(exits(&found), [(Exit::DEVICE, LOCAL_THRESHOLD), (Exit::CLOUD, None)]);
}

#[test]
fn an_answer_that_was_held_for_its_trigger_is_as_old_as_its_capture() {
    let mut group = Group::new();
    group.event(Event::Numbering(Numbering::Trigger));
    group.trigger(1);
    group.all(1, &SURE);
    assert_eq!(group.event(aged(0, 2, 4, DeviceAnswer::Summary(&SURE))), []);
    group.after_ms(9);
    group.trigger(2);
    group.summary(1, 2, &SURE);
    let found = decision(&group.summary(2, 2, &SURE));
    assert_eq!(found.captured_at.map(UtcTime::ms), Some(WALL_MS + 1000 - 4));
}

#[test]
fn a_sure_sample_names_one_exit_with_its_threshold() {
    let mut group = Group::new();
    group.all(1, &SURE);
    let found = last(&group);
    let confidence = found.confidence;
    assert_eq!(found.left, LeaveReason::Sure);
    let threshold_confidence = LOCAL_THRESHOLD;
    assert_eq!(found.exits, [AppliedExit { exit: Exit::LOCAL, confidence, threshold_confidence }]);
}

#[test]
fn a_sample_of_the_cloud_names_both_exits_and_its_revision_too() {
    let mut group = Group::new();
    group.ask_cloud(1);
    group.cloud(1, &SURE);
    let found = last(&group);
    assert_eq!(found.left, LeaveReason::LastExit);
    assert_eq!(exits(&found), [(Exit::LOCAL, LOCAL_THRESHOLD), (Exit::CLOUD, None)]);
    assert!(found.exits[0].confidence < 0.5 && found.exits[1].confidence == found.confidence, "{found:?}");

    let mut group = Group::new();
    group.ask_cloud(1);
    group.after_ms(300);
    assert_eq!(
        (last(&group).left, exits(&last(&group))),
        (LeaveReason::Deadline, vec![(Exit::LOCAL, LOCAL_THRESHOLD)])
    );
    let actions = group.cloud(1, &SURE);
    let [Action::Revise(revised)] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(revised.left, LeaveReason::LastExit);
    assert_eq!(exits(revised), [(Exit::LOCAL, LOCAL_THRESHOLD), (Exit::CLOUD, None)]);
    assert_eq!(revised.captured_at, last(&group).captured_at);
}

#[test]
fn each_answer_without_the_last_exit_says_why() {
    let mut group = Group::new();
    group.ask_cloud(1);
    group.cloud_fails(1, Degraded::CloudRefused);
    assert_eq!(last(&group).left, LeaveReason::CloudFailed);

    let mut group = Group::new();
    group.all(1, &UNSURE);
    (0..3).for_each(|index| _ = group.gone(index, 1));
    assert_eq!(last(&group).left, LeaveReason::NoFeatures);

    let mut group = Group::new();
    (0..3).for_each(|index| _ = group.not_in_view(index, 1));
    assert_eq!((last(&group).left, exits(&last(&group))), (LeaveReason::NoView, vec![]));
}

#[test]
fn an_answer_that_no_exit_was_sure_of_is_undecided_below_the_confidence_of_the_policy() {
    let claim_above = Some(Confidence::new(0.5).expect("in range"));
    let careful = Policy { claim_above, ..config().policy };
    let mut group = Group::of(LeaderConfig { policy: careful, ..config() });
    group.all(1, &SURE);
    assert_eq!((last(&group).class, last(&group).undecided), (Some(2), None));

    group.ask_cloud(2);
    group.cloud(2, &SURE);
    assert_eq!((last(&group).class, last(&group).undecided), (Some(2), None));
    group.ask_cloud(3);
    group.cloud(3, &UNSURE);
    let unsure = last(&group);
    assert_eq!((unsure.class, unsure.label, unsure.undecided), (None, None, Some(Undecided::Unsure)));
    assert_eq!((unsure.exit, unsure.left, unsure.exits.len()), (Exit::CLOUD, LeaveReason::LastExit, 2));

    // The exit that answers in place of the cloud needs the same confidence.
    group.ask_cloud(4);
    group.cloud_fails(4, Degraded::CloudRefused);
    assert_eq!((last(&group).exit, last(&group).undecided), (Exit::LOCAL, Some(Undecided::Unsure)));
    for (sample, logits, class) in [(5, SURE, Some(2)), (6, UNSURE, None)] {
        group.ask_cloud(sample);
        group.after_ms(300);
        assert_eq!((last(&group).left, last(&group).class), (LeaveReason::Deadline, None));
        let actions = group.cloud(sample, &logits);
        let [Action::Revise(revised)] = &actions[..] else { panic!("{actions:?}") };
        assert_eq!((revised.class, revised.label.is_some()), (class, class.is_some()));
        assert_eq!(revised.undecided, class.is_none().then_some(Undecided::Unsure));
    }
}

#[test]
fn a_group_that_smooths_has_the_answer_of_its_latest_decisions_beside_each_decision() {
    let Group { leader, now, done } = Group::new();
    let smoothing = Smoothing { last: 3, reset_ms: 1000 };
    let mut group = Group { leader: leader.with_smoothing(Some(smoothing)), now, done };
    for (sample, scores, class, of) in [(1, SURE, 2, 1), (2, [20.0, 0.0, 0.0, 0.0], 0, 2), (3, SURE, 2, 3)] {
        group.all(sample, &scores);
        let found = last(&group).smoothed.expect("a vote");
        assert_eq!((found.class, found.label, found.of), (class, format!("class {class}"), of));
    }
    assert_eq!(
        (last(&group).class, last(&group).smoothed.map(|of| of.confidence)),
        (Some(2), Some(2.0 / 3.0))
    );
    (0..3).for_each(|index| _ = group.not_in_view(index, 4));
    assert_eq!((last(&group).class, last(&group).smoothed.map(|of| of.of)), (None, Some(3)));
    let mut without = Group::new();
    without.all(1, &SURE);
    assert_eq!(last(&without).smoothed, None);

    // The journal has the smoothed answers but not the votes.
    let published = last(&group);
    let Group { leader, now, done } = group.restarted();
    let mut restarted = Group { leader: leader.with_smoothing(Some(smoothing)), now, done };
    assert!(restarted.done.contains(&Action::Republish(published)), "{:?}", restarted.done);
    restarted.all(5, &SURE);
    assert_eq!(last(&restarted).smoothed.map(|of| (of.class, of.of)), Some((2, 1)));
}

#[test]
fn a_decision_names_the_missing_devices_of_its_time() {
    let mut group = Group::new();
    let named = |name: &str| Event::DeviceNamed { slot: slot(0), name: name.into() };
    group.event(named("first"));
    group.not_in_view(2, 1);
    let actions = group.after_ms(1000);
    group.event(named("second"));
    assert_eq!(decision(&actions).missing, ["first", "slot 1"]);
    group.not_in_view(2, 2);
    assert_eq!(decision(&group.after_ms(1000)).missing, ["second", "slot 1"]);
}

#[test]
fn a_slot_without_an_answer_is_a_missing_device_and_one_without_features_is_not() {
    let mut group = Group::new();
    group.summary(0, 1, &SURE);
    group.not_in_view(1, 1);
    group.after_ms(50);
    assert_eq!(last(&group).degraded, [Degraded::DeviceMissing]);

    group.ask_cloud(2);
    group.cloud(2, &SURE);
    assert_eq!(last(&group).degraded, []);
    group.all(3, &UNSURE);
    (0..2).for_each(|index| _ = group.features(index, 3));
    group.gone(2, 3);
    group.cloud(3, &SURE);
    assert_eq!(last(&group).degraded, [Degraded::FeaturesMissing]);
}

#[test]
fn a_device_that_decides_names_its_exit_and_the_threshold_if_it_has_the_leaders_policy() {
    for (policy, threshold) in [(PolicyId([9; 8]), None), (PolicyId([4; 8]), Some(0.5))] {
        let answer = DeviceAnswer::Decided(DeviceDecision { class: 2, confidence: 0.75, policy });
        let found = decision(&Group::alone().event(aged(0, 1, 2, answer)));
        let applied = AppliedExit { exit: Exit::DEVICE, confidence: 0.75, threshold_confidence: threshold };
        assert_eq!((found.left, &found.exits[..]), (LeaveReason::Sure, &[applied][..]));
        assert_eq!(found.captured_at.map(UtcTime::ms), Some(WALL_MS + 1000 - 2));
    }
}
