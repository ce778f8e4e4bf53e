//! Messages to the group. Results wait for an absent broker; other messages are dropped, since they are useless later.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use headwater_inference::policy::Policy;
use headwater_link::{Acknowledgement, Delivery, Link, LinkError, QoS};
use headwater_protocol::policy_command::{DeviceCommand, PolicyAnswer};
use headwater_protocol::{
    Decision, DeviceId, DeviceTopic, MemberName, SampleId, Schema, SettledNotice, Topic, Topics,
};
use headwater_transport::LogLimit;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::publishing::broker_answers::BrokerAnswers;

/// Most results that wait for the broker; one more drops the oldest. Without a broker only samples that are open already are decided.
const MAX_WAITING: usize = 16_384;

/// Most published results without an acknowledgement of the broker; further results wait.
const MAX_UNACKNOWLEDGED: usize = 4096;

/// Time between two attempts to publish waiting results.
const RETRY: Duration = Duration::from_millis(10);

/// Time between two checks for acknowledgements, while nothing else happens.
const ACKNOWLEDGED_EVERY: Duration = Duration::from_millis(100);

/// Time for which other messages wait for the answer to a result that goes alone.
const ALONE_LIMIT: Duration = Duration::from_secs(10);

/// Encodes and publishes messages.
///
/// ```text
/// decision ──> waiting ── published ──> unacknowledged ── acknowledged ──> done
///                 ^                            │
///                 └── connection lost, marked ─┘
/// ```
///
/// A result that the broker refuses is given up. A broker that ends the connection because of a message does not say which message. So each
/// result that was on its way then goes alone: the broker has answered the claim, and before its answer to the result only later claims and
/// answers to members are published. A result that ends two connections alone is given up too. Without an answer to it, other messages go
/// on after [`ALONE_LIMIT`].
#[derive(Debug)]
pub(crate) struct Outbox {
    link: Link,
    topics: Topics,
    request_topic: String,
    result_topic: String,
    revision_topic: String,
    settled_topic: String,
    leader_topic: String,
    request_qos: QoS,
    /// True once this connection has confirmed that the process leads. Before that, the claim is the only message that is published.
    is_open: bool,
    /// Results that wait for the broker.
    pub(crate) waiting: VecDeque<QueuedResult>,
    /// Published results without an answer of the broker. Results that go alone come before all other results, here and in `waiting`.
    unacknowledged: VecDeque<(QueuedResult, Acknowledgement)>,
    /// Time since which the first result goes alone, or waits to go alone; `None` if it need not go alone.
    alone_since: Option<Instant>,
    /// True while other messages wait for the result that goes alone.
    is_alone: bool,
    /// Samples whose results were refused, until the leader has taken them.
    pub(crate) refused: Vec<SampleId>,
    /// Limit on log lines about results that were given up.
    given_up_log: LogLimit,
    pub(crate) answers: BrokerAnswers,
}

/// Number of connections that end because of a message while a result is on its way, after which that result is given up: one on which other
/// results were on their way too, and two on which the result went alone.
const MAX_ENDED: u8 = 3;

/// A decision as JSON.
#[derive(Clone, Debug)]
pub(crate) struct QueuedResult {
    sample: SampleId,
    payload: Bytes,
    /// Number of connections that ended because of a message while this result was on its way. After the first one the result goes alone.
    ended: u8,
    /// True if the decision may have been published before.
    is_repeat: bool,
}

impl QueuedResult {
    fn new(decision: &Decision) -> Self {
        Self { sample: decision.sample, payload: json(decision), ended: 0, is_repeat: false }
    }

    /// The message with the mark of a repeat.
    fn marked(self) -> Self {
        const MARK: &[u8] = b",\"republished\":true}";
        if self.is_repeat {
            return self;
        }
        // A decision is a JSON object with fields.
        let object = self.payload.strip_suffix(b"}").unwrap_or(&self.payload);
        Self { payload: [object, MARK].concat().into(), is_repeat: true, ..self }
    }
}

impl Outbox {
    pub(crate) fn new(link: Link, topics: &Topics, request_qos: QoS, answers: BrokerAnswers) -> Self {
        Self {
            link,
            topics: topics.clone(),
            request_topic: topics.name(&Topic::Request),
            result_topic: topics.name(&Topic::Result),
            revision_topic: topics.name(&Topic::Revision),
            settled_topic: topics.name(&Topic::Settled),
            leader_topic: topics.name(&Topic::Leader),
            request_qos,
            is_open: false,
            waiting: VecDeque::new(),
            unacknowledged: VecDeque::new(),
            alone_since: None,
            is_alone: false,
            refused: Vec::new(),
            given_up_log: LogLimit::new(1),
            answers,
        }
    }

    /// Publishes the claim of the leader, retained.
    pub(crate) fn claim(&mut self, payload: Vec<u8>) {
        match self.link.publish_acknowledged(self.leader_topic.as_str(), payload, true) {
            Ok(claim) => self.answers.claim_sent(claim),
            Err(error) => debug!(%error, "the claim was not sent; the next one follows in seconds"),
        }
    }

    pub(crate) fn is_leader_topic(&self, topic: &str) -> bool {
        topic == self.leader_topic
    }

    /// Publishes a request for features. A lost request costs only the wait for features.
    pub(crate) fn request(&self, payload: Vec<u8>) {
        self.publish(&self.request_topic, payload.into(), self.request_qos, false);
    }

    /// Publishes a decision now, or when the broker is back.
    pub(crate) fn result(&mut self, decision: &Decision, now: Instant) {
        self.send(QueuedResult::new(decision), now);
    }

    /// Publishes a decision that the journal has brought back, marked as a repeat.
    pub(crate) fn repeat(&mut self, decision: &Decision, now: Instant) {
        self.send(QueuedResult::new(decision).marked(), now);
    }

    fn send(&mut self, message: QueuedResult, now: Instant) {
        if self.waiting.len() == MAX_WAITING {
            self.waiting.pop_front();
            self.answers.count(|report| report.results_unsent += 1);
        }
        self.waiting.push_back(message);
        self.flush(now);
    }

    /// Publishes the cloud's answer to a sample that was decided without it. A lost revision is not repeated.
    pub(crate) fn revision(&self, decision: &Decision) {
        self.publish(&self.revision_topic, json(decision), QoS::AtLeastOnce, false);
    }

    /// Publishes the settled samples; returns true if the link took the message. A later message names the samples of a lost message again.
    pub(crate) fn settled(&self, notice: &SettledNotice) -> bool {
        self.publish(&self.settled_topic, json(notice), QoS::AtMostOnce, true)
    }

    /// Sends the policy to a device that decides by itself. The policy desk sends a lost command again.
    pub(crate) fn command(&self, device: &DeviceId, policy: &Policy) {
        let topic = self.topics.device(device, DeviceTopic::Cmd);
        let command = DeviceCommand { schema: Schema, policy: serde_json::json!(policy) };
        self.publish(&topic, json(&command), QoS::AtLeastOnce, false);
    }

    /// Publishes the answer to a command of a member, also while a result goes alone, since nobody would send the answer again.
    pub(crate) fn policy_answer(&self, member: &MemberName, answer: &PolicyAnswer) {
        let topic = self.topics.name(&Topic::PolicyAnswer(member.clone()));
        if self.is_open {
            self.put(&topic, json(answer), QoS::AtLeastOnce, false);
        }
    }

    /// Clears the retained birth of a device; returns true if the link took the message.
    pub(crate) fn clear_birth(&self, device: &DeviceId) -> bool {
        let topic = self.topics.device(device, DeviceTopic::Birth);
        self.publish(&topic, Bytes::new(), QoS::AtLeastOnce, true)
    }

    /// Publishes a message that is useless later; returns true if the link took the message. Nothing is published before the claim is
    /// confirmed or while a result goes alone.
    fn publish(&self, topic: &str, payload: Bytes, qos: QoS, retain: bool) -> bool {
        self.is_open && !self.is_alone && self.put(topic, payload, qos, retain)
    }

    fn put(&self, topic: &str, payload: Bytes, qos: QoS, retain: bool) -> bool {
        let sent = self.link.publish(topic, payload, qos, retain);
        sent.inspect_err(|error| debug!(topic, %error, "a message was not sent")).is_ok()
    }

    /// True if the first result, published or waiting, must go alone.
    fn tries_alone(&self) -> bool {
        let first = self.unacknowledged.front().map(|(message, _)| message).or(self.waiting.front());
        first.is_some_and(|message| message.ended > 0)
    }

    /// Publishes waiting results, oldest first, until the link takes no more.
    pub(crate) fn flush(&mut self, now: Instant) {
        self.answers.poll_claim(now);
        self.forget_answered(now);
        self.alone_since = self.tries_alone().then(|| self.alone_since.unwrap_or(now));
        self.is_alone = self.alone_since.is_some_and(|since| now < since + ALONE_LIMIT);
        while let Some(message) = self.waiting.front().filter(|_| self.is_open) {
            let most = if self.tries_alone() { 1 } else { MAX_UNACKNOWLEDGED };
            if self.unacknowledged.len() >= most || self.is_alone && self.answers.awaits_claim() {
                return;
            }
            let (topic, payload) = (self.result_topic.as_str(), message.payload.clone());
            match self.link.publish_acknowledged(topic, payload, false) {
                Ok(acknowledgement) => {
                    let is_repeat = message.is_repeat;
                    self.answers.count(|report| report.republished += u64::from(is_repeat));
                    let sent = self.waiting.pop_front().map(|message| (message, acknowledgement));
                    self.unacknowledged.extend(sent);
                }
                Err(LinkError::NotConnected | LinkError::QueueFull { .. } | LinkError::Closed) => return,
                Err(error) => {
                    self.refused.extend(self.waiting.pop_front().map(|message| message.sample));
                    self.given_up(now, &error);
                }
            }
        }
    }

    /// Forgets the oldest results that the broker has acknowledged or refused, up to the first without an answer: brokers answer in the
    /// order of the messages.
    fn forget_answered(&mut self, now: Instant) {
        while let Some((message, acknowledgement)) = self.unacknowledged.front_mut() {
            let (sample, answer) = (message.sample, acknowledgement.poll());
            if !self.take_answer(now, sample, answer) {
                return;
            }
            self.unacknowledged.pop_front();
            self.alone_since = None;
        }
    }

    /// Takes the broker's answer to a result; returns false if there is none. A refused result is counted as unsent.
    fn take_answer(&mut self, now: Instant, sample: SampleId, answer: Delivery) -> bool {
        match answer {
            Delivery::Pending | Delivery::Lost => false,
            Delivery::Acknowledged => true,
            Delivery::Refused { reason, needs_rights } => {
                self.refused.push(sample);
                self.answers.count(|report| report.results_unsent += 1);
                self.answers.result_refused(now, &reason, needs_rights);
                true
            }
        }
    }

    fn given_up(&mut self, now: Instant, reason: &dyn std::fmt::Display) {
        let unsent = self.answers.count(|report| {
            report.results_unsent += 1;
            report.results_unsent
        });
        if self.given_up_log.take(now).is_some() {
            warn!(%reason, unsent, "a result cannot be published; further ones are only counted");
        }
    }

    /// Notes that the connection was lost: nothing is published before [`Outbox::open`]. Results without an acknowledgement may have
    /// arrived, and wait again, marked as repeats. `by_message` is true if the broker ended the connection because of a message.
    pub(crate) fn close(&mut self, now: Instant, by_message: bool) {
        (self.is_open, self.alone_since) = (false, None);
        let mut lost = Vec::new();
        for (message, mut acknowledgement) in std::mem::take(&mut self.unacknowledged) {
            // Answers that came before the loss still count.
            let answer = acknowledgement.poll();
            if !self.take_answer(now, message.sample, answer) {
                lost.push(message);
            }
        }
        for (index, mut message) in lost.into_iter().enumerate().rev() {
            // The link had not sent the results beyond this number yet.
            message.ended += u8::from(by_message && index < headwater_link::MAX_UNACKNOWLEDGED.into());
            if message.ended < MAX_ENDED {
                self.waiting.push_front(message.marked());
            } else {
                self.refused.push(message.sample);
                self.given_up(now, &"the broker ends the connection because of it");
            }
        }
        while self.waiting.len() > MAX_WAITING {
            self.waiting.pop_front();
            self.given_up(now, &"too many results wait for the broker");
        }
    }

    /// Publishes the waiting results, since the connection has confirmed that this process leads.
    pub(crate) fn open(&mut self, now: Instant) {
        self.is_open = true;
        self.flush(now);
    }

    /// Time after which the next round is due: short while results or refused samples wait, longer while only answers of the broker are
    /// awaited. `None` if nothing is awaited.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        if !self.refused.is_empty() || self.is_open && !self.waiting.is_empty() {
            return Some(RETRY);
        }
        let awaits_answer = !self.unacknowledged.is_empty() || self.answers.awaits_claim();
        awaits_answer.then_some(ACKNOWLEDGED_EVERY)
    }

    /// Number of published results that the broker has not acknowledged.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.unacknowledged.len()
    }
}

fn json(value: &impl serde::Serialize) -> Bytes {
    serde_json::to_vec(value).expect("names, numbers and lists have a JSON form").into()
}

#[cfg(test)]
mod tests;
