//! Limits of a broker, and needs of a client.

use rumqttc::ConnAck;

/// Limits of a broker, from its CONNACK. A limit that the CONNACK does not name has the default of MQTT 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerLimits {
    /// Largest packet in bytes; `None` for no limit.
    pub max_packet_bytes: Option<u32>,
    /// Messages at `QoS` 1 that may wait for acknowledgement.
    pub receive_max: u16,
    /// Topic aliases that a client may use; 0 for none.
    pub topic_alias_max: u16,
    /// True when the broker keeps retained messages.
    pub keeps_retained: bool,
    /// Highest `QoS` that the broker supports.
    pub max_qos: u8,
    /// True when filters may have wildcards.
    pub takes_wildcards: bool,
}

/// Needs of a client that its broker has to meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrokerNeeds {
    /// Bytes of the packet with the client's largest message; 0 if the client does not say.
    pub packet_bytes: usize,
    /// Bytes of the packet with the client's largest message in rare cases; 0 if the client does not say.
    pub rare_packet_bytes: usize,
    /// True when the client publishes retained messages at `QoS` 1, such as births, statuses and claims.
    pub publishes_state: bool,
    /// True when the client subscribes by filters with wildcards.
    pub has_wildcards: bool,
}

/// A need that a broker does not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortcoming {
    /// What was found, and what is needed.
    pub found: String,
    /// What to do.
    pub advice: String,
    /// True when the client cannot do its work with this broker.
    pub stops: bool,
}

/// Bytes that the shipped configuration of Mosquitto allows for a packet.
const SHIPPED_PACKET_BYTES: usize = 262_144;

/// Receive maximum (messages at `QoS` 1) below which results wait for each other.
const FEW_UNACKNOWLEDGED: u16 = 16;

impl BrokerNeeds {
    /// Needs of a member of a group, with the bytes of the packet of its largest message: usually, and in rare cases.
    pub fn of_member([packet_bytes, rare_packet_bytes]: [usize; 2], has_wildcards: bool) -> Self {
        Self { packet_bytes, rare_packet_bytes, publishes_state: true, has_wildcards }
    }
}

impl BrokerLimits {
    pub(crate) fn of(ack: &ConnAck) -> Self {
        let properties = ack.properties.as_ref();
        Self {
            max_packet_bytes: properties.and_then(|of| of.max_packet_size),
            receive_max: properties.and_then(|of| of.receive_max).unwrap_or(u16::MAX),
            topic_alias_max: properties.and_then(|of| of.topic_alias_max).unwrap_or(0),
            keeps_retained: properties.and_then(|of| of.retain_available) != Some(0),
            max_qos: properties.and_then(|of| of.max_qos).unwrap_or(2),
            takes_wildcards: properties.and_then(|of| of.wildcard_subscription_available) != Some(0),
        }
    }

    /// The needs that the broker does not meet, and a receive maximum that slows results down.
    pub fn shortcomings(&self, needs: &BrokerNeeds) -> Vec<Shortcoming> {
        let mut found = Vec::new();
        let mut add = |found_text: String, advice: String, stops| {
            found.push(Shortcoming { found: found_text, advice, stops });
        };
        if let Some(bytes) = self.max_packet_bytes.map(|bytes| bytes as usize) {
            let most = needs.rare_packet_bytes.max(needs.packet_bytes);
            let advised = most.next_power_of_two().max(SHIPPED_PACKET_BYTES);
            let raise = format!("raise the broker's limit (Mosquitto: max_packet_size {advised})");
            if bytes < needs.packet_bytes {
                let needed = needs.packet_bytes;
                add(
                    format!("max_packet_size is {bytes} bytes, the largest message takes {needed}"),
                    raise,
                    true,
                );
            } else if bytes < most {
                add(
                    format!("max_packet_size is {bytes} bytes, an account after many gaps takes {most}"),
                    raise,
                    false,
                );
            }
        }
        if needs.publishes_state && !self.keeps_retained {
            let advice = "allow retained messages (Mosquitto: retain_available true); births, statuses and claims need them";
            add("the broker keeps no retained messages".into(), advice.into(), true);
        }
        if needs.publishes_state && self.max_qos < 1 {
            let advice = "allow QoS 1 (Mosquitto: max_qos 1); births, results and last wills need it";
            add("the broker allows QoS 0 alone".into(), advice.into(), true);
        }
        if needs.has_wildcards && !self.takes_wildcards {
            let advice = "use a broker that takes filters with `+`; the topics of devices are read by such";
            add("the broker takes no wildcards in subscriptions".into(), advice.into(), true);
        }
        if self.receive_max < FEW_UNACKNOWLEDGED {
            let text = format!("receive maximum is {}: results wait for each other", self.receive_max);
            add(text, "raise it (Mosquitto: max_inflight_messages 20)".into(), false);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::GOOD_LIMITS as GOOD;

    const NEEDS: BrokerNeeds = BrokerNeeds {
        packet_bytes: 4352,
        rare_packet_bytes: 70_000,
        publishes_state: true,
        has_wildcards: true,
    };

    #[track_caller]
    fn check(limits: BrokerLimits, expected: &[(&str, bool)]) {
        let found = limits.shortcomings(&NEEDS);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, (word, stops)) in found.iter().zip(expected) {
            assert!(found.found.contains(word) && found.stops == *stops, "{found:?}");
        }
    }

    #[test]
    fn each_limit_that_stops_or_slows_messages_is_named() {
        let packet = |bytes| BrokerLimits { max_packet_bytes: Some(bytes), ..GOOD };
        check(GOOD, &[]);
        check(packet(262_144), &[]);
        check(packet(4000), &[("the largest message takes 4352", true)]);
        check(packet(8192), &[("an account", false)]);
        check(BrokerLimits { keeps_retained: false, ..GOOD }, &[("retained", true)]);
        check(BrokerLimits { max_qos: 0, ..GOOD }, &[("QoS 0 alone", true)]);
        check(BrokerLimits { takes_wildcards: false, ..GOOD }, &[("no wildcards", true)]);
        check(BrokerLimits { receive_max: 1, ..GOOD }, &[("receive maximum is 1", false)]);
        let poor = BrokerLimits { keeps_retained: false, max_qos: 0, takes_wildcards: false, ..GOOD };
        assert_eq!(poor.shortcomings(&BrokerNeeds::default()), [], "a reader needs none of them");
    }
}
