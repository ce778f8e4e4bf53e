//! From our settings to those of the MQTT client.

use std::sync::Arc;
use std::time::Duration;

use rumqttc::{LastWill, MqttOptions};

use crate::config::LinkConfig;
use crate::socket::CountedSocket;
use crate::wire::WireCounters;

/// Packets taken from the socket, or written to it, before it is flushed.
const BATCH: usize = 64;

/// Messages at `QoS` 1 that may wait for the broker's acknowledgement; further ones wait in the queue.
const UNACKNOWLEDGED: u16 = 256;

/// Longest topic MQTT has, with room for headers and properties.
const TOPIC_ROOM: usize = 66 * 1024;

pub(crate) fn mqtt_options(config: &LinkConfig, wire: &Arc<WireCounters>) -> MqttOptions {
    let broker = (config.broker.host(), config.broker.port());
    let mut options = MqttOptions::new(config.client_id.clone(), broker);
    options
        .set_keep_alive(config.keep_alive_s)
        // The link subscribes and republishes by itself; a session kept by the broker would only repeat old samples.
        .set_clean_start(true)
        .set_connect_timeout(Duration::from_millis(config.connect_timeout_ms))
        .set_max_request_batch(BATCH)
        .set_read_batch_size(BATCH)
        .set_max_packet_size(Some(largest_packet(config)))
        // The client makes room for as many at its start: 65,535, its default, take 13 MB.
        .set_outgoing_inflight_upper_limit(UNACKNOWLEDGED);
    // The client loses the topic of a message that comes with an alias of the broker (rumqttc 0.25 to 0.34), so none is allowed:
    // `topic_alias_max` stays unset.
    if let Some(down) = &config.down {
        let payload = down.payload.to_vec();
        options.set_last_will(LastWill::new(&down.topic, payload, rumqttc::QoS::AtLeastOnce, true, None));
    }
    let (broker, wire) = (config.broker.clone(), Arc::clone(wire));
    options.set_socket_connector(move |_, _| CountedSocket::connect(broker.clone(), Arc::clone(&wire)));
    options
}

/// Packets up to here are read and, when their payload is over the limit, left out one by one. A longer one ends the
/// connection, which a retained message would do again and again: hence well above the limit for payloads.
fn largest_packet(config: &LinkConfig) -> u32 {
    u32::try_from(config.largest_payload_bytes.saturating_mul(4).saturating_add(TOPIC_ROOM))
        .unwrap_or(u32::MAX)
}
