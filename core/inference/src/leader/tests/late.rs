//! Samples from the spools of devices.

use headwater_protocol::Stages;

use super::*;

impl Group {
    pub(super) fn given_up(&mut self, index: u8, sample: u64) -> Vec<Action> {
        let (slot, sample) = (slot(index), SampleId(sample));
        let answer = DeviceAnswer::GivenUp;
        // A device states no age for a sample that it gave up.
        self.event(Event::DeviceAnswer { slot, sample, age_ms: 0, late: true, answer, frame: None })
    }

    fn published_late(&mut self) -> Vec<u64> {
        let notice = self.leader.notice();
        self.leader.notice_published(&notice);
        notice.late.iter().map(|sample| sample.0).collect()
    }
}

#[test]
fn a_late_sample_waits_for_every_device_and_is_named_in_the_notice() {
    let mut group = Group::new();
    group.all(100, &SURE);
    group.late(0, 90, &SURE);
    // For a sample in time the window would be over.
    group.after_ms(1500);
    group.late(1, 90, &SURE);
    let found = decision(&group.late(2, 90, &SURE));
    assert_eq!(
        (found.sample, found.class.unwrap(), &found.degraded[..]),
        (SampleId(90), 2, &[Degraded::Late][..])
    );
    assert_eq!(found.presence.missing_count(), 0);
    assert_eq!(group.published_late(), [90]);
    assert_eq!(group.published_late(), [] as [u64; 0], "once");
}

#[test]
fn a_late_sample_without_other_answers_is_decided_after_its_longer_window() {
    let mut group = Group::new();
    group.late(0, 90, &UNSURE);
    assert_eq!(group.after_ms(1999), []);
    assert_eq!(group.after_ms(1), [request(90, 1)]);
    let actions = group.features(0, 90);
    // After the longer window the cloud still has the whole deadline, 300 ms.
    assert!(matches!(actions[..], [Action::AskCloud { deadline_ms: 300, .. }]), "{actions:?}");
    assert_eq!(group.published_late(), [] as [u64; 0], "the sample is still open");
    group.cloud(90, &SURE);
    assert_eq!(group.published_late(), [90]);
    let counts = group.leader.counts();
    assert_eq!(counts.missing, 2);
    group.all(100, &SURE);
    assert_eq!(
        group.leader.counts().windows_timed_out,
        counts.windows_timed_out,
        "every device is still awaited"
    );
}

#[test]
fn a_late_message_of_a_closed_sample_is_named_at_once_and_changes_nothing() {
    let mut group = Group::new();
    group.all(100, &SURE);
    assert_eq!(group.late(0, 100, &UNSURE), []);
    assert_eq!(group.published_late(), [100]);
    assert_eq!(group.leader.settled().decided, 1);
}

#[test]
fn a_late_message_joins_the_sample_that_other_devices_opened() {
    let mut group = Group::new();
    group.summary(0, 100, &SURE);
    group.summary(1, 100, &SURE);
    assert_eq!(decision(&group.late(2, 100, &SURE)).degraded, []);
    assert_eq!(group.published_late(), [100]);
}

#[test]
fn a_late_flag_on_a_sample_in_time_makes_nobody_wait() {
    let mut group = Group::new();
    group.late(0, 100, &SURE);
    group.summary(1, 100, &SURE);
    assert_eq!(group.after_ms(49), []);
    let found = decision(&group.after_ms(1));
    assert_eq!((found.sample, &found.degraded[..]), (SampleId(100), &[Degraded::DeviceMissing][..]));
    assert_eq!(group.published_late(), [100], "the device that waits for it is told");
}

#[test]
fn a_late_answer_younger_than_the_window_is_in_time() {
    let mut group = Group::new();
    let young = |index| Event::DeviceAnswer {
        slot: slot(index),
        sample: SampleId(100),
        age_ms: 5,
        late: true,
        answer: DeviceAnswer::Summary(&SURE),
        frame: None,
    };
    group.event(young(0));
    group.event(young(1));
    assert_eq!(decision(&group.event(young(2))).degraded, []);
    assert_eq!(group.published_late(), [100]);
}

#[test]
fn one_device_alone_decides_no_late_sample_at_the_local_exit_while_others_are_up() {
    let mut group = Group::new();
    group.late(0, 90, &SURE);
    assert_eq!(group.after_ms(2000), [request(90, 1)]);
    // Without features nobody else says anything about the sample.
    let decided = decision(&group.gone(0, 90));
    assert_eq!((decided.class, decided.undecided), (None, Some(Undecided::Unsure)), "{decided:?}");
    for end in [Degraded::CloudUnreachable, Degraded::CloudRefused] {
        let sample = 91 + u64::from(end == Degraded::CloudRefused);
        group.late(0, sample, &SURE);
        group.after_ms(2000);
        group.features(0, sample);
        assert_eq!(decision(&group.cloud_fails(sample, end)).undecided, Some(Undecided::Unsure));
    }
    group.late(0, 93, &SURE);
    group.after_ms(2000);
    group.features(0, 93);
    assert!(decision(&group.cloud(93, &SURE)).class.is_some(), "the cloud has answered");
}

#[test]
fn one_device_opens_a_bounded_number_of_samples_by_late_messages() {
    let mut group = Group::of(LeaderConfig { max_open_samples: 1024, ..config() });
    for sample in 1..=256 {
        group.late(0, sample, &SURE);
    }
    group.late(1, 300, &SURE);
    let actions = group.late(0, 257, &SURE);
    let shed = Action::Drop { sample: SampleId(1), reason: Dropped::Shed };
    assert_eq!(actions, [shed, Action::Open(SampleId(257))]);
}

#[test]
fn late_samples_do_not_hold_back_the_account() {
    let mut group = Group::new();
    group.late(0, 90, &SURE);
    group.all(100, &SURE);
    let notice = group.leader.notice();
    assert_eq!(notice.account.highest, SampleId(100));
    assert!(!notice.covers(SampleId(95)), "it may lie in a spool");
}

#[test]
fn a_sample_that_one_device_gave_up_waits_for_the_spools_of_the_others() {
    let mut group = Group::new();
    group.given_up(0, 90);
    assert_eq!(group.after_ms(1500), []);
    group.late(1, 90, &SURE);
    group.given_up(0, 90);
    assert_eq!(decision(&group.late(2, 90, &SURE)).degraded, [Degraded::DeviceMissing, Degraded::Late]);
}

#[test]
fn a_sample_that_every_device_gave_up_is_dropped_with_its_reason() {
    let mut group = Group::new();
    assert_eq!(group.given_up(0, 90), [Action::Open(SampleId(90))]);
    group.given_up(1, 90);
    let actions = group.given_up(2, 90);
    assert_eq!(actions, [Action::Drop { sample: SampleId(90), reason: Dropped::SpoolFull }]);
    assert_eq!(group.published_late(), [90]);
    // A sample that one device still has goes on. The views of the other devices are lost, so the scores of one device do not decide.
    group.given_up(0, 91);
    group.given_up(1, 91);
    assert_eq!(group.late(2, 91, &SURE), [request(91, 0b100)]);
    group.features(2, 91);
    assert_eq!(decision(&group.cloud(91, &SURE)).presence.present_count(), 1);
}

#[test]
fn after_a_restart_late_samples_that_were_never_decided_are_opened() {
    let mut group = Group::new();
    group.all(100, &SURE);
    let recovered = replay(entries(&group.done));
    let mut next = Group::new();
    next.leader.recover(recovered, &mut Vec::new());
    assert_eq!(next.late(0, 100, &UNSURE), [], "decided before");
    assert_eq!(next.published_late(), [100]);
    assert_eq!(next.late(0, 90, &SURE), [Action::Open(SampleId(90))], "never opened before");
}

#[test]
fn late_features_that_overtake_their_scores_open_a_late_sample() {
    let mut group = Group::alone();
    let (slot, sample) = (slot(0), SampleId(90));
    let features =
        Event::Features { slot, sample, late: true, bits: &[7; PACKED], body_bytes: PACKED as u64 };
    assert_eq!(group.event(features), [Action::Open(sample)]);
    let actions = group.late(0, 90, &UNSURE);
    assert!(matches!(actions[..], [Action::AskCloud { .. }]), "{actions:?}");
}

#[test]
fn late_samples_that_do_not_fit_in_one_notice_are_named_in_the_next() {
    let mut group = Group::new();
    for sample in 0..SettledNotice::MAX_LATE as u64 + 5 {
        group.all(sample, &SURE);
        group.late(0, sample, &SURE);
    }
    assert_eq!(group.published_late().len(), SettledNotice::MAX_LATE);
    assert_eq!(
        (group.leader.unpublished_late(), group.published_late().len(), group.leader.unpublished_late()),
        (5, 5, 0)
    );
}

#[test]
fn a_sample_is_named_in_the_notice_however_many_late_messages_came() {
    for count in 1..=3 {
        let mut group = Group::new();
        for index in 0..SLOTS as u8 {
            if index < count {
                group.late(index, 90, &SURE)
            } else {
                group.summary(index, 90, &SURE)
            };
        }
        group.after_ms(2000);
        assert_eq!((group.leader.settled().decided, group.published_late()), (1, vec![90]), "{count} late");
    }
}

#[test]
fn a_message_in_time_of_a_closed_sample_is_not_named_in_the_notice() {
    let mut group = Group::new();
    group.all(100, &SURE);
    group.summary(0, 100, &SURE);
    assert_eq!((group.leader.counts().after_close, group.published_late()), (1, vec![]));
}

#[test]
fn a_sample_without_a_view_is_decided_though_a_device_gave_it_up() {
    let mut group = Group::new();
    group.given_up(0, 90);
    group.not_in_view(1, 90);
    assert_eq!(decision(&group.not_in_view(2, 90)).degraded, [Degraded::DeviceMissing, Degraded::NoView]);
}

#[test]
fn a_late_sample_that_all_have_sent_is_decided_by_its_deadline_from_then_on() {
    let mut group = Group::new();
    group.late(0, 90, &UNSURE);
    group.late(1, 90, &UNSURE);
    group.late(2, 90, &UNSURE);
    assert_eq!(group.after_ms(49), []);
    // The wait for features ends, then the deadline: both count from the last answer and not from the first.
    group.features(0, 90);
    group.after_ms(1);
    let asked = group.done.last();
    assert!(matches!(asked, Some(Action::AskCloud { deadline_ms: 250, .. })), "{asked:?}");
}

#[test]
fn a_window_of_late_messages_does_not_count_as_missed_by_a_device() {
    let mut group = Group::new();
    for sample in 90..=92 {
        group.late(0, sample, &SURE);
        group.late(1, sample, &SURE);
    }
    group.after_ms(2000);
    assert_eq!(group.leader.counts().windows_timed_out, 3);
    group.summary(0, 100, &SURE);
    assert_eq!(group.summary(1, 100, &SURE), [], "slot 2 is waited for");
}

#[test]
fn a_late_sample_waits_for_devices_that_are_down() {
    let mut group = Group::new();
    group.down(2);
    group.late(0, 90, &SURE);
    assert_eq!(group.late(1, 90, &SURE), []);
    group.up(2);
    assert_eq!(decision(&group.late(2, 90, &SURE)).presence.present_count(), 3);
}

#[test]
fn a_late_sample_has_no_age() {
    let mut group = Group::new();
    group.late(0, 90, &SURE);
    group.late(1, 90, &SURE);
    let actions = group.late(2, 90, &SURE);
    let stages = Stages { opened_us: 1, window_us: 1, decided_us: 1, ..Stages::default() };
    assert_eq!(decision(&actions).stages, stages);
}
