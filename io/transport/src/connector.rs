//! Opens connections to endpoints.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use thiserror::Error;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::socket::{Socket, WireBytes, WireCounters};
use crate::tls::{Certificate, ClientIdentity};

/// Opens connections and counts their bytes; clones share the counters and the identity.
#[derive(Clone, Debug, Default)]
pub struct Connector {
    wire: Arc<WireCounters>,
    identity: Option<ClientIdentity>,
}

impl Connector {
    /// A connector whose connections with TLS present this identity and trust its authority.
    #[must_use]
    pub fn with_identity(mut self, identity: impl Into<Option<ClientIdentity>>) -> Self {
        self.identity = identity.into();
        self
    }

    /// Connects to the first address of the host that accepts, with `TCP_NODELAY`, and with TLS if the scheme asks for it.
    ///
    /// # Errors
    /// The system's error; `TimedOut` after `limit`; `Unsupported` for a scheme with TLS if the connector has no identity; the reason why
    /// either end refused the other's certificate.
    pub async fn connect(&self, endpoint: &Endpoint, limit: Duration) -> io::Result<Connection> {
        within(limit, self.open(endpoint)).await
    }

    async fn open(&self, endpoint: &Endpoint) -> io::Result<Connection> {
        let identity = match (endpoint.scheme().uses_tls(), &self.identity) {
            (false, _) => None,
            (true, Some(identity)) => Some(identity),
            (true, None) => return Err(without_identity(endpoint)),
        };
        let addresses = lookup_host((endpoint.host(), endpoint.port())).await;
        let addresses: Vec<_> =
            addresses.map_err(|error| UnknownHost::of(endpoint.host(), &error))?.collect();
        let stream = TcpStream::connect(addresses.as_slice()).await?;
        let socket = Socket::new(stream, Arc::clone(&self.wire), endpoint.scheme().is_mqtt())?;
        let Some(identity) = identity else {
            return Ok(Connection { stream: Box::new(socket), certificate: None });
        };
        let stream = identity.connect(endpoint.host(), socket).await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let certificate = shown.and_then(|certificate| Certificate::parse(certificate).ok());
        Ok(Connection { stream: Box::new(stream), certificate })
    }

    /// Bytes of all connections since the connector was made.
    pub fn wire(&self) -> WireBytes {
        WireBytes { sent: self.wire.sent.load(Relaxed), received: self.wire.received.load(Relaxed) }
    }
}

fn without_identity(endpoint: &Endpoint) -> io::Error {
    let reason = "TLS needs a certificate authority: set `tls.authority_file`";
    io::Error::new(io::ErrorKind::Unsupported, format!("{endpoint}: {reason}"))
}

/// A host whose name has no address. Found inside an [`io::Error`].
#[derive(Debug, Error)]
#[error("{0}")]
pub struct UnknownHost(String);

impl UnknownHost {
    /// Returns true if an error is of this kind.
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<Self>)
    }

    fn of(host: &str, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), Self(format!("the name {host} has no address: {error}")))
    }
}

/// The result of `connecting`, or `TimedOut` after `limit`.
async fn within<T>(limit: Duration, connecting: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(limit, connecting).await.unwrap_or_else(|_| {
        let reason = format!("no connection within {} ms", limit.as_millis());
        Err(io::Error::new(io::ErrorKind::TimedOut, reason))
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::endpoint::Scheme;

    /// Longer than any loopback connection takes on a busy machine.
    const LIMIT: Duration = Duration::from_secs(20);

    async fn listener(scheme: Scheme) -> (TcpListener, Endpoint) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        (listener, Endpoint::new(scheme, "127.0.0.1", port).expect("an address"))
    }

    #[tokio::test]
    async fn bytes_of_all_connections_are_counted() {
        let connector = Connector::default();
        for scheme in [Scheme::Mqtt, Scheme::Http] {
            let (listener, endpoint) = listener(scheme).await;
            let mut connection = connector.clone().connect(&endpoint, LIMIT).await.expect("a listener");
            let (mut peer, _) = listener.accept().await.expect("a connection");
            connection.write_all(b"question").await.expect("open");
            peer.write_all(b"answer").await.expect("open");
            let mut answer = [0; 6];
            connection.read_exact(&mut answer).await.expect("open");
            assert_eq!(&answer, b"answer");
        }
        assert_eq!(connector.wire(), WireBytes { sent: 16, received: 12 });
    }

    #[tokio::test]
    async fn a_scheme_with_tls_needs_an_authority() {
        for text in ["mqtts://localhost:8883", "https://localhost:443"] {
            let endpoint = text.parse().expect("an address");
            let error = Connector::default().connect(&endpoint, LIMIT).await.expect_err("refused");
            assert_eq!(error.kind(), io::ErrorKind::Unsupported);
            assert_eq!(error.to_string(), without_identity(&endpoint).to_string());
        }
    }

    #[tokio::test]
    async fn a_host_without_an_address_is_told_apart() {
        // A label of a domain name has at most 63 bytes (RFC 1035), so no DNS server is asked.
        let host = "x".repeat(64);
        let endpoint = format!("mqtt://{host}:1883").parse().expect("an address");
        let error = Connector::default().connect(&endpoint, LIMIT).await.expect_err("no address");
        assert!(UnknownHost::is(&error) && error.to_string().contains(&host), "{error}");
    }

    #[tokio::test]
    async fn a_connection_that_takes_too_long_is_named() {
        let error = within(Duration::ZERO, std::future::pending::<io::Result<()>>()).await.expect_err("late");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "no connection within 0 ms");
    }
}
