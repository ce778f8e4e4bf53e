//! The admin port, which is read-only: `/status` for people and programs, `/metrics` for Prometheus, `/live` for a supervisor of processes,
//! `/ready` for a balancer.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use headwater_protocol::UtcTime;
use headwater_protocol::status::{CertificateStatus, STATUS_SCHEMA, StatusPage};
use headwater_transport::tls::CertificateState;
use headwater_transport::{ClosedConnections, ServerLimits, listen, serve};
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::task::JoinSet;
use tracing::info;

use crate::metrics::{METRICS_CONTENT_TYPE, Metrics};
use crate::report::ReportMetric;

/// A running admin port; ends when dropped.
#[derive(Debug)]
pub struct AdminServer {
    address: SocketAddr,
    _task: JoinSet<()>,
}

/// State of a process for its supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// The process works.
    Live,
    /// Only a new process helps; the reason is the body of the answer.
    Failed(String),
}

/// Health of a service, for the admin port and the service manager. A function that returns the liveness implements this trait.
pub trait Health: Send + Sync + 'static {
    /// [`Liveness::Failed`] if only a new process helps.
    fn liveness(&self) -> Liveness;

    /// Reason why the service takes no work now, or an empty text if the service gives no reason; `None` if the service takes work.
    fn unready_reason(&self) -> Option<String> {
        match self.liveness() {
            Liveness::Live => None,
            Liveness::Failed(reason) => Some(reason),
        }
    }

    /// The service's own part of `/status`, which must hold no secret.
    fn status(&self) -> Map<String, Value> {
        Map::new()
    }
}

/// The program behind an admin port, for `/status`.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Name of the program.
    pub name: &'static str,
    /// Version of the program.
    pub version: &'static str,
}

/// Header of every answer with the name of the program, so that a check notices when another program answers.
pub(crate) const PROGRAM_HEADER: &str = "headwater-program";

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
    /// Listens on the address of the settings, and answers. Declares the port's own metric. Returns `None` without an address.
    ///
    /// # Errors
    /// The system's error when the address is not available.
    pub async fn start(
        address: Option<SocketAddr>,
        program: Program,
        metrics: Metrics,
        health: Arc<dyn Health>,
    ) -> io::Result<Option<Self>> {
        let Some(address) = address else { return Ok(None) };
        let listener = listen(address).await?;
        let address = listener.local_addr()?;
        let closed = Arc::new(ClosedConnections::default());
        let port = Arc::new(Port { program, start: Instant::now(), metrics: metrics.clone(), health });
        let counts = Arc::clone(&closed);
        metrics.register_report(&CLOSED, &[], move || Arc::clone(&counts));
        let service = move || {
            let port = Arc::clone(&port);
            service_fn(move |request: hyper::Request<_>| {
                let answer = port.answer(request.method(), request.uri().path());
                async move { Ok::<_, Infallible>(answer) }
            })
        };
        let mut task = JoinSet::new();
        task.spawn(serve(listener, service, LIMITS, closed, std::future::pending()));
        info!(%address, "admin listener");
        Ok(Some(Self { address, _task: task }))
    }

    /// Address of the port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// State behind the answers of the port.
struct Port {
    program: Program,
    start: Instant,
    metrics: Metrics,
    health: Arc<dyn Health>,
}

impl Port {
    fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        let (status, kind, body) = match (method, path) {
            (&Method::GET, "/metrics") => (StatusCode::OK, METRICS_CONTENT_TYPE, self.metrics.text()),
            (&Method::GET, "/status") => (StatusCode::OK, "application/json", self.status()),
            (&Method::GET, "/live") => match self.health.liveness() {
                Liveness::Live => (StatusCode::OK, "text/plain", "live\n".into()),
                Liveness::Failed(reason) => unavailable("failed", &reason),
            },
            (&Method::GET, "/ready") => match self.health.unready_reason() {
                None => (StatusCode::OK, "text/plain", "ready\n".into()),
                Some(reason) => unavailable("not ready", &reason),
            },
            (&Method::GET, _) => {
                (StatusCode::NOT_FOUND, "text/plain", "see /status, /metrics, /live and /ready\n".into())
            }
            _ => (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "expected GET\n".into()),
        };
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response.headers_mut().insert(PROGRAM_HEADER, HeaderValue::from_static(self.program.name));
        response
    }

    /// The JSON of `/status`: the program, its health, and the service's own part.
    fn status(&self) -> String {
        let unready = self.health.unready_reason();
        let is_live = self.health.liveness() == Liveness::Live;
        let page = StatusPage {
            schema: STATUS_SCHEMA,
            program: self.program.name.into(),
            version: self.program.version.into(),
            time: UtcTime::from(SystemTime::now()),
            uptime_s: self.start.elapsed().as_secs(),
            live: is_live,
            ready: unready.is_none(),
            unready_reason: unready.filter(|reason| !reason.is_empty()),
            own: self.health.status(),
        };
        Value::Object(fields_of(&page)).to_string() + "\n"
    }
}

/// Fields of a part of `/status`.
pub fn fields_of(part: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(part) {
        Ok(Value::Object(fields)) => fields,
        // A part is a struct with names for keys, so it becomes an object.
        Ok(_) | Err(_) => Map::new(),
    }
}

/// Field `certificate` of `/status`.
pub fn certificate_status(state: CertificateState) -> CertificateStatus {
    let CertificateState { expires_unix_s, has_failed_reload } = state;
    CertificateStatus { expires_unix_s, reload_failed: has_failed_reload }
}

/// The answer 503 with a state, and the reason if it is not empty.
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

    use serde_json::json;

    use super::*;

    const PROGRAM: Program = Program { name: "headwater-test", version: "1.2.3" };

    async fn start(
        address: Option<SocketAddr>,
        metrics: Metrics,
        health: impl Health,
    ) -> io::Result<Option<AdminServer>> {
        AdminServer::start(address, PROGRAM, metrics, Arc::new(health)).await
    }

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
        const OPEN: [ReportMetric<u64>; 1] =
            [ReportMetric::gauge("headwater_test_open", "Samples open now.", |open| *open)];
        let (metrics, live) = (Metrics::new(), Arc::new(AtomicBool::new(true)));
        metrics.register_report(&OPEN, &[("group", "gate")], || 1);
        let is_live = {
            let live = Arc::clone(&live);
            move || if live.load(Relaxed) { Liveness::Live } else { Liveness::Failed(String::new()) }
        };
        let none = start(None, metrics.clone(), || Liveness::Live).await;
        assert!(none.is_ok_and(|server| server.is_none()), "without an address there is no listener");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = start(Some(address), metrics, is_live).await.expect("a free port").unwrap();
        let answer = ask(&server, "GET /metrics").await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("version=0.0.4"), "{answer}");
        assert!(answer.contains("\nheadwater_test_open{group=\"gate\"} 1\n"), "{answer}");
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

        fn status(&self) -> Map<String, Value> {
            Map::from_iter([("queue".into(), json!(3))])
        }
    }

    #[tokio::test]
    async fn a_live_service_may_be_not_ready() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = start(Some(address), Metrics::new(), Stopping).await;
        let server = server.expect("a free port").expect("an address");
        assert!(ask(&server, "GET /live").await.starts_with("HTTP/1.1 200 "));
        let answer = ask(&server, "GET /ready").await;
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("not ready\nit stops\n"), "{answer}");
        let answer = ask(&server, "GET /status").await;
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.contains("application/json"), "{head}");
        let status: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(status["program"], "headwater-test");
        assert_eq!((&status["schema"], &status["queue"]), (&json!(1), &json!(3)));
        assert_eq!((&status["live"], &status["ready"]), (&json!(true), &json!(false)));
        assert_eq!(status["unready_reason"], "it stops");
        let time = status["time"].as_str().expect("a text");
        assert!(time.parse::<UtcTime>().is_ok(), "{time}");
    }

    #[tokio::test]
    async fn a_process_is_checked_from_outside() {
        let live = Arc::new(AtomicBool::new(true));
        let is_live = {
            let live = Arc::clone(&live);
            move || if live.load(Relaxed) { Liveness::Live } else { Liveness::Failed("it hangs".into()) }
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = start(Some(address), Metrics::new(), is_live).await.expect("a free port").unwrap();
        let address = server.address();
        let check = move || tokio::task::spawn_blocking(move || crate::check_live(address, PROGRAM.name));
        assert_eq!(check().await.expect("no panic"), Ok(()));
        live.store(false, Relaxed);
        let error = check().await.expect("no panic").expect_err("not live");
        assert!(error.contains("503") && error.contains("it hangs"), "{error}");
        drop(server);
        tokio::task::yield_now().await;
        let error = check().await.expect("no panic").expect_err("nobody listens");
        assert!(error.contains("no answer"), "{error}");
    }

    #[tokio::test]
    async fn slow_connections_of_one_address_do_not_shut_the_port() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = start(Some(address), Metrics::new(), || Liveness::Live).await;
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
        let first =
            start(Some(address), Metrics::new(), || Liveness::Live).await.expect("a free port").unwrap();
        let error = start(Some(first.address()), Metrics::new(), || Liveness::Live).await.expect_err("taken");
        let text = error.to_string();
        assert!(text.contains(&first.address().to_string()) && text.contains("another process"), "{text}");
    }
}
