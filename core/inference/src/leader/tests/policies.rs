//! A change of policy while the leader runs: open samples keep their policy.

use super::*;
use crate::policy::Temperature;

const OLD: PolicyId = PolicyId([4; 8]);
const NEW: PolicyId = PolicyId([8; 8]);

fn policy(threshold: f32) -> Policy {
    let mut policy = config().policy;
    for exit in Exit::FIRST {
        policy.of_mut(exit).threshold = Threshold::One(ExitThreshold::new(threshold).expect("in range"));
    }
    policy
}

#[test]
fn a_sample_is_decided_under_the_policy_of_its_opening_and_names_it() {
    let mut group = Group::new();
    group.summary(0, 1, &UNSURE);
    group.leader.set_policy(policy(1.0), NEW);
    group.summary(1, 1, &UNSURE);
    let actions = group.summary(2, 1, &UNSURE);
    assert!(matches!(actions[..], [Action::Request { .. }]), "unsure under the old policy: {actions:?}");

    let actions = group.all(2, &UNSURE);
    let later = decision(&actions);
    assert_eq!((later.exit, later.policy), (Exit::LOCAL, NEW), "the new policy lets every sample leave");

    group.features(0, 1);
    group.features(1, 1);
    group.features(2, 1);
    let actions = group.cloud(1, &SURE);
    let first = decision(&actions);
    assert_eq!((first.exit, first.policy), (Exit::CLOUD, OLD));
}

#[test]
fn the_waits_of_an_open_sample_stay_as_they_were() {
    let mut group = Group::new();
    group.summary(0, 1, &SURE);
    let patient = Policy { window_ms: 200, features_ms: 200, deadline_ms: 1000, ..policy(0.5) };
    group.leader.set_policy(patient, NEW);
    group.summary(0, 2, &UNSURE);
    let actions = group.after_ms(50);
    let first = decision(&actions);
    assert_eq!((first.sample, first.policy), (SampleId(1), OLD));
    assert_eq!(group.after_ms(149), [], "the window of the later sample is open");
    let actions = group.after_ms(1);
    assert!(matches!(actions[..], [Action::Request { .. }]), "{actions:?}");
    assert_eq!(group.after_ms(199), [], "the wait for features is that of the new policy");
    let actions = group.after_ms(1);
    let second = decision(&actions);
    assert_eq!((second.sample, second.policy), (SampleId(2), NEW));
}

#[test]
fn a_sample_that_asked_for_features_waits_as_long_as_its_own_policy_says() {
    let mut group = Group::new();
    group.summary(0, 1, &UNSURE);
    group.leader.set_policy(Policy { features_ms: 1, ..policy(0.5) }, NEW);
    group.summary(1, 1, &UNSURE);
    group.summary(2, 1, &UNSURE);
    group.features(0, 1);
    assert_eq!(group.after_ms(49), []);
    let actions = group.after_ms(1);
    assert!(matches!(actions[..], [Action::AskCloud { .. }]), "{actions:?}");
}

#[test]
fn a_revision_has_the_policy_of_the_decision_that_it_revises() {
    let mut group = Group::new();
    group.ask_cloud(1);
    assert_eq!(decision(&group.after_ms(300)).degraded, [Degraded::CloudTimeout]);
    let mut sharp = policy(0.5);
    sharp.of_mut(Exit::CLOUD).temperature = Temperature::new(1000.0).expect("above 0");
    group.leader.set_policy(sharp.clone(), NEW);
    group.leader.set_policy(Policy { window_ms: 60, ..sharp }, PolicyId([9; 8]));
    let actions = group.cloud(1, &SURE);
    let [Action::Revise(revised)] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(revised.policy, OLD);
    assert!(revised.confidence > 0.9, "the temperature of the old policy: {}", revised.confidence);
}

#[test]
fn a_policy_comes_back_and_earlier_ones_are_forgotten_with_their_samples() {
    let mut group = Group::new();
    group.summary(0, 1, &UNSURE);
    group.leader.set_policy(policy(1.0), NEW);
    group.leader.set_policy(config().policy, OLD);
    assert_eq!(group.leader.policy_id(), OLD);
    group.summary(1, 1, &UNSURE);
    let actions = group.summary(2, 1, &UNSURE);
    assert!(matches!(actions[..], [Action::Request { .. }]), "{actions:?}");
    for id in 10..100 {
        group.leader.set_policy(policy(0.5), PolicyId([id; 8]));
    }
    assert_eq!(group.leader.state.networks.current.earlier_policies.len(), 1, "that of the open sample");
}

#[test]
fn the_next_network_keeps_its_own_policy() {
    let mut group = networks::group();
    group.leader.set_policy(policy(0.0), NEW);
    let found = decision(&group.next_summary(2, 1, &networks::NEXT_SURE));
    assert_eq!((found.exit, found.policy), (Exit::LOCAL, PolicyId([6; 8])));
}

#[test]
fn devices_may_collect_answers_for_as_long_as_both_policies_allow() {
    let waits = |window_ms, deadline_ms| Policy { window_ms, deadline_ms, ..policy(0.5) };
    let mut group = networks::group();
    group.leader.set_policy(waits(20, 400), NEW);
    assert_eq!(group.leader.max_batch_ms(), 10, "half of the window");
    group.leader.set_policy(waits(200, 400), PolicyId([9; 8]));
    let of_next = Policy::default().max_batch_ms();
    assert_eq!(group.leader.max_batch_ms(), of_next, "that of the next network is shorter");
}
