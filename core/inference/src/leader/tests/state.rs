//! The state of a leader as JSON: another leader goes on from there with the same actions.

use proptest::prelude::*;

use super::properties::{RandomEvent, any_event};
use super::*;
use crate::leader::LeaderState;

/// One random event of any network, or a call between events.
#[derive(Clone, Debug)]
enum Step {
    Event(RandomEvent),
    /// An answer of a slot whose id is this many periods ahead of a right clock, with its age in ms.
    Clock(u8, u64, u16),
    Input(u8, u64),
    Decided(u8, u64),
    NextFeatures(u64),
    EdgeUp(u8),
    EdgeDown(u8),
    /// An edge's answer whose score of the first class is this number, which need not be finite.
    EdgeAnswer(u8, u64, f32),
    /// An unsure sample with all its features, then a time in ms that passes: the sample may then be past its deadline.
    Unsure(u64, u32),
    Cloud(u64),
    Named(u8),
    Policy(u8),
    Notice,
}

fn any_step() -> impl Strategy<Value = Step> {
    let (slot, edge, sample) = (0..SLOTS as u8, 0..2u8, 1..16u64);
    let score = prop::sample::select(vec![0.1, 20.0, f32::NAN, f32::INFINITY]);
    prop_oneof![
        30 => any_event().prop_map(Step::Event),
        2 => (slot.clone(), 0..3u64, 0..60u16).prop_map(|(s, n, age)| Step::Clock(s, n, age)),
        2 => (slot.clone(), sample.clone()).prop_map(|(s, n)| Step::Input(s, n)),
        1 => (slot.clone(), sample.clone()).prop_map(|(s, n)| Step::Decided(s, n)),
        2 => sample.clone().prop_map(Step::NextFeatures),
        1 => edge.clone().prop_map(Step::EdgeUp),
        1 => edge.clone().prop_map(Step::EdgeDown),
        4 => (edge, sample, score).prop_map(|(e, n, score)| Step::EdgeAnswer(e, n, score)),
        2 => (12..16u64, prop::sample::select(vec![0, 300])).prop_map(|(n, ms)| Step::Unsure(n, ms)),
        2 => (12..16u64).prop_map(Step::Cloud),
        1 => slot.prop_map(Step::Named),
        1 => (0..3u8).prop_map(Step::Policy),
        1 => Just(Step::Notice),
    ]
}

/// A group of two networks, of edges, of one device with an exit, or of devices without a section.
fn any_group() -> impl Strategy<Value = fn() -> Group> {
    let without_section = || Group::of(LeaderConfig { configuration: Configuration::A, ..config() });
    let groups: [fn() -> Group; 4] = [networks::group, edges::group, Group::alone, without_section];
    prop::sample::select(groups.to_vec())
}

impl Group {
    fn step(&mut self, step: &Step) {
        match *step {
            // A restart makes a leader of two networks, so a group of one network leaves the restart out.
            Step::Event(RandomEvent::Restart) if self.leader.state.networks.next.is_none() => {}
            Step::Event(ref event) => self.random_event(event),
            Step::Clock(s, ahead, age_ms) => {
                let sample = self.clock_id(100) + ahead;
                self.event(aged(s, sample, age_ms, DeviceAnswer::Summary(&SURE)));
            }
            Step::Input(s, n) => drop(self.event(answer(s, n, DeviceAnswer::Input(&[s; PACKED])))),
            Step::Decided(s, n) => {
                let decision = DeviceDecision { class: 1, confidence: 0.7, policy: config().policy_id };
                self.event(answer(s, n, DeviceAnswer::Decided(decision)));
            }
            Step::NextFeatures(n) => drop(self.next_features(n)),
            Step::EdgeUp(e) => drop(self.event(Event::EdgeUp { edge: edges::edge(e) })),
            Step::EdgeDown(e) => drop(self.event(Event::EdgeDown { edge: edges::edge(e) })),
            Step::EdgeAnswer(e, n, score) => {
                let (scores, map) = ([score, 0.0, 0.0, 0.0], [e + 1; edges::MAP]);
                let answer = edges::edge_output([0b101, 0b010][usize::from(e)], &scores, &map);
                self.event(edges::from_edge(e, n, answer));
            }
            Step::Unsure(n, ms) => {
                self.all(n, &UNSURE);
                (0..SLOTS as u8).for_each(|index| drop(self.features(index, n)));
                self.after_ms(ms);
            }
            Step::Cloud(n) => drop(self.cloud(n, &SURE)),
            Step::Named(s) => {
                drop(self.event(Event::DeviceNamed { slot: slot(s), name: format!("device {s}").into() }));
            }
            Step::Policy(id) => {
                let policy = Policy { window_ms: 40 + u32::from(id), ..config().policy };
                self.leader.set_policy(policy, PolicyId([id; 8]));
            }
            Step::Notice => {
                let notice = self.leader.notice();
                self.leader.notice_published(&notice);
            }
        }
    }

    /// Goes on from the state of another group, written and read.
    fn go_on_from(&mut self, other: &Self) {
        let written = json(other);
        let state = serde_json::from_str(&written).expect("a state that was written");
        self.leader.set_state(state).expect("a state of the same networks");
        (self.now, self.done) = (other.now, other.done.clone());
        assert_eq!(json(self), written);
    }
}

fn json(group: &Group) -> String {
    serde_json::to_string(group.leader.state()).expect("a state becomes JSON")
}

/// Values that callers read between events.
fn seen(leader: &Leader) -> impl PartialEq + std::fmt::Debug {
    let entries: Vec<Entry> = leader.journal_entries().collect();
    let waits = (leader.next_timer(), leader.deadline_ms(), leader.policy_id());
    let unanswered = Slot::first(SLOTS).map(|slot| leader.unanswered_since(Generation::Current, slot));
    let devices = (leader.slots_up(), leader.edges_up(), leader.clocks_off(), unanswered.collect::<Vec<_>>());
    let unfinished: Vec<_> = leader.unfinished_samples().collect();
    (leader.notice(), leader.counts(), entries, waits, devices, unfinished)
}

proptest! {
    #[test]
    fn a_leader_goes_on_from_the_state_of_another_with_the_same_actions(
        group in any_group(),
        numbering in prop::sample::select(vec![Numbering::Trigger, Numbering::Source, ids::CLOCK]),
        is_numbered in any::<bool>(),
        steps in prop::collection::vec(any_step(), 0..120),
        at in any::<prop::sample::Index>(),
    ) {
        let (mut first, mut second) = (group(), group());
        if is_numbered {
            first.event(Event::Numbering(numbering));
            first.trigger(1);
        }
        let (before, after) = steps.split_at(at.index(steps.len() + 1));
        before.iter().for_each(|step| first.step(step));
        second.go_on_from(&first);
        prop_assert_eq!(seen(&first.leader), seen(&second.leader));
        // At the end the connection is there, so that all timers run.
        let end = [Step::Event(RandomEvent::Connected), Step::Event(RandomEvent::Pass(20_000))];
        for step in after.iter().chain(&end) {
            let done = first.done.len();
            first.step(step);
            second.step(step);
            prop_assert_eq!(&first.done[done..], second.done.get(done..).unwrap_or_default(), "{:?}", step);
        }
        prop_assert_eq!(seen(&first.leader), seen(&second.leader));
    }
}

#[test]
fn a_state_of_another_format_or_without_all_slots_is_refused() {
    let written = json(&Group::new());
    for (from, to, sentence) in [
        (r#""format":1"#, r#""format":2"#, "expected schema 1, found schema 2: use programs of one release"),
        (
            r#""missed_windows":[0,"#,
            r#""missed_windows":["#,
            "invalid length 63, expected a value for each of 64 slots",
        ),
    ] {
        assert!(written.contains(from), "{written}");
        let error = serde_json::from_str::<LeaderState>(&written.replacen(from, to, 1)).err();
        let text = error.expect("a refusal").to_string();
        assert!(text.starts_with(sentence), "{text}");
    }
}

/// Checks that a leader of this configuration refuses the state of a group, and stays as it was.
#[track_caller]
fn refused(group: &Group, config: LeaderConfig, sentence: &str) {
    let mut other = Group::of(config);
    let before = json(&other);
    let state = serde_json::from_str(&json(group)).expect("a state that was written");
    let text = other.leader.set_state(state).expect_err(sentence).to_string();
    assert_eq!(text, format!("state of a leader: {sentence}"));
    assert_eq!(json(&other), before);
}

#[test]
fn a_state_of_other_networks_is_refused() {
    let [ours, theirs] = [[3; 32], [5; 32]].map(NetworkId);
    let other = LeaderConfig { network: theirs, ..config() };
    refused(&Group::new(), other, &format!("networks: expected {theirs}, found {ours}"));
    let sentence = format!("networks: expected {ours}, found {ours} and {theirs}");
    refused(&networks::group(), config(), &sentence);
}

#[test]
fn samples_of_other_slots_or_classes_are_refused() {
    let sentence = "sample 7: expected values for the slots and classes of its network, found others";
    let mut open = Group::new();
    open.summary(0, 7, &SURE);
    let mut revisable = Group::new();
    revisable.ask_cloud(7);
    revisable.after_ms(300);
    let mut early = Group::new();
    early.event(Event::Numbering(Numbering::Trigger));
    early.trigger(1);
    assert_eq!(early.summary(2, 7, &SURE), []);
    for group in [open, revisable, early] {
        refused(&group, LeaderConfig { slots: 2, ..config() }, sentence);
    }
    let mut early = Group::of(LeaderConfig { configuration: Configuration::A, ..config() });
    early.event(Event::Numbering(Numbering::Trigger));
    early.trigger(1);
    assert_eq!(early.features(2, 7), []);
    let packed_bytes = PACKED + 1;
    refused(&early, LeaderConfig { configuration: Configuration::A, packed_bytes, ..config() }, sentence);
}
