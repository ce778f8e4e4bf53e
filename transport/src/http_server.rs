//! HTTP/1 server with bounds on connections, on the time of a request's head, and on shutdown.

use std::error::Error;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, warn};

/// Bounds of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Open connections; further ones wait in the operating system's backlog.
    pub max_connections: usize,
    /// Longest time for a request's head, and longest idle time of a kept-alive connection.
    pub head_timeout: Duration,
    /// Longest time that shutdown waits for requests in flight.
    pub grace: Duration,
}

/// Pause after a failed accept, for example without free file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Listens on an address; port 0 takes a free one.
///
/// # Errors
/// The system's error, with the address and, where there is one, a remedy.
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => ": another process listens there; stop it or choose another address",
            io::ErrorKind::PermissionDenied => ": ports below 1024 need rights; choose another",
            io::ErrorKind::AddrNotAvailable => ": no interface of this machine has that address",
            _ => "",
        };
        io::Error::new(error.kind(), format!("listening on {address}: {error}{hint}"))
    })
}

/// Serves until `stop` ends; then closes the listener and lets requests in flight finish. Connections that are left after the grace
/// time are cut.
///
/// `service` is called once for each accepted connection. Dropping the future cuts every connection at once.
pub async fn serve<S, B>(
    listener: TcpListener,
    mut service: impl FnMut() -> S,
    limits: ServerLimits,
    stop: impl Future<Output = ()>,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error: Into<Box<dyn Error + Send + Sync>>>,
    S: Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.head_timeout);
    let (graceful, mut connections, mut stop) = (GracefulShutdown::new(), JoinSet::new(), pin!(stop));
    loop {
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < limits.max_connections => match accepted {
                Ok((socket, peer)) => {
                    debug!(%peer, "connected");
                    // An answer is written in one piece; waiting to fill a packet would only delay it.
                    if let Err(error) = socket.set_nodelay(true) {
                        debug!(%error, "TCP_NODELAY");
                    }
                    let connection = graceful.watch(http.serve_connection(TokioIo::new(socket), service()));
                    connections.spawn(async move {
                        if let Err(error) = connection.await {
                            debug!(%error, "a connection broke");
                        }
                    });
                }
                Err(error) => {
                    warn!(%error, "the system refused a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    let open = connections.len();
    if timeout(limits.grace, graceful.shutdown()).await.is_err() {
        warn!(open, "the grace time is over: cutting connections");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_in_use_is_named_with_a_remedy() {
        let first = listen(([127, 0, 0, 1], 0).into()).await.expect("a free port");
        let address = first.local_addr().expect("bound");
        let error = listen(address).await.expect_err("taken").to_string();
        assert!(error.contains(&address.to_string()) && error.contains("another process"), "{error}");
    }
}
