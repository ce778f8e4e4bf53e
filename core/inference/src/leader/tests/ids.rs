//! Ids that are plausible, and ids that are not.

use super::super::ClockOff;
use super::account::dropped;
use super::*;

pub(super) const CLOCK: Numbering = Numbering::Clock { period_ms: 100 };

impl Group {
    fn numbered(numbering: Numbering) -> Self {
        let mut group = Self::new();
        group.event(Event::Numbering(numbering));
        group
    }

    /// The id that a right clock with this period gives now.
    pub(super) fn clock_id(&self, period_ms: u64) -> u64 {
        at(self.now).wall_ms / period_ms
    }

    fn pass_hours(&mut self, hours: u32) {
        self.after_ms(hours * 3_600_000);
    }
}

#[track_caller]
fn opens(group: &mut Group, index: u8, sample: u64) {
    assert_eq!(group.summary(index, sample, &SURE), [Action::Open(SampleId(sample))]);
}

#[test]
fn a_group_goes_on_after_a_weekend_off() {
    for (numbering, period_ms) in [(CLOCK, 100), (Numbering::Source, 1)] {
        let mut group = Group::numbered(numbering);
        let sample = group.clock_id(period_ms);
        opens(&mut group, 0, sample);
        group.pass_hours(65);
        let sample = group.clock_id(period_ms);
        opens(&mut group, 0, sample);
    }
}

#[test]
fn a_camera_that_was_quiet_for_an_hour_goes_on_with_the_others() {
    let mut group = Group::numbered(CLOCK);
    for _ in 0..36_000 {
        let sample = group.clock_id(100);
        group.summary(0, sample, &SURE);
        group.summary(1, sample, &SURE);
        group.after_ms(100);
    }
    assert_eq!(group.leader.settled().decided, 36_000);
    let sample = group.clock_id(100);
    opens(&mut group, 2, sample);
    assert_eq!(group.leader.counts().implausible, 0);
}

#[test]
fn a_group_does_not_stop_when_all_devices_but_one_are_quiet() {
    for numbering in [None, Some(CLOCK), Some(Numbering::Trigger)] {
        let mut group = Group::new();
        numbering.map(|numbering| group.event(Event::Numbering(numbering)));
        let first = if numbering == Some(CLOCK) { group.clock_id(100) } else { 1 };
        for sample in first..first + 100_000 {
            if numbering == Some(Numbering::Trigger) {
                group.trigger(sample);
            }
            group.summary(0, sample, &SURE);
            group.after_ms(100);
        }
        let found = (group.leader.settled().decided, group.leader.counts().implausible);
        assert_eq!(found, (100_000, 0), "{numbering:?}");
    }
}

#[test]
fn a_board_that_boots_in_1970_is_named_and_moves_nothing() {
    let mut group = Group::numbered(CLOCK);
    let sample = group.clock_id(100);
    opens(&mut group, 0, sample);
    let (text, _) = group.refused(answer(1, 600, DeviceAnswer::Summary(&SURE)));
    assert!(text.contains("its clock is 56 years behind the aggregator's"), "{text}");
    assert_eq!((group.leader.newest(), group.leader.counts().implausible), (SampleId(sample), 1));
    assert_eq!(group.leader.counts().implausible_slots, SlotSet::from_bits(0b10));

    assert_eq!(group.late(1, 600, &SURE), [dropped(600, Dropped::Implausible)]);
    assert_eq!(group.late(1, 600, &SURE), [], "once");
    let notice = group.leader.notice();
    assert_eq!(
        (notice.late, notice.account.dropped),
        (vec![SampleId(600)], [(Dropped::Implausible, 1)].into())
    );
    group.after_ms(50);
    assert_eq!(group.leader.settled().highest, SampleId(sample));
}

/// A group with a clock in which devices 0 and 1 answered eight samples; device 2 is up.
fn group_with_two_right_clocks() -> Group {
    let mut group = Group::numbered(CLOCK);
    for _ in 0..8 {
        two_answer(&mut group);
    }
    group
}

/// Devices 0 and 1 answer the present sample, and its window ends. Returns the sample.
fn two_answer(group: &mut Group) -> u64 {
    let sample = group.clock_id(100);
    group.summary(0, sample, &SURE);
    group.summary(1, sample, &SURE);
    group.after_ms(100);
    sample
}

#[test]
fn a_device_whose_clock_is_ahead_is_named_and_left_out_and_the_others_decide() {
    let mut group = group_with_two_right_clocks();
    let decided = group.leader.settled().decided;
    for round in 0..100 {
        let ahead = group.clock_id(100) + 600;
        let scores = DeviceAnswer::Summary(&SURE);
        let event = if round % 2 == 1 { late(2, ahead, scores) } else { aged(2, ahead, 5, scores) };
        let (text, actions) = group.refused(event);
        assert!(
            text.contains("1 minute ahead of those of the group, expected at most 25 milliseconds"),
            "{text}"
        );
        assert_eq!(actions, []);
        two_answer(&mut group);
    }
    assert_eq!(group.leader.settled().decided, decided + 100);
    assert_eq!(group.leader.counts().implausible, 100);
    let off = group.leader.clocks_off();
    assert!(
        matches!(off[..], [(two, ClockOff { ahead_ms: 60_005, max_ms: 25 })] if two == slot(2)),
        "{off:?}"
    );
    // By now the other devices' answers have decided the samples that device 2 named too early, and a notice tells device 2.
    let past = group.clock_id(100) - 50;
    group.late(2, past, &SURE);
    assert_eq!(group.leader.notice().late, [SampleId(past)]);
}

#[test]
fn ids_of_a_device_far_ahead_end_no_sample_of_the_others() {
    for ahead_ms in [660_000, 86_400_000, 30 * 86_400_000] {
        let mut group = group_with_two_right_clocks();
        let ids: Vec<u64> = (0..100).map(|index| group.clock_id(100) + ahead_ms / 100 + index).collect();
        for id in &ids {
            group.late(2, *id, &SURE);
            group.summary(2, *id, &SURE);
        }
        group.after_ms(ahead_ms as u32 - 1000);
        let decided = group.leader.settled().decided;
        for _ in 0..200 {
            two_answer(&mut group);
        }
        assert_eq!(group.leader.settled().decided, decided + 200, "{ahead_ms} ms ahead");
        assert_eq!(group.late(2, ids[50], &SURE), [], "its device is told that the sample has ended");
        assert!(group.leader.notice().late.contains(&SampleId(ids[50])));
    }
}

#[test]
fn a_device_whose_clock_is_set_right_answers_with_its_group_again() {
    let mut group = group_with_two_right_clocks();
    let ahead = group.clock_id(100) + 600;
    for _ in 0..8 {
        assert_eq!(group.summary(2, ahead, &SURE), []);
    }
    for _ in 0..5 {
        let sample = group.clock_id(100);
        group.summary(2, sample, &SURE);
        two_answer(&mut group);
    }
    let sample = group.clock_id(100);
    opens(&mut group, 2, sample);
    group.summary(0, sample, &SURE);
    assert_eq!(decision(&group.summary(1, sample, &SURE)).presence.get(slot(2)), SlotPresence::Present);
    assert_eq!(group.leader.clocks_off(), []);
}

#[test]
fn a_clock_that_is_ahead_by_less_than_a_quarter_period_counts_and_one_that_is_behind_is_named() {
    let mut group = group_with_two_right_clocks();
    for _ in 0..8 {
        let next = group.clock_id(100) + 1;
        group.after_ms(76);
        assert_eq!(group.summary(2, next, &SURE), [Action::Open(SampleId(next))], "24 ms early");
        group.after_ms(24);
        two_answer(&mut group);
    }
    assert_eq!((group.leader.clocks_off(), group.leader.counts().implausible), (vec![], 0));
    for _ in 0..8 {
        let sample = two_answer(&mut group);
        group.summary(2, sample, &SURE);
    }
    let off = group.leader.clocks_off();
    assert!(matches!(off[..], [(two, ClockOff { ahead_ms: -100, max_ms: 25 })] if two == slot(2)), "{off:?}");
}

#[test]
fn the_leader_s_own_clock_leaves_nobody_out() {
    let mut group = Group::numbered(CLOCK);
    for _ in 0..100 {
        // All devices are five minutes ahead of the leader.
        let sample = group.clock_id(100) + 3000;
        group.all(sample, &SURE);
        group.after_ms(100);
    }
    let found =
        (group.leader.settled().decided, group.leader.counts().implausible, group.leader.clocks_off());
    assert_eq!(found, (100, 0, vec![]));
}

#[test]
fn a_restart_remembers_which_implausible_samples_were_dropped_and_does_not_begin_there() {
    let mut group = Group::numbered(CLOCK);
    let far = group.clock_id(100) + (1 << 40);
    assert_eq!(group.late(1, far, &SURE), [dropped(far, Dropped::Implausible)]);
    let mut next = Group::new();
    next.leader.recover(replay(entries(&group.done)), &mut Vec::new());
    assert_eq!((next.leader.newest_known(), next.leader.settled().highest), (SampleId(0), SampleId(0)));
    assert_eq!(next.late(1, far, &SURE), []);
    assert_eq!(
        (next.leader.settled().dropped[&Dropped::Implausible], next.leader.notice().late),
        (1, vec![SampleId(far)])
    );
}

/// Hands the leader a trigger that it must refuse; returns the reason and the actions.
fn refused_trigger(group: &mut Group, sample: u64) -> (String, Vec<Action>) {
    group.refused(Event::Trigger { sample: SampleId(sample) })
}

#[test]
fn a_trigger_below_the_newest_or_too_high_is_refused_by_name_and_dropped_once() {
    for numbering in [None, Some(Numbering::Trigger)] {
        let mut group = Group::new();
        numbering.map(|numbering| group.event(Event::Numbering(numbering)));
        group.trigger(5000);
        for (wrong, sentence) in [(4999, "above 5000"), (3, "--new-numbering"), (u64::MAX, "ids only grow")] {
            let (text, actions) = refused_trigger(&mut group, wrong);
            assert!(text.contains(sentence), "{text}");
            assert_eq!(actions, [dropped(wrong, Dropped::Implausible)]);
            assert_eq!(group.trigger(wrong), []);
        }
        assert_eq!((group.leader.newest_known(), group.leader.counts().implausible), (SampleId(5000), 3));
        assert_eq!(group.trigger(6000), [Action::Await(SampleId(6000))]);
    }
}

#[test]
fn a_trigger_far_ahead_is_answered_when_a_second_one_near_it_confirms_it() {
    let mut group = Group::numbered(Numbering::Trigger);
    group.trigger(5);
    let far = 1 << 40;
    let (text, actions) = refused_trigger(&mut group, far);
    assert!(text.contains("a second trigger near it confirms it") && actions.is_empty(), "{text}");
    assert_eq!(refused_trigger(&mut group, far).1, [], "the same one is no second");
    for index in 0..SLOTS as u8 {
        assert_eq!(group.summary(index, far, &SURE), []);
    }
    assert_eq!((group.leader.newest(), group.leader.newest_known()), (SampleId(0), SampleId(5)));
    let both = [far, far + 1].map(|sample| Action::Await(SampleId(sample)));
    assert_eq!(group.trigger(far + 1), both);
    group.all(far, &SURE);
    assert_eq!(decided(&group, far).presence.missing_count(), 0);
}

#[test]
fn a_trigger_far_ahead_that_no_second_one_confirms_is_dropped_by_name_and_moves_nothing() {
    let far = 1 << 40;
    for next in [6, far + 2000] {
        let mut group = Group::numbered(Numbering::Trigger);
        group.trigger(5);
        refused_trigger(&mut group, far);
        assert_eq!(
            group.trigger(next)[0],
            dropped(far, Dropped::Implausible),
            "another trigger took its place"
        );
    }
    let mut group = Group::numbered(Numbering::Trigger);
    group.trigger(5);
    refused_trigger(&mut group, far);
    let actions = group.after_ms(60_000);
    assert!(actions.contains(&dropped(far, Dropped::Implausible)), "{actions:?}");
    assert_eq!(group.leader.settled().highest, SampleId(5));
    // A later trigger near the dropped one is awaited; the dropped sample has ended.
    assert_eq!(group.trigger(far + 1), [Action::Await(SampleId(far + 1))]);
}

#[test]
fn the_first_trigger_may_have_any_id_that_leaves_room_for_others() {
    for first in [0, 1 << 40, headwater_protocol::Trigger::MAX_ID.0] {
        let mut group = Group::numbered(Numbering::Trigger);
        group.trigger(first);
        group.all(first, &SURE);
        assert_eq!((group.leader.settled().decided, group.closed()), (1, vec![(first, first)]));
        assert_eq!(group.leader.settled().highest, SampleId(first));
    }
}

#[test]
fn a_trigger_in_a_group_with_a_clock_must_be_near_the_clock() {
    let mut group = Group::numbered(CLOCK);
    assert_eq!(group.trigger(1 << 40), [dropped(1 << 40, Dropped::Implausible)]);
    assert_eq!(group.trigger(5), [dropped(5, Dropped::Implausible)]);
    let sample = group.clock_id(100);
    assert_eq!(group.trigger(sample), [Action::Await(SampleId(sample))]);
    opens(&mut group, 0, sample);
}

#[test]
fn ids_of_another_period_are_refused_until_a_new_numbering() {
    let mut group = Group::numbered(CLOCK);
    let right = group.clock_id(100);
    opens(&mut group, 0, right);
    let other = group.clock_id(200);
    for index in 0..SLOTS as u8 {
        assert_eq!(group.summary(index, other, &SURE), []);
    }
    assert_eq!(group.leader.newest(), SampleId(right));

    let mut next = Group::new();
    next.leader.recover(replay(entries(&group.done)), &mut Vec::new());
    assert_eq!(next.summary(0, other, &SURE), [], "the journal has the numbering");
    next.leader.begin_numbering(&mut Vec::new());
    next.event(Event::Numbering(Numbering::Clock { period_ms: 200 }));
    next.all(other, &SURE);
    assert_eq!((next.leader.settled().decided, next.leader.settled().highest), (1, SampleId(other)));
}

#[test]
fn a_late_answer_of_a_triggered_sample_that_the_leader_missed_is_not_dropped() {
    let mut group = Group::numbered(Numbering::Trigger);
    group.trigger(1000);
    group.event(Event::Connected);
    assert_eq!(group.late(0, 5000, &SURE), [], "its trigger may have come while the leader was away");
    assert_eq!(group.late(1, 5000, &SURE), [], "one wrong trigger may have misled both");
    assert_eq!(group.late(1, 5001, &SURE), [], "nobody else knows this one");
    assert_eq!(
        group.late(0, 5000, &SURE),
        [Action::Open(SampleId(5000))],
        "another device knows a later one"
    );
}

#[test]
fn the_clock_difference_is_a_setting() {
    for max_ms in [1_000, 60_000] {
        let mut group = Group::numbered(Numbering::Source);
        let leader =
            std::mem::replace(&mut group.leader, Leader::new(config(), Exits { local: None, edge: None }));
        group.leader = leader.with_max_clock_difference_ms(max_ms);
        let now = group.clock_id(1);
        let (near, far) = (now + u64::from(max_ms), now + u64::from(max_ms) + 1);
        assert_eq!(group.summary(0, far, &SURE), []);
        opens(&mut group, 0, near);
    }
}

fn decided(group: &Group, sample: u64) -> &Decision {
    let mut decisions = group.done.iter().filter_map(|action| {
        let Action::Decide(decision) = action else { return None };
        Some(decision)
    });
    decisions.find(|decision| decision.sample == SampleId(sample)).expect("a decision")
}

#[test]
fn an_answer_before_its_trigger_is_held_and_counts_when_the_trigger_comes() {
    let mut group = Group::numbered(Numbering::Trigger);
    group.trigger(1000);
    assert_eq!(group.summary(0, 1001, &SURE), []);
    assert_eq!(group.summary(0, 1001, &UNSURE), [], "the first answer counts");
    group.after_ms(5);
    assert_eq!(group.trigger(1001), [Action::Await(SampleId(1001)), Action::Open(SampleId(1001))]);
    group.summary(1, 1001, &SURE);
    group.summary(2, 1001, &SURE);
    let decision = decided(&group, 1001);
    assert_eq!((decision.presence.missing_count(), decision.class.unwrap()), (0, 2));
    assert!(decision.degraded.is_empty());
    assert_eq!((group.leader.counts().implausible, group.leader.counts().duplicates), (0, 1));
}

#[test]
fn an_answer_before_its_trigger_counts_when_another_device_names_the_sample() {
    let mut group = Group::numbered(Numbering::Trigger);
    group.trigger(1000);
    assert_eq!(group.summary(0, 1003, &SURE), []);
    assert_eq!(group.summary(1, 1003, &SURE), [Action::Open(SampleId(1003))]);
    group.summary(2, 1003, &SURE);
    assert_eq!(decided(&group, 1003).presence.missing_count(), 0);
    // The sample's trigger comes last of all, and begins no new sample.
    assert_eq!(group.trigger(1003), []);
    assert_eq!(group.leader.unfinished_samples().collect::<Vec<_>>(), [1000].map(SampleId));
}

#[test]
fn one_device_cannot_have_samples_decided_before_they_exist() {
    let mut group = Group::numbered(Numbering::Trigger);
    group.trigger(1000);
    let window_ms = config().policy.window_ms;
    for round in 0..4 {
        for ahead in 1..=256 {
            assert_eq!(group.not_in_view(0, 1000 + 64 * round + ahead), []);
        }
        assert_eq!(group.after_ms(window_ms + 1), []);
    }
    assert_eq!((group.leader.settled().decided, group.leader.newest_known()), (0, SampleId(1000)));
    // This answer makes the leader refuse the answers that were held for longer than a window.
    group.not_in_view(0, 1001);
    let counts = group.leader.counts();
    assert_eq!((counts.implausible, counts.implausible_slots), (4 * 256, SlotSet::single(slot(0))));
    group.after_ms(window_ms + 1);
    // A sample with a trigger has the answers of all devices.
    group.trigger(1001);
    group.all(1001, &SURE);
    let decision = decided(&group, 1001);
    assert_eq!((decision.presence.missing_count(), decision.class.unwrap()), (0, 2));
}

#[test]
fn the_only_device_that_is_up_is_believed() {
    let mut group = Group::numbered(Numbering::Trigger);
    group.trigger(1000);
    for index in 1..SLOTS as u8 {
        group.down(index);
    }
    assert!(group.summary(0, 1001, &SURE).contains(&Action::Open(SampleId(1001))));
}

#[test]
fn answers_before_the_first_trigger_belong_to_no_sample_and_harm_none() {
    for first in [3_000_000_000, (1 << 34) + 7] {
        let mut group = Group::numbered(Numbering::Trigger);
        for index in 0..SLOTS as u8 {
            assert_eq!(group.summary(index, first, &SURE), []);
        }
        assert_eq!((group.leader.counts().implausible, group.leader.newest_known()), (3, SampleId(0)));
        group.trigger(first + 1);
        group.all(first + 1, &SURE);
        assert_eq!(decided(&group, first + 1).presence.missing_count(), 0);
    }
}
