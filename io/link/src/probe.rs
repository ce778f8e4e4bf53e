//! A connection that publishes nothing, and reads the limits and the retained messages of the broker.
//!
//! ```text
//! CONNECT ──> CONNACK: limits ──> SUBSCRIBE ──> SUBACK: refusals, retained messages ──> silence ──> DISCONNECT
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use headwater_transport::tls::Certificate;
use parking_lot::Mutex;
use rumqttc::{
    AsyncClient, ConnAck, ConnectionError, Event, EventLoop, Packet, Publish, SubAck, SubscribeFilter,
    SubscribeReasonCode,
};
use tokio::time::timeout;

use crate::broker_bytes::{Seen, code_name};
use crate::config::{LinkConfig, RetainedMessage};
use crate::failure::{Attempt, ConnectFailure};
use crate::limits::BrokerLimits;
use crate::options::{mqtt_options, set_credentials};

/// Time without a retained message after which no further retained message is expected.
const QUIET: Duration = Duration::from_millis(150);

/// Longest wait for retained messages, besides the wait for the answer to the subscriptions.
const MAX_LISTEN: Duration = Duration::from_secs(2);
/// Most retained messages that are read. A group has at most 64 devices with two retained messages each, and its edges.
const MAX_RETAINED: usize = 1024;

/// Findings of a probe.
#[derive(Clone, Debug)]
pub struct BrokerProbe {
    /// Limits of the broker.
    pub limits: BrokerLimits,
    /// Subscriptions that the broker refused.
    pub refused: Vec<RefusedSubscription>,
    /// Messages that the broker keeps on the topics of the subscriptions.
    pub retained: Vec<RetainedMessage>,
    /// The broker's certificate; `None` without TLS.
    pub certificate: Option<Certificate>,
    /// Time from the start of the attempt to the broker's CONNACK.
    pub connected_in: Duration,
}

/// A subscription that the broker refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedSubscription {
    /// Filter of the subscription.
    pub filter: String,
    /// Name of the broker's return code.
    pub code: String,
}

/// Connects once, subscribes, reads the retained messages, and disconnects. Publishes nothing and sets no last will.
///
/// # Errors
/// [`ConnectFailure`]: settings out of range, nobody at the address, another protocol, or a broker that refuses the client.
pub async fn probe(config: &LinkConfig) -> Result<BrokerProbe, ConnectFailure> {
    config.check().map_err(|error| ConnectFailure::Settings(error.to_string()))?;
    let seen = Arc::<Mutex<Seen>>::default();
    let mut options = mqtt_options(config, &config.broker.connector(), &seen);
    set_credentials(&mut options, &config.broker);
    let built = AsyncClient::builder(options).capacity(16).try_build();
    let (client, events) = built.map_err(|error| ConnectFailure::Settings(error.to_string()))?;
    let mut probing = Probing { config, client, events, seen };
    let started = Instant::now();
    let limits = BrokerLimits::of(&probing.connected().await?);
    let connected_in = started.elapsed();
    let certificate = probing.seen.lock().certificate.take();
    let (refused, retained) = probing.listen().await?;
    probing.disconnect().await;
    Ok(BrokerProbe { limits, refused, retained, certificate, connected_in })
}

/// The connection of one probe.
struct Probing<'a> {
    config: &'a LinkConfig,
    client: AsyncClient,
    events: EventLoop,
    seen: Arc<Mutex<Seen>>,
}

impl Probing<'_> {
    /// Waits for the broker's CONNACK; the MQTT library limits this time.
    async fn connected(&mut self) -> Result<ConnAck, ConnectFailure> {
        loop {
            match self.events.poll().await {
                Ok(Event::Incoming(Packet::ConnAck(ack))) => return Ok(ack),
                Ok(_) => {}
                Err(error) => return Err(self.failure(&error, false)),
            }
        }
    }

    /// Subscribes, and reads answers and retained messages until none has come for the time `QUIET`.
    async fn listen(&mut self) -> Result<(Vec<RefusedSubscription>, Vec<RetainedMessage>), ConnectFailure> {
        let subscriptions = &self.config.subscriptions;
        if subscriptions.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        let filters = subscriptions.iter().map(|own| SubscribeFilter::new(&own.filter, own.qos.into()));
        let subscribed = self.client.try_subscribe_many(filters);
        subscribed.map_err(|error| ConnectFailure::Settings(format!("subscribing: {error}")))?;
        let (mut refused, mut retained) = (None, Vec::new());
        let limit = Duration::from_millis(self.config.connect_timeout_ms);
        let (mut until, end) = (Instant::now() + limit, Instant::now() + limit + MAX_LISTEN);
        while retained.len() < MAX_RETAINED {
            let event =
                match timeout(until.min(end).saturating_duration_since(Instant::now()), self.events.poll())
                    .await
                {
                    Ok(Ok(event)) => event,
                    Ok(Err(error)) => return Err(self.failure(&error, true)),
                    Err(_) => break,
                };
            match event {
                Event::Incoming(Packet::SubAck(ack)) => {
                    refused = Some(self.refused(&ack));
                    until = Instant::now() + QUIET;
                }
                Event::Incoming(Packet::Publish(Publish { topic, payload, retain: true, .. })) => {
                    if let Ok(topic) = String::from_utf8(topic.into()) {
                        retained.push(RetainedMessage::new(topic, payload));
                    }
                    // Brokers may send retained messages before they answer the subscription.
                    until = until.max(Instant::now() + QUIET);
                }
                Event::Incoming(Packet::Disconnect(packet)) => {
                    let attempt = Attempt::new(&self.config.broker, true, &self.seen.lock());
                    return Err(ConnectFailure::of_disconnect(packet.reason_code, &attempt));
                }
                _ => {}
            }
        }
        Ok((refused.ok_or(ConnectFailure::WITHOUT_SUBACK)?, retained))
    }

    fn refused(&self, ack: &SubAck) -> Vec<RefusedSubscription> {
        let replaced = self.seen.lock().replaced;
        let answers = self.config.subscriptions.iter().zip(&ack.return_codes);
        let refused = answers.filter(|(_, code)| !matches!(code, SubscribeReasonCode::Success(_)));
        refused
            .map(|(own, code)| RefusedSubscription {
                filter: own.filter.clone(),
                code: code_name(code, replaced),
            })
            .collect()
    }

    fn failure(&self, error: &ConnectionError, is_accepted: bool) -> ConnectFailure {
        let attempt = Attempt::new(&self.config.broker, is_accepted, &self.seen.lock());
        match ConnectFailure::of(error, &attempt) {
            ConnectFailure::Ended(why) | ConnectFailure::Unreachable(why) if is_accepted => {
                ConnectFailure::Ended(format!("it took this client, and then the connection ended: {why}"))
            }
            failure => failure,
        }
    }

    /// Ends the connection in order.
    async fn disconnect(mut self) {
        if self.client.try_disconnect().is_ok() {
            let ended = async { while self.events.poll().await.is_ok() {} };
            // If the broker does not close the connection, dropping `self` closes it.
            let _ = timeout(QUIET, ended).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;
    use headwater_transport::{Endpoint, held_port};

    use crate::broker::EmbeddedBroker;
    use crate::config::QoS;
    use crate::handle::Link;
    use crate::incoming::Incoming;

    /// Longer than a broker takes for a message on a busy machine.
    const WAIT_LIMIT: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_probe_reads_what_the_broker_keeps_and_ends_nobodys_connection() {
        let server = EmbeddedBroker::start().expect("a broker");
        let broker = server.address();
        let mut config = LinkConfig::new(broker.clone(), "device");
        config.retained = vec![RetainedMessage::new("group/status", "up")];
        let (link, mut incoming) = Link::start(config).expect("settings");
        assert_eq!(incoming.recv().await, Some(Incoming::Connected));
        let config = LinkConfig::new(broker, "probe").subscribe("group/#", QoS::AtMostOnce);
        let kept = async {
            loop {
                // The broker may not have taken the message yet.
                let found = probe(&config).await.expect("an answer");
                if !found.retained.is_empty() {
                    return found;
                }
            }
        };
        let found = timeout(WAIT_LIMIT, kept).await.expect("the broker keeps the message");
        assert_eq!(found.retained, [RetainedMessage::new("group/status", "up")]);
        assert!(found.refused.is_empty() && found.limits.keeps_retained, "{found:?}");
        assert!(link.is_connected());
    }

    #[tokio::test]
    async fn a_port_without_a_broker_is_no_answer() {
        let nobody = Endpoint::mqtt("127.0.0.1", held_port().expect("a free port")).expect("an address");
        let failure = probe(&LinkConfig::new(nobody, "probe")).await.expect_err("nobody listens");
        assert!(matches!(failure, ConnectFailure::Unreachable(_)), "{failure}");
    }

    #[tokio::test]
    async fn a_server_of_another_protocol_is_told_apart() {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let server = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.expect("a connection");
            let answer = format!("HTTP/1.1 400 Bad Request\r\n\r\n{}", "x".repeat(200));
            socket.write_all(answer.as_bytes()).await.expect("open");
            socket
        });
        let broker = headwater_transport::Endpoint::mqtt("127.0.0.1", port).expect("an address");
        let failure = probe(&LinkConfig::new(broker, "probe")).await.expect_err("no broker");
        assert!(matches!(failure, ConnectFailure::NoMqtt { .. }), "{failure}");
        drop(server.await);
    }

    #[tokio::test]
    async fn a_host_without_an_address_is_told_apart() {
        // A label of a domain name has at most 63 bytes (RFC 1035), so no DNS server is asked.
        let broker = headwater_transport::Endpoint::mqtt("x".repeat(64), 1883).expect("an address");
        let failure = probe(&LinkConfig::new(broker, "probe")).await.expect_err("no address");
        assert!(matches!(failure, ConnectFailure::UnknownHost(_)), "{failure}");
    }
}
