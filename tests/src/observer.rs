//! Someone at the broker who triggers samples and hears decisions.

use std::collections::BTreeMap;
use std::time::Duration;

use headwater_link::{BrokerAddress, Incoming, Link, LinkConfig, QoS};
use headwater_protocol::{
    Body, Boot, Decision, Header, Limits, Message, NetworkId, SampleId, Settled, Topic, Topics, encode,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};

/// Longest wait for anything; far above every deadline of the tiers, so reaching it is a failure.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Triggers and listens.
pub struct Observer {
    link: Link,
    incoming: mpsc::Receiver<Incoming>,
    topics: Topics,
    network: NetworkId,
    /// Every decision heard, in order, repeated ones too.
    pub heard: Vec<Decision>,
    /// The leader's latest account.
    pub settled: Settled,
}

impl Observer {
    /// Connects and waits until it is subscribed.
    ///
    /// # Panics
    /// When the broker does not answer in time.
    pub async fn connect(broker: BrokerAddress, topics: Topics, network: NetworkId) -> Self {
        let config = LinkConfig::new(broker, "observer")
            .subscribe(topics.name(&Topic::Result), QoS::AtLeastOnce)
            .subscribe(topics.name(&Topic::Settled), QoS::AtMostOnce);
        let (link, incoming) = Link::start(config).expect("a sound configuration");
        let mut observer =
            Self { link, incoming, topics, network, heard: Vec::new(), settled: Settled::default() };
        let until = Instant::now() + PATIENCE;
        while !matches!(observer.next(until).await, Some(Incoming::Connected)) {
            assert!(Instant::now() < until, "the observer could not connect");
        }
        observer
    }

    /// Asks every device to capture.
    ///
    /// # Panics
    /// When the link refuses.
    pub async fn trigger(&self, sample: SampleId) {
        let header = Header {
            late: false,
            network: self.network.tag(),
            sample_low: sample.low(),
            boot: Boot(0),
            age_ms: 0,
        };
        let limits = Limits::default();
        let mut payload = Vec::new();
        encode(&Message { header, body: Body::Trigger(sample) }, &limits, &mut payload)
            .expect("a trigger fits");
        self.publish(&self.topics.name(&Topic::Trigger), payload).await;
    }

    /// Publishes anything anywhere, as a bad peer would.
    ///
    /// # Panics
    /// When the link refuses.
    pub async fn publish(&self, topic: &str, payload: Vec<u8>) {
        self.link.publish_when_free(topic, payload, QoS::AtMostOnce, false).await.expect("the link takes it");
    }

    /// Triggers one sample and waits for its decision.
    ///
    /// # Panics
    /// When none comes in time.
    pub async fn decide(&mut self, sample: SampleId) -> Decision {
        self.trigger(sample).await;
        self.decisions(&[sample]).await.remove(&sample).expect("asked for it")
    }

    /// Waits until each of the samples has a decision; the first of each is given.
    ///
    /// # Panics
    /// When one does not come in time.
    pub async fn decisions(&mut self, samples: &[SampleId]) -> BTreeMap<SampleId, Decision> {
        let until = Instant::now() + PATIENCE;
        loop {
            let mut found = BTreeMap::new();
            for decision in &self.heard {
                if samples.contains(&decision.sample) {
                    found.entry(decision.sample).or_insert_with(|| decision.clone());
                }
            }
            if found.len() == samples.len() {
                return found;
            }
            let event = self.next(until).await;
            assert!(event.is_some(), "{} of {} decisions in {PATIENCE:?}", found.len(), samples.len());
        }
    }

    /// Triggers new samples, from an id on, until one is decided with every view and nothing degraded: then everyone has found the
    /// others. The id of that one is given.
    ///
    /// # Panics
    /// When none is in time.
    pub async fn until_whole(&mut self, from: SampleId) -> SampleId {
        let until = Instant::now() + PATIENCE;
        let mut sample = from;
        loop {
            self.trigger(sample).await;
            sleep(Duration::from_millis(100)).await;
            let decision = self.heard_about(sample).await;
            if decision.is_some_and(|found| found.presence.missing_count() == 0 && found.degraded.is_empty())
            {
                return sample;
            }
            assert!(Instant::now() < until, "no whole decision in {PATIENCE:?}, last {decision:?}");
            sample = SampleId(sample.0 + 1);
        }
    }

    /// What has been heard about a sample up to now, if anything.
    pub async fn heard_about(&mut self, sample: SampleId) -> Option<&Decision> {
        while self.next(Instant::now()).await.is_some() {}
        self.heard.iter().find(|decision| decision.sample == sample)
    }

    /// Listens until the leader's account says so.
    ///
    /// # Panics
    /// When it does not in time.
    pub async fn settled_when(&mut self, is_reached: impl Fn(&Settled) -> bool) -> Settled {
        let until = Instant::now() + PATIENCE;
        while !is_reached(&self.settled) {
            assert!(self.next(until).await.is_some(), "account after {PATIENCE:?}: {:?}", self.settled);
        }
        self.settled.clone()
    }

    /// Checks that no sample was given two different decisions.
    ///
    /// # Panics
    /// When one was.
    pub fn assert_no_contradiction(&self) {
        let mut first: BTreeMap<SampleId, &Decision> = BTreeMap::new();
        for decision in &self.heard {
            let known = first.entry(decision.sample).or_insert(decision);
            assert_eq!(*known, decision, "two decisions about one sample");
        }
    }

    async fn next(&mut self, until: Instant) -> Option<Incoming> {
        let event = timeout_at(until, self.incoming.recv()).await.ok()??;
        if let Incoming::Message { topic, payload, .. } = &event {
            match self.topics.parse(topic) {
                Ok(Topic::Result) => {
                    self.heard.push(serde_json::from_slice(payload).expect("a decision in JSON"));
                }
                Ok(Topic::Settled) => {
                    self.settled = serde_json::from_slice(payload).expect("an account in JSON");
                }
                _ => {}
            }
        }
        Some(event)
    }
}
