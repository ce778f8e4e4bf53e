//! An MQTT 5 broker in this process, on loopback: for the demo and for tests.
//!
//! rumqttd keeps everything in memory and cannot be stopped: it lives until the process ends. Its logs name normal events (a probe,
//! a client that left) as errors; the log set-up of `headwater-telemetry` switches them off.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use headwater_transport::Endpoint;
use rumqttd::{Broker, Config, ConnectionSettings, RouterConfig, ServerSettings};
use thiserror::Error;

/// A running broker.
#[derive(Debug)]
pub struct EmbeddedBroker {
    address: Endpoint,
}

/// Largest payload of the broker: well above the 256 KiB that links allow by default.
const MAX_PAYLOAD_BYTES: usize = 1 << 20;
/// Bytes of one segment of a topic's log.
const SEGMENT_BYTES: usize = 4 << 20;
/// Segments of a topic's log; a slow reader loses the messages of a dropped segment. 16 MiB are some 30,000 feature messages.
const SEGMENTS: usize = 4;
/// Longest wait for the listener.
const START_LIMIT: Duration = Duration::from_secs(5);
/// Free ports to try: another process may take a port before the broker binds it.
const MAX_ATTEMPTS: usize = 5;

impl EmbeddedBroker {
    /// Starts a broker on 127.0.0.1, on the given port or on any free one, and waits until it accepts connections.
    ///
    /// # Errors
    /// [`BrokerError::Port`] when the port is taken; [`BrokerError::Start`] when the broker does not come up.
    pub fn start(port: Option<u16>) -> Result<Self, BrokerError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match Self::start_once(port.unwrap_or(0)) {
                Err(BrokerError::Start { .. }) if port.is_none() && attempts < MAX_ATTEMPTS => {}
                result => return result,
            }
        }
    }

    /// Address of the broker.
    pub fn address(&self) -> Endpoint {
        self.address.clone()
    }

    fn start_once(port: u16) -> Result<Self, BrokerError> {
        // A port in use is found here, because rumqttd would only log it.
        let listen = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .and_then(|listener| listener.local_addr())
            .map_err(|source| BrokerError::Port { port, source })?;
        let mut broker = Broker::new(config(listen));
        let thread = thread::Builder::new()
            .name("broker".into())
            .spawn(move || drop(broker.start()))
            .map_err(|source| BrokerError::Start { listen, reason: source.to_string() })?;
        wait_until_it_listens(listen, &thread)?;
        let address = Endpoint::mqtt(listen.ip().to_string(), listen.port())
            .map_err(|e| BrokerError::Start { listen, reason: e.to_string() })?;
        Ok(Self { address })
    }
}

fn wait_until_it_listens(listen: SocketAddr, thread: &JoinHandle<()>) -> Result<(), BrokerError> {
    let failed = |reason: &str| Err(BrokerError::Start { listen, reason: reason.into() });
    let start = Instant::now();
    // While nobody listens on a free port, the system may choose that port for the connection, which is then one to itself.
    let is_of_a_broker = |stream: TcpStream| stream.local_addr().is_ok_and(|own| own != listen);
    while !TcpStream::connect(listen).is_ok_and(is_of_a_broker) {
        if thread.is_finished() {
            return failed("the broker ended at once");
        }
        if start.elapsed() > START_LIMIT {
            return failed("the broker does not accept connections");
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn config(listen: SocketAddr) -> Config {
    let connections = ConnectionSettings {
        connection_timeout_ms: 5000,
        max_payload_size: MAX_PAYLOAD_BYTES,
        max_inflight_count: 500,
        auth: None,
        external_auth: None,
        // Without it rumqttd ends the connection of a client that publishes to a topic without subscribers.
        dynamic_filters: true,
    };
    let server =
        ServerSettings { name: "mqtt".into(), listen, tls: None, next_connection_delay_ms: 0, connections };
    let router = RouterConfig {
        max_connections: 1024,
        max_outgoing_packet_count: 500,
        max_segment_size: SEGMENT_BYTES,
        max_segment_count: SEGMENTS,
        ..RouterConfig::default()
    };
    Config { router, v5: Some(HashMap::from([("mqtt".into(), server)])), ..Config::default() }
}

/// Why the broker did not start.
#[derive(Debug, Error)]
pub enum BrokerError {
    /// The port is not available.
    #[error(
        "broker: cannot listen on 127.0.0.1:{port}: {source} (choose another port, or none for a free one)"
    )]
    Port {
        /// The port; 0 for any.
        port: u16,
        /// The system's error.
        source: io::Error,
    },
    /// The broker did not accept connections.
    #[error("broker on {listen}: {reason}")]
    Start {
        /// Its address.
        listen: SocketAddr,
        /// Reason, for people.
        reason: String,
    },
}
