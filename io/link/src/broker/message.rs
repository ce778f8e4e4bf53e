//! A message in the broker: what a client published, and when it is too old to be sent.

use bytes::Bytes;
use rumqttc::{LastWill, Publish, PublishProperties};

/// Number of a session; later sessions have higher numbers.
pub(super) type SessionId = u64;

/// Rough number of bytes in memory that a message takes besides its packet.
const OVERHEAD_BYTES: usize = 256;

/// A published message, which its subscribers share.
#[derive(Debug)]
pub(super) struct Message {
    /// The packet with its topic in full, without an alias.
    pub(super) publish: Publish,
    /// The session that published the message.
    pub(super) publisher: SessionId,
    expires_at_ms: Option<u64>,
}

impl Message {
    /// Makes a message from a packet. The bytes are copied, so that a short message does not keep a whole read buffer in memory.
    pub(super) fn new(mut publish: Publish, publisher: SessionId, now_ms: u64) -> Self {
        publish.topic = Bytes::copy_from_slice(&publish.topic);
        publish.payload = Bytes::copy_from_slice(&publish.payload);
        let mut expires_at_ms = None;
        if let Some(properties) = &mut publish.properties {
            let correlation = properties.correlation_data.as_deref();
            properties.correlation_data = correlation.map(Bytes::copy_from_slice);
            let expiry_s = properties.message_expiry_interval;
            expires_at_ms = expiry_s.map(|seconds| now_ms + u64::from(seconds) * 1000);
        }
        Self { publish, publisher, expires_at_ms }
    }

    pub(super) fn topic(&self) -> &str {
        // The codec lets only UTF-8 topics through.
        std::str::from_utf8(&self.publish.topic).unwrap_or_default()
    }

    pub(super) fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms)
    }

    /// Bytes by which the message counts against the bound of a queue or of the retained messages.
    pub(super) fn bytes(&self) -> usize {
        self.publish.size() + OVERHEAD_BYTES
    }

    /// The packet to send at `now_ms`; its message expiry is the time left, rounded up to whole seconds.
    pub(super) fn packet(&self, now_ms: u64) -> Publish {
        let mut packet = self.publish.clone();
        if let (Some(properties), Some(at_ms)) = (&mut packet.properties, self.expires_at_ms) {
            let rest_s = at_ms.saturating_sub(now_ms).div_ceil(1000);
            properties.message_expiry_interval = Some(u32::try_from(rest_s).unwrap_or(u32::MAX));
        }
        packet
    }
}

/// The message that the broker publishes as a client's last will.
pub(super) fn of_will(will: LastWill) -> Publish {
    let properties = will.properties.map(|of| PublishProperties {
        payload_format_indicator: of.payload_format_indicator,
        message_expiry_interval: of.message_expiry_interval,
        response_topic: of.response_topic,
        correlation_data: of.correlation_data,
        user_properties: of.user_properties,
        content_type: of.content_type,
        ..PublishProperties::default()
    });
    let LastWill { topic, message: payload, qos, retain, .. } = will;
    Publish { dup: false, qos, retain, topic, pkid: 0, payload, properties }
}
