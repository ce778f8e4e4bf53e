//! Messages to the group. Results wait for a broker that is away; the rest is worth nothing later.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use headwater_link::{Link, LinkError, QoS};
use headwater_protocol::{
    Body, Boot, Decision, Header, Limits, Message, NetworkTag, SampleId, SettledNotice, SlotSet, Topic,
    Topics, encode,
};
use tokio::time::Instant;
use tracing::{debug, warn};

/// Results that wait for the broker. Without a broker no samples come, so only those open at its loss can be decided.
const MOST_WAITING: usize = 16_384;

/// Results of the last moments before a connection was found lost are said again: the broker may not have had them. A dead
/// peer is found after one and a half keep-alives.
const RECENT: Duration = Duration::from_secs(15);
const MOST_RECENT: usize = 4096;

/// Writes and publishes.
#[derive(Debug)]
pub(crate) struct Outbox {
    link: Link,
    request_topic: String,
    result_topic: String,
    revision_topic: String,
    settled_topic: String,
    request_qos: QoS,
    waiting: VecDeque<Bytes>,
    recent: VecDeque<(Instant, Bytes)>,
    unsent: u64,
}

impl Outbox {
    pub(crate) fn new(link: Link, topics: &Topics, request_qos: QoS) -> Self {
        Self {
            link,
            request_topic: topics.name(&Topic::Request),
            result_topic: topics.name(&Topic::Result),
            revision_topic: topics.name(&Topic::Revision),
            settled_topic: topics.name(&Topic::Settled),
            request_qos,
            waiting: VecDeque::new(),
            recent: VecDeque::new(),
            unsent: 0,
        }
    }

    /// Asks slots of devices that run a network for features. One that is lost costs the wait for features, no more.
    pub(crate) fn request(&self, network: NetworkTag, sample: SampleId, slots: SlotSet) {
        let header = Header { late: false, network, sample_low: sample.low(), boot: Boot(0), age_ms: 0 };
        let mut payload = Vec::new();
        // A request is as long in every network.
        let limits = Limits::default();
        if let Err(error) = encode(&Message { header, body: Body::Request(slots) }, &limits, &mut payload) {
            warn!(%error, "a request that cannot be written");
            return;
        }
        if let Err(error) = self.link.publish(self.request_topic.as_str(), payload, self.request_qos, false) {
            debug!(%sample, %error, "a request was not sent");
        }
    }

    /// Publishes a decision, now or when the broker is back.
    pub(crate) fn result(&mut self, decision: &Decision, now: Instant) {
        let Some(payload) = json(decision) else { return };
        if self.waiting.len() == MOST_WAITING {
            self.waiting.pop_front();
            self.unsent += 1;
        }
        self.waiting.push_back(payload);
        self.flush(now);
    }

    /// Publishes a deeper answer; a courtesy, so not repeated.
    pub(crate) fn revision(&self, decision: &Decision) {
        let Some(payload) = json(decision) else { return };
        if let Err(error) = self.link.publish(self.revision_topic.as_str(), payload, QoS::AtLeastOnce, false)
        {
            debug!(sample = %decision.sample, %error, "a revision was not sent");
        }
    }

    /// Publishes the account; the next one says more than this one lost. Whether it was taken.
    pub(crate) fn settled(&self, notice: &SettledNotice) -> bool {
        let Some(payload) = json(notice) else { return false };
        self.link.publish(self.settled_topic.as_str(), payload, QoS::AtMostOnce, true).is_ok()
    }

    /// Publishes waiting results, oldest first, as long as the link takes them.
    pub(crate) fn flush(&mut self, now: Instant) {
        while let Some(payload) = self.waiting.front() {
            match self.link.publish(self.result_topic.as_str(), payload.clone(), QoS::AtLeastOnce, false) {
                Ok(()) => {
                    let sent = self.waiting.pop_front();
                    self.remember(now, sent);
                }
                Err(LinkError::NotConnected | LinkError::QueueFull { .. } | LinkError::Closed) => return,
                Err(error) => {
                    warn!(%error, "a result that cannot be published");
                    self.waiting.pop_front();
                    self.unsent += 1;
                }
            }
        }
    }

    /// The connection was found lost: what lies too far back had certainly arrived.
    pub(crate) fn disconnected(&mut self, now: Instant) {
        self.recent.retain(|(at, _)| now.duration_since(*at) < RECENT);
    }

    /// The connection is new: what went into the old one's last moments goes again. Duplicates are normal.
    pub(crate) fn reconnected(&mut self, now: Instant) {
        let again: Vec<_> = self.recent.drain(..).map(|(_, payload)| payload).collect();
        again.into_iter().rev().for_each(|payload| self.waiting.push_front(payload));
        self.flush(now);
    }

    /// Results that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Results given up.
    pub(crate) fn unsent(&self) -> u64 {
        self.unsent
    }

    fn remember(&mut self, now: Instant, sent: Option<Bytes>) {
        if self.recent.len() == MOST_RECENT {
            self.recent.pop_front();
        }
        self.recent.extend(sent.map(|payload| (now, payload)));
    }
}

fn json(value: &impl serde::Serialize) -> Option<Bytes> {
    match serde_json::to_vec(value) {
        Ok(text) => Some(text.into()),
        Err(error) => {
            warn!(%error, "a message that cannot be written");
            None
        }
    }
}
