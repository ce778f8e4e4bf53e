//! Parts that die, hang or are not there yet: every sample is decided all the same, and says what was missing.

use std::sync::Arc;
use std::time::Duration;

use headwater_link::{BrokerAddress, QoS};
use headwater_protocol::{Degraded, Exit, SampleId, Slot, View};
use headwater_tests::process::{free_port, silent_server};
use headwater_tests::shipped;
use headwater_tests::tiers::{Plan, Tiers, device_config, names, start_cloud};

fn slot(index: u8) -> Slot {
    Slot::new(index).expect("below 64")
}

fn ids(from: u64, count: u64) -> Vec<SampleId> {
    (from..from + count).map(SampleId).collect()
}

/// A policy's waits, short: what is waited for here never comes.
fn impatient(mut plan: Plan) -> Plan {
    (plan.policy.window_ms, plan.policy.features_ms, plan.policy.deadline_ms) = (2_000, 2_000, 3_000);
    plan
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_device_is_missing_and_not_waited_for() {
    let mut tiers = Plan::default().start().await;
    let mut observer = tiers.observer().await;
    assert_eq!(observer.decide(SampleId(1)).await.presence.missing_count(), 0);
    tiers.kill_device(slot(2)).await;
    for sample in ids(2, 10) {
        let decision = observer.decide(sample).await;
        assert_eq!(decision.presence.missing_count(), 1, "{decision:?}");
        assert_eq!(decision.presence.get(slot(2)), View::Missing);
        // Its window did not run to its end of 10 s: the last will was heard.
        assert!(decision.stages.window_us < 5_000_000, "{:?}", decision.stages);
    }
    tiers.start_device(slot(2), &shipped::frames(), QoS::AtMostOnce).await;
    tiers.until_filled().await;
    assert_eq!(observer.decide(SampleId(100)).await.presence.missing_count(), 0);
    tiers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_cloud_the_leader_answers_locally_and_says_so() {
    let mut tiers = Plan::default().threshold(0.0).start().await;
    let mut observer = tiers.observer().await;
    assert_eq!(observer.decide(SampleId(1)).await.exit, Exit::Cloud);
    tiers.cloud.take().expect("was started").kill().await;
    let mut reasons = Vec::new();
    for sample in ids(2, 20) {
        let decision = observer.decide(sample).await;
        // Sample 0 of the frames may be certain to the last bit; all others were sent on.
        assert_eq!(decision.exit, Exit::Local);
        reasons.extend(decision.degraded);
    }
    assert!(reasons.contains(&Degraded::CloudUnreachable), "{reasons:?}");
    assert!(reasons.contains(&Degraded::CloudBreakerOpen), "{reasons:?}");
    tiers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_cloud_costs_the_deadline_and_no_more() {
    let plan = Plan { cloud_url: Some(silent_server()), ..Plan::default().threshold(0.0) };
    let tiers = impatient(plan).start().await;
    let mut observer = tiers.observer().await;
    let decision = observer.decide(SampleId(1)).await;
    assert_eq!(decision.degraded, [Degraded::CloudTimeout]);
    assert!(decision.stages.decided_us >= 2_000_000, "it was waited for: {:?}", decision.stages);
    tiers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cloud_that_comes_back_is_used_again() {
    let port = free_port();
    let plan = Plan { cloud_url: Some(format!("http://127.0.0.1:{port}")), ..Plan::default().threshold(0.0) };
    let bundle = std::sync::Arc::clone(&plan.bundle);
    let tiers = plan.start().await;
    let mut observer = tiers.observer().await;
    assert_eq!(observer.decide(SampleId(1)).await.degraded, [Degraded::CloudUnreachable]);
    let config = headwater_cloud_service::CloudConfig::default().with_listen(([127, 0, 0, 1], port));
    let cloud = headwater_cloud_service::CloudService::start(config, bundle).await.expect("the port is free");
    let mut sample = 2;
    // The breaker may be open for its backoff; it must close by itself.
    while observer.decide(SampleId(sample)).await.exit != Exit::Cloud {
        sample += 1;
        assert!(sample < 500, "the cloud is not asked again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    cloud.shutdown().await;
    tiers.shutdown().await;
}

/// Devices and leader are started first; the broker after them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_comes_late_is_waited_for() {
    use headwater_edge_aggregator::{Aggregator, AggregatorConfig};
    use headwater_end_device::{Device, Frames};
    use headwater_link::broker::EmbeddedBroker;

    let (bundle, frames) = (shipped::bundle(), shipped::frames());
    let port = free_port();
    let address = BrokerAddress::mqtt("127.0.0.1", port).expect("an address");
    let (site, group) = names();
    let cloud = start_cloud(Arc::clone(&bundle)).await;
    let mut config = AggregatorConfig::new(site.clone(), group.clone(), address.clone());
    config.cloud_url = Some(format!("http://{}", cloud.addr()));
    let mut policy = bundle.policy().clone();
    (policy.window_ms, policy.features_ms, policy.deadline_ms) = (10_000, 10_000, 20_000);
    config.policy = Some((policy, bundle.policy_id()));
    let leader_config = config.clone();
    let aggregator = Aggregator::start(config, bundle.clone()).await.expect("starts without a broker");
    let mut devices = Vec::new();
    for index in 0..6 {
        let seen = Frames::of_archive(frames.clone(), slot(index)).expect("six slots");
        let device = Device::start(device_config(slot(index), address.clone()), bundle.clone(), seen)
            .await
            .expect("starts without a broker");
        devices.push(Some(device));
    }
    assert!(!aggregator.is_connected());
    EmbeddedBroker::start(Some(port)).expect("the port is still free");
    for device in devices.iter().flatten() {
        device.connected().await;
    }
    let topics = headwater_protocol::Topics::new(&site, &group);
    let tiers = Tiers {
        broker: address,
        cloud: Some(cloud),
        aggregator,
        leader_config,
        edges: Vec::new(),
        devices,
        topics,
        networks: Arc::clone(&bundle).into(),
        bundle,
    };
    tiers.until_filled().await;
    let mut observer = tiers.observer().await;
    assert_eq!(observer.decide(SampleId(1)).await.presence.missing_count(), 0);
    tiers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_of_another_network_is_refused_by_name_and_the_others_go_on() {
    use headwater_end_device::{Device, Frames};
    use headwater_inference::bundle::Bundle;
    use headwater_inference::testing::TinyNetwork;

    let mut plan = Plan::default();
    plan.slots.retain(|&used| used != slot(5));
    let frames = plan.frames.clone();
    let tiers = plan.start().await;
    let other =
        TinyNetwork { slots: 6, classes: 10, view: [3, 32, 32], filters: 8, ..TinyNetwork::default() };
    let other = std::sync::Arc::new(Bundle::from_bytes(&other.bundle()).expect("a sound bundle"));
    let stranger = Device::start(
        device_config(slot(5), tiers.broker.clone()),
        other,
        Frames::of_archive(frames, slot(5)).expect("six slots"),
    )
    .await
    .expect("alone it is sound");
    stranger.connected().await;
    let mut observer = tiers.observer().await;
    let decision = observer.decide(SampleId(1)).await;
    assert_eq!(decision.presence.get(slot(5)), View::Missing);
    assert_eq!(decision.presence.missing_count(), 1);
    let refused = tiers.aggregator.report().refused;
    let named = refused.iter().find(|refusals| refusals.device.as_str() == "cam-5").expect("it is named");
    assert!(named.refused.contains_key("wrong_network"), "{named:?}");
    stranger.shutdown().await;
    tiers.shutdown().await;
}
