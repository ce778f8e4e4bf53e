//! Answers of edges, and the exit `edge`.

use headwater_protocol::{EdgeIndex, HopBytes};

use super::*;

/// Bytes of an edge's map.
pub(super) const MAP: usize = 3;
/// Bytes of an edge's message.
const BODY: u64 = 30;

fn slots(bits: u64) -> SlotSet {
    SlotSet::from_bits(bits)
}

pub(super) fn edge(index: u8) -> EdgeIndex {
    EdgeIndex::new(index).expect("below 64")
}

/// Three devices in front of two edges: edge 0 has the slots 0 and 2, edge 1 the slot 1.
fn edges_config() -> LeaderConfig {
    LeaderConfig {
        configuration: Configuration::F,
        edges: vec![slots(0b101), slots(0b010)],
        cloud_map_bytes: MAP,
        ..config()
    }
}

pub(super) fn edge_output<'a>(bits: u64, scores: &'a [f32], map: &'a [u8]) -> Option<EdgeAnswer<'a>> {
    Some(EdgeAnswer { slots: slots(bits), scores, map, body_bytes: BODY })
}

pub(super) fn from_edge(index: u8, sample: u64, answer: Option<EdgeAnswer<'_>>) -> Event<'_> {
    Event::EdgeAnswer { edge: edge(index), sample: SampleId(sample), answer }
}

pub(super) fn group() -> Group {
    let mut group = Group::of(edges_config());
    group.edge_up(0);
    group.edge_up(1);
    group
}

impl Group {
    fn edge_up(&mut self, index: u8) {
        assert_eq!(self.event(Event::EdgeUp { edge: edge(index) }), []);
    }

    fn edge_down(&mut self, index: u8) -> Vec<Action> {
        self.event(Event::EdgeDown { edge: edge(index) })
    }

    fn edge_answer(&mut self, index: u8, bits: u64, scores: &[f32]) -> Vec<Action> {
        self.event(from_edge(index, 1, edge_output(bits, scores, &[index + 1; MAP])))
    }

    fn edge_gone(&mut self, index: u8) -> Vec<Action> {
        self.event(from_edge(index, 1, None))
    }

    /// Sample 1 with unsure scores from every device: the leader then waits for the edges.
    fn unsure(&mut self) -> Vec<Action> {
        self.all(1, &UNSURE)
    }
}

fn asked(bits: u64) -> [Action; 2] {
    let (generation, sample, slots) = (Generation::Current, SampleId(1), slots(bits));
    [Action::Request { generation, sample, slots }, Action::Collect { generation, sample, slots }]
}

#[test]
fn an_unsure_sample_leaves_at_the_edge_when_all_edges_with_a_view_have_answered() {
    let mut group = group();
    assert_eq!(group.unsure(), asked(0b111));
    assert_eq!(group.edge_answer(1, 0b010, &SURE), []);
    let found = decision(&group.edge_answer(0, 0b101, &SURE));
    assert_eq!((found.exit, found.class.unwrap(), &found.degraded[..]), (Exit::EDGE, 2, &[][..]));
    assert_eq!(found.presence.present_count(), 3);
    let maps = 3 * PACKED as u64;
    assert_eq!(found.bytes, HopBytes { device_edge: 3 * 16 + maps, edge_leader: 2 * BODY, edge_cloud: 0 });
    assert_eq!(group.leader.counts(), Counts::default());
}

#[test]
fn an_edge_whose_devices_have_no_view_is_not_waited_for() {
    let mut group = group();
    group.summary(0, 1, &UNSURE);
    group.not_in_view(1, 1);
    assert_eq!(group.summary(2, 1, &UNSURE), asked(0b101));
    let actions = group.edge_answer(0, 0b101, &SURE);
    assert_eq!(decision(&actions).exit, Exit::EDGE);
    assert_eq!(decision(&actions).presence.get(slot(1)), SlotPresence::NotInView);
}

#[test]
fn a_sample_that_is_unsure_at_the_edge_goes_to_the_cloud_with_the_maps_of_the_edges() {
    let mut group = group();
    group.unsure();
    group.edge_answer(0, 0b101, &UNSURE);
    let actions = group.edge_answer(1, 0b010, &UNSURE);
    let expected = Action::AskCloud {
        generation: Generation::Current,
        sample: SampleId(1),
        features: vec![1, 1, 1, 2, 2, 2],
        presence: vec![true, true],
        deadline_ms: 300,
    };
    assert_eq!(actions, [expected]);
    let actions = group.cloud(1, &SURE);
    assert_eq!((decision(&actions).exit, decision(&actions).bytes.edge_cloud), (Exit::CLOUD, 6 + 2));
    assert_eq!(decision(&actions).degraded, []);
}

#[test]
fn the_answer_of_the_edges_stands_when_the_cloud_fails() {
    let mut group = group();
    group.unsure();
    let cold = [0.1, 0.0, 0.0, 0.0];
    group.edge_answer(0, 0b101, &cold);
    group.edge_answer(1, 0b010, &cold);
    let reason = Degraded::CloudRefused;
    let actions = group.cloud_fails(1, reason);
    assert_eq!((decision(&actions).exit, decision(&actions).class.unwrap()), (Exit::EDGE, 0));
}

#[test]
fn an_edge_that_is_down_is_not_waited_for_and_its_slots_are_missing() {
    let mut group = group();
    assert_eq!(group.edge_down(1), []);
    assert_eq!(group.leader.edges_up().bits(), 0b01);
    group.unsure();
    let found = decision(&group.edge_answer(0, 0b101, &SURE));
    assert_eq!((found.exit, &found.degraded[..]), (Exit::EDGE, &[Degraded::FeaturesMissing][..]));
    assert_eq!([0, 1, 2].map(|index| found.presence.present().contains(slot(index))), [true, false, true]);
}

#[test]
fn an_edge_that_comes_back_in_time_has_a_part_in_the_sample() {
    let mut group = group();
    group.edge_down(1);
    group.unsure();
    group.edge_up(1);
    assert_eq!(group.edge_answer(1, 0b010, &SURE), []);
    let actions = group.edge_answer(0, 0b101, &SURE);
    assert_eq!((decision(&actions).presence.present_count(), &decision(&actions).degraded[..]), (3, &[][..]));
}

#[test]
fn an_edge_that_goes_down_or_has_nothing_ends_the_wait_for_it() {
    for has_nothing in [true, false] {
        let mut group = group();
        group.unsure();
        group.edge_answer(0, 0b101, &SURE);
        let actions = if has_nothing { group.edge_gone(1) } else { group.edge_down(1) };
        assert_eq!(decision(&actions).exit, Exit::EDGE);
        assert_eq!(decision(&actions).presence.missing_count(), 1);
        assert_eq!(group.leader.counts(), Counts::default());
    }
}

#[test]
fn an_edge_that_goes_down_after_its_answer_changes_nothing() {
    let mut group = group();
    group.unsure();
    group.edge_answer(0, 0b101, &SURE);
    assert_eq!(group.edge_down(0), []);
    assert_eq!(decision(&group.edge_answer(1, 0b010, &SURE)).presence.present_count(), 3);
}

#[test]
fn an_edge_that_goes_down_leaves_samples_of_other_stages_alone() {
    let mut group = group();
    group.summary(0, 1, &UNSURE);
    assert_eq!(group.edge_down(0), []);
    group.edge_up(0);
    group.summary(1, 1, &UNSURE);
    group.summary(2, 1, &UNSURE);
    group.edge_answer(0, 0b101, &UNSURE);
    group.edge_answer(1, 0b010, &UNSURE);
    assert_eq!(group.edge_down(0), [], "the cloud is asked");
    assert_eq!(group.leader.counts(), Counts::default());
}

#[test]
fn without_any_edge_the_local_answer_stands() {
    let mut group = Group::of(edges_config());
    let actions = group.unsure();
    assert_eq!(actions[..2], asked(0b111));
    let found = decision(&actions);
    assert_eq!((found.exit, found.class.unwrap()), (Exit::LOCAL, 1));
    assert_eq!(found.degraded, [Degraded::FeaturesMissing]);
}

#[test]
fn the_wait_for_edges_has_an_end() {
    let mut group = group();
    group.unsure();
    group.edge_answer(1, 0b010, &SURE);
    assert_eq!(group.after_ms(49), []);
    let found = decision(&group.after_ms(1));
    assert_eq!((found.exit, found.presence.present_count(), found.stages.edge_us), (Exit::EDGE, 1, 50_000));
    assert_eq!(found.degraded, [Degraded::FeaturesMissing]);
}

#[test]
fn an_answer_that_does_not_fit_its_edge_is_a_misfit() {
    let output = |index, bits, scores: &'static [f32], map: &'static [u8]| {
        from_edge(index, 1, edge_output(bits, scores, map))
    };
    for wrong in [
        output(2, 0b101, &SURE, &[0; MAP]),
        output(0, 0, &SURE, &[0; MAP]),
        output(0, 0b111, &SURE, &[0; MAP]),
        output(0, 0b010, &SURE, &[0; MAP]),
        output(0, 0b101, &SURE[..CLASSES - 1], &[0; MAP]),
        output(0, 0b101, &SURE, &[0; MAP - 1]),
        from_edge(2, 1, None),
    ] {
        let mut group = group();
        group.unsure();
        assert_eq!(group.event(wrong.clone()), [], "{wrong:?}");
        assert_eq!(group.leader.counts(), Counts { misfits: 1, ..Counts::default() }, "{wrong:?}");
        // The edge is still waited for.
        assert_eq!(group.edge_answer(1, 0b010, &SURE), []);
        assert_eq!(decision(&group.edge_answer(0, 0b101, &SURE)).presence.present_count(), 3);
    }
}

#[test]
fn an_edge_answer_that_is_not_awaited_is_counted() {
    let mut group = group();
    group.edge_answer(0, 0b101, &SURE);
    group.summary(0, 1, &UNSURE);
    group.edge_answer(0, 0b101, &SURE);
    group.summary(1, 1, &UNSURE);
    group.summary(2, 1, &UNSURE);
    group.edge_answer(0, 0b101, &SURE);
    group.edge_answer(0, 0b101, &SURE);
    assert_eq!(group.leader.counts(), Counts { unawaited: 3, ..Counts::default() });
    assert_eq!(decision(&group.edge_answer(1, 0b010, &SURE)).bytes.edge_leader, 2 * BODY);
}

#[test]
fn an_edge_under_a_network_that_is_not_there_changes_nothing() {
    let mut group = group();
    group.unsure();
    let answer = from_edge(0, 1, edge_output(0b101, &SURE, &[1; MAP]));
    for event in [answer, Event::EdgeDown { edge: edge(0) }, Event::EdgeUp { edge: edge(0) }] {
        assert_eq!(group.under_next(event.clone()), [], "{event:?}");
    }
    assert_eq!(group.leader.counts(), Counts::default());
    assert_eq!(group.leader.edges_up().bits(), 0b11);
}

#[test]
fn edges_of_one_network_have_no_part_in_samples_of_the_other() {
    let mut group = group();
    let next = LeaderConfig { network: NetworkId([5; 32]), ..edges_config() };
    let leader = std::mem::replace(&mut group.leader, Group::of(edges_config()).leader);
    group.leader = leader.with_next(next, Exits { local: None, edge: None });
    group.unsure();
    group.edge_answer(1, 0b010, &SURE);
    let answer = from_edge(0, 1, edge_output(0b101, &SURE, &[9; MAP]));
    for event in [Event::EdgeUp { edge: edge(0) }, answer, Event::EdgeDown { edge: edge(0) }] {
        assert_eq!(group.under_next(event.clone()), [], "{event:?}");
    }
    assert_eq!(group.leader.counts().unawaited, 1);
    assert_eq!(decision(&group.edge_answer(0, 0b101, &SURE)).presence.present_count(), 3);
}

#[test]
fn slots_without_a_view_do_not_count_at_the_edge() {
    let thresholds = [ExitThreshold::ONLY_CERTAIN, ExitThreshold::ALWAYS].to_vec();
    let edge = ExitPolicy { threshold: Threshold::ByPresent(thresholds), ..ExitPolicy::default() };
    let config = edges_config();
    let policy = config.policy.clone().with(Exit::EDGE, edge);
    for has_view in [true, false] {
        let mut group = Group::of(LeaderConfig { policy: policy.clone(), ..config.clone() });
        group.edge_up(0);
        group.summary(0, 1, &UNSURE);
        group.not_in_view(1, 1);
        if has_view {
            group.summary(2, 1, &UNSURE)
        } else {
            group.not_in_view(2, 1)
        };
        let actions = group.edge_answer(0, 0b101, &UNSURE);
        let leaves = matches!(actions[..], [Action::Decide(_)]);
        assert_eq!(leaves, has_view, "{actions:?}");
    }
}

#[test]
fn a_slot_without_features_at_its_edge_is_missing_at_the_later_exits() {
    let mut group = group();
    group.unsure();
    group.edge_answer(0, 0b001, &UNSURE);
    let actions = group.edge_answer(1, 0b010, &UNSURE);
    assert!(matches!(&actions[..], [Action::AskCloud { presence, .. }] if *presence == [true, true]));
    let found = decision(&group.cloud(1, &SURE));
    assert_eq!(
        (found.presence.get(slot(2)), &found.degraded[..]),
        (SlotPresence::Missing, &[Degraded::FeaturesMissing][..])
    );
    assert_eq!(found.bytes.device_edge, 3 * 16 + 2 * PACKED as u64);
}

#[test]
fn features_that_devices_send_to_their_edges_are_not_counted_as_unawaited() {
    let mut group = group();
    assert_eq!(group.features(0, 1), []);
    group.unsure();
    assert_eq!(group.features(0, 1), []);
    assert_eq!(group.gone(0, 1), []);
    assert_eq!(group.leader.counts(), Counts::default());
}

fn alone_before_an_edge() -> Group {
    let config = LeaderConfig {
        configuration: Configuration::D,
        slots: 1,
        edges: vec![slots(0b1)],
        cloud_map_bytes: MAP,
        ..config()
    };
    let mut group = Group::of(config);
    group.edge_up(0);
    group
}

#[test]
fn features_that_came_unasked_are_collected_without_a_request() {
    let mut group = alone_before_an_edge();
    assert_eq!(group.features(0, 1), [Action::Open(SampleId(1))]);
    assert_eq!(group.summary(0, 1, &SURE), asked(0b1)[1..]);
    assert_eq!(group.features(0, 1), []);
    let actions = group.edge_answer(0, 0b1, &SURE);
    assert_eq!((decision(&actions).exit, &decision(&actions).degraded[..]), (Exit::EDGE, &[][..]));
    assert_eq!(group.leader.counts(), Counts::default());
}

#[test]
fn features_that_did_not_come_unasked_are_asked_for() {
    let mut group = alone_before_an_edge();
    group.summary(0, 1, &SURE);
    assert_eq!(group.after_ms(50), asked(0b1));
}

#[test]
fn maps_of_an_earlier_sample_are_not_sent_again() {
    let mut group = group();
    group.unsure();
    group.edge_answer(0, 0b101, &SURE);
    group.edge_answer(1, 0b010, &SURE);
    group.edge_down(1);
    group.all(2, &UNSURE);
    let actions = group.event(from_edge(0, 2, edge_output(0b101, &UNSURE, &[7; MAP])));
    let [Action::AskCloud { features, presence, .. }] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!((&features[..], &presence[..]), (&[7, 7, 7, 0, 0, 0][..], &[true, false][..]));
}
