//! A group on a broker: devices and an observer, whose messages the tests send and read themselves.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_edge_aggregator::{GroupLeader, LeaderReport, OpenedGroup, Shared, SharedConfig};
use headwater_inference::bundle::Bundle;
use headwater_inference::policy::{ExitPolicy, ExitThreshold, Policy, Threshold};
use headwater_inference::testing::TinyNetwork;
use headwater_link::broker::EmbeddedBroker;
use headwater_link::{Endpoint, Incoming, Link, LinkConfig, QoS, RetainedMessage};
use headwater_protocol::testing::birth;
use headwater_protocol::{
    BatchEntry, BatchedAnswer, Birth, Body, Boot, Decision, DeviceId, DeviceState, DeviceTopic, Exit,
    GroupId, Header, Limits, Message, NetworkId, SampleId, Schema, Session, Settled, SettledNotice, SiteId,
    SlotSet, Status, Topic, Topics, decode, encode, encode_batch,
};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Limit of every wait; long enough for a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// The names, network and broker of one group.
pub(crate) struct Group {
    pub(crate) broker: Endpoint,
    /// The group's own broker, which stops with the group.
    _server: Option<EmbeddedBroker>,
    pub(crate) bundle: Arc<Bundle>,
    pub(crate) limits: Limits,
    pub(crate) topics: Topics,
    site: SiteId,
    group: GroupId,
}

/// One device, whose messages the test sends.
pub(crate) struct Camera {
    pub(crate) link: Link,
    incoming: mpsc::Receiver<Incoming>,
    topics: Topics,
    limits: Limits,
    id: DeviceId,
    network: NetworkId,
}

/// Receiver of the leader's messages to the group.
pub(crate) struct Observer {
    incoming: mpsc::Receiver<Incoming>,
    topics: Topics,
    _link: Link,
}

/// A message to the group.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a test reads a few of them")]
pub(crate) enum Published {
    Result(Decision),
    Settled(Settled),
}

impl Group {
    /// A group of three slots on an embedded broker; its local exit is sure at or below `threshold`.
    pub(crate) fn new(threshold: f32) -> Self {
        let server = EmbeddedBroker::start().unwrap();
        let broker = server.address();
        Self { _server: Some(server), ..Self::named("gate", broker, threshold) }
    }

    pub(crate) fn named(name: &str, broker: Endpoint, threshold: f32) -> Self {
        let threshold = Threshold::One(ExitThreshold::new(threshold).unwrap());
        let local = ExitPolicy { threshold, ..ExitPolicy::default() };
        // Longer than a busy machine may stall: a window ends by time only if a device sends nothing.
        let policy =
            Policy { window_ms: 5_000, features_ms: 5_000, deadline_ms: 20_000, ..Policy::default() }
                .with(Exit::LOCAL, local);
        let bundle = Bundle::from_bytes(&TinyNetwork { policy, ..TinyNetwork::default() }.bundle()).unwrap();
        let limits = bundle.manifest().limits();
        let (site, group) = (SiteId::new("plant").unwrap(), GroupId::new(name).unwrap());
        let topics = Topics::new(&site, &group);
        Self { broker, _server: None, bundle: Arc::new(bundle), limits, topics, site, group }
    }

    pub(crate) fn config(&self) -> OpenedGroup {
        OpenedGroup::new(self.site.clone(), self.group.clone(), Arc::clone(&self.bundle))
    }

    pub(crate) fn shared(&self) -> SharedConfig {
        SharedConfig::new(self.broker.clone())
    }

    pub(crate) async fn leader(&self) -> GroupLeader {
        GroupLeader::start(&Shared::new(self.shared()).unwrap(), self.config()).await.unwrap()
    }

    /// A connection without a last will.
    pub(crate) async fn link(&self, client_id: &str) -> Link {
        let (link, mut incoming) = Link::start(LinkConfig::new(self.broker.clone(), client_id)).unwrap();
        assert_eq!(timeout(LIMIT, incoming.recv()).await.unwrap(), Some(Incoming::Connected));
        tokio::spawn(async move { while incoming.recv().await.is_some() {} });
        link
    }

    pub(crate) async fn observer(&self) -> Observer {
        let config = LinkConfig::new(self.broker.clone(), format!("observer-{}", self.group))
            .subscribe(self.topics.name(&Topic::Result), QoS::AtLeastOnce)
            .subscribe(self.topics.name(&Topic::Settled), QoS::AtLeastOnce);
        let (link, mut incoming) = Link::start(config).unwrap();
        assert_eq!(timeout(LIMIT, incoming.recv()).await.unwrap(), Some(Incoming::Connected));
        Observer { incoming, topics: self.topics.clone(), _link: link }
    }

    /// An observer, and devices in the first slots, once `leader` has filled these slots.
    pub(crate) async fn joined(&self, leader: &GroupLeader, cameras: u8) -> (Observer, Vec<Camera>) {
        let (observer, mut all) = (self.observer().await, Vec::new());
        for slot in 0..cameras {
            all.push(self.camera(slot).await);
        }
        filled(leader, all.len()).await;
        (observer, all)
    }

    /// A device that is up, with its birth published.
    pub(crate) async fn camera(&self, slot: u8) -> Camera {
        self.camera_as(slot, |_| {}).await
    }

    /// A device that is up, with a changed birth.
    pub(crate) async fn camera_as(&self, slot: u8, change: impl FnOnce(&mut Birth)) -> Camera {
        let mut birth = birth(&format!("cam-{slot}"), slot, self.bundle.network_id());
        change(&mut birth);
        let (id, network) = (birth.device.clone(), birth.network);
        let mut config = LinkConfig::new(self.broker.clone(), format!("{}-{id}", self.group))
            .subscribe(self.topics.name(&Topic::Request), QoS::AtLeastOnce);
        let retained = |leaf, text: Vec<u8>| RetainedMessage::new(self.topics.device(&id, leaf), text);
        config.retained = vec![
            retained(DeviceTopic::Birth, serde_json::to_vec(&birth).unwrap()),
            retained(DeviceTopic::Status, status(DeviceState::Up)),
        ];
        config.last_will = Some(retained(DeviceTopic::Status, status(DeviceState::Down)));
        let (link, mut incoming) = Link::start(config).unwrap();
        assert_eq!(timeout(LIMIT, incoming.recv()).await.unwrap(), Some(Incoming::Connected));
        Camera { link, incoming, topics: self.topics.clone(), limits: self.limits, id, network }
    }
}

pub(crate) fn status(state: DeviceState) -> Vec<u8> {
    serde_json::to_vec(&Status { schema: Schema, state, boot: Boot(1), frozen: None }).unwrap()
}

impl Camera {
    /// Bytes of scores that favour one class.
    fn scores(&self, class: usize) -> Vec<u8> {
        let scores = (0..self.limits.classes).map(|c| if c == class { 9.0f32 } else { 0.0 });
        scores.flat_map(f32::to_le_bytes).collect()
    }

    /// Sends scores that favour one class.
    pub(crate) fn sees(&self, sample: u64, class: usize) {
        self.send(DeviceTopic::Summary, sample, Body::Summary(&self.scores(class)));
    }

    /// Sends, in one message, scores that favour one class for each of these samples.
    pub(crate) fn sees_together(&self, samples: &[(u64, usize)]) {
        let bodies: Vec<_> = samples.iter().map(|(sample, class)| (*sample, self.scores(*class))).collect();
        let entries = bodies.iter().map(|(sample, body)| {
            let answer = BatchedAnswer::Summary(body);
            BatchEntry { sample: SampleId(*sample), age_ms: 0, answer }
        });
        let entries: Vec<_> = entries.collect();
        let mut payload = Vec::new();
        let taken =
            encode_batch(Session::of_boot(self.network, Boot(1)), &entries, &self.limits, &mut payload);
        assert_eq!(taken, Ok(samples.len()));
        let topic = self.topics.device(&self.id, DeviceTopic::Summary);
        self.link.publish(topic, payload, QoS::AtLeastOnce, false).unwrap();
    }

    pub(crate) fn sees_nothing(&self, sample: u64) {
        self.send(DeviceTopic::Summary, sample, Body::NotInView);
    }

    pub(crate) fn delivers(&self, sample: u64) {
        let bits = vec![0x5a; self.limits.feature_bits.div_ceil(8)];
        self.send(DeviceTopic::Features, sample, Body::Features(&bits));
    }

    pub(crate) fn sends_garbage(&self) {
        let topic = self.topics.device(&self.id, DeviceTopic::Summary);
        self.link.publish(topic, vec![0xff; 5000], QoS::AtLeastOnce, false).unwrap();
    }

    /// The slots and the sample of the next request for features.
    pub(crate) async fn request(&mut self) -> (SlotSet, SampleId) {
        let request = self.request_bytes().await;
        let message = decode(&request, &self.limits).unwrap();
        let Body::Request(slots) = message.body else { unreachable!("the topic has requests alone") };
        (slots, message.header.sample)
    }

    /// The bytes of the next request for features.
    pub(crate) async fn request_bytes(&mut self) -> Bytes {
        loop {
            let incoming = timeout(LIMIT, self.incoming.recv()).await.expect("a request").unwrap();
            if let Incoming::Message { payload, .. } = incoming {
                return payload;
            }
        }
    }

    fn send(&self, leaf: DeviceTopic, sample: u64, body: Body<'_>) {
        let session = Session::of_boot(self.network, Boot(1));
        let header = Header { late: false, session, sample: SampleId(sample), age_ms: 0 };
        let mut payload = Vec::new();
        encode(&Message { header, body }, &self.limits, &mut payload).unwrap();
        self.link.publish(self.topics.device(&self.id, leaf), payload, QoS::AtLeastOnce, false).unwrap();
    }
}

impl Observer {
    pub(crate) async fn result(&mut self) -> Decision {
        loop {
            if let Published::Result(decision) = self.next().await {
                return decision;
            }
        }
    }

    /// Waits until at least `decided` decisions are settled.
    pub(crate) async fn settled(&mut self, decided: u64) -> Settled {
        loop {
            match self.next().await {
                Published::Settled(settled) if settled.decided >= decided => return settled,
                _ => {}
            }
        }
    }

    pub(crate) async fn notice(&mut self) -> SettledNotice {
        loop {
            let (topic, payload) = self.message().await;
            if let Ok(Topic::Settled) = self.topics.parse(&topic) {
                return serde_json::from_slice(&payload).unwrap();
            }
        }
    }

    /// The next result, and whether it is marked as one that may have been published before.
    pub(crate) async fn marked_result(&mut self) -> (Decision, bool) {
        loop {
            let (topic, payload) = self.message().await;
            if let Published::Result(decision) = self.read(&topic, &payload) {
                let json: serde_json::Value = serde_json::from_slice(&payload).unwrap();
                return (decision, json.get("republished").is_some_and(|mark| *mark == true));
            }
        }
    }

    async fn next(&mut self) -> Published {
        let (topic, payload) = self.message().await;
        self.read(&topic, &payload)
    }

    async fn message(&mut self) -> (String, Bytes) {
        loop {
            let incoming = timeout(LIMIT, self.incoming.recv()).await.expect("a message").unwrap();
            if let Incoming::Message { topic, payload, .. } = incoming {
                return (topic, payload);
            }
        }
    }

    fn read(&self, topic: &str, payload: &Bytes) -> Published {
        match self.topics.parse(topic).unwrap() {
            Topic::Result => Published::Result(serde_json::from_slice(payload).unwrap()),
            Topic::Settled => Published::Settled(serde_json::from_slice(payload).unwrap()),
            other => panic!("{other:?}"),
        }
    }
}

/// Waits until exactly the first `count` slots are filled.
pub(crate) async fn filled(leader: &GroupLeader, count: usize) {
    until(leader, "births of all devices", |report| report.filled_slots == SlotSet::first(count)).await;
}

/// Waits until `is_so` holds for the leader's report, and returns the report. `expected` describes that report when the wait fails.
pub(crate) async fn until(
    leader: &GroupLeader,
    expected: &str,
    is_so: impl Fn(&LeaderReport) -> bool,
) -> LeaderReport {
    let wait = async {
        loop {
            let report = leader.report();
            if is_so(&report) {
                return report;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LIMIT, wait).await.unwrap_or_else(|_| panic!("expected {expected}, found {:?}", leader.report()))
}
