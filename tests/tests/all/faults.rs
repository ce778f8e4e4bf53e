//! Services that are killed, do not answer, or start late: every sample is decided, and the decision names what was missing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use headwater_end_device::{Device, Frames};
use headwater_group::start::{InProcessGroup, Service};
use headwater_inference::testing::TinyNetwork;
use headwater_link::Endpoint;
use headwater_link::broker::EmbeddedBroker;
use headwater_protocol::{Degraded, DeviceId, Exit, SampleId, SlotPresence};
use headwater_tests::group::{
    WAIT_LIMIT, bundle, client_of, group_at, ids, shipped_group, slot, start, with_local_threshold,
};
use headwater_tests::other_programs::silent_server;
use headwater_tests::shipped;
use headwater_tests::waits::Waits;
use headwater_transport::held_port;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_device_is_missing_and_not_waited_for() {
    let mut group = start(shipped_group()).await;
    let window_ms = group.settings.policy.as_ref().expect("a policy").window_ms;
    let mut client = client_of(&group).await;
    assert_eq!(client.decide(SampleId(1)).await.unwrap().presence.missing_count(), 0);
    group.kill(Service::Device(slot(2))).await;
    group.wait_until_ready(WAIT_LIMIT).await.unwrap();
    for sample in ids(2, 10) {
        let decision = client.decide(sample).await.unwrap();
        assert_eq!(decision.presence.missing_count(), 1, "{decision:?}");
        assert_eq!(decision.presence.get(slot(2)), SlotPresence::Missing);
        assert_eq!(decision.missing, ["cam-2"]);
        assert_eq!(decision.degraded, [Degraded::DeviceMissing]);
        // The leader has received the device's last will, so the window does not run to its end.
        assert!(decision.stages.window_us < u64::from(window_ms) * 1000 / 2, "{:?}", decision.stages);
    }
    group.start_service(Service::Device(slot(2))).await.unwrap();
    group.wait_until_ready(WAIT_LIMIT).await.unwrap();
    assert_eq!(client.decide(SampleId(100)).await.unwrap().presence.missing_count(), 0);
    group.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_cloud_the_leader_answers_locally_and_names_the_reason() {
    let mut group = start(with_local_threshold(shipped_group(), 0.0)).await;
    let mut client = client_of(&group).await;
    assert_eq!(client.decide(SampleId(1)).await.unwrap().exit, Exit::CLOUD);
    group.kill(Service::Cloud).await;
    let expected = [Degraded::CloudUnreachable, Degraded::CloudBreakerOpen];
    let (mut reasons, mut sample) = (Vec::new(), 2);
    let until = Instant::now() + WAIT_LIMIT;
    while !expected.iter().all(|reason| reasons.contains(reason)) {
        assert!(Instant::now() < until, "{reasons:?}");
        let decision = client.decide(SampleId(sample)).await.unwrap();
        assert_eq!(decision.exit, Exit::LOCAL);
        reasons.extend(decision.degraded);
        sample += 1;
    }
    group.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_cloud_costs_the_deadline() {
    let mut settings = with_local_threshold(shipped_group(), 0.0);
    settings.cloud_url = Some(silent_server());
    let policy = settings.policy.get_or_insert_default();
    // The test waits for the whole deadline, so the deadline is 8 s, not the tests' usual 60 s.
    (policy.window_ms, policy.features_ms, policy.deadline_ms) = (8_000, 8_000, 8_000);
    let group = start(settings).await;
    let mut client = client_of(&group).await;
    let decision = client.decide(SampleId(1)).await.unwrap();
    assert_eq!(decision.degraded, [Degraded::CloudTimeout]);
    assert!(decision.stages.decided_us >= 7_000_000, "it was waited for: {:?}", decision.stages);
    group.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_cloud_is_used_again() {
    let mut group = start(with_local_threshold(shipped_group(), 0.0)).await;
    group.kill(Service::Cloud).await;
    let mut client = client_of(&group).await;
    assert_eq!(client.decide(SampleId(1)).await.unwrap().degraded, [Degraded::CloudUnreachable]);
    group.start_service(Service::Cloud).await.unwrap();
    let until = Instant::now() + WAIT_LIMIT;
    let mut sample = 2;
    // The circuit breaker may be open for a while; it closes by itself.
    while client.decide(SampleId(sample)).await.unwrap().exit != Exit::CLOUD {
        sample += 1;
        assert!(Instant::now() < until, "the cloud is not asked again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    group.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_that_start_before_their_broker_find_each_other() {
    let port = held_port().expect("a free port");
    let group =
        InProcessGroup::start(group_at(Endpoint::mqtt("127.0.0.1", port).unwrap(), shipped::bundle()))
            .await
            .unwrap();
    assert!(!group.leader().expect("a leader").is_connected());
    let _broker = EmbeddedBroker::start_at(port).expect("the port is held");
    group.wait_until_ready(WAIT_LIMIT).await.unwrap();
    let mut client = client_of(&group).await;
    assert_eq!(client.decide(SampleId(1)).await.unwrap().presence.missing_count(), 0);
    group.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_of_another_network_is_refused_by_name_and_the_others_go_on() {
    let mut settings = shipped_group();
    settings.slots.retain(|&used| used != slot(5));
    let group = start(settings).await;
    let other =
        TinyNetwork { slots: 6, classes: 10, view: [3, 32, 32], filters: 8, ..TinyNetwork::default() };
    let frames = Frames::of_archive(Arc::clone(&group.settings.frames), slot(5)).expect("six slots");
    let started = Device::start(group.device_config(slot(5)), bundle(&other.bundle()), frames).await;
    let device = started.expect("the device itself is sound");
    device.connected().await;
    let mut client = client_of(&group).await;
    let decision = client.decide(SampleId(1)).await.unwrap();
    assert_eq!(decision.presence.get(slot(5)), SlotPresence::Missing);
    assert_eq!(decision.presence.missing_count(), 1);
    assert_eq!(decision.missing, ["slot 5"], "no device of the group's network was ever in the slot");
    let refused = group.leader().expect("a leader").report().inbox.refused;
    let named = refused.get(&DeviceId::new("cam-5").expect("a valid name")).expect("it is named");
    assert!(named.contains_key("wrong_network"), "{named:?}");
    device.shutdown().await;
    group.shutdown().await.unwrap();
}
