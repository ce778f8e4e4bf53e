//! Every sample that was opened or triggered ends in one decision or one drop.

use super::super::journal::Recovered;
use super::*;

/// Time that devices have to answer an awaited sample, ms: `late_ms` and ten seconds.
const SEND_AGAIN_MS: u32 = 12_000;

impl Group {
    /// A leader that continues from the journal of this one, with every device up.
    pub(super) fn restarted(&self) -> Self {
        let mut next = Self::new();
        next.recover(replay(entries(&self.done)));
        next
    }

    fn recover(&mut self, journal: Recovered) {
        self.leader.recover(journal, &mut self.done);
    }

    pub(super) fn dropped(&self, reason: Dropped) -> u64 {
        self.leader.settled().dropped.get(&reason).copied().unwrap_or(0)
    }

    pub(super) fn closed(&self) -> Vec<(u64, u64)> {
        let closed = self.leader.notice().closed;
        closed.into_iter().map(|(first, last)| (first.0, last.0)).collect()
    }
}

pub(super) fn dropped(sample: u64, reason: Dropped) -> Action {
    Action::Drop { sample: SampleId(sample), reason }
}

#[test]
fn a_restarted_leader_decides_open_samples_that_devices_still_hold() {
    let mut group = Group::new();
    group.summary(0, 7, &SURE);
    group.summary(0, 8, &SURE);
    let mut next = group.restarted();
    assert_eq!((next.leader.awaited_samples(), next.dropped(Dropped::Restart)), (2, 0));
    assert!(next.closed().is_empty(), "an awaited sample is not closed");
    assert_eq!(next.late(0, 7, &SURE), [Action::Open(SampleId(7))]);
    next.late(1, 7, &SURE);
    assert_eq!(decision(&next.late(2, 7, &SURE)).sample, SampleId(7));
    assert_eq!((next.leader.awaited_samples(), next.closed()), (1, vec![(7, 7)]));
    assert_eq!(next.after_ms(SEND_AGAIN_MS), [dropped(8, Dropped::Restart)]);
    assert_eq!((next.leader.settled().decided, next.closed()), (1, vec![(7, 8)]));
}

#[test]
fn a_decision_whose_result_the_broker_refused_is_a_drop_in_the_account() {
    let mut group = Group::new();
    group.all(7, &SURE);
    group.all(8, &SURE);
    let actions = group.event(Event::ResultRefused { sample: SampleId(7) });
    assert_eq!(actions, [dropped(7, Dropped::ResultRefused)]);
    assert_eq!((group.leader.settled().decided, group.dropped(Dropped::ResultRefused)), (1, 1));
    assert_eq!(group.closed(), [(7, 8)], "devices free it");
    let next = group.restarted();
    assert_eq!(next.leader.settled(), group.leader.settled());
    let republished = next.done.iter().filter(|action| matches!(action, Action::Republish(_)));
    assert_eq!(republished.count(), 1, "the refused one is not sent again");
}

#[test]
fn a_sample_that_no_device_sends_again_after_a_restart_is_dropped_when_their_time_is_over() {
    let mut group = Group::new();
    group.summary(0, 7, &SURE);
    let mut next = group.restarted();
    // The time counts from the connection, because no device can send before.
    next.after_ms(5_000);
    next.event(Event::Connected);
    assert_eq!(next.after_ms(SEND_AGAIN_MS - 1), []);
    assert_eq!(next.after_ms(1), [dropped(7, Dropped::Restart)]);
    assert_eq!(next.leader.next_timer(), None);
    assert_eq!(next.late(0, 7, &SURE), [], "it came to its end");
    assert_eq!(next.leader.notice().late, [SampleId(7)], "its device frees it");
}

#[test]
fn a_restart_without_a_connection_drops_nothing() {
    let mut group = Group::new();
    group.trigger(6);
    group.summary(0, 7, &SURE);
    let mut next = group.restarted();
    next.event(Event::Disconnected);
    assert_eq!(next.after_ms(10 * SEND_AGAIN_MS), []);
    next.event(Event::Connected);
    assert_eq!(next.after_ms(SEND_AGAIN_MS - 1), []);
    assert_eq!(next.after_ms(1), [dropped(6, Dropped::Restart), dropped(7, Dropped::Restart)]);
}

#[test]
fn a_trigger_that_no_device_answers_is_dropped_as_unanswered() {
    let mut group = Group::new();
    assert_eq!(group.trigger(5), [Action::Await(SampleId(5))]);
    assert_eq!(group.trigger(5), [], "once");
    assert_eq!(group.after_ms(SEND_AGAIN_MS - 1), []);
    assert_eq!(group.after_ms(1), [dropped(5, Dropped::Unanswered)]);
    assert_eq!((group.leader.settled().highest, group.closed()), (SampleId(5), vec![(5, 5)]));
    assert_eq!((group.trigger(5), group.leader.next_timer()), (vec![], None));
}

#[test]
fn a_triggered_sample_that_a_device_answers_is_decided_and_not_dropped() {
    let mut group = Group::new();
    group.trigger(5);
    group.after_ms(SEND_AGAIN_MS - 1);
    assert_eq!(group.summary(0, 5, &SURE), [Action::Open(SampleId(5))]);
    assert_eq!(decision(&group.after_ms(50)).sample, SampleId(5));
    assert_eq!((group.dropped(Dropped::Unanswered), group.leader.awaited_samples()), (0, 0));
    assert_eq!(group.trigger(5), [], "a trigger after the answers changes nothing");
    group.summary(0, 6, &SURE);
    assert_eq!(group.trigger(6), []);
}

#[test]
fn triggered_samples_are_awaited_while_the_broker_is_away() {
    let mut group = Group::new();
    group.trigger(5);
    group.event(Event::Disconnected);
    assert_eq!(group.after_ms(10 * SEND_AGAIN_MS), []);
    group.event(Event::Connected);
    assert_eq!(group.after_ms(SEND_AGAIN_MS - 1), []);
    assert_eq!(group.late(0, 5, &SURE), [Action::Open(SampleId(5))]);
}

#[test]
fn samples_that_were_shed_are_closed_and_counted() {
    let mut group = Group::new();
    for sample in 1..=10 {
        group.summary(0, sample, &SURE);
    }
    assert_eq!((group.dropped(Dropped::Shed), group.closed()), (6, vec![(1, 6)]));
    assert_eq!(group.summary(1, 1, &SURE), []);
    group.after_ms(50);
    assert_eq!((group.leader.settled().decided, group.closed()), (4, vec![(1, 10)]));
}

#[test]
fn late_samples_below_the_forgotten_ranges_are_dropped_as_too_old() {
    let mut group = Group::new();
    // Every second sample is decided: 70,000 ranges, of which the lowest are forgotten.
    for range in 1..=70_000 {
        group.all(2 * range, &SURE);
    }
    let floor = 2 * (70_000 - 65_536);
    for sample in [floor, floor - 1] {
        assert_eq!(group.summary(0, sample, &SURE), [], "in time: its device sends it again, late");
        assert_eq!(group.late(0, sample, &SURE), [dropped(sample, Dropped::TooOld)]);
        assert_eq!(group.late(1, sample, &SURE), [], "once");
    }
    assert_eq!(group.leader.notice().late, [floor - 1, floor].map(SampleId));
    assert_eq!(
        group.trigger(floor - 3),
        [dropped(floor - 3, Dropped::Implausible)],
        "far below the newest id"
    );
    assert_eq!(group.late(0, floor + 1, &SURE), [Action::Open(SampleId(floor + 1))]);
    assert_eq!(group.dropped(Dropped::TooOld), 2);
    // A leader that restarts from the journal knows which samples are too old.
    let mut next = Group::new();
    let account = Entry::Settled(group.leader.settled().clone());
    next.recover(replay([account].into_iter().chain(group.leader.journal_entries())));
    assert_eq!(next.late(0, floor - 5, &SURE), [dropped(floor - 5, Dropped::TooOld)]);
    assert_eq!((next.late(0, floor + 2, &SURE), next.dropped(Dropped::TooOld)), (vec![], 3));
}

#[test]
fn a_new_numbering_forgets_ids_and_keeps_counts_over_restarts() {
    let mut group = Group::new();
    group.event(Event::Numbering(Numbering::Clock { period_ms: 100 }));
    group.event(Event::Numbering(Numbering::Trigger));
    assert_eq!(group.leader.numbering(), Some(Numbering::Clock { period_ms: 100 }), "the first one counts");
    let near = (WALL_MS + 1000) / 100;
    group.all(near, &SURE);
    group.after_ms(100);
    group.summary(0, near + 1, &SURE);

    let mut next = group.restarted();
    assert_eq!(next.leader.numbering(), Some(Numbering::Clock { period_ms: 100 }));
    let mut actions = Vec::new();
    next.leader.begin_numbering(&mut actions);
    assert_eq!(actions, [dropped(near + 1, Dropped::Restart), Action::Numbering(None)]);
    let account = next.leader.settled();
    assert_eq!((account.highest, account.decided, next.leader.newest_known()), (SampleId(0), 1, SampleId(0)));
    assert_eq!((next.closed(), next.leader.numbering()), (vec![], None));
    next.event(Event::Numbering(Numbering::Trigger));
    next.trigger(3);

    let written: Vec<_> = group.done.iter().cloned().chain(actions).chain(next.done).collect();
    let mut last = Group::new();
    last.recover(replay(entries(&written)));
    assert_eq!(
        (last.leader.numbering(), last.leader.newest_known()),
        (Some(Numbering::Trigger), SampleId(3))
    );
    assert_eq!((last.leader.settled().decided, last.dropped(Dropped::Restart)), (1, 1));
    assert_eq!(last.leader.unfinished_samples().collect::<Vec<_>>(), [SampleId(3)]);
}
