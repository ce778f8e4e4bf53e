//! Tests of the state machine.

use headwater_protocol::{
    Decision, Degraded, DeviceDecision, Dropped, Exit, NetworkId, Numbering, PolicyId, SampleId,
    SettledNotice, Slot, SlotPresence, SlotSet, Undecided,
};

use super::journal::{Entry, replay};
use super::{
    Action, Counts, DeviceAnswer, EdgeAnswer, Event, Exits, Generation, Implausible, Leader, LeaderConfig,
    Micros, Now,
};
use crate::manifest::{Aggregation, Configuration};
use crate::policy::{ExitPolicy, ExitThreshold, NoAnswer, Policy, Threshold};
use crate::sections::ScoresExit;

mod account;
mod bounds;
mod edges;
mod ids;
mod late;
mod learned;
mod networks;
mod policies;
mod properties;
mod results;
mod stages;
mod state;
mod views;

const SLOTS: usize = 3;
const CLASSES: usize = 4;
const PACKED: usize = 2;
/// Wall clock at the leader's start, ms since 1970: 1 July 2026.
const WALL_MS: u64 = 1_782_864_000_000;
/// Scores with which the exit `local` is sure of class 2; with `UNSURE` the exit is unsure.
const SURE: [f32; CLASSES] = [0.0, 0.0, 20.0, 0.0];
const UNSURE: [f32; CLASSES] = [0.0, 0.1, 0.0, 0.0];

pub(super) fn config() -> LeaderConfig {
    let local = ExitPolicy {
        threshold: Threshold::One(ExitThreshold::new(0.5).expect("in range")),
        ..ExitPolicy::default()
    };
    LeaderConfig {
        network: NetworkId([3; 32]),
        policy_id: PolicyId([4; 8]),
        policy: Policy::default().with(Exit::LOCAL, local),
        labels: (0..CLASSES).map(|class| format!("class {class}")).collect(),
        class_prior: vec![0.1, 0.2, 0.3, 0.4],
        slots: SLOTS,
        configuration: Configuration::C,
        edges: Vec::new(),
        score_bytes: 16,
        packed_bytes: PACKED,
        cloud_map_bytes: PACKED,
        max_open_samples: 4,
    }
}

/// A leader with a clock, and all its actions so far.
struct Group {
    leader: Leader,
    now: Micros,
    done: Vec<Action>,
}

/// A time at which the wall clock has advanced as much as the leader's time since start.
fn at(since_start: Micros) -> Now {
    Now { since_start, wall_ms: WALL_MS + since_start.0 / 1000 }
}

fn slot(index: u8) -> Slot {
    Slot::new(index).expect("below 64")
}

/// A device's answer in time, with its age at sending.
fn aged(index: u8, sample: u64, age_ms: u16, answer: DeviceAnswer<'_>) -> Event<'_> {
    let (slot, sample) = (slot(index), SampleId(sample));
    Event::DeviceAnswer { slot, sample, age_ms, late: false, answer, frame: None }
}

/// A device's answer in time, sent at once.
fn answer(index: u8, sample: u64, answer: DeviceAnswer<'_>) -> Event<'_> {
    aged(index, sample, 0, answer)
}

fn late(index: u8, sample: u64, answer: DeviceAnswer<'_>) -> Event<'_> {
    let (slot, sample) = (slot(index), SampleId(sample));
    Event::DeviceAnswer { slot, sample, age_ms: 60_000, late: true, answer, frame: None }
}

fn request(sample: u64, slots: u64) -> Action {
    let (sample, slots) = (SampleId(sample), SlotSet::from_bits(slots));
    Action::Request { generation: Generation::Current, sample, slots }
}

impl Group {
    fn new() -> Self {
        Self::of(config())
    }

    /// A group of this configuration with every device up; the exits of the group are means.
    fn of(config: LeaderConfig) -> Self {
        let mean = |exit, sources| {
            let exit =
                config.configuration.has(exit).then(|| ScoresExit::masked(Aggregation::Ap, sources, CLASSES));
            exit.map(|exit| exit.expect("a masked mean needs no section"))
        };
        let exits =
            Exits { local: mean(Exit::LOCAL, config.slots), edge: mean(Exit::EDGE, config.edges.len()) };
        let slots = config.slots;
        let leader = Leader::new(config, exits);
        let mut group = Self { leader, now: Micros::from_ms(1000), done: Vec::new() };
        (0..slots as u8).for_each(|index| group.up(index));
        group
    }

    /// A device that has an exit of its own and is alone (configuration b).
    fn alone() -> Self {
        Self::of(LeaderConfig { configuration: Configuration::B, slots: 1, ..config() })
    }

    /// Hands the leader an event under this network; returns the refusal, `None` if the event is taken, and the actions.
    fn under(&mut self, generation: Generation, event: Event<'_>) -> (Option<Implausible>, Vec<Action>) {
        let mut actions = Vec::new();
        let refusal = self.leader.handle(at(self.now), generation, event, &mut actions);
        self.done.extend(actions.iter().cloned());
        (refusal, actions)
    }

    fn event(&mut self, event: Event<'_>) -> Vec<Action> {
        self.under(Generation::Current, event).1
    }

    /// Hands the leader an event that it must refuse; returns the reason and the actions.
    #[track_caller]
    fn refused(&mut self, event: Event<'_>) -> (String, Vec<Action>) {
        let (refusal, actions) = self.under(Generation::Current, event);
        (refusal.expect("a refusal").to_string(), actions)
    }

    fn up(&mut self, index: u8) {
        self.event(Event::DeviceUp { slot: slot(index) });
    }

    fn down(&mut self, index: u8) -> Vec<Action> {
        self.event(Event::DeviceDown { slot: slot(index) })
    }

    fn trigger(&mut self, sample: u64) -> Vec<Action> {
        self.event(Event::Trigger { sample: SampleId(sample) })
    }

    fn summary(&mut self, index: u8, sample: u64, scores: &[f32]) -> Vec<Action> {
        self.event(answer(index, sample, DeviceAnswer::Summary(scores)))
    }

    /// Sends the same scores from every device; returns the actions after the last device.
    fn all(&mut self, sample: u64, scores: &[f32]) -> Vec<Action> {
        (0..SLOTS as u8).map(|index| self.summary(index, sample, scores)).last().expect("there are slots")
    }

    fn not_in_view(&mut self, index: u8, sample: u64) -> Vec<Action> {
        self.event(answer(index, sample, DeviceAnswer::NotInView))
    }

    fn late(&mut self, index: u8, sample: u64, scores: &[f32]) -> Vec<Action> {
        self.event(late(index, sample, DeviceAnswer::Summary(scores)))
    }

    fn features(&mut self, index: u8, sample: u64) -> Vec<Action> {
        let (slot, sample, bits) = (slot(index), SampleId(sample), &[index + 1; PACKED]);
        self.event(Event::Features { slot, sample, late: false, bits, body_bytes: PACKED as u64 })
    }

    fn gone(&mut self, index: u8, sample: u64) -> Vec<Action> {
        self.event(Event::Gone { slot: slot(index), sample: SampleId(sample) })
    }

    fn cloud(&mut self, sample: u64, logits: &[f32]) -> Vec<Action> {
        self.event(Event::CloudAnswer { sample: SampleId(sample), logits })
    }

    fn cloud_fails(&mut self, sample: u64, reason: Degraded) -> Vec<Action> {
        self.event(Event::CloudFailed { sample: SampleId(sample), reason })
    }

    fn after_ms(&mut self, ms: u32) -> Vec<Action> {
        self.now = self.now.plus_ms(ms);
        self.event(Event::Tick)
    }

    /// Sends unsure scores and features of a sample, so that the leader asks the cloud.
    fn ask_cloud(&mut self, sample: u64) {
        self.all(sample, &UNSURE);
        for index in 0..SLOTS as u8 {
            self.features(index, sample);
        }
        assert!(matches!(self.done.last(), Some(Action::AskCloud { .. })), "{:?}", self.done.last());
    }
}

impl Leader {
    /// The newest sample that was opened or triggered.
    fn newest_known(&self) -> SampleId {
        self.newest().max(self.state.plausible_ids.believed.newest().unwrap_or_default())
    }
}

#[track_caller]
fn decision(actions: &[Action]) -> Decision {
    let mut decisions = actions.iter().filter_map(|action| {
        let Action::Decide(decision) = action else { return None };
        Some(decision)
    });
    let decision = decisions.next().expect("a decision");
    assert_eq!(decisions.next(), None, "one decision");
    decision.clone()
}

fn entries(actions: &[Action]) -> Vec<Entry> {
    let mut entries = Vec::new();
    for action in actions {
        entries.push(match action {
            Action::Open(sample) | Action::Await(sample) => Entry::Opened(*sample),
            Action::Decide(decision) => Entry::Decided(decision.clone()),
            Action::Drop { sample, reason } => Entry::Dropped { sample: *sample, reason: *reason },
            Action::Numbering(numbering) => Entry::Numbering(*numbering),
            Action::Request { .. }
            | Action::Collect { .. }
            | Action::AskCloud { .. }
            | Action::Revise(_)
            | Action::Republish(_) => continue,
        });
    }
    entries
}

#[test]
fn a_sure_sample_leaves_when_the_last_device_has_answered() {
    let mut group = Group::new();
    assert_eq!(group.summary(0, 7, &SURE), [Action::Open(SampleId(7))]);
    assert_eq!(group.summary(1, 7, &SURE), []);
    let decision = decision(&group.summary(2, 7, &SURE));
    assert_eq!((decision.sample, decision.exit, decision.class.unwrap()), (SampleId(7), Exit::LOCAL, 2));
    assert_eq!(decision.label.as_deref().unwrap(), "class 2");
    assert!(decision.degraded.is_empty() && decision.confidence > 0.5);
    assert_eq!(decision.bytes.device_edge, 3 * 16);
    assert_eq!(group.leader.settled().highest, SampleId(7));
}

#[test]
fn an_unsure_sample_asks_for_features_and_then_the_cloud() {
    let mut group = Group::new();
    group.summary(0, 1, &UNSURE);
    group.not_in_view(1, 1);
    let actions = group.summary(2, 1, &UNSURE);
    assert_eq!(actions, [request(1, 0b101)]);
    assert_eq!(group.features(0, 1), []);
    let actions = group.features(2, 1);
    let expected = Action::AskCloud {
        generation: Generation::Current,
        sample: SampleId(1),
        features: vec![1, 1, 0, 0, 3, 3],
        presence: vec![true, false, true],
        deadline_ms: 300,
    };
    assert_eq!(actions, [expected]);
    let decision = decision(&group.cloud(1, &SURE));
    assert_eq!((decision.exit, decision.class.unwrap()), (Exit::CLOUD, 2));
    assert_eq!(decision.presence.get(slot(1)), SlotPresence::NotInView);
    assert_eq!(decision.bytes.device_edge, 2 * 16 + 2 * 2);
}

#[test]
fn a_silent_device_is_missing_when_the_window_ends() {
    let mut group = Group::new();
    group.summary(0, 1, &SURE);
    assert_eq!(group.after_ms(49), []);
    let decision = decision(&group.after_ms(1));
    assert_eq!((decision.presence.present_count(), decision.presence.missing_count()), (1, 2));
    assert_eq!(group.leader.counts().missing, 2);
}

#[test]
fn a_device_that_goes_down_is_not_waited_for() {
    let mut group = Group::new();
    group.summary(0, 1, &SURE);
    group.summary(1, 1, &SURE);
    assert_eq!(decision(&group.down(2)).presence.missing_count(), 1);
    group.summary(0, 2, &SURE);
    assert_eq!(decision(&group.summary(1, 2, &SURE)).presence.missing_count(), 1);
}

#[test]
fn a_device_that_goes_down_owes_no_features() {
    let mut group = Group::new();
    group.all(1, &UNSURE);
    group.features(0, 1);
    group.features(1, 1);
    let actions = group.down(2);
    assert!(matches!(&actions[..], [Action::AskCloud { presence, .. }] if *presence == [true, true, false]));
    let actions = group.cloud(1, &SURE);
    assert_eq!(decision(&actions).degraded, [Degraded::FeaturesMissing]);
    assert_eq!(decision(&actions).presence.get(slot(2)), SlotPresence::Missing);
}

#[test]
fn no_view_at_all_is_undecided_unless_the_policy_has_the_prior_answer() {
    for (no_answer, class) in [(NoAnswer::Undecided, None), (NoAnswer::ClassPrior, Some(3))] {
        let mut group = Group::new();
        group.leader.set_policy(Policy { no_answer, ..config().policy }, PolicyId([no_answer as u8; 8]));
        group.not_in_view(0, 1);
        group.not_in_view(1, 1);
        let found = decision(&group.not_in_view(2, 1));
        assert_eq!((found.class, found.label.is_some(), found.confidence), (class, class.is_some(), 0.0));
        assert_eq!(found.undecided, class.is_none().then_some(Undecided::NoView));
        assert_eq!((found.exit, &found.degraded[..]), (Exit::LOCAL, &[Degraded::NoView][..]));
    }
}

#[test]
fn features_that_never_come_leave_the_local_answer() {
    let mut group = Group::new();
    group.all(1, &UNSURE);
    assert_eq!(group.after_ms(49), []);
    let actions = group.after_ms(1);
    assert_eq!(decision(&actions).degraded, [Degraded::FeaturesMissing]);
    assert_eq!((decision(&actions).exit, decision(&actions).class.unwrap()), (Exit::LOCAL, 1));
}

#[test]
fn a_failing_cloud_leaves_the_local_answer_with_its_reason() {
    for reason in [Degraded::CloudRefused, Degraded::CloudUnreachable, Degraded::CloudBreakerOpen] {
        let mut group = Group::new();
        group.ask_cloud(1);
        let actions = group.cloud_fails(1, reason);
        assert_eq!(decision(&actions).degraded, [reason]);
        assert_eq!(decision(&actions).exit, Exit::LOCAL);
    }
}

#[test]
fn a_sample_is_decided_at_the_deadline_when_the_cloud_is_silent_and_revised_by_its_late_answer() {
    let mut group = Group::new();
    group.ask_cloud(1);
    assert_eq!(group.after_ms(299), []);
    assert_eq!(decision(&group.after_ms(1)).degraded, [Degraded::CloudTimeout]);
    let actions = group.cloud(1, &SURE);
    assert!(matches!(&actions[..], [Action::Revise(d)] if d.class.unwrap() == 2 && d.exit == Exit::CLOUD));
    assert_eq!(group.cloud(1, &SURE), []);
}

#[test]
fn duplicates_and_messages_after_the_decision_are_counted_and_change_nothing() {
    let mut group = Group::new();
    group.summary(0, 1, &SURE);
    assert_eq!(group.summary(0, 1, &UNSURE), []);
    group.summary(1, 1, &SURE);
    group.summary(2, 1, &SURE);
    assert_eq!(group.summary(2, 1, &SURE), []);
    assert_eq!(group.features(0, 1), []);
    let counts = group.leader.counts();
    assert_eq!((counts.duplicates, counts.after_close, counts.unawaited), (1, 1, 1));
}

#[test]
fn a_vector_of_another_length_is_refused() {
    let mut group = Group::new();
    assert_eq!(group.summary(0, 1, &[1.0]), []);
    assert_eq!(group.summary(9, 1, &SURE), []);
    group.ask_cloud(2);
    assert_eq!(decision(&group.cloud(2, &[1.0])).degraded, [Degraded::CloudRefused]);
    assert_eq!(group.leader.counts().misfits, 3);
}

#[test]
fn the_oldest_sample_is_shed_when_too_many_are_open() {
    let mut group = Group::new();
    for sample in 1..=4 {
        group.summary(0, sample, &SURE);
    }
    let actions = group.summary(0, 5, &SURE);
    let shed = Action::Drop { sample: SampleId(1), reason: Dropped::Shed };
    assert_eq!(actions, [shed, Action::Open(SampleId(5))]);
    assert_eq!(group.leader.settled().dropped[&Dropped::Shed], 1);
}

#[test]
fn settled_stops_below_the_oldest_open_sample() {
    let mut group = Group::new();
    group.summary(0, 1, &SURE);
    group.all(2, &SURE);
    assert_eq!(group.leader.settled().highest, SampleId(0));
    group.after_ms(50);
    assert_eq!((group.leader.settled().highest, group.leader.settled().decided), (SampleId(2), 2));
}

#[test]
fn a_sample_older_than_its_deadline_is_decided_at_once_and_marked_late() {
    let mut group = Group::new();
    let actions = group.event(aged(0, 1, 9000, DeviceAnswer::Summary(&SURE)));
    assert_eq!(actions, [Action::Open(SampleId(1))]);
    assert_eq!(decision(&group.after_ms(50)).degraded, [Degraded::DeviceMissing, Degraded::Late]);
}

#[test]
fn a_restart_publishes_decisions_again_and_awaits_open_samples() {
    let mut group = Group::new();
    group.all(1, &SURE);
    group.summary(0, 2, &SURE);
    let mut next = Group::new();
    let mut actions = Vec::new();
    next.leader.recover(replay(entries(&group.done)), &mut actions);
    let Some(Action::Decide(first)) = group.done.iter().find(|a| matches!(a, Action::Decide(_))) else {
        panic!("the leader decided sample 1 before its restart");
    };
    assert_eq!(actions, [Action::Republish(first.clone())]);
    assert_eq!((next.leader.settled().highest, next.leader.awaited_samples()), (SampleId(2), 1));
    assert_eq!(next.summary(0, 1, &UNSURE), [], "a decided sample is not opened again");
    assert_eq!(next.summary(0, 3, &SURE), [Action::Open(SampleId(3))]);
}

/// The decision of the device in slot 0, 2 ms after capture.
fn decided(class: u16) -> Event<'static> {
    let decision = DeviceDecision { class, confidence: 0.75, policy: PolicyId([9; 8]) };
    aged(0, 1, 2, DeviceAnswer::Decided(decision))
}

#[test]
fn a_device_that_is_alone_decides_under_its_own_policy_and_once() {
    let mut group = Group::alone();
    let found = decision(&group.event(decided(2)));
    assert_eq!((found.exit, found.class.unwrap(), found.confidence), (Exit::DEVICE, 2, 0.75));
    assert_eq!((found.policy, found.bytes.device_edge), (PolicyId([9; 8]), 14));
    assert_eq!(group.leader.settled().decided, 1);
    assert_eq!((group.event(decided(1)), group.leader.counts().after_close), (vec![], 1));
}

#[test]
fn a_device_decision_in_another_configuration_or_of_an_unknown_class_is_a_misfit() {
    for (mut group, class) in [(Group::alone(), CLASSES as u16), (Group::new(), 1)] {
        assert_eq!(
            (group.event(decided(class)), group.leader.counts().misfits),
            (vec![], 1),
            "class {class}"
        );
    }
}

#[test]
fn features_that_come_with_the_summary_go_to_the_cloud_unasked() {
    let mut group = Group::alone();
    assert_eq!(group.summary(0, 1, &UNSURE), [Action::Open(SampleId(1))]);
    let actions = group.features(0, 1);
    assert!(matches!(&actions[..], [Action::AskCloud { features, .. }] if *features == [1; PACKED]));
    let actions = group.cloud_fails(1, Degraded::CloudUnreachable);
    // The device's scores give the answer, although the device was not sure.
    assert_eq!((decision(&actions).exit, decision(&actions).class.unwrap()), (Exit::DEVICE, 1));
}

#[test]
fn features_that_overtake_their_summary_are_kept_and_without_it_go_to_the_cloud_when_the_window_ends() {
    for has_summary in [true, false] {
        let mut group = Group::alone();
        assert_eq!(group.features(0, 1), [Action::Open(SampleId(1))]);
        let actions = if has_summary { group.summary(0, 1, &UNSURE) } else { group.after_ms(50) };
        assert!(matches!(actions[..], [Action::AskCloud { .. }]), "{actions:?}");
        let actions = group.cloud_fails(1, Degraded::CloudUnreachable);
        // Without scores no exit has an answer.
        let undecided = (!has_summary).then_some(Undecided::NoExit);
        assert_eq!(
            (decision(&actions).class.is_some(), decision(&actions).undecided),
            (has_summary, undecided)
        );
        assert_eq!((group.features(0, 1), group.leader.counts().after_close), (vec![], 1));
    }
}

#[test]
fn features_that_were_lost_on_the_way_are_asked_for_when_the_window_ends() {
    let mut group = Group::alone();
    group.summary(0, 1, &UNSURE);
    assert_eq!(group.after_ms(50), [request(1, 1)]);
}

#[test]
fn one_device_that_names_a_sample_far_ahead_changes_nothing() {
    let mut group = Group::new();
    group.all(1, &SURE);
    assert_eq!(group.summary(0, 1 << 30, &SURE), []);
    assert_eq!((group.leader.newest(), group.leader.settled().highest), (SampleId(1), SampleId(1)));
    let counts = group.leader.counts();
    assert_eq!((counts.implausible, counts.implausible_slots.bits()), (1, 0b1));
    assert_eq!(group.summary(1, 2, &SURE), [Action::Open(SampleId(2))]);
}

#[test]
fn the_ids_of_a_device_that_is_always_first_are_plausible_while_others_follow() {
    let mut group = Group::new();
    for sample in 1..2000 {
        group.all(sample, &SURE);
    }
    assert_eq!((group.leader.counts().implausible, group.leader.settled().decided), (0, 1999));
}

#[test]
fn samples_after_a_gap_are_plausible_when_a_trigger_names_them_or_after_an_outage_a_second_device() {
    let mut group = Group::new();
    group.trigger(1 << 40);
    assert_eq!(group.summary(0, 1 << 40, &SURE), [Action::Open(SampleId(1 << 40))]);
    let far = 1 << 41;
    group.event(Event::Connected);
    assert_eq!(group.summary(0, far, &SURE), []);
    assert_eq!(group.summary(1, far, &SURE), [], "both may have followed one wrong trigger");
    assert_eq!(group.summary(1, far + 1, &SURE), [Action::Open(SampleId(far + 1))]);
    assert_eq!(group.summary(0, far, &SURE), [Action::Open(SampleId(far))]);
}
