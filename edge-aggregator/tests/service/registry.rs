//! Slots whose device vanished without a status `down`, cleared births, and births of devices that do not exist.

use std::time::Duration;

use headwater_edge_aggregator::{GroupLeader, LeaderReport, Shared};
use headwater_link::{Incoming, Link, LinkConfig, QoS};
use headwater_protocol::testing::birth;
use headwater_protocol::{DeviceId, DeviceState, DeviceTopic, SampleId};
use tokio::time::{sleep, timeout};

use crate::group::{Group, LIMIT, filled, status, until};

const SURE: f32 = 1.0;

/// Publishes retained birth and status `up` of a device that does not exist, as left by a broker that died together with the device.
async fn ghost(group: &Group, id: &str, slot: u8) {
    let link = group.link("ghost").await;
    let id = DeviceId::new(id).unwrap();
    let birth = serde_json::to_vec(&birth(id.as_str(), slot, group.bundle.network_id())).unwrap();
    for (leaf, payload) in [(DeviceTopic::Birth, birth), (DeviceTopic::Status, status(DeviceState::Up))] {
        let topic = group.topics.device(&id, leaf);
        link.publish_when_free(topic, payload, QoS::AtLeastOnce, true).await.unwrap();
    }
    link.shutdown(LIMIT).await;
}

#[tokio::test]
async fn a_new_camera_gets_the_slot_of_a_ghost() {
    let group = Group::new(SURE);
    ghost(&group, "old", 0).await;
    let leader = group.leader().await;
    filled(&leader, 1).await;
    let mut observer = group.observer().await;
    let camera = group.camera_as(0, |birth| birth.device = DeviceId::new("new").unwrap()).await;
    let mut sample = 0;
    let decision = loop {
        sample += 1;
        camera.sees(sample, 1);
        tokio::select! {
            decision = observer.result() => break decision,
            () = sleep(Duration::from_millis(100)) => assert!(sample < 300),
        }
    };
    assert_eq!(decision.class.unwrap(), 1);
    leader.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_empty_birth_does_not_lock_a_device_out() {
    let group = Group::new(SURE);
    let leader = group.leader().await;
    let (mut observer, cameras) = group.joined(&leader, 1).await;
    let topic = group.topics.device(&DeviceId::new("cam-0").unwrap(), DeviceTopic::Birth);
    cameras[0].link.publish(topic, "", QoS::AtLeastOnce, true).unwrap();
    cameras[0].sees(1, 2);
    assert_eq!(observer.result().await.sample, SampleId(1));
    leader.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_birth_of_a_device_that_the_settings_do_not_name_is_cleared_at_the_broker() {
    let group = Group::new(SURE);
    ghost(&group, "stolen", 0).await;
    let topic = group.topics.device(&DeviceId::new("stolen").unwrap(), DeviceTopic::Birth);
    let config = LinkConfig::new(group.broker.clone(), "reader").subscribe(topic, QoS::AtLeastOnce);
    let (_link, mut incoming) = Link::start(config).unwrap();
    let devices = ["cam-0", "cam-1", "cam-2"].map(|id| DeviceId::new(id).unwrap()).into();
    let mut config = group.config();
    config.settings.devices = devices;
    let leader = GroupLeader::start(&Shared::new(group.shared()).unwrap(), config).await.unwrap();
    let cleared = async {
        while let Some(incoming) = incoming.recv().await {
            if matches!(&incoming, Incoming::Message { payload, .. } if payload.is_empty()) {
                return;
            }
        }
        panic!("the link ends");
    };
    timeout(LIMIT, cleared).await.expect("the leader clears the birth");
    let is_forgotten = |report: &LeaderReport| report.devices.keys().all(|id| id.as_str() != "stolen");
    until(&leader, "a status that does not list the device", is_forgotten).await;
    leader.shutdown().await.unwrap();
}

#[tokio::test]
async fn made_up_names_take_no_room_from_a_device() {
    let group = Group::new(SURE);
    let leader = group.leader().await;
    let mut observer = group.observer().await;
    let _first = group.camera(0).await;
    filled(&leader, 1).await;
    let link = group.link("flood").await;
    for name in 0..2000 {
        let topic = group.topics.device(&DeviceId::new(format!("no-{name}")).unwrap(), DeviceTopic::Summary);
        link.publish_when_free(topic, "x", QoS::AtLeastOnce, false).await.unwrap();
    }
    let are_counted = |report: &LeaderReport| {
        let named: u64 = report.inbox.refused.values().flat_map(|codes| codes.values()).sum();
        named + report.inbox.refused_forgotten.values().sum::<u64>() == 2000
    };
    let report = until(&leader, "2000 messages that are counted", are_counted).await;
    assert!(report.inbox.refused.len() <= 128, "{} names are remembered", report.inbox.refused.len());
    let camera = group.camera(1).await;
    filled(&leader, 2).await;
    camera.sees(1, 2);
    assert_eq!(observer.result().await.sample, SampleId(1));
    leader.shutdown().await.unwrap();
}
