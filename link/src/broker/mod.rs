//! An MQTT 5 broker in this process, on loopback: for the demo and for tests.
//!
//! rumqttd keeps everything in memory and cannot be stopped: it lives until the process ends. It logs at error level what is
//! normal here (a probe, a client that left), so a log filter should switch `rumqttd` off.

mod cable;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rumqttd::{Broker, Config, ConnectionSettings, RouterConfig, ServerSettings};
use thiserror::Error;

use crate::address::BrokerAddress;

pub use cable::Cable;

/// The running broker.
#[derive(Debug)]
pub struct EmbeddedBroker {
    address: BrokerAddress,
}

/// Largest payload it takes: well above the 256 KiB that links allow by default.
const LARGEST_PAYLOAD_BYTES: usize = 1 << 20;
/// Bytes of one segment of a topic's log, and how many of them it keeps. What a slow reader has not taken when the oldest
/// segment goes is lost to it: 16 MiB are some 30,000 feature messages.
const SEGMENT_BYTES: usize = 4 << 20;
const SEGMENTS: usize = 4;
/// Longest wait for the listener.
const START_LIMIT: Duration = Duration::from_secs(5);
/// Free ports tried before giving up: another process may take one between our look and the broker's bind.
const ATTEMPTS: usize = 5;

impl EmbeddedBroker {
    /// Starts it on 127.0.0.1, on the given port or on any free one, and waits until it accepts connections.
    ///
    /// # Errors
    /// [`BrokerError::Port`] when the port is taken; [`BrokerError::Start`] when the broker does not come up.
    pub fn start(port: Option<u16>) -> Result<Self, BrokerError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match Self::start_once(port.unwrap_or(0)) {
                Err(BrokerError::Start { .. }) if port.is_none() && attempts < ATTEMPTS => {}
                result => return result,
            }
        }
    }

    /// Where it listens.
    pub fn address(&self) -> BrokerAddress {
        self.address.clone()
    }

    fn start_once(port: u16) -> Result<Self, BrokerError> {
        // rumqttd's own failure to bind would end in its log; ours reaches the caller.
        let listen = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .and_then(|listener| listener.local_addr())
            .map_err(|source| BrokerError::Port { port, source })?;
        let mut broker = Broker::new(config(listen));
        let thread = thread::Builder::new()
            .name("broker".into())
            .spawn(move || drop(broker.start()))
            .map_err(|source| BrokerError::Start { listen, reason: source.to_string() })?;
        wait_until_it_listens(listen, &thread)?;
        let address = BrokerAddress::new(listen.ip().to_string(), listen.port())
            .map_err(|e| BrokerError::Start { listen, reason: e.to_string() })?;
        Ok(Self { address })
    }
}

fn wait_until_it_listens(listen: SocketAddr, thread: &JoinHandle<()>) -> Result<(), BrokerError> {
    let start = Instant::now();
    while TcpStream::connect(listen).is_err() {
        let reason = if thread.is_finished() {
            "it ended at once"
        } else if start.elapsed() > START_LIMIT {
            "it does not accept connections"
        } else {
            thread::sleep(Duration::from_millis(2));
            continue;
        };
        return Err(BrokerError::Start { listen, reason: reason.into() });
    }
    Ok(())
}

fn config(listen: SocketAddr) -> Config {
    let connections = ConnectionSettings {
        connection_timeout_ms: 5000,
        max_payload_size: LARGEST_PAYLOAD_BYTES,
        max_inflight_count: 500,
        auth: None,
        external_auth: None,
        // Without it rumqttd ends the connection of whoever publishes to a topic that nobody has subscribed to.
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

/// Why there is no broker.
#[derive(Debug, Error)]
pub enum BrokerError {
    /// The port cannot be had.
    #[error(
        "broker: cannot listen on 127.0.0.1:{port}: {source} (choose another port, or none for a free one)"
    )]
    Port {
        /// Port asked for; 0 for any.
        port: u16,
        /// The system's reason.
        source: io::Error,
    },
    /// It did not come up.
    #[error("broker on {listen}: {reason}")]
    Start {
        /// Where it should listen.
        listen: SocketAddr,
        /// What happened.
        reason: String,
    },
}
