//! The server: accepts connections within a bound and serves each until it ends, is asked to, or is cut.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::app::{CloudState, app};

/// Longest time for a request's head, also the longest that a kept-alive connection may be idle.
const HEAD_WAIT: Duration = Duration::from_secs(60);

/// Pause after the system refused a connection (out of file handles): accepting again at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// # Errors
/// Whatever the system says, naming the address and, for one in use, what to do.
pub(crate) async fn bind(listen: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(listen).await.map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => ": another process listens there; stop it or choose another address",
            io::ErrorKind::PermissionDenied => ": ports below 1024 need rights; choose another",
            io::ErrorKind::AddrNotAvailable => ": no interface of this machine has that address",
            _ => "",
        };
        io::Error::new(error.kind(), format!("listening on {listen}: {error}{hint}"))
    })
}

/// Serves until `stop` turns true or its sender is dropped; then closes the listener, lets requests in flight end within
/// `grace`, and cuts what is left. Dropping the future cuts everything at once.
pub(crate) async fn serve(
    listener: TcpListener,
    state: CloudState,
    most_connections: usize,
    grace: Duration,
    mut stop: watch::Receiver<bool>,
) {
    let router = app(state.clone());
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = asked_to_stop(&mut stop) => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < most_connections => match accepted {
                Ok((socket, peer)) => {
                    debug!(%peer, "connected");
                    state.shared().counters.connections.fetch_add(1, Relaxed);
                    connections.spawn(serve_connection(socket, router.clone(), stop.clone()));
                }
                Err(error) => {
                    warn!(%error, "the system refused a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    state.stop();
    let open = connections.len();
    if timeout(grace, async { while connections.join_next().await.is_some() {} }).await.is_err() {
        warn!(open, cut = connections.len(), "grace is over: cutting connections");
    }
}

async fn serve_connection(socket: TcpStream, router: Router, mut stop: watch::Receiver<bool>) {
    // An answer is written in one piece; waiting to fill a packet would only delay it.
    if let Err(error) = socket.set_nodelay(true) {
        debug!(%error, "TCP_NODELAY");
    }
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .serve_connection(TokioIo::new(socket), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = asked_to_stop(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "a connection broke");
    }
}

/// Ends when `stop` is true, or its sender gone.
async fn asked_to_stop(stop: &mut watch::Receiver<bool>) {
    _ = stop.wait_for(|&stop| stop).await;
}
