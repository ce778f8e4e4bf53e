//! What a link is told at its start.

use bytes::Bytes;

use crate::address::BrokerAddress;
use crate::error::LinkError;

/// Settings of one link.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Where the broker is.
    pub broker: BrokerAddress,
    /// MQTT client id, not empty. A broker ends the connection of an earlier client of the same id.
    pub client_id: String,
    /// Filters subscribed to after every connect.
    pub subscriptions: Vec<Subscription>,
    /// Messages published, retained and at `QoS` 1, after every connect, in this order.
    pub retained: Vec<RetainedMessage>,
    /// Published, retained and at `QoS` 1, by [`Link::shutdown`](crate::Link::shutdown), and by the broker as last will when the
    /// connection ends in any other way.
    pub down: Option<RetainedMessage>,
    /// Seconds between pings when nothing else is sent, at least 1. Longer finds a dead peer later.
    pub keep_alive_s: u16,
    /// Bytes a payload may have, either way. A longer one is refused before it is queued; one that arrives is counted and left
    /// out. Bounds the memory one message takes.
    pub largest_payload_bytes: usize,
    /// Messages that may wait to be written; at least 1. More rides out longer stalls of the broker, and takes memory.
    pub outgoing_messages: usize,
    /// Messages that may wait to be taken by the owner; at least 1. When they stand full the socket is not read.
    pub incoming_messages: usize,
    /// Milliseconds an attempt to connect may take, and the broker's answer to the subscriptions after it.
    pub connect_timeout_ms: u64,
}

/// One filter to subscribe to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// MQTT topic filter.
    pub filter: String,
    /// Highest `QoS` at which the broker delivers.
    pub qos: QoS,
}

/// A message that the broker keeps for those who subscribe later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetainedMessage {
    /// MQTT topic.
    pub topic: String,
    /// What it says.
    pub payload: Bytes,
}

/// How hard MQTT tries. There is no exactly-once: duplicates are normal to every message of ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QoS {
    /// `QoS` 0: once or not at all.
    #[default]
    AtMostOnce,
    /// `QoS` 1: until the broker has acknowledged it.
    AtLeastOnce,
}

/// Filters a broker is asked for in one packet.
const SUBSCRIPTIONS_MAX: usize = 64;

impl LinkConfig {
    /// Defaults: nothing subscribed or retained, 10 s keep-alive, payloads up to 256 KiB, 1024 messages each way, 5 s to connect.
    pub fn new(broker: BrokerAddress, client_id: impl Into<String>) -> Self {
        Self {
            broker,
            client_id: client_id.into(),
            subscriptions: Vec::new(),
            retained: Vec::new(),
            down: None,
            keep_alive_s: 10,
            largest_payload_bytes: 256 * 1024,
            outgoing_messages: 1024,
            incoming_messages: 1024,
            connect_timeout_ms: 5000,
        }
    }

    /// Adds a filter.
    #[must_use]
    pub fn subscribe(mut self, filter: impl Into<String>, qos: QoS) -> Self {
        self.subscriptions.push(Subscription { filter: filter.into(), qos });
        self
    }

    pub(crate) fn check(&self) -> Result<(), LinkError> {
        let refuse = |what: String| Err(LinkError::Config(what));
        if self.client_id.is_empty() {
            return refuse("client id: expected a name, found nothing".into());
        }
        for (name, found) in [
            ("keep_alive_s", usize::from(self.keep_alive_s)),
            ("largest_payload_bytes", self.largest_payload_bytes),
            ("outgoing_messages", self.outgoing_messages),
            ("incoming_messages", self.incoming_messages),
        ] {
            if found == 0 {
                return refuse(format!("{name}: expected at least 1, found 0"));
            }
        }
        if self.subscriptions.len() > SUBSCRIPTIONS_MAX {
            let found = self.subscriptions.len();
            return refuse(format!("subscriptions: expected at most {SUBSCRIPTIONS_MAX}, found {found}"));
        }
        if let Some(wrong) = self.subscriptions.iter().find(|s| !rumqttc::valid_filter(&s.filter)) {
            return Err(LinkError::Topic(wrong.filter.clone()));
        }
        for message in self.retained.iter().chain(&self.down) {
            if message.topic.is_empty() || !rumqttc::valid_topic(&message.topic) {
                return Err(LinkError::Topic(message.topic.clone()));
            }
            let (limit, found) = (self.largest_payload_bytes, message.payload.len());
            if found > limit {
                return Err(LinkError::Oversize { limit, found });
            }
        }
        Ok(())
    }
}

impl RetainedMessage {
    /// A message for a topic.
    pub fn new(topic: impl Into<String>, payload: impl Into<Bytes>) -> Self {
        Self { topic: topic.into(), payload: payload.into() }
    }
}

impl From<QoS> for rumqttc::QoS {
    fn from(qos: QoS) -> Self {
        match qos {
            QoS::AtMostOnce => Self::AtMostOnce,
            QoS::AtLeastOnce => Self::AtLeastOnce,
        }
    }
}

impl TryFrom<u8> for QoS {
    type Error = String;
    fn try_from(qos: u8) -> Result<Self, String> {
        match qos {
            0 => Ok(Self::AtMostOnce),
            1 => Ok(Self::AtLeastOnce),
            other => Err(format!("QoS: expected 0 or 1, found {other}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(change: impl FnOnce(&mut LinkConfig), expected: &str) {
        let broker = BrokerAddress::new("localhost", 1883).expect("a valid address");
        let mut config = LinkConfig::new(broker, "device");
        change(&mut config);
        let found = config.check().map_err(|e| e.to_string());
        assert!(found.as_ref().is_err_and(|e| e.contains(expected)), "{found:?} should name {expected:?}");
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        check(|c| c.client_id.clear(), "client id");
        check(|c| c.keep_alive_s = 0, "keep_alive_s");
        check(|c| c.outgoing_messages = 0, "outgoing_messages");
        check(
            |c| c.subscriptions.push(Subscription { filter: "a/#/b".into(), qos: QoS::AtMostOnce }),
            "a/#/b",
        );
        check(|c| c.down = Some(RetainedMessage::new("a/+", "x")), "a/+");
        check(|c| c.retained = vec![RetainedMessage::new("a", vec![0; 300_000])], "300000");
    }
}
