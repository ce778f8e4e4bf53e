//! Properties for random events: every sample that was opened or triggered ends once, by its deadline.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
pub(super) enum RandomEvent {
    Summary(u8, u64, bool),
    Late(u8, u64, bool),
    GivenUp(u8, u64),
    UnderNext(u8, u64, bool),
    NotInView(u8, u64),
    Features(u8, u64),
    Gone(u8, u64),
    Up(u8),
    Down(u8),
    CloudAnswer(u64),
    CloudFailed(u64),
    Pass(u32),
    Trigger(u64),
    Numbering(Numbering),
    Connected,
    Disconnected,
    Restart,
}

pub(super) fn any_event() -> impl Strategy<Value = RandomEvent> {
    let slot = 0..SLOTS as u8;
    let sample = prop_oneof![30 => 1..12u64, 1 => Just(1 << 40), 1 => Just(u64::MAX)];
    prop_oneof![
        6 => (slot.clone(), sample.clone(), any::<bool>()).prop_map(|(s, n, sure)| RandomEvent::Summary(s, n, sure)),
        2 => (slot.clone(), sample.clone(), any::<bool>()).prop_map(|(s, n, sure)| RandomEvent::Late(s, n, sure)),
        1 => (slot.clone(), sample.clone()).prop_map(|(s, n)| RandomEvent::GivenUp(s, n)),
        2 => (slot.clone(), sample.clone(), any::<bool>()).prop_map(|(s, n, sure)| RandomEvent::UnderNext(s, n, sure)),
        2 => (slot.clone(), sample.clone()).prop_map(|(s, n)| RandomEvent::NotInView(s, n)),
        4 => (slot.clone(), sample.clone()).prop_map(|(s, n)| RandomEvent::Features(s, n)),
        1 => (slot.clone(), sample.clone()).prop_map(|(s, n)| RandomEvent::Gone(s, n)),
        1 => slot.clone().prop_map(RandomEvent::Up),
        1 => slot.prop_map(RandomEvent::Down),
        2 => sample.clone().prop_map(RandomEvent::CloudAnswer),
        1 => sample.clone().prop_map(RandomEvent::CloudFailed),
        2 => (0..80u32).prop_map(RandomEvent::Pass),
        3 => sample.prop_map(RandomEvent::Trigger),
        1 => any::<bool>().prop_map(|by_trigger| {
            RandomEvent::Numbering(if by_trigger { Numbering::Trigger } else { Numbering::Source })
        }),
        1 => Just(RandomEvent::Connected),
        1 => Just(RandomEvent::Disconnected),
        1 => Just(RandomEvent::Restart),
    ]
}

impl Group {
    pub(super) fn random_event(&mut self, event: &RandomEvent) {
        match *event {
            RandomEvent::Summary(s, n, sure) => drop(self.summary(s, n, if sure { &SURE } else { &UNSURE })),
            RandomEvent::Late(s, n, sure) => drop(self.late(s, n, if sure { &SURE } else { &UNSURE })),
            RandomEvent::GivenUp(s, n) => drop(self.given_up(s, n)),
            RandomEvent::UnderNext(s, n, sure) => {
                self.next_summary(s, n, if sure { &networks::NEXT_SURE } else { &[0.0, 0.1] });
            }
            RandomEvent::NotInView(s, n) => drop(self.not_in_view(s, n)),
            RandomEvent::Features(s, n) => drop(self.features(s, n)),
            RandomEvent::Gone(s, n) => drop(self.gone(s, n)),
            RandomEvent::Up(s) => self.up(s),
            RandomEvent::Down(s) => drop(self.down(s)),
            RandomEvent::CloudAnswer(n) => {
                self.cloud(n, &SURE);
            }
            RandomEvent::CloudFailed(n) => {
                self.cloud_fails(n, Degraded::CloudUnreachable);
            }
            RandomEvent::Pass(ms) => drop(self.after_ms(ms)),
            RandomEvent::Trigger(n) => drop(self.trigger(n)),
            RandomEvent::Numbering(numbering) => drop(self.event(Event::Numbering(numbering))),
            RandomEvent::Connected => drop(self.event(Event::Connected)),
            RandomEvent::Disconnected => drop(self.event(Event::Disconnected)),
            RandomEvent::Restart => {
                self.leader = networks::group().leader;
                self.leader.recover(replay(entries(&self.done)), &mut self.done);
            }
        }
    }

    /// Every closed sample that a compacted journal would have.
    fn journalled_closed(&self) -> BTreeSet<SampleId> {
        let mut closed = BTreeSet::new();
        for entry in self.leader.journal_entries() {
            if let Entry::ClosedRanges { ranges, .. } = entry {
                closed.extend(ranges.iter().flat_map(|(first, last)| (first.0..=last.0).map(SampleId)));
            }
        }
        closed
    }
}

proptest! {
    #[test]
    fn every_opened_or_triggered_sample_ends_once_and_by_its_deadline(events in prop::collection::vec(any_event(), 0..120)) {
        let mut group = networks::group();
        for event in &events {
            group.random_event(event);
        }
        group.event(Event::Connected);
        // Runs all timers. Their number is bounded, because every wait has an end.
        for _ in 0..10_000 {
            let Some(timer) = group.leader.next_timer() else { break };
            group.now = group.now.max(timer);
            group.event(Event::Tick);
        }
        prop_assert_eq!(group.leader.next_timer(), None);
        prop_assert_eq!(group.leader.unfinished_samples().count(), 0);

        let mut opened: BTreeSet<SampleId> = BTreeSet::new();
        let mut refused: BTreeSet<SampleId> = BTreeSet::new();
        let mut ended: BTreeMap<SampleId, u32> = BTreeMap::new();
        let (mut decided, mut dropped) = (0, 0);
        for action in &group.done {
            match action {
                Action::Open(sample) | Action::Await(sample) => _ = opened.insert(*sample),
                Action::Decide(decision) => {
                    decided += 1;
                    *ended.entry(decision.sample).or_default() += 1;
                    // A sample from a spool has a longer window in front of its deadline.
                    let window = if decision.degraded.contains(&Degraded::Late) { 2_000_000 } else { 0 };
                    prop_assert!(decision.stages.decided_us <= window + 300_000 + 80_000, "{:?}", decision.stages);
                    prop_assert!((0.0..=1.0).contains(&decision.confidence));
                }
                Action::Drop { sample, reason } => {
                    dropped += 1;
                    *ended.entry(*sample).or_default() += 1;
                    if *reason == Dropped::Implausible {
                        refused.insert(*sample);
                    }
                }
                Action::Request { .. }
                | Action::Collect { .. }
                | Action::AskCloud { .. }
                | Action::Revise(_)
                | Action::Numbering(_)
                | Action::Republish(_) => {}
            }
        }
        prop_assert!(ended.values().all(|&times| times == 1), "{:?}", ended);
        prop_assert!(opened.is_disjoint(&refused));
        let all_ended: BTreeSet<SampleId> = ended.keys().copied().collect();
        prop_assert_eq!(&(&opened | &refused), &all_ended);
        prop_assert_eq!(&group.journalled_closed(), &opened);
        for (first, last) in group.closed() {
            prop_assert!((first..=last).all(|sample| opened.contains(&SampleId(sample))));
        }
        let settled = group.leader.settled();
        prop_assert_eq!((settled.decided, settled.dropped.values().sum::<u64>()), (decided, dropped));
        // Late samples in the notice are closed samples of late messages.
        let named: BTreeSet<SampleId> = group.leader.notice().late.into_iter().collect();
        let late = |step: &RandomEvent| {
            let (RandomEvent::Late(_, sample, _) | RandomEvent::GivenUp(_, sample)) = *step else { return None };
            Some(SampleId(sample))
        };
        let late: BTreeSet<SampleId> = events.iter().filter_map(late).collect();
        prop_assert!(named.is_subset(&late));
        prop_assert!(named.iter().all(|sample| ended.contains_key(sample)));
        if let Some(&newest) = opened.last() {
            prop_assert_eq!(settled.highest, newest);
        }
    }
}
