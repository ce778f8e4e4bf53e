//! Messages to a device: trigger, request, settled, and its own status.

use bytes::Bytes;
use headwater_link::Incoming;
use headwater_protocol::{Body, Fault, Message, SampleId, SettledNotice, decode};
use tracing::{debug, warn};

use super::Agent;
use crate::publisher::Age;
use crate::report::count_first;
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
                self.report_unsettled();
            }
            Incoming::Message { topic, payload, .. } => self.on_message(&topic, &payload),
        }
    }

    fn on_message(&mut self, topic: &str, payload: &Bytes) {
        if topic == self.publisher.topics.settled {
            self.on_settled(payload);
        } else if topic == self.publisher.topics.status {
            self.on_own_status(payload);
        } else if topic == self.publisher.topics.trigger || topic == self.publisher.topics.request {
            self.on_binary_message(topic, payload);
        }
    }

    fn on_binary_message(&mut self, topic: &str, payload: &Bytes) {
        debug!(topic, payload_bytes = payload.len(), "message");
        match decode(payload, &self.publisher.limits) {
            Ok(Message { body: Body::Trigger(sample), .. }) if topic == self.publisher.topics.trigger => {
                self.capture(sample, self.now().us);
            }
            Ok(Message { header, body: Body::Request(slots) }) if topic == self.publisher.topics.request => {
                if slots.contains(self.slot) {
                    let sample = SampleId::widen(header.sample_low, self.newest());
                    self.on_request(sample, header.network == self.publisher.network);
                }
            }
            Ok(message) => {
                let kind = message.body.kind().name();
                self.refuse(Fault::Malformed, topic, &format!("a {kind} message does not belong here"));
            }
            Err(error) => self.refuse(error.fault(), topic, &error.to_string()),
        }
    }

    fn on_request(&mut self, sample: SampleId, is_our_network: bool) {
        if !is_our_network {
            let reason = "a request for features of another network";
            self.refuse(Fault::WrongNetwork, &self.publisher.topics.request, reason);
        }
        let now = self.now();
        match self.unsettled.features(sample, now).filter(|_| is_our_network) {
            Some(features) => self.publisher.send(sample, features.age, Body::Features(&features.bits)),
            // An answer at once spares the leader the wait.
            None => self.publisher.send(sample, Age { ms: 0, is_late: false }, Body::Gone),
        }
    }

    fn on_settled(&mut self, payload: &[u8]) {
        match serde_json::from_slice::<SettledNotice>(payload) {
            Ok(notice) => {
                self.unsettled.settle(&notice);
                self.report_unsettled();
            }
            Err(error) => self.refuse(Fault::Malformed, &self.publisher.topics.settled, &error.to_string()),
        }
    }

    /// Corrects a retained status that wrongly names the device down.
    fn on_own_status(&mut self, payload: &[u8]) {
        match self.publisher.link.restore(&self.publisher.topics.status, payload) {
            Ok(false) => {}
            Ok(true) => {
                warn!("the broker's retained status names this device down; publishing that it is up");
            }
            Err(error) => self.publisher.report().count_dropped(&error),
        }
    }

    /// The highest known id; it completes the low half of an id in a header.
    fn newest(&self) -> SampleId {
        let spooled = self.unsettled.spool.as_ref().and_then(Spool::newest);
        self.recent.newest().max(spooled.unwrap_or_default())
    }

    fn refuse(&self, fault: Fault, topic: &str, reason: &str) {
        if count_first(&mut self.publisher.report().faults, fault.code()) {
            warn!(
                fault = fault.code(),
                topic, reason, "message refused; later ones with this fault are only counted"
            );
        }
    }
}
