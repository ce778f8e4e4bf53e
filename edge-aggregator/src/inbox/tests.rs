use std::collections::BTreeMap;

use headwater_inference::leader::{Exits, Leader, LeaderConfig, Micros, Now};
use headwater_inference::testing::TinyNetwork;
use headwater_protocol::{
    Boot, DeviceId, DeviceState, GroupId, Header, Numbering, SiteId, Slot, Status, encode,
};

use super::*;

const OURS: NetworkId = NetworkId([7; 32]);
const NEXT: NetworkId = NetworkId([8; 32]);
const LIMITS: Limits = Limits { score_bytes: 8, feature_bits: 12, view_bytes: 0, edge_bits: 9 };

/// A format of two slots and two classes.
pub(crate) fn format(network: NetworkId) -> MessageFormat {
    MessageFormat {
        network,
        slots: 2,
        remote_edges: Slot::first(2).map(SlotSet::single).collect(),
        limits: LIMITS,
        device_features: FeatureEncoding::default(),
        edge_features: FeatureEncoding::default(),
        cloud_sources: 2,
        classes: 2,
        device_scores: Vec::new(),
        edge_scores: Vec::new(),
    }
}

/// A group of two slots and two classes, with the events of its messages.
struct Group {
    inbox: Inbox,
    topics: Topics,
    newest: SampleId,
    seen: Vec<String>,
}

impl Group {
    fn new() -> Self {
        let topics = Topics::new(&SiteId::new("plant").unwrap(), &GroupId::new("gate").unwrap());
        let inbox = Inbox::new(topics.clone(), Arc::new(PerNetwork::new(format(OURS))));
        Self { inbox, topics, newest: SampleId(100), seen: Vec::new() }
    }

    fn with_device(id: &str, slot: u8) -> Self {
        let mut group = Self::new();
        group.introduces(id, slot, OURS);
        group
    }

    fn introduces(&mut self, id: &str, slot: u8, network: NetworkId) {
        self.introduces_from(id, slot, network, None);
    }

    fn introduces_from(&mut self, id: &str, slot: u8, network: NetworkId, sample: Option<SampleId>) {
        let birth = Birth {
            device: device(id),
            slot: Slot::new(slot).unwrap(),
            boot: Boot(1),
            software: "test".into(),
            network,
            sample,
            numbering: None,
            capabilities: Vec::new(),
        };
        self.sends(id, DeviceTopic::Birth, &serde_json::to_vec(&birth).unwrap());
        let up = Status { state: DeviceState::Up, boot: Boot(1) };
        self.sends(id, DeviceTopic::Status, &serde_json::to_vec(&up).unwrap());
    }

    fn sends(&mut self, id: &str, leaf: DeviceTopic, payload: &[u8]) {
        self.receives(&self.topics.device(&device(id), leaf), payload);
    }

    fn receives(&mut self, topic: &str, payload: &[u8]) {
        let Self { inbox, newest, seen, .. } = self;
        inbox.receive(topic, payload, NearId::Newest(*newest), |_, event| {
            seen.push(format!("{event:?}"));
            None
        });
    }

    fn refused(&self, id: &str) -> BTreeMap<&'static str, u64> {
        self.inbox.devices.refusals().remove(&device(id)).unwrap_or_default()
    }

    #[track_caller]
    fn check_seen(&mut self, expected: &[&str]) {
        let seen = std::mem::take(&mut self.seen);
        assert_eq!(seen.len(), expected.len(), "{seen:?}");
        for (seen, expected) in seen.iter().zip(expected) {
            assert!(seen.starts_with(expected), "expected {expected}, seen {seen}");
        }
    }
}

fn device(id: &str) -> DeviceId {
    DeviceId::new(id).unwrap()
}

fn message(body: Body<'_>) -> Vec<u8> {
    message_from(OURS, body)
}

fn message_from(network: NetworkId, body: Body<'_>) -> Vec<u8> {
    let header = Header { late: false, network: network.tag(), sample_low: 101, boot: Boot(1), age_ms: 3 };
    let mut payload = Vec::new();
    encode(&Message { header, body }, &LIMITS, &mut payload).unwrap();
    payload
}

/// The event of a device's answer.
fn answered(slot: u8, sample: u64, late: bool, answer: &str) -> String {
    format!(
        "DeviceAnswer {{ slot: Slot({slot}), sample: SampleId({sample}), age_ms: 3, late: {late}, answer: {answer} }}"
    )
}

#[test]
fn each_message_becomes_its_event() {
    let mut group = Group::with_device("a", 1);
    group.check_seen(&["DeviceUp { slot: Slot(1) }"]);
    let scores: Vec<u8> = [0.5f32, -1.0].iter().flat_map(|s| s.to_le_bytes()).collect();
    group.sends("a", DeviceTopic::Summary, &message(Body::Summary(&scores)));
    group.sends("a", DeviceTopic::Summary, &message(Body::NotInView));
    group.sends("a", DeviceTopic::Features, &message(Body::Features(&[0xff, 0x0f])));
    group.sends("a", DeviceTopic::Features, &message(Body::Gone));
    group.check_seen(&[
        &answered(1, 101, false, "Summary([0.5, -1.0])"),
        &answered(1, 101, false, "NotInView"),
        "Features { slot: Slot(1), sample: SampleId(101), late: false, bits: [255, 15] }",
        "Gone { slot: Slot(1), sample: SampleId(101) }",
    ]);
    assert_eq!(group.inbox.devices.refusals(), BTreeMap::new());
}

/// The message with the flag `late`, as a device sends it from its spool.
fn late(body: Body<'_>) -> Vec<u8> {
    let mut payload = message(body);
    payload[1] |= 1;
    payload
}

#[test]
fn messages_from_a_spool_are_late_and_a_late_gone_gives_up_a_whole_sample() {
    let mut group = Group::with_device("a", 1);
    group.seen.clear();
    group.sends("a", DeviceTopic::Summary, &late(Body::NotInView));
    group.sends("a", DeviceTopic::Features, &late(Body::Features(&[0, 0])));
    group.sends("a", DeviceTopic::Summary, &late(Body::Gone));
    group.check_seen(&[
        &answered(1, 101, true, "NotInView"),
        "Features { slot: Slot(1), sample: SampleId(101), late: true",
        &answered(1, 101, true, "GivenUp"),
    ]);
    group.sends("a", DeviceTopic::Summary, &message(Body::Gone));
    assert_eq!(
        group.refused("a"),
        BTreeMap::from([("malformed", 1)]),
        "nothing of a sample is given up in time"
    );
}

#[test]
fn messages_are_read_under_the_network_of_their_device() {
    let topics = Topics::new(&SiteId::new("plant").unwrap(), &GroupId::new("gate").unwrap());
    let next = MessageFormat { limits: Limits { score_bytes: 12, ..LIMITS }, ..format(NEXT) };
    let formats = PerNetwork { current: format(OURS), next: Some(next) };
    let inbox = Inbox::new(topics.clone(), Arc::new(formats));
    let mut group = Group { inbox, topics, newest: SampleId(100), seen: Vec::new() };
    group.introduces("a", 0, OURS);
    group.introduces("b", 1, NEXT);
    let generations = [Generation::Current, Generation::Next];
    for (id, network, bytes) in [("a", OURS, 8), ("b", NEXT, 12)] {
        let scores = vec![0; bytes];
        let limits = Limits { score_bytes: bytes, ..LIMITS };
        let header =
            Header { late: false, network: network.tag(), sample_low: 101, boot: Boot(1), age_ms: 3 };
        let mut payload = Vec::new();
        encode(&Message { header, body: Body::Summary(&scores) }, &limits, &mut payload).unwrap();
        let topic = group.topics.device(&device(id), DeviceTopic::Summary);
        let mut found = Vec::new();
        group.inbox.receive(&topic, &payload, NearId::Newest(group.newest), |generation, _| {
            found.push(generation);
            None
        });
        assert_eq!(found, [generations[usize::from(id == "b")]]);
        // A message of the other device's network is refused, though the group has that network.
        let other = if id == "a" { "b" } else { "a" };
        group.sends(other, DeviceTopic::Summary, &payload);
        assert_eq!(group.refused(other).len(), 1, "{:?}", group.refused(other));
    }
}

#[test]
fn the_birth_of_a_device_with_a_clock_gives_the_first_sample() {
    let mut group = Group::new();
    let first = SampleId((7 << 32) - 5);
    group.introduces_from("a", 0, OURS, Some(first));
    group.seen.clear();
    assert_eq!(group.inbox.devices.newest_first_sample(), first);
    group.sends("a", DeviceTopic::Summary, &message(Body::NotInView));
    group.check_seen(&[&answered(0, (7 << 32) + 101, false, "NotInView")]);
}

#[test]
fn garbage_is_counted_for_its_device_and_makes_no_event() {
    let mut group = Group::with_device("a", 0);
    group.seen.clear();
    for payload in [&b""[..], b"x", &[0x22; 12], &[0x12; 500]] {
        group.sends("a", DeviceTopic::Summary, payload);
    }
    group.sends("a", DeviceTopic::Summary, &message(Body::Features(&[0, 0])));
    group.sends("a", DeviceTopic::Birth, b"{");
    group.sends("a", DeviceTopic::Status, b"[]");
    group.check_seen(&[]);
    let expected = BTreeMap::from([("malformed", 5), ("oversize", 1), ("wrong_version", 1)]);
    assert_eq!(group.refused("a"), expected);
}

/// A device that says 1e30 would decide for its group.
#[test]
fn scores_that_the_section_cannot_give_are_refused_and_counted() {
    let limits = |slot: usize| (slot == 1).then(|| ScoreLimits::recorded([-1.0, 2.0], 2));
    let format = MessageFormat {
        device_scores: (0..2).map(limits).collect(),
        edge_scores: (0..2).map(limits).collect(),
        ..format(OURS)
    };
    let mut group = Group::new();
    group.inbox = Inbox::new(group.topics.clone(), Arc::new(PerNetwork::new(format)));
    group.introduces("free", 0, OURS);
    group.introduces("limited", 1, OURS);
    group.seen.clear();
    let summary = |score: f32| {
        let scores: Vec<u8> = [0.0, score].iter().flat_map(|s| s.to_le_bytes()).collect();
        message(Body::Summary(&scores))
    };
    for score in [1e30, f32::INFINITY, 2.5, -1.5, f32::NAN] {
        group.sends("limited", DeviceTopic::Summary, &summary(score));
    }
    group.check_seen(&[]);
    assert_eq!(group.refused("limited"), BTreeMap::from([("malformed", 5)]));
    group.sends("limited", DeviceTopic::Summary, &summary(2.0));
    group.sends("free", DeviceTopic::Summary, &summary(1e30));
    group.check_seen(&[
        &answered(1, 101, false, "Summary([0.0, 2.0])"),
        &answered(0, 101, false, "Summary([0.0, 1e30])"),
    ]);
}

#[test]
fn messages_of_an_unknown_device_are_refused() {
    let mut group = Group::new();
    group.sends("a", DeviceTopic::Summary, &message(Body::NotInView));
    group.check_seen(&[]);
    assert_eq!(group.refused("a"), BTreeMap::from([("unknown_device", 1)]));
}

#[test]
fn messages_of_another_network_are_refused_whatever_the_birth_named() {
    let mut group = Group::with_device("a", 0);
    group.seen.clear();
    group.sends("a", DeviceTopic::Summary, &message_from(NetworkId([8; 32]), Body::NotInView));
    group.introduces("b", 1, NetworkId([8; 32]));
    group.sends("b", DeviceTopic::Summary, &message(Body::NotInView));
    group.check_seen(&[]);
    assert_eq!(group.refused("a"), BTreeMap::from([("wrong_network", 1)]));
    assert_eq!(group.refused("b"), BTreeMap::from([("wrong_network", 2)]));
}

#[test]
fn a_trigger_has_the_whole_id_and_the_ids_in_headers_are_widened_near_it() {
    let mut group = Group::with_device("a", 0);
    group.newest = SampleId(0);
    group.seen.clear();
    let whole = SampleId((9 << 32) + 100);
    let header = Header { late: false, network: OURS.tag(), sample_low: 100, boot: Boot(0), age_ms: 0 };
    let mut trigger = Vec::new();
    encode(&Message { header, body: Body::Trigger(whole) }, &LIMITS, &mut trigger).unwrap();
    group.receives("headwater/v1/plant/gate/trigger", &trigger);
    group.check_seen(&[&format!("Trigger {{ sample: SampleId({whole}) }}")]);
    group.newest = whole;
    group.sends("a", DeviceTopic::Summary, &message(Body::NotInView));
    group.check_seen(&[&answered(0, whole.0 + 1, false, "NotInView")]);
}

#[test]
fn a_trigger_in_json_names_its_sample_for_any_network() {
    let mut group = Group::with_device("a", 0);
    group.seen.clear();
    group.receives("headwater/v1/plant/gate/trigger", br#"{"sample": 17}"#);
    group.check_seen(&["Trigger { sample: SampleId(17) }"]);
    assert_eq!(group.inbox.unroutable, 0);
}

#[test]
fn messages_on_unknown_topics_are_counted_as_unroutable() {
    let mut group = Group::new();
    group.receives("headwater/v1/plant/other/dev/a/summary", b"");
    group.receives("headwater/v1/plant/gate/trigger", b"nonsense");
    group.receives("headwater/v1/plant/gate/trigger", br#"{"sample": -1}"#);
    assert_eq!(group.inbox.unroutable, 3);
    assert_eq!(group.inbox.devices.refusals(), BTreeMap::new());
}

#[test]
fn an_aggregator_that_stops_takes_no_new_samples() {
    let mut group = Group::with_device("a", 0);
    group.seen.clear();
    group.inbox.last_sample = Some(SampleId(100));
    group.sends("a", DeviceTopic::Summary, &message(Body::NotInView));
    group.check_seen(&[]);
    group.inbox.last_sample = Some(SampleId(101));
    group.sends("a", DeviceTopic::Summary, &message(Body::NotInView));
    group.check_seen(&[&answered(0, 101, false, "NotInView")]);
    // While stopping, late answers are ignored: the device sends them again to the next process. Features of open samples count.
    group.sends("a", DeviceTopic::Summary, &late(Body::NotInView));
    group.check_seen(&[]);
    group.sends("a", DeviceTopic::Features, &late(Body::Features(&[0, 0])));
    group.check_seen(&["Features"]);
}

#[test]
fn short_ids_are_widened_near_the_wall_clock_whatever_a_birth_says() {
    let mut group = Group::new();
    group.introduces_from("a", 0, OURS, Some(SampleId(7 << 32)));
    let topic = group.topics.device(&device("a"), DeviceTopic::Summary);
    let mut found = Vec::new();
    let near = NearId::Wall(SampleId(3 << 32));
    group.inbox.receive(&topic, &message(Body::NotInView), near, |_, event| {
        found.push(format!("{event:?}"));
        None
    });
    assert_eq!(found, [answered(0, (3 << 32) + 101, false, "NotInView")]);
}

#[test]
fn an_implausible_sample_is_counted_for_its_device() {
    let mut group = Group::with_device("a", 0);
    let topic = group.topics.device(&device("a"), DeviceTopic::Summary);
    let bundle = Bundle::from_bytes(&TinyNetwork::default().bundle()).unwrap();
    let mut leader = Leader::new(LeaderConfig::of(&bundle, 4), Exits { local: None, edge: None });
    let now = Now { since_start: Micros(0), wall_ms: 1_782_864_000_000 };
    leader.handle(now, Generation::Current, Event::Numbering(Numbering::Source), &mut Vec::new());
    for payload in [message(Body::NotInView), late(Body::NotInView)] {
        group.inbox.receive(&topic, &payload, NearId::Newest(SampleId(0)), |generation, event| {
            leader.handle(now, generation, event, &mut Vec::new())
        });
    }
    assert_eq!(group.refused("a"), BTreeMap::from([("implausible", 2)]));
}
