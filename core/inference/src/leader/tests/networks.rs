//! Two networks at once, while devices switch over one by one.

use super::*;

const NEXT_CLASSES: usize = 2;
pub(super) const NEXT_SURE: [f32; NEXT_CLASSES] = [0.0, 20.0];

/// Devices 0 and 1 run the current network, device 2 the next, which has other classes.
pub(super) fn group() -> Group {
    let mut group = Group::new();
    let local =
        ScoresExit::masked(Aggregation::Ap, SLOTS, NEXT_CLASSES).expect("a masked mean needs no section");
    let labels = vec!["cold".into(), "warm".into()];
    let next = LeaderConfig {
        network: NetworkId([5; 32]),
        policy_id: PolicyId([6; 8]),
        labels,
        class_prior: vec![0.5; NEXT_CLASSES],
        score_bytes: 8,
        packed_bytes: 3,
        cloud_map_bytes: 3,
        ..config()
    };
    let leader =
        std::mem::replace(&mut group.leader, Leader::new(config(), Exits { local: None, edge: None }));
    group.leader = leader.with_next(next, Exits { local: Some(local), edge: None });
    group.switch(2);
    group
}

impl Group {
    fn switch(&mut self, index: u8) {
        self.down(index);
        self.under_next(Event::DeviceUp { slot: slot(index) });
    }

    pub(super) fn under_next(&mut self, event: Event<'_>) -> Vec<Action> {
        self.under(Generation::Next, event).1
    }

    pub(super) fn next_summary(&mut self, index: u8, sample: u64, scores: &[f32]) -> Vec<Action> {
        self.under_next(answer(index, sample, DeviceAnswer::Summary(scores)))
    }

    /// Features of slot 2 under the next network.
    pub(super) fn next_features(&mut self, sample: u64) -> Vec<Action> {
        let (slot, sample) = (slot(2), SampleId(sample));
        self.under_next(Event::Features { slot, sample, late: false, bits: &[1, 2, 3], body_bytes: 3 })
    }

    /// Slot 2 gives a sample up under the next network.
    fn next_gives_up(&mut self, sample: u64) {
        self.under_next(late(2, sample, DeviceAnswer::GivenUp));
    }
}

#[test]
fn a_sample_is_decided_under_the_network_of_its_first_summary() {
    let mut group = group();
    group.summary(0, 1, &SURE);
    assert_eq!(group.next_summary(2, 1, &NEXT_SURE), []);
    let found = decision(&group.summary(1, 1, &SURE));
    assert_eq!((found.network, found.policy), (NetworkId([3; 32]), PolicyId([4; 8])));
    assert_eq!((found.label.as_deref().unwrap(), found.presence.missing_count()), ("class 2", 1));

    let found = decision(&group.next_summary(2, 2, &NEXT_SURE));
    assert_eq!((found.network, found.policy), (NetworkId([5; 32]), PolicyId([6; 8])));
    assert_eq!((found.label.as_deref().unwrap(), found.presence.present_count()), ("warm", 1));
    assert_eq!(group.summary(0, 2, &SURE), []);
    let counts = group.leader.counts();
    assert_eq!((counts.other_network, counts.after_close), (1, 1));
    assert_eq!(group.leader.settled().decided, 2);
}

#[test]
fn each_network_asks_its_own_devices_and_its_own_cloud_section() {
    let mut group = group();
    let actions = group.next_summary(2, 1, &[0.0, 0.1]);
    let generation = Generation::Next;
    let request = Action::Request { generation, sample: SampleId(1), slots: SlotSet::from_bits(0b100) };
    assert_eq!(actions, [Action::Open(SampleId(1)), request]);
    assert_eq!(group.features(2, 1), [], "features under the current network do not count");
    let actions = group.next_features(1);
    let [Action::AskCloud { generation: Generation::Next, features, .. }] = &actions[..] else {
        panic!("{actions:?}");
    };
    assert_eq!(features[6..], [1, 2, 3]);
    assert_eq!(decision(&group.cloud(1, &NEXT_SURE)).label.as_deref().unwrap(), "warm");
}

#[test]
fn a_device_that_leaves_the_current_network_is_not_waited_for_in_it() {
    let mut group = group();
    group.summary(0, 1, &UNSURE);
    assert_eq!(group.summary(1, 1, &UNSURE), [request(1, 0b11)]);
    // The device owes features and comes back under the other network: the sample goes on without them.
    group.features(0, 1);
    group.switch(1);
    let asked = group.done.iter().any(|action| matches!(action, Action::AskCloud { .. }));
    assert!(asked, "{:?}", group.done);
}

#[test]
fn after_the_last_switch_the_next_network_decides_every_sample() {
    let mut group = group();
    group.switch(0);
    group.switch(1);
    (0..SLOTS as u8).for_each(|index| _ = group.next_summary(index, 7, &NEXT_SURE));
    let Some(Action::Decide(found)) = group.done.last() else { panic!("{:?}", group.done) };
    assert_eq!((found.network, found.presence.missing_count()), (NetworkId([5; 32]), 0));
    assert_eq!(group.leader.slots_up().bits(), 0b111);
}

#[test]
fn an_answer_under_a_network_that_is_not_there_is_a_misfit() {
    let mut group = Group::new();
    assert_eq!(group.next_summary(0, 1, &SURE), []);
    assert_eq!(group.leader.counts().misfits, 1);
}

#[test]
fn a_sample_that_a_switched_device_gave_up_is_decided_by_the_others() {
    let mut group = group();
    // The spool belongs to the network that the device ran before.
    group.next_gives_up(90);
    assert_eq!(group.late(0, 90, &SURE), []);
    let found = decision(&group.late(1, 90, &SURE));
    assert_eq!((found.network, found.presence.present_count()), (NetworkId([3; 32]), 2));
    assert_eq!(group.leader.notice().late, [SampleId(90)]);
    // A sample that no device has is dropped under either network.
    group.next_gives_up(91);
    let actions = group.after_ms(2000);
    assert_eq!(actions, [Action::Drop { sample: SampleId(91), reason: Dropped::SpoolFull }]);
}

#[test]
fn a_sample_that_moves_to_the_other_network_keeps_its_times() {
    let mut group = group();
    group.next_gives_up(90);
    let due = group.leader.next_timer();
    group.now = group.now.plus_ms(500);
    group.late(0, 90, &SURE);
    assert_eq!((group.leader.next_timer(), group.leader.settled().decided), (due, 0));
    assert_eq!(group.after_ms(1500), [request(90, 1)]);
    group.features(0, 90);
    let found = decision(&group.cloud(90, &SURE));
    assert_eq!(found.network, NetworkId([3; 32]));
    assert_eq!(found.degraded, [Degraded::DeviceMissing, Degraded::Late]);
    assert_eq!(found.stages.decided_us, 2_000_000);
}

#[test]
fn a_sample_that_a_device_answered_does_not_move_to_the_other_network() {
    let mut group = group();
    group.late(0, 90, &SURE);
    group.next_gives_up(90);
    assert_eq!(group.leader.counts().other_network, 1);
    let actions = group.late(1, 90, &SURE);
    assert!(actions.is_empty(), "slot 2 may still come back: {actions:?}");
    assert_eq!(decision(&group.after_ms(2000)).network, NetworkId([3; 32]));
}

#[test]
fn an_answer_of_the_other_network_brings_no_late_sample_into_time() {
    let mut group = group();
    group.late(0, 90, &SURE);
    group.next_summary(2, 90, &[0.0, 0.1]);
    assert_eq!(group.leader.counts().other_network, 1);
    assert_eq!(group.after_ms(1999), []);
}

#[test]
fn a_revision_is_one_of_the_network_that_decided() {
    let mut group = group();
    group.next_summary(2, 1, &[0.0, 0.1]);
    group.next_features(1);
    group.after_ms(300);
    let actions = group.cloud(1, &NEXT_SURE);
    assert!(
        matches!(&actions[..], [Action::Revise(found)] if found.label.as_deref() == Some("warm")),
        "{actions:?}"
    );
}

#[test]
fn a_device_that_goes_down_under_one_network_is_still_waited_for_under_the_other() {
    let mut group = group();
    group.summary(0, 1, &SURE);
    group.under_next(Event::DeviceDown { slot: slot(1) });
    assert_eq!(group.leader.slots_up().bits(), 0b111);
    assert_eq!(decision(&group.summary(1, 1, &SURE)).presence.present_count(), 2);
    group.summary(0, 2, &UNSURE);
    group.summary(1, 2, &UNSURE);
    assert_eq!(
        group.under_next(Event::DeviceDown { slot: slot(0) }),
        [],
        "it owes features under the current"
    );
}
