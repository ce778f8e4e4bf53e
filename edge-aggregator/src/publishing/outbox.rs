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
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::publishing::broker_answers::BrokerAnswers;

/// Most results that wait for the broker; one more drops the oldest. Without a broker only samples that are open already are decided.
const MAX_WAITING: usize = 16_384;

/// Most published results without an acknowledgement of the broker; further results wait.
const MAX_UNACKNOWLEDGED: usize = 4096;

/// Time between two attempts to publish results while the link's queue is full.
const RETRY: Duration = Duration::from_millis(10);

/// Time between two checks for acknowledgements, while nothing else happens.
const ACKNOWLEDGED_EVERY: Duration = Duration::from_millis(100);

/// Shortest time between two log lines about results that were given up.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Encodes and publishes messages.
///
/// ```text
/// decision ──> waiting ── published ──> unacknowledged ── acknowledged ──> done
///                 ^                            │
///                 └── connection lost, marked ─┘
/// ```
///
/// A result that the broker refuses is given up. A broker that ends the connection because of a message does not say which: from then on
/// results go one at a time, and one that ends [`MAX_ENDED`] connections is given up too.
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
    /// Whether messages other than the claim are published: this connection has confirmed that the process leads.
    is_open: bool,
    /// Results that wait for the broker.
    pub(crate) waiting: VecDeque<QueuedResult>,
    unacknowledged: VecDeque<(QueuedResult, Acknowledgement)>,
    /// Whether results go one at a time.
    is_careful: bool,
    /// Samples whose results were refused, until the leader has taken them.
    pub(crate) refused: Vec<SampleId>,
    given_up_logged: Option<Instant>,
    pub(crate) answers: BrokerAnswers,
}

/// Connections that a result, alone on its way, may end.
const MAX_ENDED: u8 = 2;

/// A decision as JSON.
#[derive(Clone, Debug)]
pub(crate) struct QueuedResult {
    sample: SampleId,
    payload: Bytes,
    /// Connections that ended because of a message while this result was alone on its way.
    ended: u8,
    /// Whether the decision may have been published before.
    is_repeat: bool,
}

impl QueuedResult {
    fn new(decision: &Decision) -> Option<Self> {
        let payload = json(decision)?;
        Some(Self { sample: decision.sample, payload, ended: 0, is_repeat: false })
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
            is_careful: false,
            refused: Vec::new(),
            given_up_logged: None,
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

    /// Whether the topic is that of the leader's claim.
    pub(crate) fn is_leader_topic(&self, topic: &str) -> bool {
        topic == self.leader_topic
    }

    /// Publishes a request for features. A lost request costs only the wait for features.
    pub(crate) fn request(&self, sample: SampleId, payload: Vec<u8>) {
        if !self.is_open {
            return;
        }
        if let Err(error) = self.link.publish(self.request_topic.as_str(), payload, self.request_qos, false) {
            debug!(%sample, %error, "a request was not sent");
        }
    }

    /// Publishes a decision now, or when the broker is back.
    pub(crate) fn result(&mut self, decision: &Decision, now: Instant) {
        self.send(QueuedResult::new(decision), now);
    }

    /// Publishes a decision of an earlier process, marked as a repeat.
    pub(crate) fn repeat(&mut self, decision: &Decision, now: Instant) {
        self.send(QueuedResult::new(decision).map(QueuedResult::marked), now);
    }

    fn send(&mut self, message: Option<QueuedResult>, now: Instant) {
        let Some(message) = message else { return };
        if self.waiting.len() == MAX_WAITING {
            self.waiting.pop_front();
            self.answers.count(|report| report.results_unsent += 1);
        }
        self.waiting.push_back(message);
        self.flush(now);
    }

    /// Publishes the cloud's answer to a sample that was decided without it. A lost revision is not repeated.
    pub(crate) fn revision(&self, decision: &Decision) {
        let Some(payload) = json(decision).filter(|_| self.is_open) else { return };
        if let Err(error) = self.link.publish(self.revision_topic.as_str(), payload, QoS::AtLeastOnce, false)
        {
            debug!(sample = %decision.sample, %error, "a revision was not sent");
        }
    }

    /// Publishes the settled samples; returns whether the link took the message. A later message names the samples of a lost one again.
    pub(crate) fn settled(&self, notice: &SettledNotice) -> bool {
        let Some(payload) = json(notice).filter(|_| self.is_open) else { return false };
        self.link.publish(self.settled_topic.as_str(), payload, QoS::AtMostOnce, true).is_ok()
    }

    /// Sends the policy to a device that decides by itself. The policy desk sends a lost command again.
    pub(crate) fn command(&self, device: &DeviceId, policy: &Policy) {
        let topic = self.topics.device(device, DeviceTopic::Cmd);
        let command = DeviceCommand { schema: Schema, policy: serde_json::json!(policy) };
        if let Some(payload) = json(&command).filter(|_| self.is_open)
            && let Err(error) = self.link.publish(topic, payload, QoS::AtLeastOnce, false)
        {
            debug!(%device, %error, "a command was not sent");
        }
    }

    /// Publishes the answer to a command of a member.
    pub(crate) fn policy_answer(&self, member: &MemberName, answer: &PolicyAnswer) {
        let topic = self.topics.name(&Topic::PolicyAnswer(member.clone()));
        if let Some(payload) = json(answer).filter(|_| self.is_open)
            && let Err(error) = self.link.publish(topic, payload, QoS::AtLeastOnce, false)
        {
            debug!(%member, %error, "an answer was not sent");
        }
    }

    /// Clears the retained birth of a device; returns whether the link took the message.
    pub(crate) fn clear_birth(&self, device: &DeviceId) -> bool {
        let topic = self.topics.device(device, DeviceTopic::Birth);
        self.is_open && self.link.publish(topic, Bytes::new(), QoS::AtLeastOnce, true).is_ok()
    }

    /// Publishes waiting results, oldest first, until the link takes no more.
    pub(crate) fn flush(&mut self, now: Instant) {
        self.answers.poll_claim(now);
        self.forget_answered(now);
        self.is_careful &= !(self.waiting.is_empty() && self.unacknowledged.is_empty());
        let most = if self.is_careful { 1 } else { MAX_UNACKNOWLEDGED };
        while let Some(message) = self.waiting.front().filter(|_| self.is_open) {
            if self.unacknowledged.len() >= most {
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
        }
    }

    /// Takes the broker's answer to a result; returns whether there is one. A refused result is counted as unsent.
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
        if self.given_up_logged.is_none_or(|at| now >= at + LOG_EVERY) {
            self.given_up_logged = Some(now);
            warn!(%reason, unsent, "a result cannot be published; further ones are only counted");
        }
    }

    /// The connection was lost: nothing is published before [`Outbox::open`]. Results without an acknowledgement may have arrived, and wait
    /// again, marked as repeats. `by_message` says that the broker ended the connection because of a message.
    pub(crate) fn close(&mut self, now: Instant, by_message: bool) {
        self.is_open = false;
        let mut lost = Vec::new();
        for (message, mut acknowledgement) in std::mem::take(&mut self.unacknowledged) {
            // Answers that came before the loss still count.
            let answer = acknowledgement.poll();
            if !self.take_answer(now, message.sample, answer) {
                lost.push(message);
            }
        }
        self.is_careful |= by_message;
        let is_alone = lost.len() == 1;
        for mut message in lost.into_iter().rev() {
            message.ended += u8::from(by_message && is_alone);
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

    /// The connection has confirmed that this process leads: publishes the waiting results.
    pub(crate) fn open(&mut self, now: Instant) {
        self.is_open = true;
        self.flush(now);
    }

    /// Time after which [`Outbox::flush`] may do more, because the link's queue may have room or answers of the broker may have come.
    /// `None` if nothing waits.
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

fn json(value: &impl serde::Serialize) -> Option<Bytes> {
    match serde_json::to_vec(value) {
        Ok(text) => Some(text.into()),
        Err(error) => {
            warn!(%error, "a message cannot be encoded");
            None
        }
    }
}

#[cfg(test)]
mod tests;
