//! From summaries to published decisions.

use headwater_protocol::{BATCHES, Degraded, Exit, Presence, SampleId, Session, Slot, SlotPresence, SlotSet};

use crate::group::{Group, filled, until};

const SURE: f32 = 1.0;
const NEVER_SURE: f32 = 0.0;

fn views(views: [SlotPresence; 3]) -> Presence {
    let mut presence = Presence::missing(3);
    for (slot, view) in Slot::first(3).zip(views) {
        presence.set(slot, view);
    }
    presence
}

#[tokio::test]
async fn a_sure_sample_is_decided_locally_when_every_device_has_answered() {
    let group = Group::new(SURE);
    let leader = group.leader().await;
    let (mut observer, cameras) = group.joined(&leader, 3).await;
    cameras[0].sees(7, 2);
    cameras[1].sees(7, 2);
    cameras[2].sees_nothing(7);
    let decision = observer.result().await;
    assert_eq!(
        (decision.sample, decision.class.unwrap(), decision.label.as_deref().unwrap()),
        (SampleId(7), 2, "class 2")
    );
    assert_eq!((decision.exit, decision.degraded.as_slice()), (Exit::LOCAL, &[][..]));
    assert_eq!(
        decision.presence,
        views([SlotPresence::Present, SlotPresence::Present, SlotPresence::NotInView])
    );
    assert_eq!((decision.network, decision.policy), (group.bundle.network_id(), group.bundle.policy_id()));
    let settled = observer.settled(1).await;
    assert_eq!((settled.decided, settled.highest), (1, SampleId(7)));
    let report = leader.shutdown().await.unwrap();
    assert_eq!((report.decided, report.missing, report.exits[&Exit::LOCAL]), (1, 0, 1));
    assert!(report.broker.wire.sent > 0 && report.broker.wire.received > 0);
}

#[tokio::test]
async fn an_unsure_sample_needs_features_and_without_a_cloud_is_decided_degraded() {
    let group = Group::new(NEVER_SURE);
    let leader = group.leader().await;
    let (mut observer, mut cameras) = group.joined(&leader, 2).await;
    cameras.iter().for_each(|camera| camera.sees(3, 1));
    for camera in &mut cameras {
        assert_eq!(camera.request().await, (SlotSet::first(2), SampleId(3)));
        camera.delivers(3);
    }
    let decision = observer.result().await;
    assert_eq!((decision.class.unwrap(), decision.exit), (1, Exit::LOCAL));
    assert_eq!(decision.degraded, [Degraded::DeviceMissing, Degraded::CloudUnreachable]);
    assert_eq!(decision.missing, ["slot 2"]);
    assert_eq!(
        decision.presence,
        views([SlotPresence::Present, SlotPresence::Present, SlotPresence::Missing])
    );
    let report = leader.shutdown().await.unwrap();
    assert_eq!((report.missing, report.degraded[&Degraded::CloudUnreachable]), (1, 1));
    assert_eq!(report.degraded[&Degraded::DeviceMissing], 1);
}

#[tokio::test]
async fn a_request_is_as_short_as_it_can_be() {
    let group = Group::new(NEVER_SURE);
    let leader = group.leader().await;
    let mut cameras = vec![group.camera(0).await, group.camera(1).await];
    filled(&leader, 2).await;
    cameras.iter().for_each(|camera| camera.sees(3, 1));
    let session = Session::of_network(group.bundle.network_id()).0;
    let request = [&[0x24][..], &session, &[3, 0b11]].concat();
    for camera in &mut cameras {
        assert_eq!(camera.request_bytes().await, request);
    }
    leader.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_batch_is_decided_as_messages_of_their_own_and_notices_allow_batches_to_who_sends_them() {
    let group = Group::new(SURE);
    let leader = group.leader().await;
    let mut observer = group.observer().await;
    let earlier = group.camera(0).await;
    filled(&leader, 1).await;
    earlier.sees(1, 1);
    observer.settled(1).await;
    earlier.sees(2, 1);
    assert_eq!(observer.notice().await.batch_ms, None, "no device sends batches");

    let batching = group.camera_as(1, |birth| birth.capabilities = vec![BATCHES.into()]).await;
    filled(&leader, 2).await;
    let classes = [(3, 2), (4, 0), (7, 3)];
    classes.iter().for_each(|(sample, class)| earlier.sees(*sample, *class));
    batching.sees_together(&classes);
    for (sample, class) in classes {
        let decision = observer.result().await;
        assert_eq!((decision.sample.0, decision.class.unwrap()), (sample, class as u16), "{decision:?}");
        assert_eq!(decision.presence.present_count(), 2);
    }
    // The longest batch is half of the policy's window of 5,000 ms.
    assert_eq!(observer.notice().await.batch_ms, Some(2_500));
    let report = leader.shutdown().await.unwrap();
    assert!(report.inbox.refused.is_empty(), "{:?}", report.inbox.refused);
}

#[tokio::test]
async fn shutdown_decides_open_samples_and_accepts_no_new_ones() {
    let group = Group::new(SURE);
    let leader = group.leader().await;
    let (mut observer, cameras) = group.joined(&leader, 2).await;
    cameras[0].sees(1, 0);
    until(&leader, "an open sample", |report| report.open > 0).await;
    let stopping = tokio::spawn(leader.shutdown());
    cameras[0].sees(2, 0);
    cameras[1].sees(1, 0);
    assert_eq!(observer.result().await.sample, SampleId(1));
    let report = stopping.await.unwrap().unwrap();
    assert!(report.open <= 1 && report.decided >= 1, "{report:?}");
}
