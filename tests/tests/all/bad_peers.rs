//! The leader refuses invalid messages and counts them under the device of their topic. Decisions are not affected.

use headwater_group::GroupClient;
use headwater_group::start::InProcessGroup;
use headwater_protocol::{Body, Boot, DeviceId, DeviceTopic, Header, Message, SampleId, Session, encode};
use headwater_tests::group::{client_of, shipped_group, start};
use headwater_tests::waits::Waits;

fn topic(client: &GroupClient, device: &str, leaf: DeviceTopic) -> String {
    client.topics.device(&DeviceId::new(device).expect("a valid name"), leaf)
}

fn refused(group: &InProcessGroup, device: &str, fault: &str) -> u64 {
    let report = group.leader().expect("a leader").report();
    let refused = report.inbox.refused.get(&DeviceId::new(device).expect("a valid name"));
    refused.and_then(|refused| refused.get(fault)).copied().unwrap_or_default()
}

/// The bytes of a summary of a device, altered by `change`.
fn summary(group: &InProcessGroup, sample: SampleId, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let network = group.settings.networks.current();
    let limits = network.manifest().limits();
    let header =
        Header { late: false, session: Session::of_boot(network.network_id(), Boot(0)), sample, age_ms: 0 };
    let mut payload = Vec::new();
    let scores = vec![0; limits.scores.bytes(limits.classes)];
    encode(&Message { header, body: Body::Summary(&scores) }, &limits, &mut payload).expect("it fits");
    change(&mut payload);
    payload
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_of_invalid_message_is_counted_under_its_device() {
    let group = start(shipped_group()).await;
    let mut client = client_of(&group).await;
    let sample = SampleId(5);
    let from_cam_0 = topic(&client, "cam-0", DeviceTopic::Summary);
    let wrong_version = summary(&group, sample, |bytes| bytes[0] = 0x92);
    let other_session = summary(&group, sample, |bytes| bytes[2] ^= 0xff);
    let cut = summary(&group, sample, |bytes| bytes.truncate(15));
    let too_long = summary(&group, sample, |bytes| bytes.push(0));
    for payload in [wrong_version, other_session, cut, too_long, vec![], vec![7; 200_000]] {
        client.publish(&from_cam_0, payload).await.unwrap();
    }
    let unknown = topic(&client, "unknown", DeviceTopic::Summary);
    client.publish(&unknown, summary(&group, sample, |_| ())).await.unwrap();
    let birth = topic(&client, "cam-9", DeviceTopic::Birth);
    client.publish(&birth, b"{\"device\":".to_vec()).await.unwrap();

    // Messages of one connection arrive in order: once this sample is decided, the leader has read all messages before it.
    let decision = client.decide(SampleId(6)).await.unwrap();
    assert_eq!(decision.presence.missing_count(), 0);
    assert_eq!(refused(&group, "cam-0", "wrong_version"), 1);
    assert_eq!(refused(&group, "cam-0", "unknown_device"), 3, "the session is not that of the birth");
    assert_eq!(refused(&group, "cam-0", "malformed"), 1);
    assert_eq!(refused(&group, "cam-0", "oversize"), 1);
    assert_eq!(refused(&group, "unknown", "unknown_device"), 1);
    assert_eq!(refused(&group, "cam-9", "malformed"), 1);
    assert_eq!(client.account().decision(sample), None, "an invalid message opened a sample");
    group.shutdown().await.unwrap();
}
