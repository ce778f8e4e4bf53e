//! The admin port: `/metrics` for Prometheus, `/live` for a supervisor of processes, `/ready` for a balancer.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_transport::{ClosedConnections, ServerLimits, listen, serve};
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};
use tokio::task::JoinHandle;
use tracing::info;

use crate::metrics::{METRICS_CONTENT_TYPE, Metrics};
use crate::report::ReportMetric;

/// A running admin port; ends when dropped.
#[derive(Debug)]
pub struct AdminServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

/// State of a process for its supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// The process works.
    Live,
    /// Only a new process helps; the reason is the body of the answer.
    Failed(String),
}

impl From<bool> for Liveness {
    fn from(is_live: bool) -> Self {
        if is_live { Self::Live } else { Self::Failed(String::new()) }
    }
}

/// Health of a service, as the admin port tells it. A function that gives the liveness is a health.
pub trait Health: Send + Sync + 'static {
    /// Whether only a new process helps.
    fn liveness(&self) -> Liveness;

    /// Why the service takes no work now, which may be empty; `None` where it takes work.
    fn unready_reason(&self) -> Option<String> {
        match self.liveness() {
            Liveness::Live => None,
            Liveness::Failed(reason) => Some(reason),
        }
    }
}

impl<F: Fn() -> Liveness + Send + Sync + 'static> Health for F {
    fn liveness(&self) -> Liveness {
        self()
    }
}

/// Bounds of the port: several programs of one machine may ask at once.
const LIMITS: ServerLimits = ServerLimits {
    max_connections: 64,
    max_connections_per_address: 16,
    head_timeout: Duration::from_secs(5),
    answer_timeout: Duration::from_secs(5),
    idle_timeout: Duration::from_secs(60),
    grace: Duration::ZERO,
};

/// Metric of the connections that the port's bounds closed.
const CLOSED: [ReportMetric<Arc<ClosedConnections>>; 1] = [ReportMetric::counters(
    "headwater_admin_closed_connections_total",
    "Connections to the admin port that a limit closed, by reason.",
    "reason",
    |closed| closed.by_name().map(|(reason, count)| (reason.into(), count)).into(),
)];

impl AdminServer {
    /// Listens on the address of the settings, if there is one, and answers. Declares the port's own metric.
    ///
    /// # Errors
    /// The system's error when the address is not available.
    pub async fn start(
        address: Option<SocketAddr>,
        metrics: Metrics,
        health: impl Health,
    ) -> io::Result<Option<Self>> {
        let Some(address) = address else { return Ok(None) };
        let listener = listen(address).await?;
        let address = listener.local_addr()?;
        let (health, closed) = (Arc::new(health), Arc::new(ClosedConnections::default()));
        let counts = Arc::clone(&closed);
        metrics.register_report(&CLOSED, &[], move || Arc::clone(&counts));
        let service = move || {
            let (metrics, health) = (metrics.clone(), Arc::clone(&health));
            service_fn(move |request: hyper::Request<_>| {
                let answer = answer(request.method(), request.uri().path(), &metrics, &*health);
                async move { Ok::<_, Infallible>(answer) }
            })
        };
        let task = tokio::spawn(serve(listener, service, LIMITS, closed, std::future::pending()));
        info!(%address, "admin listener");
        Ok(Some(Self { address, task }))
    }

    /// Address of the port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for AdminServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn answer(method: &Method, path: &str, metrics: &Metrics, health: &dyn Health) -> Response<Full<Bytes>> {
    let (status, kind, body) = match (method, path) {
        (&Method::GET, "/metrics") => (StatusCode::OK, METRICS_CONTENT_TYPE, metrics.text()),
        (&Method::GET, "/live") => match health.liveness() {
            Liveness::Live => (StatusCode::OK, "text/plain", "live\n".into()),
            Liveness::Failed(reason) => unavailable("failed", &reason),
        },
        (&Method::GET, "/ready") => match health.unready_reason() {
            None => (StatusCode::OK, "text/plain", "ready\n".into()),
            Some(reason) => unavailable("not ready", &reason),
        },
        (&Method::GET, _) => (StatusCode::NOT_FOUND, "text/plain", "see /metrics, /live and /ready\n".into()),
        _ => (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "expected GET\n".into()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// The answer 503 with a state, and its reason where there is one.
fn unavailable(state: &str, reason: &str) -> (StatusCode, &'static str, String) {
    let body = format!("{state}\n{reason}");
    (StatusCode::SERVICE_UNAVAILABLE, "text/plain", body.trim_end().to_owned() + "\n")
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpSocket, TcpStream};
    use tokio::time::timeout;

    use super::*;

    async fn ask(server: &AdminServer, request: &str) -> String {
        let mut stream = TcpStream::connect(server.address()).await.expect("a listener");
        let request = format!("{request} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("open");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("open");
        answer
    }

    #[tokio::test]
    async fn metrics_and_liveness_are_answered_and_nothing_else() {
        let (metrics, live) = (Metrics::new(), Arc::new(AtomicBool::new(true)));
        metrics.counter("headwater_test_frames_total", "Frames taken.").inc();
        let is_live = {
            let live = Arc::clone(&live);
            move || live.load(Relaxed).into()
        };
        let none = AdminServer::start(None, metrics.clone(), || Liveness::Live).await;
        assert!(none.is_ok_and(|server| server.is_none()), "without an address there is no listener");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = AdminServer::start(Some(address), metrics, is_live).await.expect("a free port").unwrap();
        let answer = ask(&server, "GET /metrics").await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("version=0.0.4"), "{answer}");
        assert!(answer.contains("\nheadwater_test_frames_total 1\n"), "{answer}");
        let closed = "headwater_admin_closed_connections_total{reason=\"head_timeout\"} 0\n";
        assert!(answer.contains(closed), "{answer}");
        assert!(ask(&server, "GET /live").await.starts_with("HTTP/1.1 200 "));
        live.store(false, Relaxed);
        assert!(ask(&server, "GET /live").await.starts_with("HTTP/1.1 503 "));
        assert!(ask(&server, "GET /ready").await.starts_with("HTTP/1.1 503 "), "what fails is not ready");
        assert!(ask(&server, "GET /").await.starts_with("HTTP/1.1 404 "));
        assert!(ask(&server, "POST /metrics").await.starts_with("HTTP/1.1 405 "));
    }

    /// A service that has begun to stop.
    struct Stopping;

    impl Health for Stopping {
        fn liveness(&self) -> Liveness {
            Liveness::Live
        }

        fn unready_reason(&self) -> Option<String> {
            Some("it stops".into())
        }
    }

    #[tokio::test]
    async fn a_live_service_may_be_not_ready() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = AdminServer::start(Some(address), Metrics::new(), Stopping).await;
        let server = server.expect("a free port").expect("an address");
        assert!(ask(&server, "GET /live").await.starts_with("HTTP/1.1 200 "));
        let answer = ask(&server, "GET /ready").await;
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("not ready\nit stops\n"), "{answer}");
    }

    #[tokio::test]
    async fn slow_connections_of_one_address_do_not_shut_the_port() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = AdminServer::start(Some(address), Metrics::new(), || Liveness::Live).await;
        let server = server.expect("a free port").expect("an address");
        let mut slow = Vec::new();
        for _ in 0..LIMITS.max_connections {
            let mut stream = TcpStream::connect(server.address()).await.expect("a listener");
            // The server may have closed the connection already.
            _ = stream.write_all(b"GET /live HTTP/1.1\r\nHost").await;
            slow.push(stream);
        }
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((Ipv4Addr::new(127, 0, 0, 2), 0).into()).expect("an address of this machine");
        let mut other = socket.connect(server.address()).await.expect("a listener");
        other.write_all(b"GET /live HTTP/1.1\r\nHost: admin\r\n\r\n").await.expect("open");
        let mut start = [0; 12];
        let answered = timeout(LIMITS.head_timeout, other.read_exact(&mut start)).await;
        answered.expect("answered at once").expect("open");
        assert_eq!(&start, b"HTTP/1.1 200");
    }

    #[tokio::test]
    async fn a_port_in_use_is_named() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let first = AdminServer::start(Some(address), Metrics::new(), || Liveness::Live)
            .await
            .expect("a free port")
            .unwrap();
        let error = AdminServer::start(Some(first.address()), Metrics::new(), || Liveness::Live)
            .await
            .expect_err("taken");
        let text = error.to_string();
        assert!(text.contains(&first.address().to_string()) && text.contains("another process"), "{text}");
    }
}
