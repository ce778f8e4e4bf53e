//! One HTTP GET with a limit of time and bytes. The answer has the certificate and the clock of the server.

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use headwater_transport::tls::Certificate;
use headwater_transport::{Connection, Connector, Endpoint, Scheme, Secret, reachable_address};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::header::{AUTHORIZATION, DATE, HOST};
use hyper_util::rt::TokioIo;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use tokio::time::timeout;

/// Largest body that is read, bytes: the status of an aggregator with 50 groups is under 1 MB.
const MAX_BODY_BYTES: usize = 8 << 20;

#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Bytes,
    /// The server's certificate; `None` without TLS.
    pub(super) certificate: Option<Certificate>,
    /// Header `Date`: the server's clock, in whole seconds; `None` if the header is missing or cannot be read.
    pub(super) date: Option<OffsetDateTime>,
    /// This machine's clock when the head of the answer came.
    pub(super) received: OffsetDateTime,
    /// Time from the start of the connection to the head of the answer.
    pub(super) took: Duration,
}

/// Sends a GET to the endpoint, and reads the answer within `limit`.
///
/// # Errors
/// The reason why there is no answer, with its causes as text.
pub(super) async fn get(
    connector: &Connector,
    endpoint: &Endpoint,
    key: Option<&Secret>,
    limit: Duration,
) -> Result<Answer, String> {
    let started = Instant::now();
    let connection = connector.connect(endpoint, limit).await.map_err(|error| error.to_string())?;
    let left = limit.saturating_sub(started.elapsed());
    let asked = timeout(left, ask(connection, endpoint, key, started));
    asked.await.unwrap_or_else(|_| Err(format!("{SILENT}: no answer within {} s", limit.as_secs_f32())))
}

/// Beginning of the reason text when a server accepts the connection and does not answer in time.
const SILENT: &str = "it takes the connection and says nothing";

/// Returns true for the reason of a server that accepted the connection and did not answer.
pub(super) fn is_silent(reason: &str) -> bool {
    reason.starts_with(SILENT)
}

async fn ask(
    connection: Connection,
    endpoint: &Endpoint,
    key: Option<&Secret>,
    started: Instant,
) -> Result<Answer, String> {
    let certificate = connection.peer_certificate();
    let (mut sender, driver) = handshake(TokioIo::new(connection)).await.map_err(chain)?;
    let mut request =
        Request::get(endpoint.path()).header(HOST, format!("{}:{}", endpoint.host(), endpoint.port()));
    if let Some(key) = key {
        request = request.header(AUTHORIZATION, format!("Bearer {}", key.get()));
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(chain)?;
        let received = OffsetDateTime::from(SystemTime::now());
        let date = response.headers().get(DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| OffsetDateTime::parse(date, &Rfc2822).ok());
        let (status, took) = (response.status().as_u16(), started.elapsed());
        let body = Limited::new(response.into_body(), MAX_BODY_BYTES).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        Ok(Answer { status, body, certificate, date, received, took })
    };
    let mut exchange = std::pin::pin!(exchange);
    tokio::select! {
        biased;
        answer = &mut exchange => answer,
        // The connection has ended; an answer that arrived before is still read.
        _ = driver => exchange.await,
    }
}

/// An error and its causes in one text.
fn chain(error: hyper::Error) -> String {
    format!("{:#}", anyhow::Error::from(error))
}

/// Address by which this machine reaches its own server that listens on `listen`; `None` for port 0.
pub(super) fn own_address(scheme: Scheme, listen: SocketAddr) -> Option<Endpoint> {
    let reached = reachable_address(listen);
    Endpoint::new(scheme, reached.ip().to_string(), reached.port()).ok()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Limit that no answer over loopback reaches, even on a busy machine.
    const LIMIT: Duration = Duration::from_secs(20);

    /// Answers one request with these headers, and returns what [`get`] read.
    async fn answered(headers: &str) -> Answer {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let server = own_address(Scheme::Http, listener.local_addr().unwrap()).unwrap();
        let answer = format!("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n{headers}\r\nbusy");
        let serving = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            assert!(socket.read(&mut request).await.unwrap() > 0);
            socket.write_all(answer.as_bytes()).await.unwrap();
        });
        let answer = get(&Connector::default(), &server, None, LIMIT).await.unwrap();
        serving.await.unwrap();
        answer
    }

    #[tokio::test]
    async fn status_body_and_date_of_an_answer_are_read() {
        let answer = answered("Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n").await;
        assert_eq!((answer.status, &*answer.body), (503, &b"busy"[..]));
        assert_eq!(answer.date.map(OffsetDateTime::unix_timestamp), Some(784_111_777));
        assert!(answer.certificate.is_none() && answer.took < LIMIT);
        assert_eq!(answered("Date: yesterday\r\n").await.date, None);
        assert_eq!(answered("").await.date, None);
    }

    #[test]
    fn port_0_is_no_address() {
        assert_eq!(own_address(Scheme::Http, "127.0.0.1:0".parse().unwrap()), None);
        let address = own_address(Scheme::Http, "[::]:9601".parse().unwrap()).unwrap();
        assert_eq!(address.to_string(), "http://[::1]:9601");
    }

    #[tokio::test]
    async fn a_server_that_never_answers_is_given_up() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let silent = own_address(Scheme::Http, listener.local_addr().unwrap()).unwrap();
        let limit = Duration::from_millis(200);
        let refused = get(&Connector::default(), &silent, None, limit).await.unwrap_err();
        assert!(refused.contains("no answer within 0.2 s") && is_silent(&refused), "{refused}");
    }
}
