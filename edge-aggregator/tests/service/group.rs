//! A group on an embedded broker: devices, an onlooker, and what they say to each other.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_edge_aggregator::AggregatorConfig;
use headwater_inference::bundle::Bundle;
use headwater_inference::policy::{ExitPolicy, ExitThreshold, Policy, Threshold};
use headwater_inference::testing::TinyNetwork;
use headwater_link::broker::EmbeddedBroker;
use headwater_link::{BrokerAddress, Incoming, Link, LinkConfig, QoS, RetainedMessage};
use headwater_protocol::{
    Birth, Body, Boot, Decision, DeviceId, DeviceState, DeviceTopic, GroupId, Header, Limits, Message,
    NetworkId, SampleId, Settled, SiteId, Slot, Status, Topic, Topics, decode, encode,
};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Long enough for a loaded machine; nothing waits so long unless it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The names, network and broker of one group.
pub(crate) struct Group {
    pub(crate) broker: BrokerAddress,
    pub(crate) bundle: Arc<Bundle>,
    pub(crate) limits: Limits,
    topics: Topics,
    site: SiteId,
    group: GroupId,
}

/// One device, speaking by hand.
pub(crate) struct Camera {
    link: Link,
    incoming: mpsc::Receiver<Incoming>,
    topics: Topics,
    limits: Limits,
    id: DeviceId,
    network: NetworkId,
}

/// Hears what the aggregator says to the group.
pub(crate) struct Onlooker {
    incoming: mpsc::Receiver<Incoming>,
    topics: Topics,
    _link: Link,
}

/// What the onlooker heard.
#[derive(Debug)]
pub(crate) enum Heard {
    Result(Decision),
    Settled(Settled),
}

impl Group {
    /// A group of three slots whose local exit is sure at or below `threshold`.
    pub(crate) fn new(threshold: f32) -> Self {
        let broker = EmbeddedBroker::start(None).unwrap().address();
        Self::at(broker, threshold)
    }

    pub(crate) fn at(broker: BrokerAddress, threshold: f32) -> Self {
        let threshold = Threshold::One(ExitThreshold::new(threshold).unwrap());
        let local = ExitPolicy { threshold, ..ExitPolicy::default() };
        // Longer than a busy machine may stall, so that no window ends by time unless a device is silent.
        let policy =
            Policy { local, window_ms: 2_000, features_ms: 2_000, deadline_ms: 10_000, ..Policy::default() };
        let bundle = Bundle::from_bytes(&TinyNetwork { policy, ..TinyNetwork::default() }.bundle()).unwrap();
        let limits = bundle.manifest().limits();
        let (site, group) = (SiteId::new("plant").unwrap(), GroupId::new("gate").unwrap());
        let topics = Topics::new(&site, &group);
        Self { broker, bundle: Arc::new(bundle), limits, topics, site, group }
    }

    pub(crate) fn config(&self) -> AggregatorConfig {
        AggregatorConfig::new(self.site.clone(), self.group.clone(), self.broker.clone())
    }

    pub(crate) async fn onlooker(&self) -> Onlooker {
        let config = LinkConfig::new(self.broker.clone(), "onlooker")
            .subscribe(self.topics.name(&Topic::Result), QoS::AtLeastOnce)
            .subscribe(self.topics.name(&Topic::Settled), QoS::AtLeastOnce);
        let (link, mut incoming) = Link::start(config).unwrap();
        assert_eq!(timeout(PATIENCE, incoming.recv()).await.unwrap(), Some(Incoming::Connected));
        Onlooker { incoming, topics: self.topics.clone(), _link: link }
    }

    /// A device that is up and has introduced itself.
    pub(crate) async fn camera(&self, slot: u8) -> Camera {
        self.camera_of(slot, self.bundle.network_id()).await
    }

    pub(crate) async fn camera_of(&self, slot: u8, network: NetworkId) -> Camera {
        let id = DeviceId::new(format!("cam-{slot}")).unwrap();
        let birth = Birth {
            device: id.clone(),
            slot: Slot::new(slot).unwrap(),
            boot: Boot(1),
            software: "by hand".into(),
            network,
            sample: None,
            capabilities: Vec::new(),
        };
        let mut config = LinkConfig::new(self.broker.clone(), id.as_str())
            .subscribe(self.topics.name(&Topic::Request), QoS::AtLeastOnce);
        let retained = |leaf, text: Vec<u8>| RetainedMessage::new(self.topics.device(&id, leaf), text);
        config.retained = vec![
            retained(DeviceTopic::Birth, serde_json::to_vec(&birth).unwrap()),
            retained(DeviceTopic::Status, status(DeviceState::Up)),
        ];
        config.last_will = Some(retained(DeviceTopic::Status, status(DeviceState::Down)));
        let (link, mut incoming) = Link::start(config).unwrap();
        assert_eq!(timeout(PATIENCE, incoming.recv()).await.unwrap(), Some(Incoming::Connected));
        Camera { link, incoming, topics: self.topics.clone(), limits: self.limits, id, network }
    }
}

fn status(state: DeviceState) -> Vec<u8> {
    serde_json::to_vec(&Status { state, boot: Boot(1) }).unwrap()
}

impl Camera {
    /// Scores that favour one class.
    pub(crate) fn sees(&self, sample: u64, class: usize) {
        let scores = (0..self.limits.score_bytes / 4).map(|c| if c == class { 9.0f32 } else { 0.0 });
        let bytes: Vec<u8> = scores.flat_map(f32::to_le_bytes).collect();
        self.says(DeviceTopic::Summary, sample, Body::Summary(&bytes));
    }

    pub(crate) fn sees_nothing(&self, sample: u64) {
        self.says(DeviceTopic::Summary, sample, Body::NotInView);
    }

    pub(crate) fn delivers(&self, sample: u64) {
        let bits = vec![0x5a; self.limits.feature_bits.div_ceil(8)];
        self.says(DeviceTopic::Features, sample, Body::Features(&bits));
    }

    pub(crate) fn sends_garbage(&self) {
        let topic = self.topics.device(&self.id, DeviceTopic::Summary);
        self.link.publish(topic, vec![0xff; 100], QoS::AtLeastOnce, false).unwrap();
    }

    /// The slots and low half of the next request for features.
    pub(crate) async fn is_asked(&mut self) -> (u64, u32) {
        loop {
            let incoming = timeout(PATIENCE, self.incoming.recv()).await.expect("a request").unwrap();
            let Incoming::Message { payload, .. } = incoming else { continue };
            let message = decode(&payload, &self.limits).unwrap();
            if let Body::Request(slots) = message.body {
                return (slots.bits(), message.header.sample_low);
            }
        }
    }

    fn says(&self, leaf: DeviceTopic, sample: u64, body: Body<'_>) {
        let header = Header {
            late: false,
            network: self.network.tag(),
            sample_low: SampleId(sample).low(),
            boot: Boot(1),
            age_ms: 0,
        };
        let mut payload = Vec::new();
        encode(&Message { header, body }, &self.limits, &mut payload).unwrap();
        self.link.publish(self.topics.device(&self.id, leaf), payload, QoS::AtLeastOnce, false).unwrap();
    }
}

impl Onlooker {
    /// The next decision.
    pub(crate) async fn result(&mut self) -> Decision {
        loop {
            if let Heard::Result(decision) = self.hears().await {
                return decision;
            }
        }
    }

    /// Listens until the account says so many decisions.
    pub(crate) async fn settled(&mut self, decided: u64) -> Settled {
        loop {
            match self.hears().await {
                Heard::Settled(settled) if settled.decided >= decided => return settled,
                _ => {}
            }
        }
    }

    async fn hears(&mut self) -> Heard {
        loop {
            let incoming = timeout(PATIENCE, self.incoming.recv()).await.expect("a message").unwrap();
            let Incoming::Message { topic, payload, .. } = incoming else { continue };
            return self.read(&topic, &payload);
        }
    }

    fn read(&self, topic: &str, payload: &Bytes) -> Heard {
        match self.topics.parse(topic).unwrap() {
            Topic::Result => Heard::Result(serde_json::from_slice(payload).unwrap()),
            Topic::Settled => Heard::Settled(serde_json::from_slice(payload).unwrap()),
            other => panic!("{other:?}"),
        }
    }
}

/// Waits until the report says that slots of this mask are filled.
pub(crate) async fn filled(aggregator: &headwater_edge_aggregator::AggregatorHandle, slots: u64) {
    let wait = async {
        while aggregator.report().filled_slots != slots {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, wait).await.expect("devices introduced");
}
