//! The admin port: `/metrics` for Prometheus, `/live` for a supervisor of processes.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_transport::{ServerLimits, listen, serve};
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};
use tokio::task::JoinHandle;
use tracing::info;

use crate::metrics::{METRICS_CONTENT_TYPE, Metrics};

/// A running admin port; ends when dropped.
#[derive(Debug)]
pub struct AdminServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

const LIMITS: ServerLimits =
    ServerLimits { max_connections: 16, head_timeout: Duration::from_secs(10), grace: Duration::ZERO };

impl AdminServer {
    /// Listens on the address of the settings, if there is one, and answers; `is_live` is false once only a new process helps.
    ///
    /// # Errors
    /// The system's error when the address is not available.
    pub async fn start(
        address: Option<SocketAddr>,
        metrics: Metrics,
        is_live: impl Fn() -> bool + Send + Sync + 'static,
    ) -> io::Result<Option<Self>> {
        let Some(address) = address else { return Ok(None) };
        let listener = listen(address).await?;
        let address = listener.local_addr()?;
        let is_live = Arc::new(is_live);
        let service = move || {
            let (metrics, is_live) = (metrics.clone(), Arc::clone(&is_live));
            service_fn(move |request: hyper::Request<_>| {
                let answer = answer(request.method(), request.uri().path(), &metrics, &*is_live);
                async move { Ok::<_, Infallible>(answer) }
            })
        };
        let task = tokio::spawn(serve(listener, service, LIMITS, std::future::pending()));
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

fn answer(
    method: &Method,
    path: &str,
    metrics: &Metrics,
    is_live: &dyn Fn() -> bool,
) -> Response<Full<Bytes>> {
    let (status, kind, body) = match (method, path) {
        (&Method::GET, "/metrics") => (StatusCode::OK, METRICS_CONTENT_TYPE, metrics.text()),
        (&Method::GET, "/live") if is_live() => (StatusCode::OK, "text/plain", "live\n".into()),
        (&Method::GET, "/live") => (StatusCode::SERVICE_UNAVAILABLE, "text/plain", "failed\n".into()),
        (&Method::GET, _) => (StatusCode::NOT_FOUND, "text/plain", "see /metrics and /live\n".into()),
        _ => (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "expected GET\n".into()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

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
            move || live.load(Relaxed)
        };
        let none = AdminServer::start(None, metrics.clone(), || true).await;
        assert!(none.is_ok_and(|server| server.is_none()), "without an address there is no listener");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = AdminServer::start(Some(address), metrics, is_live).await.expect("a free port").unwrap();
        let answer = ask(&server, "GET /metrics").await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("version=0.0.4"), "{answer}");
        assert!(answer.ends_with("headwater_test_frames_total 1\n"), "{answer}");
        assert!(ask(&server, "GET /live").await.starts_with("HTTP/1.1 200 "));
        live.store(false, Relaxed);
        assert!(ask(&server, "GET /live").await.starts_with("HTTP/1.1 503 "));
        assert!(ask(&server, "GET /").await.starts_with("HTTP/1.1 404 "));
        assert!(ask(&server, "POST /metrics").await.starts_with("HTTP/1.1 405 "));
    }

    #[tokio::test]
    async fn a_port_in_use_is_named() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let first =
            AdminServer::start(Some(address), Metrics::new(), || true).await.expect("a free port").unwrap();
        let error =
            AdminServer::start(Some(first.address()), Metrics::new(), || true).await.expect_err("taken");
        let text = error.to_string();
        assert!(text.contains(&first.address().to_string()) && text.contains("another process"), "{text}");
    }
}
