//! Over a real Mosquitto with the configuration that `deploy/` ships, at both `QoS` settings.

use headwater_link::QoS;
use headwater_protocol::SampleId;
use headwater_tests::process::mosquitto;
use headwater_tests::tiers::Plan;

async fn check(qos: QoS) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (broker, address) = mosquitto(folder.path());
    let tiers = Plan { broker: Some(address), qos, ..Plan::default() }.start().await;
    let mut observer = tiers.observer().await;
    let ids: Vec<_> = (1000..1100).map(SampleId).collect();
    for chunk in ids.chunks(16) {
        for &sample in chunk {
            observer.trigger(sample).await;
        }
        observer.decisions(chunk).await;
    }
    let decisions = observer.decisions(&ids).await;
    assert!(decisions.values().all(|d| d.degraded.is_empty() && d.presence.missing_count() == 0));
    observer.settled_when(|settled| settled.decided == 100).await;
    observer.assert_no_contradiction();
    tiers.shutdown().await;
    broker.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_qos_0() {
    check(QoS::AtMostOnce).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_qos_1() {
    check(QoS::AtLeastOnce).await;
}
