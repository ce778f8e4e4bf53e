use std::collections::BTreeMap;

use headwater_inference::bundle::Bundle;
use headwater_inference::leader::{Exits, Leader, LeaderConfig, Now};
use headwater_inference::sections::{MapCoder, ScoreCoder};
use headwater_inference::testing::TinyNetwork;
pub(crate) use headwater_protocol::testing::birth;
use headwater_protocol::{
    Boot, DeviceDecision, DeviceId, DeviceState, GroupId, Header, Limits, MAX_BATCH_SAMPLES, Message,
    NetworkId, Numbering, PolicyId, Schema, ScoreEncoding, Session, SiteId, Slot, SlotSet, Status, encode,
    encode_batch, encode_trigger, put_frame_details,
};

use super::*;

const OURS: NetworkId = NetworkId([7; 32]);
const NEXT: NetworkId = NetworkId([8; 32]);
const LIMITS: Limits = Limits {
    classes: 2,
    scores: ScoreEncoding::F32,
    feature_bits: 12,
    codes_features: false,
    view_bytes: 0,
    edge_bits: 9,
};

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
        score_coders: vec![ScoreCoder::default(); 2],
        map_coders: Vec::new(),
        device_scores: Vec::new(),
        edge_scores: Vec::new(),
    }
}

pub(crate) fn status(state: DeviceState, boot: Boot) -> Status {
    Status { schema: Schema, state, boot, frozen: None }
}

/// A group of two slots and two classes, with the events of its messages.
struct Group {
    inbox: Inbox,
    topics: Topics,
    seen: Vec<String>,
    is_retained: bool,
    last_sample: Option<SampleId>,
}

impl Group {
    fn new() -> Self {
        Self::under(PerNetwork::new(format(OURS)))
    }

    fn under(formats: PerNetwork<MessageFormat>) -> Self {
        let topics = Topics::new(&SiteId::new("plant").unwrap(), &GroupId::new("gate").unwrap());
        let inbox = Inbox::new(topics.clone(), Arc::new(formats), Arc::default());
        Self { inbox, topics, seen: Vec::new(), is_retained: false, last_sample: None }
    }

    /// A group with a device that is up, and no events yet.
    fn with_device(id: &str, slot: u8) -> Self {
        let mut group = Self::new();
        group.introduces(id, slot, OURS);
        group.seen.clear();
        group
    }

    fn introduces(&mut self, id: &str, slot: u8, network: NetworkId) {
        self.introduces_boot(id, slot, network, Boot(1));
    }

    fn introduces_boot(&mut self, id: &str, slot: u8, network: NetworkId, boot: Boot) {
        let birth = Birth { boot, ..birth(id, slot, network) };
        self.sends(id, DeviceTopic::Birth, &serde_json::to_vec(&birth).unwrap());
        self.sends(id, DeviceTopic::Status, &serde_json::to_vec(&status(DeviceState::Up, boot)).unwrap());
    }

    fn sends(&mut self, id: &str, leaf: DeviceTopic, payload: &[u8]) {
        self.receives(&self.topics.device(&device(id), leaf), payload);
    }

    fn receives(&mut self, topic: &str, payload: &[u8]) {
        let received = self.received(topic, payload);
        let Self { inbox, seen, .. } = self;
        inbox.receive(received, |_, event| {
            if !matches!(event, Event::DeviceNamed { .. }) {
                seen.push(format!("{event:?}"));
            }
            None
        });
    }

    fn received<'a>(&self, topic: &'a str, payload: &'a [u8]) -> Received<'a> {
        let arrival = Arrival { now: Micros(0), is_retained: self.is_retained };
        Received { topic, payload, arrival, last_sample: self.last_sample }
    }

    fn refused(&self, id: &str) -> BTreeMap<&'static str, u64> {
        self.inbox.counts.lock().refused.get(&device(id)).cloned().unwrap_or_default()
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
    message_of(OURS, Boot(1), body)
}

fn message_of(network: NetworkId, boot: Boot, body: Body<'_>) -> Vec<u8> {
    message_within(&LIMITS, Session::of_boot(network, boot), body)
}

fn message_within(limits: &Limits, session: Session, body: Body<'_>) -> Vec<u8> {
    let header = Header { late: false, session, sample: SampleId(101), age_ms: 3 };
    let mut payload = Vec::new();
    encode(&Message { header, body }, limits, &mut payload).unwrap();
    payload
}

/// Scores as bytes of a message.
fn bytes_of(scores: [f32; 2]) -> Vec<u8> {
    scores.into_iter().flat_map(f32::to_le_bytes).collect()
}

/// The event of a device's answer, as text.
fn answered(slot: u8, sample: u64, late: bool, answer: &str) -> String {
    format!(
        "DeviceAnswer {{ slot: Slot({slot}), sample: SampleId({sample}), age_ms: 3, late: {late}, answer: {answer}, frame: None }}"
    )
}

#[test]
fn each_message_becomes_its_event() {
    let mut group = Group::new();
    group.introduces("a", 1, OURS);
    group.check_seen(&["DeviceUp { slot: Slot(1) }"]);
    group.sends("a", DeviceTopic::Summary, &message(Body::Summary(&bytes_of([0.5, -1.0]))));
    group.sends("a", DeviceTopic::Summary, &message(Body::NotInView));
    group.sends("a", DeviceTopic::Features, &message(Body::Features(&[0xff, 0x0f])));
    group.sends("a", DeviceTopic::Features, &message(Body::Gone));
    group.check_seen(&[
        &answered(1, 101, false, "Summary([0.5, -1.0])"),
        &answered(1, 101, false, "NotInView"),
        "Features { slot: Slot(1), sample: SampleId(101), late: false, bits: [255, 15], body_bytes: 2 }",
        "Gone { slot: Slot(1), sample: SampleId(101) }",
    ]);
    assert!(group.inbox.counts.lock().refused.is_empty());
}

#[test]
fn an_answer_comes_with_the_name_of_its_frame_and_a_decision_with_its_scores() {
    let mut group = Group::with_device("a", 1);
    let scores = bytes_of([0.5, -1.0]);
    let decision = DeviceDecision { class: 1, confidence: 0.5, policy: PolicyId([4; 8]) };
    let name = FrameName::new(7, "a.jpg");
    for (leaf, body, of_message, expected) in [
        (DeviceTopic::Summary, Body::Summary(&scores), &[][..], "[]"),
        (DeviceTopic::Decision, Body::Decided(decision), &scores[..], "[0.5, -1.0]"),
    ] {
        let mut payload = message(body);
        put_frame_details(&name.with_scores(of_message), &mut payload);
        group.sends("a", leaf, &payload);
        let seen = group.seen.remove(0);
        let expected = format!(
            "frame: Some(NamedFrame {{ name: FrameName {{ frame: 7, file: \"a.jpg\" }}, scores: {expected} }}) }}"
        );
        assert!(seen.ends_with(&expected), "{seen}");
    }
    let mut wrong = message(Body::Summary(&scores));
    put_frame_details(&FrameDetails { file: "a\nb", ..FrameDetails::default() }, &mut wrong);
    group.sends("a", DeviceTopic::Summary, &wrong);
    assert_eq!((group.seen.len(), group.refused("a")), (0, BTreeMap::from([("malformed", 1)])));
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
    let next = MessageFormat { limits: Limits { classes: 3, ..LIMITS }, classes: 3, ..format(NEXT) };
    let mut group = Group::under(PerNetwork { current: format(OURS), next: Some(next) });
    group.introduces("a", 0, OURS);
    group.introduces("b", 1, NEXT);
    let generations = [Generation::Current, Generation::Next];
    for (id, network, bytes) in [("a", OURS, 8), ("b", NEXT, 12)] {
        let scores = vec![0; bytes];
        let limits = Limits { classes: bytes / 4, ..LIMITS };
        let payload = message_within(&limits, Session::of_boot(network, Boot(1)), Body::Summary(&scores));
        let topic = group.topics.device(&device(id), DeviceTopic::Summary);
        let mut found = Vec::new();
        let received = group.received(&topic, &payload);
        group.inbox.receive(received, |generation, _| {
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
fn garbage_is_counted_for_its_device_and_makes_no_event() {
    let mut group = Group::with_device("a", 0);
    for payload in [&b""[..], b"x", &[0x22; 12], &[0x12; 12], &[0x12; 2000]] {
        group.sends("a", DeviceTopic::Summary, payload);
    }
    group.sends("a", DeviceTopic::Summary, &message(Body::Features(&[0, 0])));
    group.sends("a", DeviceTopic::Birth, b"{");
    group.sends("a", DeviceTopic::Status, b"[]");
    group.check_seen(&[]);
    let expected = BTreeMap::from([("malformed", 6), ("oversize", 1), ("wrong_version", 1)]);
    assert_eq!(group.refused("a"), expected);
}

/// Without this check, a device that sends a score of 1e30 would decide for its group alone.
#[test]
fn scores_that_the_section_cannot_give_are_refused_and_counted() {
    let limits = |slot: usize| (slot == 1).then(|| ScoreLimits::recorded([-1.0, 2.0], 2));
    let format = MessageFormat {
        device_scores: (0..2).map(limits).collect(),
        edge_scores: (0..2).map(limits).collect(),
        ..format(OURS)
    };
    let mut group = Group::under(PerNetwork::new(format));
    group.introduces("free", 0, OURS);
    group.introduces("limited", 1, OURS);
    group.seen.clear();
    let summary = |score| message(Body::Summary(&bytes_of([0.0, score])));
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
    group.sends("a", DeviceTopic::Summary, &message_of(NEXT, Boot(1), Body::NotInView));
    group.introduces("b", 1, NEXT);
    group.sends("b", DeviceTopic::Summary, &message(Body::NotInView));
    group.check_seen(&[]);
    assert_eq!(group.refused("a"), BTreeMap::from([("unknown_device", 1)]));
    assert_eq!(group.refused("b"), BTreeMap::from([("wrong_network", 2)]));
}

#[test]
fn a_message_that_comes_before_the_birth_of_its_session_is_refused_until_that_birth_is_there() {
    let mut group = Group::with_device("a", 1);
    let of_next_boot = message_of(OURS, Boot(2), Body::NotInView);
    group.sends("a", DeviceTopic::Summary, &of_next_boot);
    group.check_seen(&[]);
    assert_eq!(group.refused("a"), BTreeMap::from([("unknown_device", 1)]));
    group.introduces_boot("a", 1, OURS, Boot(2));
    group.seen.clear();
    group.sends("a", DeviceTopic::Summary, &of_next_boot);
    group.check_seen(&[&answered(1, 101, false, "NotInView")]);
    group.sends("a", DeviceTopic::Summary, &message(Body::NotInView));
    group.check_seen(&[]);
    assert_eq!(group.refused("a"), BTreeMap::from([("unknown_device", 2)]), "the session before has ended");
}

#[test]
fn a_trigger_names_its_sample_whatever_its_network_as_it_does_for_the_devices() {
    let mut group = Group::with_device("a", 0);
    let whole = SampleId((9 << 32) + 100);
    let topic = "headwater/v1/plant/gate/trigger";
    group.receives(topic, &encode_trigger(Session::of_network(NEXT), whole));
    group.receives(topic, &encode_trigger(Session::of_network(OURS), whole));
    group.receives(topic, br#"{"sample": 17}"#);
    group.check_seen(&[
        &format!("Trigger {{ sample: SampleId({whole}) }}"),
        &format!("Trigger {{ sample: SampleId({whole}) }}"),
        "Trigger { sample: SampleId(17) }",
    ]);
    assert_eq!(group.inbox.counts.lock().unroutable, 0);
}

#[test]
fn a_device_whose_birth_or_status_cannot_be_read_is_listed_as_refused_with_the_reason() {
    let reported = |group: &Group| -> Vec<(String, Option<Slot>, String)> {
        let found = group.inbox.devices.registered(Micros(0));
        let text = |device: crate::devices::registry::RegisteredDevice<'_>| {
            (device.id.to_string(), device.slot, format!("{:?}", device.claim))
        };
        found.map(text).collect()
    };
    let mut group = Group::new();
    let of_another_release = |text: &str| {
        let mut birth: serde_json::Value = serde_json::to_value(birth("a", 1, OURS)).unwrap();
        birth["schema"] = 3.into();
        birth["software"] = text.into();
        birth.to_string().into_bytes()
    };
    group.sends("a", DeviceTopic::Birth, &of_another_release("x"));
    group.sends("a", DeviceTopic::Status, &serde_json::to_vec(&status(DeviceState::Up, Boot(1))).unwrap());
    let [(name, slot, claim)] = &reported(&group)[..] else { panic!("{:?}", reported(&group)) };
    assert_eq!((name.as_str(), *slot), ("a", None));
    assert!(claim.contains("Refused(Malformed") && claim.contains("found schema 3"), "{claim}");
    group.introduces("a", 1, OURS);
    assert!(reported(&group)[0].2.starts_with("InSlot"), "{:?}", reported(&group));
    // Garbage on its topic does not end the session of a device that is up.
    group.sends("a", DeviceTopic::Birth, b"{}");
    assert!(reported(&group)[0].2.starts_with("InSlot"), "{:?}", reported(&group));
    group.sends("a", DeviceTopic::Status, &serde_json::to_vec(&status(DeviceState::Down, Boot(1))).unwrap());
    group.sends("a", DeviceTopic::Birth, &of_another_release("y"));
    assert!(reported(&group)[0].2.contains("Refused(Malformed"), "{:?}", reported(&group));
    group.sends("a", DeviceTopic::Birth, b"");
    assert_eq!(reported(&group), [], "its birth was cleared");
    let mut waiting = Group::new();
    waiting.sends("b", DeviceTopic::Birth, &serde_json::to_vec(&birth("b", 0, OURS)).unwrap());
    waiting.sends("b", DeviceTopic::Status, b"up");
    assert!(reported(&waiting)[0].2.contains("Refused(Malformed"), "{:?}", reported(&waiting));
}

#[test]
fn messages_on_unknown_topics_are_counted_as_unroutable() {
    let mut group = Group::new();
    group.receives("headwater/v1/plant/other/dev/a/summary", b"");
    group.receives("headwater/v1/plant/gate/trigger", b"nonsense");
    group.receives("headwater/v1/plant/gate/trigger", br#"{"sample": -1}"#);
    assert_eq!(group.inbox.counts.lock().unroutable, 3);
    assert!(group.inbox.counts.lock().refused.is_empty());
}

#[test]
fn an_aggregator_that_stops_takes_no_new_samples() {
    let mut group = Group::with_device("a", 0);
    group.last_sample = Some(SampleId(100));
    group.sends("a", DeviceTopic::Summary, &message(Body::NotInView));
    group.check_seen(&[]);
    group.last_sample = Some(SampleId(101));
    group.sends("a", DeviceTopic::Summary, &message(Body::NotInView));
    group.check_seen(&[&answered(0, 101, false, "NotInView")]);
    // While stopping, late answers are ignored: the device sends them again to the next process. Features of open samples count.
    group.sends("a", DeviceTopic::Summary, &late(Body::NotInView));
    group.check_seen(&[]);
    group.sends("a", DeviceTopic::Features, &late(Body::Features(&[0, 0])));
    group.check_seen(&["Features"]);
}

/// A leader of a group whose sources number the samples, and a time.
fn leader() -> (Leader, Now) {
    let bundle = Bundle::from_bytes(&TinyNetwork::default().bundle()).unwrap();
    let mut leader = Leader::new(LeaderConfig::of(&bundle, 4), Exits { local: None, edge: None });
    let now = Now { since_start: Micros(0), wall_ms: 1_782_864_000_000 };
    leader.handle(now, Generation::Current, Event::Numbering(Numbering::Source), &mut Vec::new());
    (leader, now)
}

#[test]
fn an_implausible_sample_is_counted_for_its_device() {
    let mut group = Group::with_device("a", 0);
    let topic = group.topics.device(&device("a"), DeviceTopic::Summary);
    let (mut leader, now) = leader();
    for payload in [message(Body::NotInView), late(Body::NotInView)] {
        let received = group.received(&topic, &payload);
        group
            .inbox
            .receive(received, |generation, event| leader.handle(now, generation, event, &mut Vec::new()));
    }
    assert_eq!(group.refused("a"), BTreeMap::from([("implausible", 2)]));
}

/// A group of three slots under a network with scores of 4 bits and coded maps.
fn coded_group() -> (Group, MessageFormat, Bundle) {
    let network = TinyNetwork { scores: ScoreEncoding::Bits4, codes_maps: true, ..TinyNetwork::default() };
    let bundle = Bundle::from_bytes(&network.bundle()).unwrap();
    let format = MessageFormat::new(&bundle, Vec::new()).unwrap();
    let mut group = Group::under(PerNetwork::new(format.clone()));
    group.introduces("a", 1, format.network);
    group.seen.clear();
    (group, format, bundle)
}

fn message_under(format: &MessageFormat, body: Body<'_>) -> Vec<u8> {
    message_within(&format.limits, Session::of_boot(format.network, Boot(1)), body)
}

#[test]
fn coded_scores_and_maps_reach_the_leader_as_scores_and_maps() {
    let (mut group, format, bundle) = coded_group();
    let slot = Slot::new(1).unwrap();
    let scores = ScoreCoder::of(bundle.manifest(), slot);
    let mut rounded = [0.3, -9.0, 7.1, 0.0];
    scores.round(&mut rounded);
    let mut body = Vec::new();
    scores.put(&rounded, &mut body);
    group.sends("a", DeviceTopic::Summary, &message_under(&format, Body::Summary(&body)));
    let mut map = vec![0u8; bundle.manifest().features.packed_bytes()];
    map[0] = 0b101;
    let body = MapCoder::of(&bundle, slot).unwrap().unwrap().encode(&map).unwrap();
    assert!(body.len() < map.len());
    group.sends("a", DeviceTopic::Features, &message_under(&format, Body::Features(&body)));
    let features = format!(
        "Features {{ slot: Slot(1), sample: SampleId(101), late: false, bits: {map:?}, body_bytes: {} }}",
        body.len()
    );
    group.check_seen(&[&answered(1, 101, false, &format!("Summary({rounded:?})")), &features]);
}

#[test]
fn coded_maps_that_are_cut_off_padded_too_long_or_of_other_contexts_are_refused_and_counted() {
    let (mut group, format, bundle) = coded_group();
    let packed = bundle.manifest().features.packed_bytes();
    let map: Vec<u8> = (0..packed).map(|byte| if byte % 3 == 0 { 0x11 } else { 0 }).collect();
    let coder = MapCoder::of(&bundle, Slot::new(1).unwrap()).unwrap().unwrap();
    let body = coder.encode(&map).unwrap();
    let table: Vec<u8> = coder.table().iter().map(|byte| 255 - byte / 2).collect();
    let other = MapCoder::new(&bundle.manifest().features, table).unwrap();
    let padded = [&body[..], &[0]].concat();
    let mut head = message_under(&format, Body::Features(&body));
    head.truncate(head.len() - body.len());
    let bodies =
        [&body[..body.len() - 1], &padded, &[7; 300], &[], &other.encode(&vec![0xff; packed]).unwrap()[..]];
    for (sent, wrong) in bodies.iter().enumerate() {
        group.sends("a", DeviceTopic::Features, &[&head, *wrong].concat());
        let refused: u64 = group.refused("a").values().sum();
        assert_eq!((refused, group.seen.len()), (sent as u64 + 1, 0), "{wrong:?}");
    }
    group.sends("a", DeviceTopic::Features, &[head, body].concat());
    assert_eq!(group.seen.len(), 1);
}

#[test]
fn a_bundle_without_the_context_table_of_a_slot_makes_no_format() {
    let (_, _, bundle) = coded_group();
    let bundle = Bundle::from_bytes(&bundle.only(&["cloud"]).unwrap()).unwrap();
    let error = MessageFormat::new(&bundle, Vec::new()).unwrap_err().to_string();
    assert!(error.contains("device-0"), "{error}");
}

/// A batch of samples from 101 on, each 10 ms younger than the one before; `None` is a sample without a view.
fn batch(scores: &[Option<[f32; 2]>]) -> Vec<u8> {
    let bodies: Vec<Option<Vec<u8>>> = scores.iter().map(|scores| scores.map(bytes_of)).collect();
    let entries = bodies.iter().enumerate().map(|(at, body)| {
        let answer = body.as_deref().map_or(BatchedAnswer::NotInView, BatchedAnswer::Summary);
        BatchEntry { sample: SampleId(101 + at as u64), age_ms: 10 * (scores.len() - at) as u16, answer }
    });
    let entries: Vec<_> = entries.collect();
    let mut payload = Vec::new();
    let taken = encode_batch(Session::of_boot(OURS, Boot(1)), &entries, &LIMITS, &mut payload).unwrap();
    assert_eq!(taken, scores.len());
    payload
}

/// The event of an answer in a batch of slot 1, as text.
fn batched(sample: u64, age_ms: u16, answer: &str) -> String {
    answered(1, sample, false, answer).replace("age_ms: 3", &format!("age_ms: {age_ms}"))
}

#[test]
fn each_answer_of_a_batch_becomes_the_event_of_a_message_of_its_own() {
    let mut group = Group::with_device("a", 1);
    group.sends("a", DeviceTopic::Summary, &batch(&[Some([0.5, -1.0]), None, Some([1.0, 2.0])]));
    group.check_seen(&[
        &batched(101, 30, "Summary([0.5, -1.0])"),
        &batched(102, 20, "NotInView"),
        &batched(103, 10, "Summary([1.0, 2.0])"),
    ]);
    group.sends("a", DeviceTopic::Summary, &batch(&[None; MAX_BATCH_SAMPLES]));
    assert_eq!(group.seen.len(), MAX_BATCH_SAMPLES);
    assert!(group.inbox.counts.lock().refused.is_empty());
}

#[test]
fn a_wrong_batch_makes_no_event_and_is_counted_once() {
    let limits = |_| Some(ScoreLimits::recorded([-1.0, 2.0], 2));
    let format = MessageFormat { device_scores: (0..2).map(limits).collect(), ..format(OURS) };
    let mut group = Group::under(PerNetwork::new(format));
    group.introduces("a", 1, OURS);
    group.seen.clear();
    let whole = batch(&[Some([0.5, 1.0]), None]);
    let mut is_late = whole.clone();
    is_late[1] |= 1;
    let wrong = [
        batch(&[None, Some([0.0, 1e30])]),
        batch(&[Some([0.0, 1.0]), Some([f32::NAN, 0.0])]),
        whole[..whole.len() - 1].to_vec(),
        [&whole[..], &[1]].concat(),
        whole[..12].to_vec(),
        is_late,
    ];
    for payload in &wrong {
        group.sends("a", DeviceTopic::Summary, payload);
    }
    group.sends("a", DeviceTopic::Features, &whole);
    group.check_seen(&[]);
    assert_eq!(group.refused("a"), BTreeMap::from([("malformed", wrong.len() as u64 + 1)]));
    group.sends("a", DeviceTopic::Summary, &whole);
    assert_eq!(group.seen.len(), 2);
}

#[test]
fn an_aggregator_that_stops_takes_no_new_samples_of_a_batch() {
    let mut group = Group::with_device("a", 1);
    group.last_sample = Some(SampleId(102));
    group.sends("a", DeviceTopic::Summary, &batch(&[None; 4]));
    group.check_seen(&[&batched(101, 40, "NotInView"), &batched(102, 30, "NotInView")]);
}

#[test]
fn each_implausible_sample_of_a_batch_is_counted_and_the_others_count() {
    let mut group = Group::with_device("a", 1);
    let topic = group.topics.device(&device("a"), DeviceTopic::Summary);
    let mut taken = Vec::new();
    let payload = batch(&[None; 4]);
    let received = group.received(&topic, &payload);
    group.inbox.receive(received, |_, event| {
        let Event::DeviceAnswer { sample, .. } = event else { return None };
        taken.push(sample.0);
        implausible().filter(|_| sample.0 % 2 == 0)
    });
    assert_eq!(taken, [101, 102, 103, 104]);
    assert_eq!(group.refused("a"), BTreeMap::from([("implausible", 2)]));
}

/// A leader's refusal of a sample.
fn implausible() -> Option<Implausible> {
    let (mut leader, now) = leader();
    let (slot, sample) = (Slot::new(1).unwrap(), SampleId(5));
    let answer = DeviceAnswer::NotInView;
    let answer = Event::DeviceAnswer { slot, sample, age_ms: 0, late: false, answer, frame: None };
    leader.handle(now, Generation::Current, answer, &mut Vec::new())
}

#[test]
fn batches_are_allowed_while_a_device_sends_them_and_every_edge_is_in_this_process() {
    for (remote_edges, capability, expected) in [
        (Vec::new(), "batches", true),
        (Vec::new(), "other", false),
        (vec![SlotSet::first(2)], "batches", false),
    ] {
        let mut group = Group::under(PerNetwork::new(MessageFormat { remote_edges, ..format(OURS) }));
        assert!(!group.inbox.takes_batches(), "nobody is there");
        group.introduces("a", 1, OURS);
        let birth = Birth { capabilities: vec![capability.to_owned()], ..birth("a", 1, OURS) };
        group.sends("a", DeviceTopic::Birth, &serde_json::to_vec(&birth).unwrap());
        assert_eq!(group.inbox.takes_batches(), expected, "{capability}");
    }
}

#[test]
fn a_retained_answer_is_refused() {
    let mut group = Group::with_device("a", 1);
    group.is_retained = true;
    group.sends("a", DeviceTopic::Summary, &message(Body::NotInView));
    group.check_seen(&[]);
    assert_eq!(group.refused("a"), [("malformed", 1)].into());
    group.is_retained = false;
    group.sends("a", DeviceTopic::Summary, &message(Body::NotInView));
    group.check_seen(&[&answered(1, 101, false, "NotInView")]);
}

#[test]
fn a_retained_trigger_is_refused() {
    let mut group = Group::new();
    let topic = group.topics.name(&Topic::Trigger);
    for (retained, seen) in [(true, 0), (false, 1)] {
        group.is_retained = retained;
        group.receives(&topic, br#"{"sample": 7}"#);
        assert_eq!((group.seen.len(), group.inbox.refused_triggers), (seen, 1));
    }
}
