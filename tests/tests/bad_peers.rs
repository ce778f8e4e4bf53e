//! Garbage at the broker: refused, counted under its device, and nobody else notices.

use headwater_protocol::{DeviceId, DeviceTopic, SampleId, Slot};
use headwater_tests::tiers::{Plan, Tiers};

fn topic(tiers: &Tiers, device: &str, leaf: DeviceTopic) -> String {
    tiers.topics.device(&DeviceId::new(device).expect("a good name"), leaf)
}

fn refused(tiers: &Tiers, device: &str, fault: &str) -> u64 {
    let report = tiers.aggregator.report();
    let row = report.refused.iter().find(|row| row.device.as_str() == device);
    row.and_then(|row| row.refused.get(fault)).copied().unwrap_or_default()
}

/// A summary as a device would send it, less one change.
fn summary(tiers: &Tiers, sample: SampleId, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    use headwater_protocol::{Body, Boot, Header, Message, encode};
    let manifest = tiers.bundle.manifest();
    let limits = manifest.limits();
    let header = Header {
        late: false,
        network: tiers.bundle.network_id().tag(),
        sample_low: sample.low(),
        boot: Boot(0),
        age_ms: 0,
    };
    let mut payload = Vec::new();
    let scores = vec![0; limits.score_bytes];
    encode(&Message { header, body: Body::Summary(&scores) }, &limits, &mut payload).expect("it fits");
    change(&mut payload);
    payload
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_garbage_is_counted_under_its_device_and_the_group_goes_on() {
    let tiers = Plan::default().start().await;
    let mut observer = tiers.observer().await;
    let sample = SampleId(5);
    let from_cam_0 = topic(&tiers, "cam-0", DeviceTopic::Summary);
    let wrong_version = summary(&tiers, sample, |bytes| bytes[0] = 0x92);
    let wrong_network = summary(&tiers, sample, |bytes| bytes[2] ^= 0xff);
    let cut = summary(&tiers, sample, |bytes| bytes.truncate(20));
    let not_finite = summary(&tiers, sample, |bytes| bytes[12..16].copy_from_slice(&f32::NAN.to_le_bytes()));
    for payload in [wrong_version, wrong_network, cut, not_finite, vec![], vec![7; 200_000]] {
        observer.publish(&from_cam_0, payload).await;
    }
    let nobody = topic(&tiers, "nobody", DeviceTopic::Summary);
    observer.publish(&nobody, summary(&tiers, sample, |_| ())).await;
    let birth = topic(&tiers, "cam-9", DeviceTopic::Birth);
    observer.publish(&birth, b"{\"device\":".to_vec()).await;

    // Messages of one link arrive in order: once this sample is decided, the garbage before it was handled.
    let decision = observer.decide(SampleId(6)).await;
    assert_eq!(decision.presence.missing_count(), 0);
    assert_eq!(refused(&tiers, "cam-0", "wrong_version"), 1);
    assert_eq!(refused(&tiers, "cam-0", "wrong_network"), 1);
    assert!(refused(&tiers, "cam-0", "malformed") >= 3);
    assert_eq!(refused(&tiers, "cam-0", "oversize"), 1);
    assert_eq!(refused(&tiers, "nobody", "unknown_device"), 1);
    assert_eq!(refused(&tiers, "cam-9", "malformed"), 1);
    assert!(observer.heard.iter().all(|decision| decision.sample != sample), "garbage opened no sample");
    tiers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_device_on_a_slot_is_refused() {
    use headwater_protocol::{Birth, Boot, DeviceState, Status};
    let tiers = Plan::default().start().await;
    let mut observer = tiers.observer().await;
    let birth = Birth {
        device: DeviceId::new("intruder").expect("a good name"),
        slot: Slot::new(0).expect("below 64"),
        boot: Boot(1),
        software: "test".into(),
        network: tiers.bundle.network_id(),
        sample: None,
        capabilities: Vec::new(),
    };
    let status = Status { state: DeviceState::Up, boot: birth.boot };
    let scores = summary(&tiers, SampleId(8), |bytes| bytes[8] = 1);
    let birth = serde_json::to_vec(&birth).expect("a birth becomes JSON");
    let status = serde_json::to_vec(&status).expect("a status becomes JSON");
    let said = [(DeviceTopic::Birth, birth), (DeviceTopic::Status, status), (DeviceTopic::Summary, scores)];
    for (leaf, payload) in said {
        observer.publish(&topic(&tiers, "intruder", leaf), payload).await;
    }
    let decision = observer.decide(SampleId(9)).await;
    assert_eq!(decision.presence.missing_count(), 0);
    assert!(refused(&tiers, "intruder", "slot_taken") >= 1, "{:?}", tiers.aggregator.report().refused);
    assert!(observer.heard.iter().all(|decision| decision.sample != SampleId(8)), "it opened no sample");
    tiers.shutdown().await;
}
