//! Messages to the group. Results wait for an absent broker; other messages are useless later.

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

/// Results that wait for the broker. Without a broker no new samples come; only samples that are open already are decided.
const MAX_WAITING: usize = 16_384;

/// Results of this time before a connection was found lost are published again: the broker may not have received them. A dead peer is
/// found after one and a half keep-alive times.
const RECENT: Duration = Duration::from_secs(15);
const MAX_RECENT: usize = 4096;

/// Encodes and publishes messages.
#[derive(Debug)]
pub(crate) struct Outbox {
    link: Link,
    request_topic: String,
    result_topic: String,
    revision_topic: String,
    settled_topic: String,
    request_qos: QoS,
    /// Results that wait for the broker.
    pub(crate) waiting: VecDeque<Bytes>,
    recent: VecDeque<(Instant, Bytes)>,
    /// Results that were given up.
    pub(crate) unsent: u64,
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

    /// Requests features from slots under a network. A lost request costs only the wait for features.
    pub(crate) fn request(&self, network: NetworkTag, sample: SampleId, slots: SlotSet) {
        let header = Header { late: false, network, sample_low: sample.low(), boot: Boot(0), age_ms: 0 };
        let mut payload = Vec::new();
        // A request has the same length in every network.
        let limits = Limits::default();
        if let Err(error) = encode(&Message { header, body: Body::Request(slots) }, &limits, &mut payload) {
            warn!(%error, "a request cannot be encoded");
            return;
        }
        if let Err(error) = self.link.publish(self.request_topic.as_str(), payload, self.request_qos, false) {
            debug!(%sample, %error, "a request was not sent");
        }
    }

    /// Publishes a decision now, or when the broker is back.
    pub(crate) fn result(&mut self, decision: &Decision, now: Instant) {
        let Some(payload) = json(decision) else { return };
        if self.waiting.len() == MAX_WAITING {
            self.waiting.pop_front();
            self.unsent += 1;
        }
        self.waiting.push_back(payload);
        self.flush(now);
    }

    /// Publishes a later, better answer. A lost revision is not repeated.
    pub(crate) fn revision(&self, decision: &Decision) {
        let Some(payload) = json(decision) else { return };
        if let Err(error) = self.link.publish(self.revision_topic.as_str(), payload, QoS::AtLeastOnce, false)
        {
            debug!(sample = %decision.sample, %error, "a revision was not sent");
        }
    }

    /// Publishes the settled samples; returns whether the link took the message. A later message includes a lost one.
    pub(crate) fn settled(&self, notice: &SettledNotice) -> bool {
        let Some(payload) = json(notice) else { return false };
        self.link.publish(self.settled_topic.as_str(), payload, QoS::AtMostOnce, true).is_ok()
    }

    /// Publishes waiting results, oldest first, until the link takes no more.
    pub(crate) fn flush(&mut self, now: Instant) {
        while let Some(payload) = self.waiting.front() {
            match self.link.publish(self.result_topic.as_str(), payload.clone(), QoS::AtLeastOnce, false) {
                Ok(()) => {
                    let sent = self.waiting.pop_front();
                    self.remember(now, sent);
                }
                Err(LinkError::NotConnected | LinkError::QueueFull { .. } | LinkError::Closed) => return,
                Err(error) => {
                    warn!(%error, "a result cannot be published");
                    self.waiting.pop_front();
                    self.unsent += 1;
                }
            }
        }
    }

    /// The connection was found lost: older results have certainly arrived.
    pub(crate) fn disconnected(&mut self, now: Instant) {
        self.recent.retain(|(at, _)| now.duration_since(*at) < RECENT);
    }

    /// A new connection: the last results of the old one go out again. Consumers expect duplicates.
    pub(crate) fn reconnected(&mut self, now: Instant) {
        let again: Vec<_> = self.recent.drain(..).map(|(_, payload)| payload).collect();
        again.into_iter().rev().for_each(|payload| self.waiting.push_front(payload));
        self.flush(now);
    }

    fn remember(&mut self, now: Instant, sent: Option<Bytes>) {
        if self.recent.len() == MAX_RECENT {
            self.recent.pop_front();
        }
        self.recent.extend(sent.map(|payload| (now, payload)));
    }
}

fn json(value: &impl serde::Serialize) -> Option<Bytes> {
    match serde_json::to_vec(value) {
        Ok(text) => Some(text.into()),
        Err(error) => {
            warn!(%error, "a message cannot be encoded");
            None
        }
    }
}
