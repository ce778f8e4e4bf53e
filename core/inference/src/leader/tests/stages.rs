//! Times and bytes of a decision.

use headwater_protocol::{HopBytes, Stages};

use super::*;

impl Group {
    fn aged(&mut self, index: u8, age_ms: u16, scores: &[f32]) -> Vec<Action> {
        self.event(aged(index, 1, age_ms, DeviceAnswer::Summary(scores)))
    }
}

#[test]
fn every_stage_has_its_time_since_capture() {
    let mut group = Group::new();
    group.aged(0, 5, &UNSURE);
    group.now = group.now.plus_ms(10);
    group.aged(1, 0, &UNSURE);
    group.aged(2, 0, &UNSURE);
    for index in 0..3 {
        group.now = group.now.plus_ms(1);
        group.features(index, 1);
    }
    let asked = group.done.last();
    assert!(matches!(asked, Some(Action::AskCloud { deadline_ms: 282, .. })), "{asked:?}");
    group.now = group.now.plus_ms(20);
    let actions = group.cloud(1, &SURE);
    let stages = Stages {
        opened_us: 5_000,
        window_us: 15_000,
        features_us: 18_000,
        edge_us: 0,
        cloud_us: 38_000,
        decided_us: 38_000,
    };
    assert_eq!(decision(&actions).stages, stages);
    let bytes = HopBytes { device_edge: 3 * 16 + 3 * 2, edge_leader: 0, edge_cloud: 3 * 2 + 3 };
    assert_eq!(decision(&actions).bytes, bytes);
}

#[test]
fn a_sample_that_leaves_locally_has_no_time_at_later_stages() {
    let mut group = Group::new();
    group.aged(0, 5, &SURE);
    group.aged(1, 0, &SURE);
    group.now = group.now.plus_ms(3);
    let actions = group.aged(2, 0, &SURE);
    let stages = Stages { opened_us: 5_000, window_us: 8_000, decided_us: 8_000, ..Stages::default() };
    assert_eq!(decision(&actions).stages, stages);
    // The next sample begins without the times and bytes of this sample.
    group.now = group.now.plus_ms(100);
    group.all(2, &SURE);
    let Some(Action::Decide(found)) = group.done.last() else { panic!("{:?}", group.done) };
    // Everything came while the clock stood still: a stage that ended has at least 1 us.
    let stages = Stages { opened_us: 1, window_us: 1, decided_us: 1, ..Stages::default() };
    assert_eq!((found.stages, found.bytes.device_edge), (stages, 3 * 16));
}

#[test]
fn a_stage_that_ends_in_the_round_in_which_it_begins_is_told_from_one_that_is_not_reached() {
    let mut group = Group::new();
    group.ask_cloud(1);
    let actions = group.cloud(1, &SURE);
    let stages =
        Stages { opened_us: 1, window_us: 1, features_us: 1, edge_us: 0, cloud_us: 1, decided_us: 1 };
    assert_eq!(decision(&actions).stages, stages);
}

#[test]
fn a_failing_cloud_has_a_time_too() {
    let mut group = Group::new();
    group.ask_cloud(1);
    group.now = group.now.plus_ms(7);
    let reason = Degraded::CloudUnreachable;
    let actions = group.cloud_fails(1, reason);
    assert_eq!((decision(&actions).stages.cloud_us, decision(&actions).stages.decided_us), (7_000, 7_000));
}

#[test]
fn a_decision_of_a_device_closes_the_window() {
    let actions = Group::alone().event(decided(2));
    let stages = Stages { opened_us: 2_000, window_us: 2_000, decided_us: 2_000, ..Stages::default() };
    assert_eq!(decision(&actions).stages, stages);
}

#[test]
fn a_view_that_a_device_sends_counts_its_bytes_and_goes_to_the_cloud() {
    let config = LeaderConfig { configuration: Configuration::A, ..config() };
    let mut group = Group::of(config);
    let view = |index: u8, pixels: &'static [u8]| answer(index, 1, DeviceAnswer::Input(pixels));
    assert_eq!(group.event(view(0, &[9])), [], "too short");
    assert_eq!(group.leader.counts().misfits, 1);
    group.event(view(0, &[1, 2]));
    group.not_in_view(1, 1);
    let actions = group.event(view(2, &[5, 6]));
    let [Action::AskCloud { features, presence, .. }] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!((&features[..], &presence[..]), (&[1, 2, 0, 0, 5, 6][..], &[true, false, true][..]));
    assert_eq!(decision(&group.cloud(1, &SURE)).bytes.device_edge, 2 * 2);
}

#[test]
fn a_window_ends_at_the_deadline_of_an_old_sample() {
    let mut group = Group::new();
    assert_eq!(group.aged(0, 280, &SURE), [Action::Open(SampleId(1))]);
    assert_eq!(group.leader.next_timer(), Some(group.now.plus_ms(20)));
    assert_eq!(group.after_ms(19), []);
    let actions = group.after_ms(1);
    assert_eq!(
        (decision(&actions).exit, &decision(&actions).degraded[..]),
        (Exit::LOCAL, &[Degraded::DeviceMissing][..])
    );
    assert_eq!(group.leader.next_timer(), None);
}

#[test]
fn a_sample_at_its_deadline_is_not_late_and_one_behind_it_is() {
    let mut group = Group::new();
    assert_eq!(decision(&group.aged(0, 300, &SURE)).degraded, [Degraded::DeviceMissing]);
    let mut group = Group::new();
    assert_eq!(group.aged(0, 301, &UNSURE), [Action::Open(SampleId(1))]);
    group.after_ms(50);
    // The sample has a whole deadline from its first message.
    group.features(0, 1);
    let asked = group.done.last();
    assert!(matches!(asked, Some(Action::AskCloud { deadline_ms: 250, .. })), "{asked:?}");
    assert_eq!(decision(&group.cloud(1, &SURE)).degraded, [Degraded::DeviceMissing, Degraded::Late]);
}

#[test]
fn the_wait_for_features_ends_at_the_deadline_and_the_cloud_is_then_not_asked() {
    let mut group = Group::new();
    for index in 0..3 {
        group.aged(index, 270, &UNSURE);
    }
    group.features(0, 1);
    assert_eq!(group.after_ms(29), []);
    let found = decision(&group.after_ms(1));
    assert_eq!(found.degraded, [Degraded::FeaturesMissing, Degraded::CloudTimeout]);
    assert_eq!((found.exit, found.presence.present_count()), (Exit::LOCAL, 3));
    let actions = group.cloud(1, &SURE);
    let [Action::Revise(revised)] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(
        (revised.exit, revised.class.unwrap(), revised.label.as_deref().unwrap()),
        (Exit::CLOUD, 2, "class 2")
    );
    assert_eq!(revised.degraded, [Degraded::FeaturesMissing]);
    assert_eq!(revised.presence.present().iter().collect::<Vec<_>>(), [slot(0)], "only its features came");
    assert!(revised.confidence > found.confidence);
}

#[test]
fn a_late_answer_of_the_cloud_with_another_number_of_classes_revises_nothing() {
    let mut group = Group::new();
    group.ask_cloud(1);
    let found = decision(&group.after_ms(300));
    assert_eq!(found.degraded, [Degraded::CloudTimeout]);
    assert_eq!(group.cloud(1, &[9.0; CLASSES + 1]), []);
    assert_eq!(group.leader.counts().misfits, 1);
}

#[test]
fn a_cloud_with_less_than_a_millisecond_left_is_not_asked() {
    for (past_us, is_asked) in [(29_000, true), (29_001, false)] {
        let mut group = Group::new();
        (0..3).for_each(|index| _ = group.aged(index, 270, &UNSURE));
        group.features(0, 1);
        group.features(1, 1);
        group.now = Micros(group.now.0 + past_us);
        let actions = group.features(2, 1);
        if is_asked {
            assert!(matches!(actions[..], [Action::AskCloud { deadline_ms: 1, .. }]), "{actions:?}");
        } else {
            assert_eq!(decision(&actions).degraded, [Degraded::CloudTimeout]);
        }
    }
}
