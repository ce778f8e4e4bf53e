//! A device with a real broker, a real section, and a leader that the test controls.

use std::sync::Arc;

use crate::support::{
    self, Leader, NOT_IN_VIEW, SAMPLES, broker, bundle, config, deciding_bundle, expected, frames,
    leader_and_device, refusal, scores_bytes, sent_of, set_capture, started, until,
};
use headwater_end_device::{Capture, Device, DeviceError, EngineChoice, Frames};
use headwater_inference::bundle::Bundle;
use headwater_inference::policy::{Policy, PolicyChanges};
use headwater_link::QoS;
use headwater_link::testing::TcpProxy;
use headwater_protocol::{
    Birth, Body, Boot, DeviceId, DeviceState, DeviceTopic, Kind, NetworkId, Numbering, PolicyId, SampleId,
    Schema, Session, SettledNotice, Slot, Status, Topic,
};
use headwater_samples::roi::Framing;

#[tokio::test]
async fn a_trigger_is_answered_with_the_scores_of_the_section() {
    let (mut leader, device) = leader_and_device("scores", 1).await;
    // The id is beyond the frames, which repeat.
    let sample = (1 << 40) + 2 * SAMPLES + 3;
    leader.triggers(sample);
    let received = leader.answer().await;
    let message = received.message();
    assert_eq!(
        (received.leaf.as_str(), message.body),
        ("summary", Body::Summary(&scores_bytes(&expected(3, 1))))
    );
    assert_eq!(message.header.sample, SampleId(sample));
    assert_eq!(message.header.session, Session::of_boot(bundle().network_id(), device.report().boot));
}

#[tokio::test]
async fn a_request_is_answered_with_the_features_of_the_section() {
    let (mut leader, device) = leader_and_device("features", 2).await;
    let sample = (7 << 33) + 4;
    leader.gets(sample).await;
    leader.requests(sample, 0b011);
    leader.requests(sample, 0b100);
    let received = leader.answer().await;
    assert_eq!(received.leaf, "features");
    assert_eq!(received.message().body, Body::Features(&expected(sample % SAMPLES, 2).features));

    let report = device.shutdown().await;
    let (scores, bits) = (4 * 4, 4 * 4 * 4 / 8);
    assert_eq!(report.counts.sent.values().map(|sent| sent.body_bytes).sum::<u64>(), scores + bits);
    let payload_bytes: u64 = report.counts.sent.values().map(|sent| sent.payload_bytes).sum();
    assert_eq!(payload_bytes, scores + bits + 2 * (2 + 2 + 6 + 2));
    assert!(report.counts.wire_sent > payload_bytes);
    assert_eq!((report.counts.captured, sent_of(&report, Kind::Features).messages), (1, 1));
}

#[tokio::test]
async fn a_sample_not_in_view_is_answered_without_the_section() {
    let (mut leader, device) = leader_and_device("not-in-view", 0).await;
    leader.triggers(NOT_IN_VIEW);
    let received = leader.answer().await;
    assert_eq!((received.leaf.as_str(), received.message().body), ("summary", Body::NotInView));
    assert_eq!(sent_of(&device.report(), Kind::NotInView).payload_bytes, 2 + 2 + 1 + 2);
}

#[tokio::test]
async fn what_a_broker_kept_of_triggers_requests_and_commands_is_refused_by_name() {
    let mut leader = Leader::of("retained").await;
    let own = config("retained", 0);
    let device_topic = |leaf| leader.topics.device(&own.settings.id, leaf);
    let live = [Topic::Trigger, Topic::Request].map(|topic| leader.topics.name(&topic));
    for topic in live.into_iter().chain([device_topic(DeviceTopic::Cmd), device_topic(DeviceTopic::Status)]) {
        leader.link.publish(topic, br#"{"sample": 1}"#.to_vec(), QoS::AtLeastOnce, true).unwrap();
    }
    // The broker has kept all of these messages once it sends the last one.
    leader.receives(&["status"]).await;
    let device = started(own).await;
    until(&device, |report| report.counts.faults.get("malformed") == Some(&3)).await;
    leader.triggers(2);
    let answer = leader.answer().await;
    assert_eq!(answer.message().header.sample.0, 2);
    assert_eq!(device.shutdown().await.counts.captured, 1);
}

#[tokio::test]
async fn features_that_were_never_kept_or_are_settled_are_gone() {
    let (mut leader, device) = leader_and_device("gone", 0).await;
    leader.requests(6, 1);
    assert_eq!(leader.answer().await.message().body, Body::Gone);

    for sample in [1, 2] {
        leader.gets(sample).await;
    }
    assert_eq!(device.report().counts.kept_samples, 2);
    leader.settles(&[(1, 1)], &[]);
    leader.requests(1, 1);
    assert_eq!(leader.answer().await.message().body, Body::Gone);
    leader.requests(2, 1);
    assert_eq!(leader.answer().await.message().body.kind(), Kind::Features);
    assert_eq!(device.report().counts.kept_samples, 1);
}

#[tokio::test]
async fn unusable_messages_are_counted_and_the_device_goes_on() {
    let (mut leader, device) = leader_and_device("garbage", 0).await;
    let mut other_version = leader.message(SampleId(1), Body::Trigger);
    other_version[0] = 1 << 4 | other_version[0] & 0x0f;
    leader.publishes(&Topic::Trigger, other_version);
    leader.publishes(&Topic::Request, b"?".to_vec());
    leader.publishes(&Topic::Trigger, vec![0; 100_000]);
    leader.publishes(&Topic::Request, leader.message(SampleId(1), Body::Trigger));
    leader.publishes(&Topic::Settled, b"{}{".to_vec());
    leader.publishes(&Topic::Trigger, b"{}".to_vec());
    leader.gets(2).await;
    let faults = device.report().counts.faults;
    assert_eq!(faults.get("wrong_version"), Some(&1), "{faults:?}");
    assert_eq!(faults.get("oversize"), Some(&1), "{faults:?}");
    assert_eq!(faults.get("malformed"), Some(&4), "{faults:?}");
}

#[tokio::test]
async fn a_trigger_in_json_is_answered_like_a_binary_one() {
    let (mut leader, device) = leader_and_device("json-trigger", 0).await;
    leader.publishes(&Topic::Trigger, br#"{"sample": 7}"#.to_vec());
    assert_eq!(leader.answered().await.0, 7);
    leader.triggers(7);
    leader.publishes(&Topic::Trigger, br#"{"sample": 8}"#.to_vec());
    assert_eq!(leader.answered().await.0, 8);
    let report = device.report();
    assert_eq!((report.counts.captured, report.counts.repeated), (2, 1));
}

#[tokio::test]
async fn features_of_another_network_are_gone_at_once() {
    let (mut leader, device) = leader_and_device("network", 0).await;
    leader.gets(1).await;
    leader.network = NetworkId([0xee; 32]);
    leader.requests(1, 1);
    assert_eq!(leader.answer().await.message().body, Body::Gone);
    assert_eq!(device.report().counts.faults.get("wrong_network"), Some(&1));
}

#[tokio::test]
async fn a_repeated_trigger_is_answered_once() {
    let (mut leader, device) = leader_and_device("repeat", 0).await;
    for sample in [3, 3, 3, 4] {
        leader.triggers(sample);
    }
    assert_eq!(leader.answered().await.0, 3);
    assert_eq!(leader.answered().await.0, 4);
    let report = device.report();
    assert_eq!((report.counts.captured, report.counts.repeated), (2, 2));
}

#[tokio::test]
async fn a_device_publishes_its_birth_and_its_status_up_and_down() {
    let (mut leader, device) = leader_and_device("status", 2).await;
    let boot = device.report().boot;
    let birth = leader.birth().await;
    assert_eq!((birth.slot, birth.boot, birth.network), (Slot::new(2).unwrap(), boot, bundle().network_id()));
    assert_eq!(birth.numbering, Some(Numbering::Trigger));
    assert_eq!(leader.status().await, (DeviceState::Up, boot));
    device.shutdown().await;
    assert_eq!(leader.status().await, (DeviceState::Down, boot));
}

#[tokio::test]
async fn a_killed_device_leaves_its_last_will() {
    let (mut leader, device) = leader_and_device("will", 0).await;
    leader.status().await;
    device.kill();
    assert_eq!(leader.status().await, (DeviceState::Down, device.report().boot));
}

#[tokio::test]
async fn a_status_that_wrongly_names_the_device_down_is_corrected() {
    let (mut leader, device) = leader_and_device("wrong-down", 0).await;
    leader.receives(&["status"]).await;
    let down = Status { schema: Schema, state: DeviceState::Down, boot: device.report().boot, frozen: None };
    let topic = leader.topics.device(&config("wrong-down", 0).settings.id, DeviceTopic::Status);
    leader.link.publish(topic, serde_json::to_vec(&down).unwrap(), QoS::AtLeastOnce, true).unwrap();
    assert_eq!([leader.status().await.0, leader.status().await.0], [DeviceState::Down, DeviceState::Up]);
}

#[tokio::test]
async fn a_birth_that_is_removed_or_replaced_is_published_again() {
    let (mut leader, device) = leader_and_device("own-birth", 0).await;
    let own = leader.receives(&["birth"]).await.payload;
    leader.receives(&["status"]).await;
    let mut other: Birth = serde_json::from_slice(&own).unwrap();
    other.boot = Boot(other.boot.0.wrapping_add(1));
    let topic = leader.topics.device(&other.device, DeviceTopic::Birth);
    for (times, wrong) in [(1, Vec::new()), (2, serde_json::to_vec(&other).unwrap())] {
        leader.link.publish(topic.clone(), wrong.clone(), QoS::AtLeastOnce, true).unwrap();
        assert_eq!(leader.receives(&["birth"]).await.payload, wrong);
        assert_eq!(leader.receives(&["birth"]).await.payload, own);
        assert_eq!(leader.status().await, (DeviceState::Up, device.report().boot));
        assert_eq!(device.report().counts.births_restored, times);
    }
}

#[tokio::test]
async fn a_notice_with_a_reason_of_a_later_version_frees_samples() {
    let (mut leader, device) = leader_and_device("later-reason", 0).await;
    leader.gets(1).await;
    let notice =
        br#"{"schema":2,"highest":1,"decided":0,"dropped":{"struck_by_lightning":1,"x":2},"closed":[[1,1]]}"#;
    leader.publishes(&Topic::Settled, notice.to_vec());
    until(&device, |report| report.counts.kept_samples == 0).await;
    assert_eq!(device.report().counts.faults, [].into());
}

#[tokio::test]
async fn a_device_knows_that_its_leader_refuses_it_until_the_leader_takes_it() {
    let (leader, device) = leader_and_device("refused", 0).await;
    let name = device.report().device;
    let notice = |refused: &[(&str, &str)]| {
        let refused = refused.iter().map(|(id, reason)| (DeviceId::new(*id).unwrap(), (*reason).to_owned()));
        SettledNotice { refused: refused.collect(), ..SettledNotice::default() }
    };
    for (refused, expected) in [
        (notice(&[("cam-9", "of another")]), false),
        (notice(&[("cam-9", "of another"), (name.as_str(), "slot 0 is that of cam-1")]), true),
        (notice(&[]), false),
    ] {
        leader.publishes(&Topic::Settled, serde_json::to_vec(&refused).unwrap());
        until(&device, |report| report.counts.is_refused == expected).await;
    }
    device.shutdown().await;
}

#[tokio::test]
async fn a_notice_with_ranges_frees_what_it_names_and_the_rest_is_sent_again_late() {
    let (mut leader, device) = leader_and_device("ranges", 0).await;
    for sample in [1, 2, 3] {
        leader.gets(sample).await;
    }
    // The notices say nothing of sample 2, as if the leader had never got its answer.
    leader.settles(&[(1, 1), (3, 3)], &[]);
    until(&device, |report| report.counts.kept_samples == 1).await;
    let mut notices = tokio::time::interval(std::time::Duration::from_millis(100));
    let again = loop {
        tokio::select! {
            answer = leader.answer() => break answer,
            _ = notices.tick() => {}
        }
        leader.settles(&[(1, 1), (3, 3)], &[]);
    };
    let header = again.message().header;
    assert_eq!((header.sample.0, header.late), (2, true));
    assert!(header.age_ms >= 2000, "{header:?}");
    leader.settles(&[(1, 1), (3, 3)], &[2]);
    until(&device, |report| report.counts.kept_samples == 0).await;
    let report = device.shutdown().await;
    // On a busy machine notices pass sample 2 over again before it is settled.
    assert!(report.counts.late_sent >= 1, "{report:?}");
    assert_eq!((report.counts.lost, report.counts.given_up.len()), (0, 0), "{report:?}");
}

#[tokio::test]
async fn a_second_device_with_the_same_state_folder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let with_state = |slot| {
        let mut config = config("one-folder", slot);
        config.settings.state_dir = Some(dir.path().into());
        config
    };
    let first = started(with_state(0)).await;
    let error = refusal(with_state(1), bundle(), frames(1)).await.to_string();
    assert!(error.contains("another running device") && error.contains("state_dir"), "{error}");
    first.kill();
    let second = started(with_state(1)).await;
    second.shutdown().await;
    started(with_state(0)).await;
}

#[tokio::test]
async fn damaged_files_of_the_state_folder_stop_no_device() {
    let mut leader = Leader::of("damaged").await;
    let dir = tempfile::tempdir().unwrap();
    let mut config = config("damaged", 0);
    config.settings.state_dir = Some(dir.path().into());
    std::fs::create_dir(dir.path().join("spool")).unwrap();
    // As after a power loss: pages that were not written are zero.
    for file in ["boot", "sample", "spool/00000001.seg", "spool/given_up"] {
        std::fs::write(dir.path().join(file), [0; 4096]).unwrap();
    }
    let device = started(config).await;
    leader.gets(1).await;
    // The file `sample` is not read: only capture "source" uses it.
    assert_eq!(device.report().counts.state_damaged, 3);
    for kept in ["boot.damaged-1", "spool/given_up.damaged-1", "spool/00000001.seg.damaged-2"] {
        assert_eq!(std::fs::read(dir.path().join(kept)).unwrap(), [0; 4096], "{kept}");
    }
}

#[tokio::test]
async fn a_device_whose_bundle_has_its_section_alone_answers() {
    let mut leader = Leader::of("partial").await;
    let partial = Bundle::from_bytes(&bundle().only(&["device-1"]).unwrap()).unwrap();
    let device = Device::start(config("partial", 1), Arc::new(partial), frames(1)).await.unwrap();
    device.connected().await;
    leader.triggers(0);
    assert_eq!(leader.answer().await.message().body, Body::Summary(&scores_bytes(&expected(0, 1))));
}

#[tokio::test]
async fn a_slot_that_the_bundle_or_the_network_does_not_have_is_refused() {
    let partial = Bundle::from_bytes(&bundle().only(&["device-1"]).unwrap()).unwrap();
    let error = refusal(config("refused", 2), Arc::new(partial), frames(2)).await.to_string();
    assert!(error.starts_with("loading the section of slot"), "{error}");
    for (slot, expected) in [(3, "slots 0 to 2, found 3"), (1, "frames: expected views of slot 1")] {
        let error = refusal(config("refused", slot), bundle(), frames(0)).await;
        assert!(matches!(&error, DeviceError::Unfit(mistake) if mistake.contains(expected)), "{error}");
    }
}

#[tokio::test]
async fn a_policy_is_refused_where_the_device_has_no_exit() {
    let mut config = config("no-exit", 1);
    config.policy = Some((Policy::default(), PolicyId([7; 8])));
    let error = refusal(config, bundle(), frames(1)).await.to_string();
    assert!(error.contains("configuration (c)") && error.contains("headwater-aggregator"), "{error}");
}

#[tokio::test]
async fn a_policy_of_the_device_decides_where_the_bundle_s_would_not() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("policy.toml");
    std::fs::write(&file, "[device]\nthreshold = 1.0\n").unwrap();
    let alone = deciding_bundle(0.0);
    let mut leader = Leader::of("policy").await;
    leader.network = alone.network_id();
    let mut config = config("policy", 0);
    let (changed, id) = PolicyChanges::policy_of(&file, alone.policies()).unwrap();
    config.policy = Some((changed, id));
    let device = Device::start(config, Arc::clone(&alone), frames(0)).await.unwrap();
    device.connected().await;
    leader.triggers(1);
    let received = leader.receives(&["summary", "decision"]).await;
    let Body::Decided(decision) = received.message().body else { panic!("{received:?}") };
    assert_eq!(decision.policy, id);
    let (calibrated, id) = (alone.policy(), alone.policy_id());
    device.set_policy(calibrated, id);
    leader.triggers(2);
    let received = leader.receives(&["summary", "decision"]).await;
    assert!(matches!(received.message().body, Body::Summary(_)), "{received:?}");
}

#[tokio::test]
async fn a_broken_frame_is_counted_and_not_answered() {
    let dir = tempfile::tempdir().unwrap();
    let labels = serde_json::json!({
        "format": 1, "slots": 3, "view": [3, 8, 8], "labels": ["a"], "classes": [0, 0]
    });
    std::fs::write(dir.path().join("labels.json"), labels.to_string()).unwrap();
    std::fs::create_dir(dir.path().join("00000")).unwrap();
    std::fs::write(dir.path().join("00000/cam0.png"), b"no picture").unwrap();
    let view = support::network().manifest().preprocessing;
    let frames = Frames::open(dir.path(), Slot::new(0).unwrap(), &view, Framing::default()).unwrap();
    let mut leader = Leader::of("broken").await;
    let device = Device::start(config("broken", 0), bundle(), frames).await.unwrap();
    device.connected().await;
    leader.triggers(0);
    leader.triggers(1);
    let received = leader.answer().await;
    assert_eq!((received.message().header.sample.0, received.message().body), (1, Body::NotInView));
    let report = device.report();
    assert_eq!((report.counts.captured, report.counts.broken_frames), (2, 1));
}

#[tokio::test]
async fn views_that_the_section_is_too_slow_for_are_shed_and_counted() {
    let mut leader = Leader::of("shed").await;
    let mut short = config("shed", 0);
    short.settings.queue_samples = 1;
    // In tract the section is not brief, so its views wait in a queue.
    short.settings.engine = EngineChoice::Tract;
    let device = started(short).await;
    let samples = (0..500).filter(|sample| sample % SAMPLES != NOT_IN_VIEW);
    let last = samples.clone().next_back().expect("some");
    samples.for_each(|sample| leader.triggers(sample));
    while leader.answered().await.0 != last {}
    let report = device.report();
    assert_eq!(report.counts.captured, sent_of(&report, Kind::Summary).messages + report.counts.shed);
    // Each shed sample is given up, so that the leader learns of it.
    until(&device, |now| now.counts.given_up.get("shed").copied().unwrap_or_default() >= report.counts.shed)
        .await;
}

#[tokio::test]
async fn a_device_comes_back_after_its_broker_was_away() {
    let mut leader = Leader::of("away").await;
    let proxy = TcpProxy::to(broker()).await.unwrap();
    let mut through = config("away", 0);
    through.broker = proxy.address().into();
    let device = started(through).await;
    leader.gets(1).await;
    // An unsettled sample would come once more, late.
    leader.settles(&[(1, 1)], &[]);
    until(&device, |report| report.counts.kept_samples == 0).await;
    proxy.cut();
    // The broker may publish the last will (down) and the status of the new connection (up) in either order.
    let states = [leader.status().await.0, leader.status().await.0];
    assert!(states.contains(&DeviceState::Up) && states.contains(&DeviceState::Down), "{states:?}");
    until(&device, |report| report.counts.connected == 2).await;
    leader.gets(2).await;
}

#[tokio::test]
async fn by_the_clock_devices_name_the_same_samples_without_a_trigger() {
    let mut leader = Leader::of("clock").await;
    let capture = Capture::Clock { period_ms: 20 };
    let mut configs = [config("clock", 0), config("clock", 1)];
    configs.iter_mut().for_each(|config| set_capture(config, capture));
    let [first, second] = configs;
    let _devices = [started(first).await, started(second).await];
    let mut counts = std::collections::BTreeMap::new();
    while counts.values().filter(|&&devices| devices == 2).count() < 3 {
        *counts.entry(leader.answered().await.0).or_insert(0) += 1;
    }
}
