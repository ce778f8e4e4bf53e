//! The rule `learned` at the exits of a leader: only devices whose views reached the exit count.

use headwater_protocol::{EdgeIndex, LeaveReason};

use super::*;
use crate::policy::{ExitRule, LearnedWeights, Weight};

/// A policy whose weights depend on the devices alone, so that the confidence shows which devices counted.
fn policy(threshold: f32) -> Policy {
    let [bias, softmax, present, disagreement] =
        [-1.0, 0.0, -0.25, 3.0].map(|value| Weight::new(value).expect("finite"));
    let weights = LearnedWeights { bias, entropy: softmax, margin: softmax, present, disagreement };
    let mut policy = config().policy;
    for exit in Exit::FIRST {
        *policy.of_mut(exit) = ExitPolicy {
            rule: ExitRule::Learned,
            threshold: Threshold::One(ExitThreshold::new(threshold).expect("in range")),
            weights: Some(weights),
            ..ExitPolicy::default()
        };
    }
    policy
}

/// Confidence if `others` of `present` devices have another class than the exit.
fn confidence(present: u32, others: u32) -> f32 {
    let log_odds = -1.0 - 0.25 * f64::from(present) + 3.0 * f64::from(others) / f64::from(present);
    1.0 - (1.0 / (1.0 + (-log_odds).exp())) as f32
}

fn group(threshold: f32) -> Group {
    Group::of(LeaderConfig { policy: policy(threshold), ..config() })
}

fn scores(class: usize, score: f32) -> [f32; CLASSES] {
    std::array::from_fn(|other| if other == class { score } else { 0.0 })
}

impl Group {
    /// A sample in which the device in slot 1 has class 1, and the mean of all devices has class 2.
    fn disagreeing(&mut self, sample: u64) -> Vec<Action> {
        self.summary(0, sample, &scores(2, 9.0));
        self.summary(1, sample, &scores(1, 1.0));
        self.summary(2, sample, &scores(2, 1.0))
    }
}

fn confidences(decision: &Decision) -> Vec<f32> {
    decision.exits.iter().map(|exit| exit.confidence).collect()
}

#[test]
fn devices_of_another_class_make_the_local_exit_less_sure() {
    let mut group = group(0.3);
    let agreeing = group.all(1, &SURE);
    assert_eq!(confidences(&decision(&agreeing)), [confidence(3, 0)]);
    assert_eq!((decision(&agreeing).exit, decision(&agreeing).left), (Exit::LOCAL, LeaveReason::Sure));
    let disagreeing = group.disagreeing(2);
    assert!(confidence(3, 1) < 0.7 && matches!(disagreeing[..], [Action::Request { .. }]), "{disagreeing:?}");
}

#[test]
fn a_missing_device_and_its_class_of_an_earlier_sample_do_not_count() {
    let mut group = group(1.0);
    let first = group.disagreeing(1);
    assert_eq!(confidences(&decision(&first)), [confidence(3, 1)]);
    // The next sample reuses the buffers of the first sample.
    group.summary(0, 2, &scores(2, 9.0));
    group.summary(2, 2, &scores(2, 9.0));
    let second = group.after_ms(50);
    assert_eq!(decision(&second).presence.get(slot(1)), SlotPresence::Missing);
    assert_eq!(confidences(&decision(&second)), [confidence(2, 0)]);
}

#[test]
fn a_late_sample_is_judged_by_its_own_devices() {
    let mut group = group(1.0);
    group.late(0, 1, &scores(2, 1.0));
    group.late(1, 1, &scores(1, 1.0));
    assert_eq!(confidences(&decision(&group.late(2, 1, &scores(2, 1.0)))), [confidence(3, 1)]);
}

#[test]
fn the_cloud_is_judged_by_the_devices_whose_features_it_has_in_time_and_in_a_revision() {
    let mut group = group(0.0);
    for sample in [1, 2] {
        group.disagreeing(sample);
        group.features(1, sample);
        group.features(2, sample);
    }
    group.after_ms(50);
    assert_eq!(confidences(&decision(&group.cloud(1, &SURE))), [confidence(3, 1), confidence(2, 1)]);
    assert_eq!(decision(&group.after_ms(250)).left, LeaveReason::Deadline);
    // Another sample takes the buffers.
    group.disagreeing(3);
    let revised = group.cloud(2, &SURE);
    let [Action::Revise(revised)] = &revised[..] else { panic!("{revised:?}") };
    assert_eq!(confidences(revised), [confidence(3, 1), confidence(2, 1)]);
    assert_eq!(revised.confidence, confidence(2, 1));
}

#[test]
fn the_edge_exit_counts_the_devices_whose_features_an_edge_had() {
    let [first, second] = [0, 1].map(|index| EdgeIndex::new(index).expect("below 64"));
    let edges = vec![SlotSet::from_bits(0b101), SlotSet::from_bits(0b010)];
    let mut policy = policy(0.0);
    policy.of_mut(Exit::EDGE).threshold = Threshold::One(ExitThreshold::ALWAYS);
    let config = LeaderConfig { configuration: Configuration::F, edges, policy, ..config() };
    let mut group = Group::of(config);
    for edge in [first, second] {
        group.event(Event::EdgeUp { edge });
    }
    group.disagreeing(1);
    let mut answer = |edge, slots| {
        let (slots, map) = (SlotSet::from_bits(slots), &[1; PACKED][..]);
        let answer = EdgeAnswer { slots, scores: &SURE, map, body_bytes: 30 };
        group.event(Event::EdgeAnswer { edge, sample: SampleId(1), answer: Some(answer) })
    };
    answer(first, 0b001);
    assert_eq!(confidences(&decision(&answer(second, 0b010))), [confidence(3, 1), confidence(2, 1)]);
}
