//! A device or the cloud is killed: every sample is decided, and the decision names the missing device or the missing cloud.

use std::time::{Duration, Instant};

use headwater_group::start::Service;
use headwater_protocol::{Degraded, Exit, SampleId, SlotPresence};
use headwater_tests::group::{WAIT_LIMIT, client_of, ids, shipped_group, slot, start, with_local_threshold};
use headwater_tests::waits::Waits;

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
        // The leader has received the last will of the device, so the window does not run to its end.
        assert!(decision.stages.window_us < u64::from(window_ms) * 1000 / 2, "{:?}", decision.stages);
    }
    group.start_service(Service::Device(slot(2))).await.unwrap();
    group.wait_until_ready(WAIT_LIMIT).await.unwrap();
    assert_eq!(client.decide(SampleId(100)).await.unwrap().presence.missing_count(), 0);
    group.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_cloud_the_leader_answers_locally_and_names_the_reason_and_asks_it_when_it_is_back() {
    let mut group = start(with_local_threshold(shipped_group(), 0.0)).await;
    let mut client = client_of(&group).await;
    assert_eq!(client.decide(SampleId(1)).await.unwrap().exit, Exit::CLOUD);
    group.kill(Service::Cloud).await;
    let expected = [Degraded::CloudUnreachable, Degraded::CloudBreakerOpen];
    let (mut reasons, mut sample, until) = (Vec::new(), 2, Instant::now() + WAIT_LIMIT);
    while !expected.iter().all(|reason| reasons.contains(reason)) {
        assert!(Instant::now() < until, "{reasons:?}");
        let decision = client.decide(SampleId(sample)).await.unwrap();
        assert_eq!(decision.exit, Exit::LOCAL);
        reasons.extend(decision.degraded);
        sample += 1;
    }
    group.start_service(Service::Cloud).await.unwrap();
    // The circuit breaker stays open for a while and then closes by itself.
    while client.decide(SampleId(sample)).await.unwrap().exit != Exit::CLOUD {
        assert!(Instant::now() < until, "the cloud is not asked again");
        sample += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    group.shutdown().await.unwrap();
}
