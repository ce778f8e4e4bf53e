//! Start, shutdown and kill, over real sockets.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::{Request, StatusCode};
use bytes::Bytes;
use headwater_cloud_service::{CloudConfig, CloudService};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

use crate::calls::{bundle, config, infer, over_http, request};
use crate::model_control::ModelControl;

fn config_at(listen: SocketAddr) -> CloudConfig {
    let mut config = config("");
    config.http.listen = listen;
    config
}

fn get(path: &str) -> Request<Bytes> {
    Request::get(path).body(Bytes::new()).unwrap()
}

pub(crate) async fn start(config: CloudConfig) -> (CloudService, ModelControl) {
    let model = ModelControl::new();
    let handle = CloudService::start_with(config, bundle(), Arc::new(model.clone())).await.unwrap();
    (handle, model)
}

#[tokio::test]
async fn a_real_client_is_answered_over_a_real_socket() {
    let handle = CloudService::start(config(""), bundle()).await.unwrap();
    let answer = over_http(handle.addr(), infer(&request(5, 2))).await.unwrap();
    assert_eq!(answer.logits(2).len(), 8);
    let report = handle.shutdown().await;
    assert_eq!((report.connections, report.answered(), report.of_models(|of| of.samples)), (1, 1, 2));
    assert!(report.body_received_bytes > 0 && report.body_sent_bytes > 0);
}

#[tokio::test]
async fn shutdown_finishes_requests_in_flight_and_accepts_no_new_ones() {
    let (handle, model) = start(config("")).await;
    let addr = handle.addr();
    model.stop();
    let in_flight = tokio::spawn(over_http(addr, infer(&request(1, 1))));
    model.entered(1).await;
    let stopping = tokio::spawn(handle.shutdown());
    // The listener is closed at once, though the shutdown still waits.
    while TcpStream::connect(addr).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!stopping.is_finished());
    model.run();
    assert_eq!(in_flight.await.unwrap().unwrap().status, StatusCode::OK);
    assert_eq!(stopping.await.unwrap().answered(), 1);
}

#[tokio::test]
async fn shutdown_cuts_the_rest_after_the_grace_time() {
    let (handle, model) = start(config("grace_ms = 20")).await;
    model.stop();
    let in_flight = tokio::spawn(over_http(handle.addr(), infer(&request(1, 1))));
    model.entered(1).await;
    handle.shutdown().await;
    assert!(in_flight.await.unwrap().is_err());
    model.run();
}

#[tokio::test]
async fn kill_cuts_everything_at_once_and_frees_the_port() {
    let (handle, model) = start(config("grace_ms = 600_000")).await;
    let addr = handle.addr();
    model.stop();
    let in_flight = tokio::spawn(over_http(addr, infer(&request(1, 1))));
    let mut idle = TcpStream::connect(addr).await.unwrap();
    model.entered(1).await;
    handle.kill().await;
    assert!(in_flight.await.unwrap().is_err());
    assert!(idle.read(&mut [0; 1]).await.is_ok_and(|read| read == 0), "cut");
    model.run();
    let again = CloudService::start(config_at(addr), bundle()).await.unwrap();
    assert_eq!(over_http(addr, infer(&request(1, 1))).await.unwrap().status, StatusCode::OK);
    again.shutdown().await;
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listen = taken.local_addr().unwrap();
    let error = CloudService::start(config_at(listen), bundle()).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&listen.to_string()) && text.contains("another process"), "{text}");
}

#[tokio::test]
async fn the_admin_port_answers_for_as_long_as_the_service_runs() {
    let (handle, model) = start(config("admin.listen = \"127.0.0.1:0\"")).await;
    let (addr, admin) = (handle.addr(), handle.admin_addr().unwrap());
    let ask = async |path| over_http(admin, get(path)).await.unwrap();
    let metrics = ask("/metrics").await.body;
    assert!(std::str::from_utf8(&metrics).unwrap().contains("headwater_cloud_ready 1\n"));
    assert_eq!(ask("/live").await.status, StatusCode::OK);
    model.panic();
    assert_eq!(
        over_http(addr, infer(&request(1, 1))).await.unwrap().status,
        StatusCode::INTERNAL_SERVER_ERROR
    );
    assert_eq!(ask("/live").await.status, StatusCode::SERVICE_UNAVAILABLE);
    handle.shutdown().await;
    while TcpStream::connect(admin).await.is_ok() {
        tokio::task::yield_now().await;
    }
    let (without, _) = start(config("")).await;
    assert_eq!(without.admin_addr(), None);
}

#[tokio::test]
async fn a_connection_over_the_limit_takes_the_place_of_one_without_a_request() {
    let (handle, _model) = start(config("http.max_connections = 1")).await;
    let mut first = TcpStream::connect(handle.addr()).await.unwrap();
    let answer = over_http(handle.addr(), infer(&request(1, 1))).await;
    assert_eq!(answer.unwrap().status, StatusCode::OK);
    assert!(first.read(&mut [0; 1]).await.map_or(true, |read| read == 0), "closed");
    assert_eq!(handle.shutdown().await.closed_connections["connection_limit"], 1);
}

#[tokio::test]
async fn a_stopping_service_is_not_ready_and_still_answers() {
    let (handle, model) = start(config("admin.listen = \"127.0.0.1:0\"\nstop_delay_ms = 600_000")).await;
    let (addr, admin) = (handle.addr(), handle.admin_addr().unwrap());
    assert_eq!(over_http(admin, get("/ready")).await.unwrap().status, StatusCode::OK);
    let stopping = tokio::spawn(handle.shutdown());
    while over_http(addr, get("/v2/health/ready")).await.unwrap().status == StatusCode::OK {
        tokio::task::yield_now().await;
    }
    assert_eq!(over_http(admin, get("/ready")).await.unwrap().status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(over_http(addr, get("/v2/health/live")).await.unwrap().status, StatusCode::OK);
    assert_eq!(over_http(addr, infer(&request(1, 1))).await.unwrap().status, StatusCode::OK);
    assert!(!stopping.is_finished());
    stopping.abort();
    model.run();
}
