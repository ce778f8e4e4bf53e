//! HTTP/1 client over the connector; bounds on its times and its kept-alive connections.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Uri;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{self, Connected};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tower_service::Service;

use crate::connection::Connection;
use crate::connector::Connector;
use crate::endpoint::{Endpoint, EndpointError};

/// HTTP client of every tier; cheap to clone. The URI of a request comes from [`Endpoint::uri`].
pub type HttpClient = Client<HttpConnector, Full<Bytes>>;

/// Limits of an HTTP client.
#[derive(Clone, Copy, Debug)]
pub struct HttpClientConfig {
    /// Longest time to connect.
    pub connect_timeout: Duration,
    /// Time after which an idle connection is closed. Shorter than the server's, so that no request meets a connection that the server
    /// is closing.
    pub idle_timeout: Duration,
    /// Idle connections kept for each server; 0 closes every connection after its answer.
    pub max_idle: usize,
    /// Form of the answers that the client accepts.
    pub answers: HttpAnswers,
}

/// Form of the answers that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpAnswers {
    /// As the standard says.
    Standard,
    /// As cameras write it: malformed lines of the header are ignored, folded lines and blanks before a colon are accepted, and an answer
    /// without a header is a body. Requests have header names in title case (`Authorization`), since some cameras compare names with case.
    Sloppy,
}

impl HttpClientConfig {
    /// A client with these limits, on a connector.
    pub fn client(self, connector: Connector) -> HttpClient {
        let is_sloppy = self.answers == HttpAnswers::Sloppy;
        Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(self.idle_timeout)
            .pool_max_idle_per_host(self.max_idle)
            .http1_ignore_invalid_headers_in_responses(is_sloppy)
            .http1_allow_obsolete_multiline_headers_in_responses(is_sloppy)
            .http1_allow_spaces_after_header_name_in_responses(is_sloppy)
            .http09_responses(is_sloppy)
            .http1_title_case_headers(is_sloppy)
            .build(HttpConnector { connector, timeout: self.connect_timeout })
    }
}

impl Endpoint {
    /// The address as a URI for hyper.
    ///
    /// # Errors
    /// [`EndpointError::Form`] for a host that hyper does not take.
    pub fn uri(&self) -> Result<Uri, EndpointError> {
        let origin = self.with_path("/");
        format!("{origin}{}", self.path()).parse().map_err(|_| EndpointError::Form(self.host().into()))
    }
}

/// The connector as a service of hyper: a URI in, a connection out.
#[derive(Clone, Debug)]
pub struct HttpConnector {
    connector: Connector,
    timeout: Duration,
}

impl Service<Uri> for HttpConnector {
    type Response = TokioIo<Connection>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Connection>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self { connector, timeout } = self.clone();
        Box::pin(async move {
            let endpoint = Endpoint::http(&uri.to_string()).map_err(io::Error::other)?;
            connector.connect(&endpoint, timeout).await.map(TokioIo::new)
        })
    }
}

impl connect::Connection for Connection {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use http_body_util::BodyExt;
    use hyper::service::service_fn;
    use hyper::{Request, Response};

    use super::*;
    use crate::{ServerLimits, WireBytes, listen, serve};

    /// Longer than any step of a test takes on a busy machine.
    const LONG: Duration = Duration::from_secs(20);

    /// A server that answers with path, query and the header `Host`.
    async fn server() -> Endpoint {
        let listener = listen(([127, 0, 0, 1], 0).into()).await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let limits = ServerLimits {
            max_connections: 1,
            max_connections_per_address: 2,
            head_timeout: LONG,
            answer_timeout: LONG,
            idle_timeout: LONG,
            grace: LONG,
        };
        let service = || {
            service_fn(async |request: Request<hyper::body::Incoming>| {
                let host = request.headers()["host"].to_str().expect("ASCII");
                Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(format!("{host} {}", request.uri()))))
            })
        };
        tokio::spawn(serve(listener, service, limits, Arc::default(), std::future::pending()));
        Endpoint::new(crate::Scheme::Http, "127.0.0.1", port).expect("an address")
    }

    #[tokio::test]
    async fn requests_go_over_connections_of_the_connector() {
        let (server, connector) = (server().await, Connector::default());
        let config = HttpClientConfig {
            connect_timeout: LONG,
            idle_timeout: LONG,
            max_idle: 0,
            answers: HttpAnswers::Standard,
        };
        let client = config.client(connector.clone());
        // The server takes one connection at a time: the client closes each after its answer.
        for _ in 0..2 {
            let request = Request::get(server.with_path("/snap?size=1").uri().expect("a URI"));
            let request = request.body(Full::default()).expect("a request");
            let answer = client.request(request).await.expect("an answer");
            let body = answer.into_body().collect().await.expect("a body").to_bytes();
            assert_eq!(body, format!("127.0.0.1:{} /snap?size=1", server.port()));
        }
        let WireBytes { sent, received } = connector.wire();
        assert!(sent > 100 && received > 100, "{sent} {received}");
    }

    #[tokio::test]
    async fn a_server_with_tls_is_refused_by_name() {
        let config = HttpClientConfig {
            connect_timeout: LONG,
            idle_timeout: LONG,
            max_idle: 1,
            answers: HttpAnswers::Standard,
        };
        let request =
            Request::get(Endpoint::http("https://localhost").expect("an address").uri().expect("a URI"));
        let request = request.body(Full::default()).expect("a request");
        let error = config.client(Connector::default()).request(request).await.expect_err("refused");
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(cause.contains("TLS"), "{error}: {cause}");
    }
}
