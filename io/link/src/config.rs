//! Settings of a link.

use std::str::FromStr;

use bytes::Bytes;
use headwater_transport::BrokerAccess;

use crate::error::LinkError;
use crate::limits::BrokerNeeds;

/// Settings of one link.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Address of the broker, and the certificate or user by which the broker knows the link.
    pub broker: BrokerAccess,
    /// MQTT client id, 1 to 256 bytes. A broker ends the connection of an earlier client with the same id.
    pub client_id: String,
    /// Filters to subscribe to after every connect.
    pub subscriptions: Vec<Subscription>,
    /// Messages to publish after every connect, retained and at `QoS` 1, in this order.
    pub retained: Vec<RetainedMessage>,
    /// Last message, retained and at `QoS` 1. [`Link::shutdown`](crate::Link::shutdown) publishes it and
    /// [`Link::leave`](crate::Link::leave) does not; the broker publishes it when the connection ends in any other way.
    pub last_will: Option<RetainedMessage>,
    /// Seconds between pings of an idle connection, at least 1. A longer time finds a dead peer later.
    pub keep_alive_s: u16,
    /// Largest payload in bytes, in both directions. A longer payload is refused before it is queued, or counted and dropped when it
    /// arrives.
    pub max_payload_bytes: usize,
    /// Messages that may wait to be written; at least 1. A longer queue survives longer stalls of the broker and takes memory.
    pub outgoing_messages: usize,
    /// Messages that may wait for the owner; at least 1. While the channel is full the socket is not read.
    pub incoming_messages: usize,
    /// Longest time in milliseconds for an attempt to connect, and again for the broker's answer to the subscriptions.
    pub connect_timeout_ms: u64,
    /// Needs of the owner. A broker that cannot carry the owner's usual messages is treated as one that refuses the client; lesser
    /// shortcomings are logged.
    pub needs: BrokerNeeds,
}

/// A filter to subscribe to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// MQTT topic filter.
    pub filter: String,
    /// Highest `QoS` at which the broker delivers.
    pub qos: QoS,
}

/// A message that the broker keeps for later subscribers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetainedMessage {
    /// MQTT topic.
    pub topic: String,
    /// Content; an empty payload clears the topic.
    pub payload: Bytes,
}

/// Delivery guarantee of MQTT. There is no exactly-once: every receiver here expects duplicates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QoS {
    /// `QoS` 0: once or not at all.
    #[default]
    AtMostOnce,
    /// `QoS` 1: at least once, as long as the connection lasts.
    AtLeastOnce,
}

/// Longest client id. Our own ids are shorter; brokers differ in what they take.
const MAX_CLIENT_ID_BYTES: usize = 256;

/// Most subscriptions of one link; all go in one packet.
const MAX_SUBSCRIPTIONS: usize = 64;

impl LinkConfig {
    /// Default settings: no subscriptions, nothing retained, pings after 10 s, payloads up to 256 KiB, 1024 messages in each
    /// direction, 5 s to connect.
    pub fn new(broker: impl Into<BrokerAccess>, client_id: impl Into<String>) -> Self {
        Self {
            broker: broker.into(),
            client_id: client_id.into(),
            subscriptions: Vec::new(),
            retained: Vec::new(),
            last_will: None,
            keep_alive_s: 10,
            max_payload_bytes: 256 * 1024,
            outgoing_messages: 1024,
            incoming_messages: 1024,
            connect_timeout_ms: 5000,
            needs: BrokerNeeds::default(),
        }
    }

    /// Adds a filter to subscribe to after every connect.
    #[must_use]
    pub fn subscribe(mut self, filter: impl Into<String>, qos: QoS) -> Self {
        self.subscriptions.push(Subscription { filter: filter.into(), qos });
        self
    }

    pub(crate) fn check(&self) -> Result<(), LinkError> {
        let refuse = |what: String| Err(LinkError::Config(what));
        let found = self.client_id.len();
        if !(1..=MAX_CLIENT_ID_BYTES).contains(&found) {
            return refuse(format!("client id: expected 1 to {MAX_CLIENT_ID_BYTES} bytes, found {found}"));
        }
        if !self.broker.address.scheme().is_mqtt() {
            return refuse(format!(
                "broker: expected the scheme mqtt or mqtts, found {}",
                self.broker.address
            ));
        }
        for (name, found) in [
            ("keep_alive_s", usize::from(self.keep_alive_s)),
            ("max_payload_bytes", self.max_payload_bytes),
            ("outgoing_messages", self.outgoing_messages),
            ("incoming_messages", self.incoming_messages),
        ] {
            if found == 0 {
                return refuse(format!("{name}: expected at least 1, found 0"));
            }
        }
        if self.subscriptions.len() > MAX_SUBSCRIPTIONS {
            let found = self.subscriptions.len();
            return refuse(format!("subscriptions: expected at most {MAX_SUBSCRIPTIONS}, found {found}"));
        }
        if let Some(wrong) = self.subscriptions.iter().find(|s| !rumqttc::valid_filter(&s.filter)) {
            return Err(LinkError::Topic(wrong.filter.clone()));
        }
        for message in self.retained.iter().chain(&self.last_will) {
            if message.topic.is_empty() || !rumqttc::valid_topic(&message.topic) {
                return Err(LinkError::Topic(message.topic.clone()));
            }
            let (limit, found) = (self.max_payload_bytes, message.payload.len());
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

impl FromStr for QoS {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "0" => Ok(Self::AtMostOnce),
            "1" => Ok(Self::AtLeastOnce),
            other => Err(format!("expected 0 or 1, found {other}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_transport::Endpoint;

    use super::*;

    #[track_caller]
    fn check(change: impl FnOnce(&mut LinkConfig), expected: &str) {
        let broker = Endpoint::mqtt("localhost", 1883).expect("a valid address");
        let mut config = LinkConfig::new(broker, "device");
        change(&mut config);
        let found = config.check().map_err(|e| e.to_string());
        assert!(found.as_ref().is_err_and(|e| e.contains(expected)), "{found:?} should name {expected:?}");
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        check(|c| c.client_id.clear(), "client id: expected 1 to 256 bytes, found 0");
        check(|c| c.client_id = "x".repeat(257), "client id: expected 1 to 256 bytes, found 257");
        check(|c| c.broker.address = Endpoint::http("http://broker").expect("an address"), "http://broker");
        check(|c| c.keep_alive_s = 0, "keep_alive_s");
        check(|c| c.outgoing_messages = 0, "outgoing_messages");
        check(
            |c| c.subscriptions.push(Subscription { filter: "a/#/b".into(), qos: QoS::AtMostOnce }),
            "a/#/b",
        );
        check(|c| c.last_will = Some(RetainedMessage::new("a/+", "x")), "a/+");
        check(|c| c.retained = vec![RetainedMessage::new("a", vec![0; 300_000])], "300000");
    }
}
