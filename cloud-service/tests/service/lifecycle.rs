//! Starting, stopping, being killed: over real sockets.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::StatusCode;
use headwater_cloud_service::{CloudConfig, CloudError, CloudHandle, CloudService, run};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::calls::{bundle, infer, over_http, request};
use crate::director::Director;

fn config() -> CloudConfig {
    CloudConfig { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..CloudConfig::default() }
}

async fn starts(config: CloudConfig) -> (CloudHandle, Director) {
    let model = Director::new();
    let handle = CloudService::start_with(config, bundle(), Arc::new(model.clone())).await.unwrap();
    (handle, model)
}

#[tokio::test]
async fn a_real_client_is_answered_over_a_real_socket() {
    let handle = CloudService::start(config(), bundle()).await.unwrap();
    let answer = over_http(handle.addr(), infer(&request(5, 2))).await.unwrap();
    assert_eq!(answer.logits(2).len(), 8);
    let report = handle.shutdown().await;
    assert_eq!((report.connections, report.answered, report.samples), (1, 1, 2));
    assert!(report.body_received_bytes > 0 && report.body_sent_bytes > 0);
}

#[tokio::test]
async fn shutdown_lets_requests_in_flight_end_and_takes_no_new_ones() {
    let (handle, model) = starts(config()).await;
    let addr = handle.addr();
    model.holds();
    let in_flight = tokio::spawn(over_http(addr, infer(&request(1, 1))));
    model.entered(1).await;
    let stopping = tokio::spawn(handle.shutdown());
    // The listener is closed at once, though the shutdown still waits.
    while TcpStream::connect(addr).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!stopping.is_finished());
    model.lets_go();
    assert_eq!(in_flight.await.unwrap().unwrap().status, StatusCode::OK);
    assert_eq!(stopping.await.unwrap().answered, 1);
}

#[tokio::test]
async fn shutdown_cuts_what_is_left_when_the_grace_is_over() {
    let (handle, model) = starts(CloudConfig { grace_ms: 20, ..config() }).await;
    model.holds();
    let in_flight = tokio::spawn(over_http(handle.addr(), infer(&request(1, 1))));
    model.entered(1).await;
    handle.shutdown().await;
    assert!(in_flight.await.unwrap().is_err());
    model.lets_go();
}

#[tokio::test]
async fn kill_cuts_everything_at_once_and_frees_the_port() {
    let (handle, model) = starts(CloudConfig { grace_ms: 600_000, ..config() }).await;
    let addr = handle.addr();
    model.holds();
    let in_flight = tokio::spawn(over_http(addr, infer(&request(1, 1))));
    let mut idle = TcpStream::connect(addr).await.unwrap();
    model.entered(1).await;
    handle.kill().await;
    assert!(in_flight.await.unwrap().is_err());
    assert!(idle.read(&mut [0; 1]).await.is_ok_and(|read| read == 0), "cut");
    model.lets_go();
    let again = CloudService::start(CloudConfig { listen: addr, ..config() }, bundle()).await.unwrap();
    assert_eq!(over_http(addr, infer(&request(1, 1))).await.unwrap().status, StatusCode::OK);
    again.shutdown().await;
}

#[tokio::test]
async fn a_port_in_use_is_a_clear_error() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listen = taken.local_addr().unwrap();
    let error = CloudService::start(CloudConfig { listen, ..config() }, bundle()).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&listen.to_string()) && text.contains("another process"), "{text}");
}

#[tokio::test]
async fn settings_out_of_range_are_refused() {
    let error = CloudService::start(CloudConfig { max_batch: 0, ..config() }, bundle()).await.unwrap_err();
    assert!(matches!(error, CloudError::Config(mistakes) if mistakes.len() == 1));
}

#[tokio::test]
async fn run_ends_well_when_it_is_asked_to() {
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(run(config(), bundle(), async move { _ = stopped.await }));
    stop.send(()).unwrap();
    assert_eq!(running.await.unwrap().unwrap().answered, 0);
}

#[tokio::test]
async fn more_connections_than_allowed_wait_their_turn() {
    let (handle, _model) = starts(CloudConfig { most_connections: 1, ..config() }).await;
    let addr = handle.addr();
    let first = TcpStream::connect(addr).await.unwrap();
    let second = tokio::spawn(over_http(addr, infer(&request(1, 1))));
    while handle.report().connections == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(handle.report().connections, 1);
    drop(first);
    assert_eq!(second.await.unwrap().unwrap().status, StatusCode::OK);
    handle.shutdown().await;
}
