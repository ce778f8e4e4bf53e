//! A group over Mosquitto with the shipped broker configuration, at both `QoS` settings.

use headwater_link::QoS;
use headwater_tests::group::{client_of, decide_all, group_at, ids, start};
use headwater_tests::other_programs::mosquitto;
use headwater_tests::shipped;
use headwater_tests::waits::Waits;

async fn check(qos: QoS) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_mosquitto, broker) = mosquitto(folder.path());
    let mut settings = group_at(broker, shipped::bundle());
    settings.site.qos = qos;
    let group = start(settings).await;
    let mut client = client_of(&group).await;
    let decisions = decide_all(&mut client, &ids(1000, 100), 16).await;
    assert!(decisions.iter().all(|d| d.degraded.is_empty() && d.presence.missing_count() == 0));
    client.wait_for_settled(|settled| settled.decided == 100).await.unwrap();
    group.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_sample_is_decided_at_qos_0() {
    check(QoS::AtMostOnce).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_sample_is_decided_at_qos_1() {
    check(QoS::AtLeastOnce).await;
}
