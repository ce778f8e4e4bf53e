//! Views and class probabilities in a decision.

use headwater_protocol::{FrameName, SlotView, UtcTime};

use super::*;
use crate::leader::NamedFrame;

fn detailed() -> Group {
    let Group { leader, now, done } = Group::new();
    Group { leader: leader.with_details(true), now, done }
}

fn frame(number: u64, file: &str) -> NamedFrame {
    NamedFrame { name: FrameName::new(number, file), scores: Vec::new() }
}

/// A device's answer in time that names its frame.
fn named<'a>(index: u8, sample: u64, answer: DeviceAnswer<'a>, frame: &'a NamedFrame) -> Event<'a> {
    let (slot, sample) = (slot(index), SampleId(sample));
    Event::DeviceAnswer { slot, sample, age_ms: 0, late: false, answer, frame: Some(frame) }
}

#[test]
fn with_details_a_result_has_the_time_of_each_present_view_and_every_probability() {
    let mut group = detailed();
    group.event(Event::DeviceNamed { slot: slot(2), name: "cam-2".into() });
    group.event(aged(2, 7, 9, DeviceAnswer::Summary(&SURE)));
    group.event(aged(0, 7, 4, DeviceAnswer::Summary(&SURE)));
    let found = decision(&group.not_in_view(1, 7));
    // The group begins one second after the leader's start.
    let view = |index, device: Option<&str>, age_ms| SlotView {
        slot: slot(index),
        device: device.map(Into::into),
        captured_at: UtcTime::from_ms(WALL_MS + 1000 - age_ms),
        frame: None,
        file: None,
    };
    assert_eq!(found.views, [view(0, None, 4), view(2, Some("cam-2"), 9)]);
    assert_eq!((found.scores.len(), crate::exit::argmax(&found.scores)), (CLASSES, 2));
    let sum: f32 = found.scores.iter().sum();
    assert!((sum - 1.0).abs() < 1e-6, "rounding to f32: {sum}");
    // A late answer has no time.
    let mut group = detailed();
    let actions = (0..3).map(|index| group.late(index, 90, &SURE)).last().expect("three devices");
    let late = decision(&actions);
    assert!(late.views.len() == 3 && late.views.iter().all(|view| view.captured_at.is_none()), "{late:?}");
}

#[test]
fn a_result_names_the_frames_that_devices_name_and_no_others() {
    let mut group = Group::new();
    let actions = group.all(1, &SURE);
    assert!(decision(&actions).views.is_empty() && decision(&actions).scores.is_empty());
    let belt = frame(17, "belt/17.jpg");
    group.summary(0, 2, &SURE);
    group.event(named(1, 2, DeviceAnswer::Summary(&SURE), &belt));
    let decision = decision(&group.summary(2, 2, &SURE));
    let [view] = &decision.views[..] else { panic!("{:?}", decision.views) };
    assert_eq!((view.slot, view.frame, view.file.as_deref()), (slot(1), Some(17), Some("belt/17.jpg")));
    assert_eq!(decision.scores.len(), CLASSES);
}

#[test]
fn a_name_that_came_before_its_trigger_is_kept() {
    let mut group = Group::new();
    group.event(Event::Numbering(Numbering::Trigger));
    group.trigger(1);
    group.all(1, &SURE);
    let unnamed_file = frame(17, "");
    assert_eq!(group.event(named(0, 2, DeviceAnswer::Summary(&SURE), &unnamed_file)), []);
    group.trigger(2);
    group.summary(1, 2, &SURE);
    let actions = group.summary(2, 2, &SURE);
    let views = &decision(&actions).views;
    assert_eq!((views.len(), views[0].frame, &views[0].file), (1, Some(17), &None));
}

#[test]
fn a_device_that_decides_tells_its_scores_with_the_name() {
    let mut group = Group::alone();
    let sure = NamedFrame { scores: SURE.to_vec(), ..frame(3, "a.jpg") };
    // The leader does not know the temperature of another policy.
    for (sample, policy, known) in [(1, 4, CLASSES), (2, 9, 0)] {
        let decided = DeviceDecision { class: 2, confidence: 0.9, policy: PolicyId([policy; 8]) };
        let decision = decision(&group.event(named(0, sample, DeviceAnswer::Decided(decided), &sure)));
        assert_eq!((decision.exit, decision.views[0].frame), (Exit::DEVICE, Some(3)));
        assert_eq!(decision.scores.len(), known);
    }
}

#[test]
fn probabilities_are_those_of_the_exit_that_decided() {
    let mut group = detailed();
    group.ask_cloud(1);
    let actions = group.cloud(1, &SURE);
    assert!(decision(&actions).scores[2] > 0.99);
    group.ask_cloud(2);
    let local = decision(&group.cloud_fails(2, Degraded::CloudRefused)).scores;
    assert!(local.len() == CLASSES && local.iter().all(|score| *score < 0.3), "{local:?}");
    group.ask_cloud(3);
    assert_eq!(decision(&group.after_ms(300)).scores, local);
    let actions = group.cloud(3, &SURE);
    let [Action::Revise(revised)] = &actions[..] else { panic!("{actions:?}") };
    assert!(revised.views.len() == SLOTS && revised.scores[2] > 0.99, "{revised:?}");
}

#[test]
fn a_revision_has_the_views_that_the_cloud_answered_from() {
    let mut group = detailed();
    group.all(1, &UNSURE);
    (0..2).for_each(|index| _ = group.features(index, 1));
    // The wait for features ends, later the sample's time.
    group.after_ms(60);
    let decided = decision(&group.after_ms(300));
    assert_eq!((decided.missing.len(), decided.views.len()), (0, SLOTS));
    let actions = group.cloud(1, &SURE);
    let [Action::Revise(revised)] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(revised.missing, ["slot 2"]);
    assert_eq!(revised.views.iter().map(|view| view.slot).collect::<Vec<_>>(), [slot(0), slot(1)]);
}
