//! One bounded GET, with what it tells of the server: its certificate and its clock.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant, SystemTime};

use headwater_transport::tls::Certificate;
use headwater_transport::{Connector, Endpoint, Scheme, Secret};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::header::{AUTHORIZATION, DATE, HOST};
use hyper_util::rt::TokioIo;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use tokio::time::timeout;

/// Largest answer, bytes: the status of an aggregator with 50 groups is under 1 MB.
const MAX_BODY_BYTES: usize = 8 << 20;

/// An answer.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Bytes,
    /// The server's certificate; `None` without TLS.
    pub(super) certificate: Option<Certificate>,
    /// Header `Date`, in whole seconds.
    pub(super) date: Option<OffsetDateTime>,
    /// This machine's clock when the answer came.
    pub(super) received: OffsetDateTime,
    /// Time from the connection to the answer.
    pub(super) took: Duration,
}

/// Asks a server.
///
/// # Errors
/// The reason why there is no answer, with its causes.
pub(super) async fn get(
    connector: &Connector,
    endpoint: &Endpoint,
    key: Option<&Secret>,
    limit: Duration,
) -> Result<Answer, String> {
    let asked = timeout(limit, ask(connector, endpoint, key, limit));
    asked.await.unwrap_or_else(|_| Err(format!("no answer within {} s", limit.as_secs_f32())))
}

async fn ask(
    connector: &Connector,
    endpoint: &Endpoint,
    key: Option<&Secret>,
    limit: Duration,
) -> Result<Answer, String> {
    let started = Instant::now();
    let connection = connector.connect(endpoint, limit).await.map_err(|error| error.to_string())?;
    let certificate = connection.peer_certificate();
    let (mut sender, driver) = handshake(TokioIo::new(connection)).await.map_err(|error| chain(&error))?;
    let mut request =
        Request::get(endpoint.path()).header(HOST, format!("{}:{}", endpoint.host(), endpoint.port()));
    if let Some(key) = key {
        request = request.header(AUTHORIZATION, format!("Bearer {}", key.get()));
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(|error| chain(&error))?;
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
        // The connection may end before its answer is read.
        _ = driver => exchange.await,
    }
}

/// An error with its causes.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// The address at which a server of this machine is reached that listens on `listen`; `None` for port 0.
pub(super) fn own_address(scheme: Scheme, listen: SocketAddr) -> Option<Endpoint> {
    let host = match listen.ip() {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.to_string(),
        IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.to_string(),
        address => address.to_string(),
    };
    Endpoint::new(scheme, host, listen.port()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_of_an_answer_is_read() {
        let date = OffsetDateTime::parse("Sun, 06 Nov 1994 08:49:37 GMT", &Rfc2822).expect("a date of HTTP");
        assert_eq!(date.unix_timestamp(), 784_111_777);
    }

    #[test]
    fn a_server_of_every_interface_is_asked_on_loopback() {
        let address = |listen: &str| {
            own_address(Scheme::Http, listen.parse().unwrap()).map(|address| address.to_string())
        };
        assert_eq!(address("0.0.0.0:9601").as_deref(), Some("http://127.0.0.1:9601"));
        assert_eq!(address("[::]:9601").as_deref(), Some("http://[::1]:9601"));
        assert_eq!(address("10.0.0.5:9601").as_deref(), Some("http://10.0.0.5:9601"));
        assert_eq!(address("127.0.0.1:0"), None);
    }

    #[tokio::test]
    async fn a_server_that_never_answers_is_given_up() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let silent = own_address(Scheme::Http, listener.local_addr().unwrap()).unwrap();
        let limit = Duration::from_millis(200);
        let refused = get(&Connector::default(), &silent, None, limit).await.unwrap_err();
        assert!(refused.contains("no answer within 0.2 s"), "{refused}");
    }
}
