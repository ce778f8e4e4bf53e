//! A leader that is killed and started again: the journal keeps every sample decided once.

use std::time::{SystemTime, UNIX_EPOCH};

use headwater_edge_aggregator::{AggregatorError, GroupLeader, LeaderReport, OpenedGroup, Shared};
use headwater_protocol::{DeviceId, Numbering, SampleId};
use tempfile::TempDir;

use crate::group::{Group, filled, until};

pub(crate) async fn journalled(group: &Group, folder: &TempDir) -> Result<GroupLeader, AggregatorError> {
    let config = group.config().with_journal(folder.path().join("journal"));
    GroupLeader::start(&Shared::new(group.shared())?, config).await
}

#[tokio::test]
async fn a_killed_leader_publishes_its_decisions_again_and_decides_open_samples_that_devices_send_again() {
    let (group, folder) = (Group::new(1.0), TempDir::new().unwrap());
    let leader = journalled(&group, &folder).await.unwrap();
    let (mut observer, cameras) = group.joined(&leader, 2).await;
    cameras.iter().for_each(|camera| camera.sees(1, 2));
    let first = observer.result().await;
    cameras[0].sees(2, 2);
    until(&leader, "an open sample", |report| report.open > 0).await;
    leader.kill().await;

    let leader = journalled(&group, &folder).await.unwrap();
    assert_eq!(observer.result().await, first, "the same decision again");
    filled(&leader, 2).await;
    assert_eq!(leader.report().awaited, 1);
    // An answer to a decided sample opens no sample.
    cameras.iter().for_each(|camera| camera.sees(1, 0));
    cameras.iter().for_each(|camera| camera.sees(2, 1));
    let second = observer.result().await;
    assert_eq!((second.sample, second.class.unwrap()), (SampleId(2), 1));
    let settled = observer.settled(2).await;
    assert_eq!((settled.highest, settled.dropped.len()), (SampleId(2), 0));
    let report = leader.shutdown().await.unwrap();
    assert_eq!((report.decided, report.republished, report.awaited, report.leader.after_close), (1, 1, 0, 2));
}

#[tokio::test]
async fn a_device_with_another_numbering_is_refused_over_restarts_until_a_new_one_begins() {
    let (group, folder) = (Group::new(1.0), TempDir::new().unwrap());
    let leader = journalled(&group, &folder).await.unwrap();
    let first = group.camera_as(0, |birth| birth.numbering = Some(Numbering::Trigger)).await;
    filled(&leader, 1).await;
    drop(first);
    leader.shutdown().await.unwrap();

    let refused = |report: &LeaderReport, code: &str| {
        let of_camera = report.inbox.refused.get(&DeviceId::new("cam-0").unwrap());
        of_camera.and_then(|codes| codes.get(code)).copied().unwrap_or(0)
    };
    let leader = journalled(&group, &folder).await.unwrap();
    let clock = Numbering::Clock { period_ms: 100 };
    let other = group.camera_as(0, |birth| birth.numbering = Some(clock)).await;
    let report = until(&leader, "a refusal", |report| refused(report, "wrong_numbering") > 0).await;
    assert!(report.filled_slots.is_empty());
    leader.shutdown().await.unwrap();

    let config = group.config().with_journal(folder.path().join("journal"));
    let config = OpenedGroup { new_numbering: true, ..config };
    let leader = GroupLeader::start(&Shared::new(group.shared()).unwrap(), config).await.unwrap();
    filled(&leader, 1).await;
    assert_eq!(refused(&leader.report(), "wrong_numbering"), 0);
    // The device numbers by clock: an id from 1970 is refused and counted, an id of the present time is accepted.
    other.sees(600, 1);
    until(&leader, "an implausible sample", |report| report.leader.implausible > 0).await;
    let mut observer = group.observer().await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64 / 100;
    other.sees(now, 1);
    assert_eq!(observer.result().await.sample, SampleId(now));
    assert_eq!(refused(&leader.report(), "implausible"), 1);
    leader.shutdown().await.unwrap();
}
