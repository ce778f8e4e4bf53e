//! Properties for random events: every sample that was opened ends once, by its deadline.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// One random event.
#[derive(Clone, Debug)]
enum Step {
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

fn any_step() -> impl Strategy<Value = Step> {
    let slot = 0..SLOTS as u8;
    let sample = 1..12u64;
    prop_oneof![
        6 => (slot.clone(), sample.clone(), any::<bool>()).prop_map(|(s, n, sure)| Step::Summary(s, n, sure)),
        2 => (slot.clone(), sample.clone(), any::<bool>()).prop_map(|(s, n, sure)| Step::Late(s, n, sure)),
        1 => (slot.clone(), sample.clone()).prop_map(|(s, n)| Step::GivenUp(s, n)),
        2 => (slot.clone(), sample.clone(), any::<bool>()).prop_map(|(s, n, sure)| Step::UnderNext(s, n, sure)),
        2 => (slot.clone(), sample.clone()).prop_map(|(s, n)| Step::NotInView(s, n)),
        4 => (slot.clone(), sample.clone()).prop_map(|(s, n)| Step::Features(s, n)),
        1 => (slot.clone(), sample.clone()).prop_map(|(s, n)| Step::Gone(s, n)),
        1 => slot.clone().prop_map(Step::Up),
        1 => slot.prop_map(Step::Down),
        2 => sample.clone().prop_map(Step::CloudAnswer),
        1 => sample.prop_map(Step::CloudFailed),
        2 => (0..80u32).prop_map(Step::Pass),
    ]
}

impl Group {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Summary(s, n, sure) => drop(self.summary(s, n, if sure { &SURE } else { &UNSURE })),
            Step::Late(s, n, sure) => drop(self.late(s, n, if sure { &SURE } else { &UNSURE })),
            Step::GivenUp(s, n) => drop(self.given_up(s, n)),
            Step::UnderNext(s, n, sure) => {
                self.next_summary(s, n, if sure { &networks::NEXT_SURE } else { &[0.0, 0.1] });
            }
            Step::NotInView(s, n) => drop(self.not_in_view(s, n)),
            Step::Features(s, n) => drop(self.features(s, n)),
            Step::Gone(s, n) => drop(self.event(Event::Gone { slot: slot(s), sample: SampleId(n) })),
            Step::Up(s) => drop(self.event(Event::DeviceUp { slot: slot(s) })),
            Step::Down(s) => drop(self.event(Event::DeviceDown { slot: slot(s) })),
            Step::CloudAnswer(n) => {
                self.event(Event::CloudAnswer { sample: SampleId(n), logits: &SURE });
            }
            Step::CloudFailed(n) => {
                self.event(Event::CloudFailed { sample: SampleId(n), reason: Degraded::CloudUnreachable });
            }
            Step::Pass(ms) => drop(self.after_ms(ms)),
        }
    }
}

proptest! {
    #[test]
    fn every_opened_sample_ends_once_and_by_its_deadline(steps in prop::collection::vec(any_step(), 0..120)) {
        let mut group = networks::group();
        for step in &steps {
            group.step(step);
        }
        // Timers must end: their number is bounded.
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
        let late = |step: &Step| {
            let (Step::Late(_, sample, _) | Step::GivenUp(_, sample)) = *step else { return None };
            Some(SampleId(sample))
        };
        let late: BTreeSet<SampleId> = steps.iter().filter_map(late).collect();
        prop_assert!(named.is_subset(&late));
        prop_assert!(named.iter().all(|sample| ended.contains_key(sample)));
        if let Some((&newest, _)) = opened.last_key_value() {
            prop_assert_eq!(settled.highest, newest);
        }
    }
}
