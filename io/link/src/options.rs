//! Options of the MQTT client, from the settings of a link.

use std::sync::Arc;
use std::time::Duration;

use headwater_transport::{BrokerAccess, Connector, Credentials, Secret};
use parking_lot::Mutex;
use rumqttc::{LastWill, MqttOptions, TopicAliasPolicy};

use crate::broker_bytes::{BrokerBytes, Seen};
use crate::config::LinkConfig;

/// Most packets that the library reads, or writes, before it flushes the socket.
const BATCH: usize = 64;

/// Messages at `QoS` 1 that may wait for the broker's acknowledgement; further messages stay in the queue.
pub const MAX_UNACKNOWLEDGED: u16 = 32;

/// Bytes of a packet besides the payload: the longest topic of MQTT, headers and properties.
const MAX_TOPIC_BYTES: usize = 66 * 1024;

/// Options of one link. `seen` is reset at each attempt to connect, and receives the facts of the connection.
pub(crate) fn mqtt_options(
    config: &LinkConfig,
    connector: &Connector,
    seen: &Arc<Mutex<Seen>>,
) -> MqttOptions {
    let broker = config.broker.address.clone();
    let address = (broker.host(), broker.port());
    let connect_timeout = Duration::from_millis(config.connect_timeout_ms);
    let mut options = MqttOptions::new(config.client_id.clone(), address);
    options
        .set_keep_alive(config.keep_alive_s)
        // The link subscribes and republishes by itself; an MQTT session kept by the broker would only repeat old samples.
        .set_clean_start(true)
        .set_connect_timeout(connect_timeout)
        .set_max_request_batch(BATCH)
        .set_read_batch_size(BATCH)
        .set_max_packet_size(Some(max_packet_bytes(config)))
        // The library allocates this many slots at the start; the default of 65,535 slots takes 13 MB.
        .set_outgoing_inflight_upper_limit(MAX_UNACKNOWLEDGED)
        // A topic that has an alias keeps it until the connection ends. The driver decides when topics begin to take aliases.
        .set_topic_alias_policy(TopicAliasPolicy::Monotonic);
    // `topic_alias_max` stays unset: the library loses the topic of a message with a broker's alias (rumqttc 0.25 to 0.34).
    if let Some(will) = &config.last_will {
        let payload = will.payload.to_vec();
        options.set_last_will(LastWill::new(&will.topic, payload, rumqttc::QoS::AtLeastOnce, true, None));
    }
    let (connector, seen) = (connector.clone(), Arc::clone(seen));
    options.set_socket_connector(move |_, _| {
        let (connector, broker, seen) = (connector.clone(), broker.clone(), Arc::clone(&seen));
        async move {
            *seen.lock() = Seen::default();
            let connection = connector.connect(&broker, connect_timeout).await?;
            seen.lock().certificate = connection.peer_certificate();
            Ok(BrokerBytes::new(connection, seen))
        }
    });
    options
}

/// Sets user and password. The password is read again, since its file may have been replaced.
pub(crate) fn set_credentials(options: &mut MqttOptions, broker: &BrokerAccess) {
    if let Some(Credentials { user, password }) = &broker.credentials {
        let password = password.as_ref().map(Secret::get).unwrap_or_default();
        options.set_credentials(user, password);
    }
}

/// Largest packet that the broker may send.
///
/// ```text
/// payload:  0 ──── max_payload_bytes ──── 4 × that ────
///             delivered      dropped here     left out by the broker
/// ```
///
/// The broker learns the limit and leaves larger packets out; a larger packet that comes all the same ends the connection. The limit
/// is well above `max_payload_bytes`, because one retained message above the limit could end every connection.
fn max_packet_bytes(config: &LinkConfig) -> u32 {
    u32::try_from(config.max_payload_bytes.saturating_mul(4).saturating_add(MAX_TOPIC_BYTES))
        .unwrap_or(u32::MAX)
}
