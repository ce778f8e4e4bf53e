//! HTTP/1 server and gRPC server that slow peers cannot block: bounds on connections, on heads, on unread answers, and on shutdown.

mod activity;
mod closed;
mod connections;
#[cfg(feature = "grpc-server")]
pub(crate) mod grpc;
mod handshake;

use std::error::Error;
use std::fmt::Display;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

use self::activity::{Activity, WatchedStream};
pub use self::closed::{CloseReason, ClosedConnections};
use self::connections::{Connections, End};
use crate::connection::Duplex;
use crate::tls::{Certificate, ServerIdentity, ServerSession};

/// Bounds of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Most open connections. When one more comes, a waiting connection is closed: first a connection that owes a request, then one with an
    /// unread answer, then an idle one. If all connections have a running request, the new connection is closed.
    pub max_connections: usize,
    /// Most open connections from one address. When one more comes, a connection of the address that has kept the server waiting for a
    /// second is closed; if there is none, the new connection is closed.
    pub max_connections_per_address: usize,
    /// Longest time for a request's head, from the start of the connection or from the head's first byte.
    pub head_timeout: Duration,
    /// Longest time in which the peer must read an answer.
    pub answer_timeout: Duration,
    /// Longest time of a kept-alive connection between an answer and the next request.
    pub idle_timeout: Duration,
    /// Longest time that shutdown waits for requests in flight.
    pub grace: Duration,
}

/// A bound address, with TLS or without.
#[derive(Debug)]
pub struct HttpListener {
    /// Accepts connections.
    pub tcp: TcpListener,
    /// Own certificate and accepted clients; `None` without TLS.
    pub identity: Option<ServerIdentity>,
}

impl From<TcpListener> for HttpListener {
    fn from(tcp: TcpListener) -> Self {
        Self { tcp, identity: None }
    }
}

/// The connection of a request, among the request's extensions.
#[derive(Clone, Debug)]
pub struct RequestConnection {
    peer: SocketAddr,
    /// The certificate that the client showed.
    certificate: Option<Arc<Certificate>>,
    activity: Arc<Activity>,
}

impl RequestConnection {
    /// Address of the peer.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The certificate that the client showed; `None` without one.
    pub fn certificate(&self) -> Option<&Certificate> {
        self.certificate.as_deref()
    }

    /// Runs a future that reads the body of the request. Meanwhile the connection counts as waiting for its peer.
    pub async fn while_reading<T>(&self, reading: impl Future<Output = T>) -> T {
        let _awaited = self.activity.body();
        reading.await
    }
}

/// Pause after a failed accept, for example without free file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Listens on an address; port 0 takes a free one.
///
/// # Errors
/// The system's error, with the address and, if there is one, a remedy.
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
/// `service` is called once for each accepted connection. Each request carries its [`RequestConnection`]. Connections that a limit
/// closes are counted in `closed`. Dropping the future cuts every connection at once.
pub async fn serve<S, B>(
    listener: impl Into<HttpListener>,
    mut service: impl FnMut() -> S,
    limits: ServerLimits,
    closed: Arc<ClosedConnections>,
    stop: impl Future<Output = ()>,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error: Into<Box<dyn Error + Send + Sync>>>,
    S: Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let HttpListener { tcp, identity } = listener.into();
    let graceful = GracefulShutdown::new();
    let session = || identity.as_ref().map(ServerIdentity::session);
    let run = || {
        let (service, watcher) = (service(), graceful.watcher());
        move |stream: WatchedStream, connection: RequestConnection| {
            let counting = service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(connection.clone());
                let (counted, answer) = (connection.activity.request(), service.call(request));
                async move {
                    let _counted = counted;
                    answer.await
                }
            });
            // `Activity` bounds the times: hyper's own limit does not tell an idle connection from a slow head.
            let mut builder = http1::Builder::new();
            watcher.watch(builder.header_read_timeout(None).serve_connection(TokioIo::new(stream), counting))
        }
    };
    let open = accept(tcp, session, run, Connections::new(limits, closed), stop).await;
    open.end(graceful.shutdown(), limits.grace).await;
}

/// Connections that are open when a server stops. Dropping the value cuts them.
struct Open {
    tasks: JoinSet<Option<End>>,
    count: usize,
}

impl Open {
    /// Tells the connections of the stop by `tell`, and waits until they have ended, `grace` at most.
    async fn end(mut self, tell: impl Future<Output = ()>, grace: Duration) {
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(grace, async { tokio::join!(tell, ended) }).await.is_err() {
            warn!(open = self.count, "the grace time is over: cutting connections");
        }
    }
}

/// Accepts connections until `stop` ends, and closes connections that exceed a limit; then closes the listener and the connections that
/// still wait for the head of a request. `session` gives the identity of a handshake, `run` what runs one connection after it.
async fn accept<R, F, E>(
    listener: TcpListener,
    session: impl Fn() -> Option<ServerSession>,
    mut run: impl FnMut() -> R,
    mut open: Connections,
    stop: impl Future<Output = ()>,
) -> Open
where
    R: FnOnce(WatchedStream, RequestConnection) -> F + Send + 'static,
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Display + Send + 'static,
{
    let (limits, mut tasks, mut stop) = (open.limits, JoinSet::new(), pin!(stop));
    loop {
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(end) = tasks.join_next_with_id() => match end {
                Ok((task, end)) => open.ended(task, end, Instant::now()),
                Err(end) => open.ended(end.id(), None, Instant::now()),
            },
            accepted = listener.accept() => match accepted {
                Ok((socket, peer)) if open.admits(peer, Instant::now()) => {
                    let activity = Arc::new(Activity::new(Instant::now()));
                    let connection = RequestConnection { peer, certificate: None, activity: Arc::clone(&activity) };
                    let connected = connect(socket, session(), connection, run());
                    let watch = Arc::clone(&activity);
                    let task = tasks.spawn(async move {
                        tokio::select! {
                            end = connected => end,
                            reason = watch.overdue(&limits) => Some(End::Overdue(reason)),
                        }
                    });
                    open.add(peer, activity, task);
                }
                // Dropping the socket closes the connection.
                Ok((_, peer)) => debug!(%peer, "refused: too many connections"),
                Err(error) => {
                    warn!(%error, "the system refused a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    open.close_awaiting_heads();
    Open { tasks, count: open.len() }
}

/// Makes the handshake of a connection, then runs it to its end. Returns the end if the handshake failed; otherwise
/// `None`.
async fn connect<F, E>(
    socket: TcpStream,
    session: Option<ServerSession>,
    mut connection: RequestConnection,
    run: impl FnOnce(WatchedStream, RequestConnection) -> F,
) -> Option<End>
where
    F: Future<Output = Result<(), E>>,
    E: Display,
{
    // An answer is written in one piece; waiting to fill a packet would only delay it.
    if let Err(error) = socket.set_nodelay(true) {
        debug!(%error, "TCP_NODELAY");
    }
    let stream: Box<dyn Duplex> = match session {
        None => Box::new(socket),
        Some(session) => match session.accept(socket).await {
            Ok((stream, certificate)) => {
                connection.certificate = certificate.map(Arc::new);
                Box::new(stream)
            }
            Err(error) => return Some(End::Handshake(handshake::failure(&error))),
        },
    };
    let (peer, activity) = (connection.peer, Arc::clone(&connection.activity));
    if let Err(error) = run(WatchedStream::new(stream, activity), connection).await {
        debug!(%peer, %error, "a connection broke");
    }
    None
}

#[cfg(test)]
mod slow_peers;

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
