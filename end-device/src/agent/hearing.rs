//! What others say to a device: trigger, request, settled, its own status.

use bytes::Bytes;
use headwater_link::{Incoming, QoS};
use headwater_protocol::{Body, DecodeError, Fault, Message, SampleId, SettledNotice, Status, decode};
use tracing::{debug, warn};

use super::Agent;
use crate::outbox::Age;
use crate::spool::Spool;

impl Agent {
    pub(super) fn on_incoming(&mut self, event: Incoming) {
        match event {
            Incoming::Connected => {
                self.has_been_connected = true;
                self.connected.send_replace(true);
            }
            Incoming::Disconnected { .. } => {
                self.connected.send_replace(false);
                self.unsettled.disconnected(self.now());
                self.note_unsettled();
            }
            Incoming::Message { topic, payload, .. } => self.on_message(&topic, &payload),
        }
    }

    fn on_message(&mut self, topic: &str, payload: &Bytes) {
        let topics = &self.topics;
        if topic == topics.settled {
            self.on_settled(payload);
        } else if topic == topics.status {
            self.on_own_status(payload);
        } else if topic == topics.trigger || topic == topics.request {
            let now_us = self.now().us;
            match self.understand(topic, payload) {
                Ok(Message { body: Body::Trigger(sample), .. }) if topic == self.topics.trigger => {
                    self.capture(sample, now_us);
                }
                Ok(Message { header, body: Body::Request(mask) }) if topic == self.topics.request => {
                    let sample = SampleId::widen(header.sample_low, self.newest());
                    if mask.contains(self.slot) {
                        let same_network = header.network == self.outbox.network;
                        self.on_request(sample, same_network);
                    }
                }
                Ok(message) => {
                    let kind = message.body.kind().name();
                    self.refuse(Fault::Malformed, topic, &format!("a {kind} message does not belong here"));
                }
                Err(error) => self.refuse(error.fault(), topic, &error.to_string()),
            }
        }
    }

    fn understand<'a>(&self, topic: &str, payload: &'a Bytes) -> Result<Message<'a>, DecodeError> {
        debug!(topic, payload_bytes = payload.len(), "message");
        decode(payload, &self.outbox.limits)
    }

    fn on_request(&mut self, sample: SampleId, same_network: bool) {
        if !same_network {
            self.refuse(
                Fault::WrongNetwork,
                &self.topics.request,
                "a request for features of another network",
            );
        }
        let now = self.now();
        match self.unsettled.features(sample, now).filter(|_| same_network) {
            Some(features) => {
                let age = Age { ms: features.age_ms, is_late: features.is_late };
                self.outbox.send(sample, age, Body::Features(&features.bits));
            }
            // Said at once, so that the leader need not wait for its time to run out.
            None => self.outbox.send(sample, Age { ms: 0, is_late: false }, Body::Gone),
        }
    }

    fn on_settled(&mut self, payload: &[u8]) {
        match serde_json::from_slice::<SettledNotice>(payload) {
            Ok(notice) => {
                self.unsettled.settle(&notice);
                self.note_unsettled();
            }
            Err(error) => self.refuse(Fault::Malformed, &self.topics.settled, &error.to_string()),
        }
    }

    /// A broker that finds out late that an earlier connection is dead publishes its last will after we are back. The
    /// retained status would then say `down` of a device that is up; say it again.
    fn on_own_status(&mut self, payload: &[u8]) {
        let says = serde_json::from_slice::<Status>(payload);
        if says.is_ok_and(|status| status == self.up) {
            return;
        }
        if let Ok(status) = serde_json::to_vec(&self.up) {
            warn!("the broker said that this device is down; saying that it is up");
            let sent = self.outbox.link.publish(self.topics.status.as_str(), status, QoS::AtLeastOnce, true);
            if let Err(error) = sent {
                self.outbox.report().count_dropped(&error);
            }
        }
    }

    /// The highest id known: what the low half of one in a header is widened by.
    fn newest(&self) -> SampleId {
        let spooled = self.unsettled.spool().and_then(Spool::newest);
        self.recent.newest().max(spooled.unwrap_or_default())
    }

    fn refuse(&self, fault: Fault, topic: &str, what: &str) {
        if self.outbox.report().count_fault(fault) {
            warn!(
                fault = fault.code(),
                topic, what, "message not taken; the next of its kind are only counted"
            );
        }
    }
}
