//! A small MQTT 5 broker in this process, on loopback alone: for the demo, for tests and for a first try. Sites run on Mosquitto.
//!
//! The broker speaks MQTT 5 with `QoS` 0 and 1 and keeps everything in memory. The broker refuses `QoS` 2, shared subscriptions,
//! subscription identifiers, enhanced authentication (AUTH) and other versions of MQTT. User names and passwords are not checked.
//! Every queue has a bound.
//!
//! ```text
//! server         sockets, one task for each connection, one thread
//!   connections  the protocol of a connection: bytes and time in, bytes out
//!     packets    bytes <-> packets, reasons of refusals
//!     sessions   clients, their subscriptions, their last wills
//!       retained, subscriptions, outgoing (the queue of one subscriber)
//!         filter, message
//! ```

mod connections;
mod filter;
mod message;
mod outgoing;
mod packets;
mod retained;
mod server;
mod sessions;
mod subscriptions;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread::{self, JoinHandle};

use headwater_transport::Endpoint;
use socket2::{Domain, Socket, Type};
use thiserror::Error;
use tokio::sync::oneshot;
use tracing::{error, info};

/// A running broker. Dropping this value stops the broker.
#[derive(Debug)]
pub struct EmbeddedBroker {
    address: Endpoint,
    /// `None` once the broker is stopping.
    running: Option<Running>,
}

/// The sender, whose drop stops the broker's thread, and that thread.
type Running = (oneshot::Sender<()>, JoinHandle<()>);

impl EmbeddedBroker {
    /// Starts a broker on a free port of 127.0.0.1. The broker accepts connections when the function returns.
    ///
    /// # Errors
    /// [`BrokerError`] when the system gives no port or no thread.
    pub fn start() -> Result<Self, BrokerError> {
        Self::start_at(0)
    }

    /// Starts a broker on this port of 127.0.0.1; 0 takes a free port.
    ///
    /// # Errors
    /// [`BrokerError`] when the port is not available, or the system gives no thread.
    pub fn start_at(port: u16) -> Result<Self, BrokerError> {
        let (address, running) = Self::listen(port).map_err(|source| BrokerError { port, source })?;
        info!(%address, "embedded broker, for a first try on this machine alone; sites run on Mosquitto (docs/site.md)");
        Ok(Self { address, running: Some(running) })
    }

    /// Address of the broker.
    pub fn address(&self) -> Endpoint {
        self.address.clone()
    }

    /// Ends every connection and frees the port. Sessions and retained messages are lost.
    pub fn stop(self) {}

    fn listen(port: u16) -> io::Result<(Endpoint, Running)> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        // Connections of an earlier broker may still hold the port.
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())?;
        // Connections that may wait until the broker accepts them.
        socket.listen(1024)?;
        socket.set_nonblocking(true)?;
        let bound = socket.local_addr()?.as_socket().map_or(port, |bound| bound.port());
        let address = Endpoint::mqtt("127.0.0.1", bound).map_err(io::Error::other)?;
        let (stop, stopped) = oneshot::channel();
        let listener = TcpListener::from(socket);
        let serve = move || {
            if let Err(error) = server::serve(listener, stopped) {
                error!(%error, "the embedded broker ended");
            }
        };
        Ok((address, (stop, thread::Builder::new().name("broker".into()).spawn(serve)?)))
    }
}

impl Drop for EmbeddedBroker {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            drop(stop);
            // A panic of the thread has already been printed.
            let _ = thread.join();
        }
    }
}

/// The broker did not start.
#[derive(Debug, Error)]
#[error("embedded broker: 127.0.0.1:{port}: {source} (choose another port, or 0 for a free one)")]
pub struct BrokerError {
    /// The port that was asked for; 0 for any.
    pub port: u16,
    /// The system's error.
    pub source: io::Error,
}
