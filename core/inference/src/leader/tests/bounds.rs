//! Bounds, counts, and messages that change nothing.

use headwater_protocol::Settled;

use super::*;

#[test]
fn a_slot_behind_the_last_is_a_misfit() {
    let mut group = Group::new();
    assert_eq!(group.summary(SLOTS as u8, 1, &SURE), []);
    assert_eq!(group.features(SLOTS as u8, 1), []);
    assert_eq!(group.leader.counts(), Counts { misfits: 2, ..Counts::default() });
    assert_eq!(group.summary(SLOTS as u8 - 1, 1, &SURE), [Action::Open(SampleId(1))]);
}

#[test]
fn features_of_another_length_are_a_misfit() {
    let mut group = Group::new();
    group.all(1, &UNSURE);
    let bits = [1; PACKED + 1];
    let wrong =
        Event::Features { slot: slot(0), sample: SampleId(1), late: false, bits: &bits, body_bytes: 2 };
    assert_eq!(group.event(wrong), []);
    assert_eq!(group.leader.counts(), Counts { misfits: 1, ..Counts::default() });
    group.features(1, 1);
    group.features(2, 1);
    let asked = group.features(0, 1);
    assert!(matches!(asked[..], [Action::AskCloud { .. }]), "slot 0 was still waited for: {asked:?}");
}

#[test]
fn a_device_answers_in_the_way_of_its_configuration() {
    let input = answer(0, 1, DeviceAnswer::Input(&[0; PACKED]));
    let mut with_sections = Group::new();
    assert_eq!(with_sections.event(input.clone()), []);
    assert_eq!(with_sections.leader.counts().misfits, 1);
    let mut with_views = Group::of(LeaderConfig { configuration: Configuration::A, ..config() });
    assert_eq!(with_views.summary(0, 1, &SURE), []);
    assert_eq!(with_views.event(decided(0)), []);
    assert_eq!(with_views.leader.counts().misfits, 2);
    assert_eq!(with_views.event(input), [Action::Open(SampleId(1))]);
}

#[test]
fn the_last_class_is_one_that_a_device_may_decide() {
    let actions = Group::alone().event(decided(CLASSES as u16 - 1));
    assert_eq!(decision(&actions).label.as_deref().unwrap(), "class 3");
}

#[test]
fn the_scores_of_a_device_that_is_alone_do_not_decide_at_the_leader() {
    let mut group = Group::alone();
    group.summary(0, 1, &SURE);
    let actions = group.features(0, 1);
    assert!(matches!(actions[..], [Action::AskCloud { .. }]), "{actions:?}");
}

#[test]
fn a_window_without_any_device_up_ends_by_time() {
    let mut group = Group::new();
    (0..3).for_each(|index| _ = group.down(index));
    assert_eq!(group.leader.slots_up(), SlotSet::EMPTY);
    assert_eq!(group.summary(0, 1, &SURE), [Action::Open(SampleId(1))]);
    assert_eq!(group.after_ms(49), []);
    assert_eq!(decision(&group.after_ms(1)).presence.missing_count(), 2);
    assert_eq!(group.leader.counts(), Counts { windows_timed_out: 1, missing: 2, ..Counts::default() });
}

#[test]
fn a_device_that_missed_three_windows_is_waited_for_when_it_is_in_time_again_or_comes_back() {
    for comes_back in [true, false] {
        let mut group = Group::new();
        for sample in 1..=3 {
            group.summary(0, sample, &SURE);
            group.summary(1, sample, &SURE);
            assert_eq!(decision(&group.after_ms(50)).presence.missing_count(), 1);
        }
        group.summary(0, 4, &SURE);
        assert_eq!(decision(&group.summary(1, 4, &SURE)).presence.missing_count(), 1);
        let counts = Counts { windows_timed_out: 3, missing: 4, ..Counts::default() };
        assert_eq!(group.leader.counts(), counts);
        if comes_back {
            group.up(2);
        } else {
            group.summary(2, 5, &SURE);
            group.summary(1, 5, &SURE);
            group.summary(0, 5, &SURE);
        }
        group.summary(0, 6, &SURE);
        assert_eq!(group.summary(1, 6, &SURE), []);
        assert_eq!(decision(&group.summary(2, 6, &SURE)).presence.missing_count(), 0);
    }
}

#[test]
fn a_device_that_is_alone_is_waited_for_again_when_it_decides_in_time() {
    for is_late in [true, false] {
        let mut group = Group::alone();
        for sample in 1..=3 {
            // The scores are lost: the window ends without an answer.
            group.features(0, sample);
            group.after_ms(50);
        }
        let decision = DeviceDecision { class: 0, confidence: 1.0, policy: PolicyId([9; 8]) };
        let send = if is_late { late } else { answer };
        group.event(send(0, 4, DeviceAnswer::Decided(decision)));
        group.features(0, 5);
        let actions = group.summary(0, 5, &UNSURE);
        assert_eq!(actions.is_empty(), is_late, "{actions:?}");
    }
}

#[test]
fn a_view_whose_scores_are_lost_but_whose_map_came_is_not_missing() {
    let mut group = Group::alone();
    group.features(0, 1);
    group.after_ms(50);
    assert_eq!(group.leader.counts().missing, 0);
    group.summary(0, 2, &UNSURE);
    group.after_ms(50);
    assert_eq!(group.leader.counts().missing, 0);
}

#[test]
fn each_message_that_changes_nothing_is_counted_once() {
    let mut group = Group::new();
    group.summary(0, 1, &UNSURE);
    group.summary(0, 1, &UNSURE);
    group.not_in_view(0, 1);
    group.summary(1, 1, &UNSURE);
    group.summary(2, 1, &UNSURE);
    group.summary(2, 1, &UNSURE);
    group.cloud(1, &SURE);
    group.cloud_fails(1, Degraded::CloudRefused);
    group.features(0, 7);
    let counts = Counts { duplicates: 2, after_close: 1, unawaited: 3, ..Counts::default() };
    assert_eq!(group.leader.counts(), counts);
}

#[test]
fn features_count_once_for_each_slot() {
    let mut group = Group::new();
    group.all(1, &UNSURE);
    group.features(0, 1);
    group.features(0, 1);
    group.gone(1, 1);
    group.features(1, 1);
    assert_eq!(group.leader.counts().unawaited, 2);
    let actions = group.features(2, 1);
    assert!(matches!(&actions[..], [Action::AskCloud { presence, .. }] if *presence == [true, false, true]));
}

#[test]
fn features_of_an_earlier_sample_are_not_sent_again() {
    let mut group = Group::new();
    group.ask_cloud(1);
    group.cloud(1, &SURE);
    group.all(2, &UNSURE);
    group.features(1, 2);
    group.gone(0, 2);
    let actions = group.gone(2, 2);
    let [Action::AskCloud { features, presence, .. }] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!((&features[..], &presence[..]), (&[0, 0, 2, 2, 0, 0][..], &[false, true, false][..]));
}

#[test]
fn only_a_decision_that_the_cloud_missed_in_time_is_revised() {
    let mut group = Group::new();
    group.ask_cloud(1);
    group.cloud_fails(1, Degraded::CloudRefused);
    assert_eq!(group.cloud(1, &SURE), []);
    assert_eq!(group.leader.counts().unawaited, 1);
}

#[test]
fn the_leader_knows_the_newest_sample_that_was_opened_and_that_was_named() {
    let mut group = Group::new();
    assert_eq!((group.leader.newest(), group.leader.newest_known()), (SampleId(0), SampleId(0)));
    group.trigger(50);
    assert_eq!((group.leader.newest(), group.leader.newest_known()), (SampleId(0), SampleId(50)));
    group.summary(0, 60, &SURE);
    group.summary(0, 55, &SURE);
    assert_eq!((group.leader.newest(), group.leader.newest_known()), (SampleId(60), SampleId(60)));
    assert_eq!(group.leader.open_samples().collect::<Vec<_>>(), [55, 60].map(SampleId));
}

#[test]
fn a_device_may_be_a_thousand_ids_ahead_of_the_newest_trigger_whatever_another_one_names() {
    let mut group = Group::new();
    group.trigger(100);
    assert_eq!(group.summary(0, 1101, &SURE), []);
    assert_eq!(group.summary(0, 1100, &SURE), [Action::Open(SampleId(1100))]);
    assert_eq!(group.summary(1, 1102, &SURE), [], "slot 0 named 1101");
    let counts = group.leader.counts();
    assert_eq!((counts.implausible, counts.implausible_slots.bits()), (2, 0b011));
}

#[test]
fn a_restart_knows_the_newest_sample_of_before() {
    let settled = Settled { highest: SampleId(90), ..Settled::default() };
    for (open, newest) in [(vec![], 90), (vec![SampleId(20)], 90), (vec![SampleId(20), SampleId(95)], 95)] {
        let mut group = Group::new();
        let mut actions = Vec::new();
        let journal =
            super::super::journal::Recovered { settled: settled.clone(), open, ..Default::default() };
        group.leader.recover(journal, &mut actions);
        let newest = SampleId(newest);
        assert_eq!((group.leader.newest(), group.leader.newest_known()), (newest, newest));
        assert_eq!(group.leader.settled().highest, newest);
        assert_eq!(group.summary(0, newest.0 + 256, &SURE), [Action::Open(SampleId(newest.0 + 256))]);
    }
}

fn settled(highest: u64, decided: u64) -> Entry {
    Entry::Settled(Settled { highest: SampleId(highest), decided, ..Settled::default() })
}

#[test]
fn a_restart_remembers_what_was_closed_and_what_was_not() {
    let mut group = Group::new();
    let ranges = [(0, 10), (20, 20), (30, 30)].map(|(first, last)| (SampleId(first), SampleId(last)));
    let closed = Entry::ClosedRanges { floor: None, ranges: ranges.to_vec() };
    group.leader.recover(replay([settled(30, 7), closed.clone()]), &mut Vec::new());
    assert_eq!(group.leader.journal_entries().collect::<Vec<_>>(), [closed]);
    assert_eq!(group.leader.settled().decided, 7);
    for (sample, is_new) in [(9, false), (10, false), (11, true), (20, false), (29, true), (30, false)] {
        assert_eq!(!group.summary(0, sample, &SURE).is_empty(), is_new, "{sample}");
    }
    assert_eq!(group.leader.counts().after_close, 4);
}

#[test]
fn a_journal_adds_up_to_its_account() {
    let mut group = Group::new();
    group.all(4, &SURE);
    let Some(Action::Decide(decision)) = group.done.last().cloned() else { panic!("{:?}", group.done) };
    let other = Decision { class: Some(0), ..decision.clone() };
    let earlier = Decision { sample: SampleId(1), ..decision.clone() };
    let dropped = |sample| Entry::Dropped { sample: SampleId(sample), reason: Dropped::Shed };
    let entries = [
        Entry::Decided(earlier),
        Entry::Opened(SampleId(2)),
        settled(2, 1),
        Entry::Opened(SampleId(3)),
        Entry::Opened(SampleId(4)),
        Entry::Decided(decision.clone()),
        Entry::Decided(other),
        Entry::Opened(SampleId(5)),
        dropped(5),
        Entry::Opened(SampleId(6)),
        dropped(6),
    ];
    let found = replay(entries);
    assert_eq!((found.settled.highest, found.settled.decided), (SampleId(6), 2));
    assert_eq!(found.settled.dropped[&Dropped::Shed], 2);
    assert_eq!(found.decisions, [decision], "the first decision stands");
    assert_eq!(found.open, [2, 3].map(SampleId));
    // The earlier account says that every sample up to 2 is closed, but 2 is open.
    let closed = [(0, 1), (4, 4), (4, 6)].map(|(first, last)| (SampleId(first), SampleId(last)));
    assert_eq!((found.floor, &found.closed[..]), (None, &closed[..]));
}

#[test]
fn times_are_added_and_subtracted_without_overflow() {
    assert_eq!((Micros::from_ms(3), Micros::from_ms(u64::MAX)), (Micros(3000), Micros(u64::MAX)));
    assert_eq!(Micros(5).plus_ms(2), Micros(2005));
    assert_eq!(Micros(u64::MAX).plus_ms(2), Micros(u64::MAX));
    assert_eq!((Micros(5).since(Micros(2)), Micros(2).since(Micros(5))), (3, 0));
}
