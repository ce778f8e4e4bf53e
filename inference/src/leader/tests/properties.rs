//! Properties for random events: every sample that was opened ends once, by its deadline.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// One random event.
#[derive(Clone, Debug)]
enum RandomEvent {
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
}

fn any_event() -> impl Strategy<Value = RandomEvent> {
    let slot = 0..SLOTS as u8;
    let sample = 1..12u64;
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
        1 => sample.prop_map(RandomEvent::CloudFailed),
        2 => (0..80u32).prop_map(RandomEvent::Pass),
    ]
}

impl Group {
    fn random_event(&mut self, event: &RandomEvent) {
        match *event {
            RandomEvent::Summary(s, n, sure) => drop(self.summary(s, n, if sure { &SURE } else { &UNSURE })),
            RandomEvent::Late(s, n, sure) => drop(self.late(s, n, if sure { &SURE } else { &UNSURE })),
            RandomEvent::GivenUp(s, n) => drop(self.given_up(s, n)),
            RandomEvent::UnderNext(s, n, sure) => {
                self.next_summary(s, n, if sure { &networks::NEXT_SURE } else { &[0.0, 0.1] });
            }
            RandomEvent::NotInView(s, n) => drop(self.not_in_view(s, n)),
            RandomEvent::Features(s, n) => drop(self.features(s, n)),
            RandomEvent::Gone(s, n) => drop(self.event(Event::Gone { slot: slot(s), sample: SampleId(n) })),
            RandomEvent::Up(s) => drop(self.event(Event::DeviceUp { slot: slot(s) })),
            RandomEvent::Down(s) => drop(self.event(Event::DeviceDown { slot: slot(s) })),
            RandomEvent::CloudAnswer(n) => {
                self.event(Event::CloudAnswer { sample: SampleId(n), logits: &SURE });
            }
            RandomEvent::CloudFailed(n) => {
                self.event(Event::CloudFailed { sample: SampleId(n), reason: Degraded::CloudUnreachable });
            }
            RandomEvent::Pass(ms) => drop(self.after_ms(ms)),
        }
    }
}

proptest! {
    #[test]
    fn every_opened_sample_ends_once_and_by_its_deadline(events in prop::collection::vec(any_event(), 0..120)) {
        let mut group = networks::group();
        for event in &events {
            group.random_event(event);
        }
        // Runs all timers. Each must end a stage, so their number is bounded.
        for _ in 0..10_000 {
            let Some(timer) = group.leader.next_timer() else { break };
            group.now = group.now.max(timer);
            group.event(Event::Tick);
        }
        prop_assert_eq!(group.leader.next_timer(), None);
        prop_assert_eq!(group.leader.open_samples().len(), 0);

        let mut opened: BTreeMap<SampleId, u32> = BTreeMap::new();
        let mut ended: BTreeMap<SampleId, u32> = BTreeMap::new();
        let (mut decided, mut dropped) = (0, 0);
        for action in &group.done {
            match action {
                Action::Open(sample) => *opened.entry(*sample).or_default() += 1,
                Action::Decide(decision) => {
                    decided += 1;
                    *ended.entry(decision.sample).or_default() += 1;
                    // A sample from a spool has a longer window in front of its deadline.
                    let window = if decision.degraded.contains(&Degraded::Late) { 2_000_000 } else { 0 };
                    prop_assert!(decision.stages.decided_us <= window + 300_000 + 80_000, "{:?}", decision.stages);
                    prop_assert!((0.0..=1.0).contains(&decision.confidence));
                }
                Action::Drop { sample, .. } => {
                    dropped += 1;
                    *ended.entry(*sample).or_default() += 1;
                }
                Action::Request { .. }
                | Action::Collect { .. }
                | Action::AskCloud { .. }
                | Action::Revise(_)
                | Action::Republish(_) => {}
            }
        }
        prop_assert!(opened.values().all(|&times| times == 1), "{:?}", opened);
        prop_assert_eq!(&opened, &ended);
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
        if let Some((&newest, _)) = opened.last_key_value() {
            prop_assert_eq!(settled.highest, newest);
        }
    }
}
