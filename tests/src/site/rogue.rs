//! The rogue table: attacks of a rogue client on a site without identity, and on a site with identity. On a site with identity the rogue
//! client has the certificate of another authority, of a device, of a device of another group, of a consumer, or of an operator.
//! Attacks of a cloud are in `liars.rs`, and those of a broker in `relay.rs`; both give rows of the type [`RogueRow`] too.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use headwater_group::GroupClient;
use headwater_link::{Incoming, Link, LinkConfig, QoS};
use headwater_protocol::scores::put_levels;
use headwater_protocol::testing::birth;
use headwater_protocol::{
    Birth, Body, Boot, DeviceId, DeviceState, DeviceTopic, EdgeId, EdgeTopic, GroupId, Header, LeaderClaim,
    Limits, MemberName, Message, NetworkId, Numbering, SampleId, Schema, ScoreEncoding, Session,
    SettledNotice, SiteId, Slot, SlotSet, Status, Topic, Topics, decode, encode,
};
use headwater_transport::BrokerAccess;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::account::{Outcome, Reference, SampleRange, outcomes, receive, sample_now};
use super::{DEVICE_NAMES, GROUPS, LIMIT, PERIOD_MS, SITE, Site};
use crate::shipped;

/// The messages that the rogue client sends. The victim is the device `cam-0` of the first group; the client's own device is `cam-5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Scores in the name of the victim.
    Summary,
    /// Settled notices in the leader's name that close all samples.
    Settled,
    /// Requests in the leader's name for the devices' features.
    Request,
    /// Results in the leader's name.
    Result,
    /// Births of the victim with another slot, and empty births.
    Birth,
    /// A birth of the client's own device with the victim's slot.
    Slot,
    /// A status of the victim that says `down`.
    Status,
    /// Claims of a leader that does not exist, with a term above the real leader's.
    Leader,
    /// Triggers, most of them with ids far from the group's.
    Trigger,
    /// Answers of an edge that does not exist.
    EdgeAnswer,
    /// A thousand messages every 50 ms or so, in the name of the victim.
    Flood,
    /// Meaningless bytes on topics of the group and of the victim.
    Garbage,
    /// Births and statuses of devices that do not exist.
    Names,
    /// Scores in the name of the victim and of the client's own device, as if from another network.
    Bundle,
    /// An earlier summary of the victim, sent again.
    Replay,
    /// Plausible but false scores of the client's own view.
    Lie,
    /// Commands that would change the policy, in the names `operator` and `boss`, and that no leader may accept.
    Policy,
}

/// The kind of site and the certificate of the rogue client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The site has no identity: everybody may connect to the broker.
    NoIdentity,
    /// The site has identity; the client has a certificate of another authority.
    Stranger,
    /// The site has identity; the client has the certificate of the device `cam-5` of the first group.
    OtherDevice,
    /// The site has identity; the client has the certificate of the device `cam-5` of the second group.
    OtherGroup,
    /// The site has identity; the client has the certificate of a consumer of the first group.
    Consumer,
    /// The site has identity; the client has the certificate of an operator of the first group.
    Operator,
}

/// Every attack in the order of the enum, with its name in the table.
pub const ROWS: [(Attack, &str); 17] = [
    (Attack::Summary, "spoofed summary"),
    (Attack::Settled, "spoofed `settled`"),
    (Attack::Request, "spoofed `request`"),
    (Attack::Result, "spoofed `result`"),
    (Attack::Birth, "spoofed birth"),
    (Attack::Slot, "the slot of another device"),
    (Attack::Status, "spoofed status"),
    (Attack::Leader, "spoofed `leader`"),
    (Attack::Trigger, "trigger"),
    (Attack::EdgeAnswer, "spoofed edge answer"),
    (Attack::Flood, "flood"),
    (Attack::Garbage, "garbage"),
    (Attack::Names, "made-up names"),
    (Attack::Bundle, "another bundle"),
    (Attack::Replay, "a replayed old message"),
    (Attack::Lie, "a lie about its own view"),
    (Attack::Policy, "unsound commands"),
];

/// The columns of a site with identity.
pub const WITH_IDENTITY: [Column; 5] =
    [Column::Stranger, Column::OtherDevice, Column::OtherGroup, Column::Consumer, Column::Operator];

impl Column {
    /// The role of the client in the table.
    fn role(self) -> &'static str {
        match self {
            Self::NoIdentity => "anybody, at a site without identity",
            Self::Stranger => "stranger",
            Self::OtherDevice => "another device",
            Self::OtherGroup => "device of another group",
            Self::Consumer => "consumer",
            Self::Operator => "operator",
        }
    }

    /// Attacks that are tried with the client's certificate. A stranger gets no connection, so a few attacks of a stranger are enough.
    pub fn attacks(self) -> Vec<Attack> {
        use Attack::{Birth, Flood, Leader, Policy, Request, Result, Settled, Summary, Trigger};
        match self {
            Self::NoIdentity | Self::OtherDevice => ROWS.map(|(attack, _)| attack).to_vec(),
            Self::Stranger => vec![Summary, Result, Birth, Leader, Trigger],
            Self::OtherGroup => vec![Summary, Birth, Trigger, Flood],
            Self::Consumer => vec![Summary, Result, Settled, Trigger, Policy],
            Self::Operator => vec![Summary, Request, Result, Leader, Trigger, Policy],
        }
    }

    /// The expected result of an attack, as text for the table.
    fn expected(self, attack: Attack) -> &'static str {
        match self {
            Self::NoIdentity => "believed or refused; the other group is untouched",
            Self::Stranger => "no connection; each sample ends once, none wrong",
            _ if self.may_publish(attack) => match attack {
                Attack::Lie | Attack::Slot => {
                    "its own slot is wrong or missing; the other group is untouched"
                }
                _ => "refused by the leader; each sample ends once, none wrong",
            },
            _ => "not passed on; each sample ends once, none wrong",
        }
    }

    /// True when the broker may pass messages of the attack on, because the client may publish on their topics.
    fn may_publish(self, attack: Attack) -> bool {
        match self {
            Self::NoIdentity => true,
            Self::OtherDevice => matches!(attack, Attack::Lie | Attack::Slot | Attack::Bundle),
            Self::Operator => matches!(attack, Attack::Trigger | Attack::Policy),
            Self::Stranger | Self::OtherGroup | Self::Consumer => false,
        }
    }
}

/// A row of the rogue table.
#[derive(Clone, Debug)]
pub struct RogueRow {
    /// The role of the attacker.
    pub role: &'static str,
    /// The attack.
    pub attempt: String,
    /// The expected result.
    pub expected: &'static str,
    /// The result that was found.
    pub seen: String,
    /// True when the result is as expected.
    pub is_sound: bool,
}

/// Head of the table.
pub const HEAD: &str = "\
| role | attempt | expected | seen | as expected |
| --- | --- | --- | --- | --- |";

impl RogueRow {
    /// Line of the table.
    pub fn line(&self) -> String {
        let Self { role, attempt, expected, seen, is_sound } = self;
        format!("| {role} | {attempt} | {expected} | {seen} | {} |", if *is_sound { "yes" } else { "**no**" })
    }
}

/// True when each group has decisions, each captured sample has one end, and, with `none_wrong`, no complete answer is wrong.
pub(super) fn end_once(outcomes: &[Outcome], none_wrong: bool) -> bool {
    let ends_once =
        |outcome: &Outcome| outcome.lost() == 0 && outcome.contradicted == 0 && outcome.decided > 0;
    outcomes.iter().all(|outcome| ends_once(outcome) && (!none_wrong || outcome.wrong.is_empty()))
}

/// Results of one attack of one client.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Reason for which the broker refused the client; `None` if the client was connected.
    pub refused: Option<String>,
    /// Messages that the client sent.
    pub sent: u64,
    /// Messages of the client that the broker passed on.
    pub passed: u64,
    /// Outcome of each group; the first group is attacked.
    pub outcomes: Vec<Outcome>,
    /// Growth of some counters of the aggregator during the attack, by their names in the table.
    pub counted: BTreeMap<String, u64>,
}

impl Attack {
    /// Name in the table.
    pub fn name(self) -> &'static str {
        ROWS[self as usize].1
    }

    /// Messages of one round of the attack. `round` is the number of earlier rounds.
    fn round(self, known: &GroupKnowledge, round: u64) -> Vec<Forged> {
        let next = SampleId(sample_now() + 1);
        let other = NetworkId([0x5a; 32]);
        match self {
            Self::Summary => vec![known.summary(0, next, None)],
            Self::Lie => vec![known.summary(5, next, None)],
            Self::Settled => vec![known.settled(next, round)],
            Self::Request => vec![known.request(next)],
            Self::Result => {
                known.result.iter().map(|result| known.on(&Topic::Result, result.clone())).collect()
            }
            Self::Birth => known.foreign_births(round),
            Self::Slot => vec![known.birth_with_taken_slot()],
            Self::Status => vec![known.down()],
            Self::Leader => vec![known.claim(round)],
            Self::Trigger => [u64::MAX, 1 << 40, next.0 + 5].map(|id| known.trigger(id)).into(),
            Self::EdgeAnswer => vec![known.edge_answer(next)],
            Self::Flood => (0..1000).map(|_| known.summary(0, next, None)).collect(),
            Self::Garbage => known.garbage(round),
            Self::Names => (0..50).flat_map(|number| known.made_up_device(round, number)).collect(),
            Self::Bundle => vec![known.summary(0, next, Some(other)), known.summary(5, next, Some(other))],
            Self::Policy => known.commands(),
            Self::Replay => {
                let topic = device_topic(&known.topics, DEVICE_NAMES[0], DeviceTopic::Summary);
                known.old_summary.iter().map(|old| (topic.clone(), old.clone(), false)).collect()
            }
        }
    }
}

/// A message of the rogue client: topic, payload, and the retain flag.
type Forged = (String, Vec<u8>, bool);

fn device_topic(topics: &Topics, name: &str, leaf: DeviceTopic) -> String {
    topics.device(&DeviceId::new(name).expect("a name"), leaf)
}

/// The rogue client's knowledge about the group. The worst case is assumed: the client has read all messages before.
struct GroupKnowledge {
    topics: Topics,
    network: NetworkId,
    boots: [u16; 6],
    /// A result of the leader, with another class.
    result: Option<Vec<u8>>,
    /// A summary that `cam-0` sent earlier.
    old_summary: Option<Vec<u8>>,
}

impl GroupKnowledge {
    /// A message that is not retained, on a topic of the group.
    fn on(&self, topic: &Topic, payload: Vec<u8>) -> Forged {
        (self.topics.name(topic), payload, false)
    }

    /// A summary in the name of the device in `slot`; its scores are certain of class 3.
    fn summary(&self, slot: usize, sample: SampleId, network: Option<NetworkId>) -> Forged {
        // Class 3 gets the highest level of 4 bits, and every other class the lowest.
        let mut scores = Vec::new();
        put_levels(
            (0..10).map(|class| if class == 3 { 15 } else { 0 }),
            ScoreEncoding::Bits4.bits(),
            &mut scores,
        );
        let payload = self.message(&Body::Summary(&scores), (sample, self.boots[slot]), network);
        (device_topic(&self.topics, DEVICE_NAMES[slot], DeviceTopic::Summary), payload, false)
    }

    /// A settled notice by which all samples up to 100,000 after `next` are closed.
    fn settled(&self, next: SampleId, round: u64) -> Forged {
        let mut notice = SettledNotice::default();
        notice.account.highest = SampleId(next.0 + 100_000);
        notice.closed = vec![(SampleId(0), SampleId(next.0 + 100_000))];
        (self.topics.name(&Topic::Settled), json(&notice), round.is_multiple_of(2))
    }

    /// A request to all devices and to slot 63, which the network does not have. So the message never equals a request of the leader.
    fn request(&self, next: SampleId) -> Forged {
        let slots: SlotSet = Slot::first(6).chain(Slot::new(63)).collect();
        self.on(&Topic::Request, self.message(&Body::Request(slots), (next, 0), None))
    }

    fn trigger(&self, id: u64) -> Forged {
        self.on(&Topic::Trigger, self.message(&Body::Trigger, (SampleId(id), 0), None))
    }

    /// Commands that no leader may accept: a threshold out of range, an unknown key, no JSON, too many bytes, and one from another member.
    fn commands(&self) -> Vec<Forged> {
        let on = |name: &str, payload: Vec<u8>| {
            let member = MemberName::new(name).expect("a name");
            self.on(&Topic::Policy(member), payload)
        };
        let text = |text: &str| text.as_bytes().to_vec();
        vec![
            on("operator", text(r#"{"changes":{"local.threshold":7}}"#)),
            on("operator", text(r#"{"changes":{"local.treshold":0.5}}"#)),
            on("operator", text("threshold = 0.5")),
            on("operator", vec![b'{'; 40_000]),
            on("boss", text(r#"{"changes":{"local.threshold":-1}}"#)),
        ]
    }

    fn edge_answer(&self, next: SampleId) -> Forged {
        let edge = EdgeId::new("edge-0").expect("a name");
        let body = Body::EdgeFeatures { slots: Slot::first(6).collect(), scores: &[0; 40], map: &[] };
        self.on(&Topic::Edge(edge, EdgeTopic::Features), self.message(&body, (next, 1), None))
    }

    fn claim(&self, round: u64) -> Forged {
        let claim = LeaderClaim {
            schema: Schema,
            instance: headwater_protocol::InstanceId(0xbad),
            process: headwater_protocol::InstanceId(7),
            term: 1_000_000 + round,
            state: DeviceState::Up,
            software: "rogue/1".into(),
            since: "2026-01-01T00:00:00Z".into(),
            beat: round,
        };
        (self.topics.name(&Topic::Leader), json(&claim), true)
    }

    /// A birth in the name of a device.
    fn birth(&self, device: &str, slot: u8, boot: u16) -> Birth {
        Birth { boot: Boot(boot), software: "rogue/1".into(), ..birth(device, slot, self.network) }
    }

    /// A birth of `cam-0` with slot 3 and the numbering by trigger, then an empty birth; both are retained.
    fn foreign_births(&self, round: u64) -> Vec<Forged> {
        let birth = self.birth(DEVICE_NAMES[0], 3, round as u16);
        let birth = Birth { numbering: Some(Numbering::Trigger), ..birth };
        let topic = device_topic(&self.topics, DEVICE_NAMES[0], DeviceTopic::Birth);
        vec![(topic.clone(), json(&birth), true), (topic, Vec::new(), true)]
    }

    /// A birth of `cam-5` with the slot of `cam-0`, as if `cam-5` replaced `cam-0`. The real `cam-5` runs on.
    fn birth_with_taken_slot(&self) -> Forged {
        let birth = self.birth(DEVICE_NAMES[5], 0, self.boots[5].wrapping_add(1));
        (device_topic(&self.topics, DEVICE_NAMES[5], DeviceTopic::Birth), json(&birth), false)
    }

    fn down(&self) -> Forged {
        let down =
            Status { schema: Schema, state: DeviceState::Down, boot: Boot(self.boots[0]), frozen: None };
        (device_topic(&self.topics, DEVICE_NAMES[0], DeviceTopic::Status), json(&down), true)
    }

    /// Meaningless bytes on the topics of the group and of `cam-0`.
    fn garbage(&self, round: u64) -> Vec<Forged> {
        let bytes = |seed: u64| -> Vec<u8> {
            (0..64).map(|at| (seed.wrapping_mul(2_654_435_761).rotate_left(at) >> 7) as u8).collect()
        };
        let of_group = [Topic::Trigger, Topic::Request, Topic::Settled, Topic::Leader, Topic::Result];
        let of_device = [
            DeviceTopic::Summary,
            DeviceTopic::Features,
            DeviceTopic::Birth,
            DeviceTopic::Status,
            DeviceTopic::Decision,
        ];
        let of_group = of_group.iter().map(|topic| self.topics.name(topic));
        let of_device = of_device.iter().map(|leaf| device_topic(&self.topics, DEVICE_NAMES[0], *leaf));
        let topics = of_group.chain(of_device).zip(round * 100..);
        topics.map(|(topic, seed)| (topic, bytes(seed), false)).collect()
    }

    /// Birth and status of a device that does not exist.
    fn made_up_device(&self, round: u64, number: u64) -> [Forged; 2] {
        let name = format!("ghost-{round}-{number}");
        let birth = self.birth(&name, (number % 6) as u8, 1);
        let up = Status { schema: Schema, state: DeviceState::Up, boot: Boot(1), frozen: None };
        [(DeviceTopic::Birth, json(&birth)), (DeviceTopic::Status, json(&up))]
            .map(|(leaf, payload)| (device_topic(&self.topics, &name, leaf), payload, false))
    }

    fn message(
        &self,
        body: &Body<'_>,
        (sample, boot): (SampleId, u16),
        network: Option<NetworkId>,
    ) -> Vec<u8> {
        let network = network.unwrap_or(self.network);
        let session = match body {
            Body::Trigger | Body::Request(_) => Session::of_network(network),
            _ => Session::of_boot(network, Boot(boot)),
        };
        let header = Header { late: false, session, sample, age_ms: 0 };
        let limits = shipped_limits();
        let mut payload = Vec::new();
        // A body beyond the limits leaves an empty or partial message, which is garbage too.
        let _ = encode(&Message { header, body: *body }, &limits, &mut payload);
        payload
    }
}

/// Limits of messages in a group with the shipped network.
fn shipped_limits() -> Limits {
    Limits { classes: 10, scores: ScoreEncoding::Bits4, ..Limits::default() }
}

/// True for a summary with scores; false for the message that the sample is not in view, and for bytes that are no message.
fn is_summary(payload: &[u8]) -> bool {
    let message = decode(payload, &shipped_limits());
    message.is_ok_and(|message| matches!(message.body, Body::Summary(_)))
}

fn json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("names and numbers have a JSON form")
}

/// A client that reads all messages of a group, with the operator's certificate.
struct Listener {
    _link: Link,
    incoming: mpsc::Receiver<Incoming>,
    retained: BTreeMap<String, Vec<u8>>,
}

impl Listener {
    async fn start(site: &Site, group: &str) -> Self {
        let filter = format!("headwater/v1/{SITE}/{group}/#");
        let mut config =
            LinkConfig::new(site.access(group, "operator"), format!("listener-{}", std::process::id()))
                .subscribe(filter, QoS::AtMostOnce);
        config.incoming_messages = 1 << 17;
        let (link, incoming) = Link::start(config).expect("a filter");
        let mut listener = Self { _link: link, incoming, retained: BTreeMap::new() };
        let until = Instant::now() + LIMIT;
        while listener.retained.len() < 13 && Instant::now() < until {
            listener.take(|_, _| {});
            sleep(Duration::from_millis(20)).await;
        }
        listener
    }

    /// Passes each message that has arrived to `each`, and stores retained messages.
    fn take(&mut self, mut each: impl FnMut(&str, &[u8])) {
        while let Ok(incoming) = self.incoming.try_recv() {
            if let Incoming::Message { topic, payload, retain } = incoming {
                if retain {
                    self.retained.insert(topic.clone(), payload.to_vec());
                }
                each(&topic, &payload);
            }
        }
    }

    /// Waits until a result and a summary of `cam-0` have arrived, and returns the knowledge of the rogue client.
    async fn knowledge(&mut self) -> GroupKnowledge {
        let (site, group) = (SiteId::new(SITE).expect("a name"), GroupId::new(GROUPS[0]).expect("a name"));
        let topics = Topics::new(&site, &group);
        let mut boots = [0; 6];
        for (slot, boot) in boots.iter_mut().enumerate() {
            let device = DeviceId::new(DEVICE_NAMES[slot]).expect("a name");
            let birth = self.retained.get(&topics.device(&device, DeviceTopic::Birth));
            let birth = birth.and_then(|payload| serde_json::from_slice::<Birth>(payload).ok());
            *boot = birth.map_or(0, |birth| birth.boot.0);
        }
        let (mut result, mut old_summary) = (None, None);
        let (result_topic, cam) = (topics.name(&Topic::Result), DeviceId::new("cam-0").expect("a name"));
        let summary_topic = topics.device(&cam, DeviceTopic::Summary);
        let until = Instant::now() + LIMIT;
        while (result.is_none() || old_summary.is_none()) && Instant::now() < until {
            self.take(|topic, payload| {
                if topic == result_topic {
                    result = forged(payload);
                } else if topic == summary_topic && is_summary(payload) {
                    old_summary = Some(payload.to_vec());
                }
            });
            sleep(Duration::from_millis(20)).await;
        }
        assert!(result.is_some() && old_summary.is_some(), "no result and no summary of cam-0 in time");
        GroupKnowledge { topics, network: shipped::bundle().network_id(), boots, result, old_summary }
    }
}

/// The result with another class; `None` for a result without a class.
fn forged(result: &[u8]) -> Option<Vec<u8>> {
    let mut value: serde_json::Value = serde_json::from_slice(result).ok()?;
    value["class"] = serde_json::json!((value["class"].as_u64()? + 1) % 10);
    value["label"] = serde_json::json!("forged");
    serde_json::to_vec(&value).ok()
}

/// Address of the broker, and the certificate that the rogue client shows there.
fn access(column: Column, site: &Site, stranger: &Site) -> BrokerAccess {
    match column {
        Column::NoIdentity => site.access(GROUPS[0], "cam-5"),
        // The client trusts the broker, but its certificate is of another authority.
        Column::Stranger => {
            site.access_as(&site.member(GROUPS[0], "cam-0"), &stranger.member(GROUPS[0], "cam-0"))
        }
        Column::OtherDevice => site.access(GROUPS[0], "cam-5"),
        Column::OtherGroup => site.access(GROUPS[1], "cam-5"),
        Column::Consumer => site.access(GROUPS[0], "screen"),
        Column::Operator => site.access(GROUPS[0], "operator"),
    }
}

/// Runs one attack on a running site for `time`.
///
/// # Panics
/// When a message of the real leader cannot be read.
pub async fn run(
    (attack, column): (Attack, Column),
    (site, stranger): (&Site, &Site),
    clients: &mut [GroupClient],
    (reference, time): (&Reference, Duration),
) -> Cell {
    let mut listener = Listener::start(site, GROUPS[0]).await;
    let known = listener.knowledge().await;
    let client_id = format!("rogue-{}", std::process::id());
    let mut config = LinkConfig::new(access(column, site, stranger), client_id);
    config.outgoing_messages = 1 << 15;
    let (link, _incoming) = Link::start(config).expect("settings of the rogue client");
    let mut failures = link.failures();
    let connected = async {
        while !link.is_connected() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let refused = tokio::select! {
        () = connected => None,
        failure = failures.wait_for(Option::is_some) => {
            Some(failure.ok().and_then(|failure| failure.clone()).map(|failure| failure.to_string()).unwrap_or_default())
        }
    };
    let (before, range) = (site.metrics(), SampleRange::begin(site, 1));
    let (mut sent, mut passed, mut forged) = (0, 0, BTreeSet::new());
    let until = Instant::now() + time;
    let mut round = 0;
    while Instant::now() < until {
        if refused.is_none() {
            for (topic, payload, retain) in attack.round(&known, round) {
                forged.insert((topic.clone(), payload.clone()));
                sent += u64::from(link.publish(topic, payload, QoS::AtMostOnce, retain).is_ok());
            }
        }
        round += 1;
        receive(clients, Duration::from_millis(50)).await;
        listener.take(|topic, payload| {
            passed += u64::from(forged.contains(&(topic.to_owned(), payload.to_vec())));
        });
    }
    let range = range.ended_now();
    receive(clients, Duration::from_millis(500)).await;
    listener.take(|topic, payload| {
        passed += u64::from(forged.contains(&(topic.to_owned(), payload.to_vec())));
    });
    link.kill();
    let outcomes = outcomes(site, clients, range, reference).await;
    let counted = grown(&before, &site.metrics());
    cleanup(site, &known, column).await;
    Cell { refused, sent, passed, outcomes, counted }
}

/// Growth of the aggregator's counters whose names have a word of `TOLD`, by their names in the table. Counters that did not grow are left
/// out.
pub(super) fn grown(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> BTreeMap<String, u64> {
    const TOLD: [&str; 7] =
        ["refused", "implausible", "unroutable", "replaced", "forgotten", "degraded", "cloud_failures"];
    let mut counted = BTreeMap::new();
    for (name, value) in after {
        let grown = value - before.get(name).copied().unwrap_or(0.0);
        if grown > 0.0 && TOLD.iter().any(|word| name.contains(word)) {
            *counted.entry(short(name)).or_insert(0) += grown as u64;
        }
    }
    counted
}

/// Removes the retained `settled` and `leader` messages of the rogue client from the broker of a site without identity, and waits a few
/// periods. On a site with identity the client can leave no such messages.
async fn cleanup(site: &Site, known: &GroupKnowledge, column: Column) {
    if column == Column::NoIdentity {
        let config = LinkConfig::new(site.access(GROUPS[0], "operator"), "cleanup");
        if let Ok((link, _incoming)) = Link::start(config) {
            let until = Instant::now() + Duration::from_secs(5);
            while !link.is_connected() && Instant::now() < until {
                sleep(Duration::from_millis(10)).await;
            }
            for topic in [Topic::Settled, Topic::Leader] {
                // An error is ignored: without a connection there is nothing to remove.
                let _ = link.publish(known.topics.name(&topic), Vec::new(), QoS::AtLeastOnce, true);
            }
            sleep(Duration::from_millis(200)).await;
        }
    }
    sleep(Duration::from_millis(4 * PERIOD_MS)).await;
}

fn short(name: &str) -> String {
    let name = name.trim_start_matches("headwater_aggregator_");
    let label = |key: &str| {
        let value = name.split_once(&format!("{key}=\""))?.1;
        Some(value.split('"').next().unwrap_or_default().to_owned())
    };
    let metric = name.split('{').next().unwrap_or_default().trim_end_matches("_total").to_owned();
    match label("reason").or_else(|| label("code")) {
        Some(reason) => format!("{metric} {reason}"),
        None => metric,
    }
}

impl Cell {
    /// True when the cell is as expected: the other group loses no sample and has no wrong answer. A stranger gets no connection. The broker
    /// passes on only messages on the client's own topics. In the attacked group, only a device that lies or takes a slot does harm.
    pub fn is_sound(&self, attack: Attack, column: Column) -> bool {
        let other = self.outcomes.iter().skip(1).all(Outcome::is_sound);
        let own = self.outcomes.iter().take(1).all(Outcome::is_sound);
        let is_passed_as_allowed = column.may_publish(attack) || self.passed == 0;
        match column {
            Column::NoIdentity => other && self.sent > 0,
            Column::Stranger => other && own && self.refused.is_some() && self.passed == 0,
            Column::OtherDevice | Column::OtherGroup | Column::Consumer | Column::Operator => {
                let is_harmless = own || matches!(attack, Attack::Lie | Attack::Slot);
                other && is_harmless && self.sent > 0 && is_passed_as_allowed
            }
        }
    }

    /// The cell as text.
    pub fn text(&self) -> String {
        let mut text = match &self.refused {
            Some(reason) => format!("no connection ({})", reason.split(';').next().unwrap_or_default()),
            None => format!("{} sent, {} passed on", self.sent, self.passed),
        };
        text += &seen_text(&self.outcomes, &self.counted);
        text
    }

    /// The cell as a row of the table of all rogues.
    pub fn row(&self, attack: Attack, column: Column) -> RogueRow {
        RogueRow {
            role: column.role(),
            attempt: attack.name().to_owned(),
            expected: column.expected(attack),
            seen: self.text(),
            is_sound: self.is_sound(attack, column),
        }
    }
}

/// The ends of the samples of each group and the growth of counters, as text that begins with a semicolon.
pub(super) fn seen_text(outcomes: &[Outcome], counted: &BTreeMap<String, u64>) -> String {
    let mut text = String::new();
    for (group, outcome) in GROUPS.iter().zip(outcomes) {
        let all = outcome.decided + outcome.dropped.values().sum::<u64>() + outcome.open.len() as u64;
        let _ =
            write!(text, "; {group}: {} of {all} decided, {} complete", outcome.decided, outcome.complete);
        let wrong = outcome.wrong.len() as u64;
        for (count, what) in
            [(wrong, "wrong"), (outcome.contradicted, "contradicted"), (outcome.open.len() as u64, "open")]
        {
            if count > 0 {
                let _ = write!(text, ", {count} {what}");
            }
        }
    }
    for (name, count) in counted {
        let _ = write!(text, "; {name} +{count}");
    }
    text
}

/// Receives messages for longer than a sample takes, so that an attack begins after the one before has ended.
pub async fn settle(clients: &mut [GroupClient]) {
    receive(clients, Duration::from_secs(1)).await;
}
