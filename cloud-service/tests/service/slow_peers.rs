//! Peers that send slowly or not at all, over real sockets. Every address of 127.0.0.0/8 is a peer of its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::http::{Request, StatusCode};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::calls::{config, infer, over_http, over_http_from, request};
use crate::lifecycle::start;

/// An address that holds no slow connection.
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// Limit of each wait: longer than an answer takes on a busy machine.
const WAIT: Duration = Duration::from_secs(30);
/// Time between two requests until one is answered.
const PAUSE: Duration = Duration::from_millis(50);

/// Opens connections that send the beginning of a head, and nothing more.
async fn slow_heads(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut open = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The server may have closed the connection already.
        _ = stream.write_all(b"GET /v2/health/ready HTTP/1.1\r\nHost").await;
        open.push(stream);
    }
    open
}

fn get(path: &str) -> Request<Bytes> {
    Request::get(path).body(Bytes::new()).unwrap()
}

/// Asks again and again until there is an answer of 200.
async fn is_answered(address: SocketAddr, path: &str) {
    let answered = async {
        while over_http(address, get(path)).await.map_or(true, |answer| answer.status != StatusCode::OK) {
            sleep(PAUSE).await;
        }
    };
    timeout(WAIT, answered).await.expect("answered while others are slow");
}

#[tokio::test]
async fn slow_heads_of_one_address_shut_nobody_out() {
    // The time limit for heads is longer than the test, so no slow connection is closed by time.
    let (service, _model) = start(config("http.head_timeout_ms = 600000")).await;
    let address = service.addr();
    let slow = slow_heads(address, 256).await;
    for _ in 0..3 {
        let health = timeout(WAIT, over_http_from(OTHER, address, get("/v2/health/ready"))).await;
        assert_eq!(health.expect("health is answered at once").unwrap().status, StatusCode::OK);
        let answer = timeout(WAIT, over_http_from(OTHER, address, infer(&request(1, 1)))).await;
        assert_eq!(answer.expect("inference is answered at once").unwrap().status, StatusCode::OK);
    }
    is_answered(address, "/v2/health/live").await;
    drop(slow);
    let closed = service.shutdown().await.closed_connections;
    assert!(closed["address_limit"] >= 256 - 64, "{closed:?}");
}

#[tokio::test]
async fn closed_connections_are_counted_by_reason() {
    let (service, _model) = start(config("http.head_timeout_ms = 100")).await;
    let mut slow = slow_heads(service.addr(), 1).await;
    let mut rest = Vec::new();
    timeout(WAIT, slow[0].read_to_end(&mut rest)).await.expect("closed").unwrap();
    let is_counted = async {
        while service.report().closed_connections.get("head_timeout") != Some(&1) {
            sleep(PAUSE).await;
        }
    };
    timeout(WAIT, is_counted).await.expect("counted");
    let metrics = over_http(service.addr(), get("/metrics")).await.unwrap();
    let line = "headwater_cloud_closed_connections_total{reason=\"head_timeout\"} 1";
    assert!(std::str::from_utf8(&metrics.body).unwrap().lines().any(|found| found == line), "{metrics:?}");
    service.shutdown().await;
}

#[tokio::test]
async fn slow_connections_do_not_shut_the_admin_port() {
    let (service, _model) = start(config("admin.listen = \"127.0.0.1:0\"")).await;
    let admin = service.admin_addr().unwrap();
    let slow = slow_heads(admin, 256).await;
    let live = timeout(WAIT, over_http_from(OTHER, admin, get("/live"))).await;
    assert_eq!(live.expect("answered at once").unwrap().status, StatusCode::OK);
    is_answered(admin, "/live").await;
    drop(slow);
    service.shutdown().await;
}
