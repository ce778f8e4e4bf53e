//! A leader that is killed and started again: the journal keeps every sample decided once.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use headwater_edge_aggregator::{AggregatorError, GroupLeader, JournalError, OpenedGroup, Shared};
use headwater_protocol::{DeviceId, Numbering, SampleId};
use tempfile::TempDir;

use crate::group::{Group, filled};

pub(crate) async fn journalled(group: &Group, folder: &TempDir) -> Result<GroupLeader, AggregatorError> {
    let config = group.config().with_journal(folder.path().join("journal"));
    GroupLeader::start(&Shared::new(group.shared())?, config).await
}

#[tokio::test]
async fn a_killed_leader_publishes_its_decisions_again_and_decides_open_samples_that_devices_send_again() {
    let (group, folder) = (Group::new(1.0), TempDir::new().unwrap());
    let leader = journalled(&group, &folder).await.unwrap();
    let mut observer = group.observer().await;
    let cameras = [group.camera(0).await, group.camera(1).await];
    filled(&leader, 2).await;
    cameras.iter().for_each(|camera| camera.sees(1, 2));
    let first = observer.result().await;
    cameras[0].sees(2, 2);
    while leader.report().open == 0 {
        tokio::task::yield_now().await;
    }
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
    let first = group.numbered_camera(0, Numbering::Trigger).await;
    filled(&leader, 1).await;
    drop(first);
    leader.shutdown().await.unwrap();

    let refused = |leader: &GroupLeader| {
        let of_camera =
            leader.report().inbox.refused.remove(&DeviceId::new("cam-0").unwrap()).unwrap_or_default();
        of_camera.get("wrong_numbering").copied().unwrap_or(0)
    };
    let leader = journalled(&group, &folder).await.unwrap();
    let other = group.numbered_camera(0, Numbering::Clock { period_ms: 100 }).await;
    let until = Instant::now() + Duration::from_secs(30);
    while refused(&leader) == 0 {
        assert!(Instant::now() < until, "{:?}", leader.report());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(leader.report().filled_slots.is_empty());
    leader.shutdown().await.unwrap();

    let config = group.config().with_journal(folder.path().join("journal"));
    let config = OpenedGroup { new_numbering: true, ..config };
    let leader = GroupLeader::start(&Shared::new(group.shared()).unwrap(), config).await.unwrap();
    filled(&leader, 1).await;
    assert_eq!(refused(&leader), 0);
    // The device numbers by clock: an id from 1970 is refused and counted, an id of the present time is accepted.
    other.sees(600, 1);
    while leader.report().leader.implausible == 0 {
        assert!(Instant::now() < until, "{:?}", leader.report());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut observer = group.observer().await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64 / 100;
    other.sees(now, 1);
    assert_eq!(observer.result().await.sample, SampleId(now));
    let of_camera =
        leader.report().inbox.refused.remove(&DeviceId::new("cam-0").unwrap()).unwrap_or_default();
    assert_eq!(of_camera["implausible"], 1);
    leader.shutdown().await.unwrap();
}

#[tokio::test]
async fn two_leaders_cannot_share_a_journal() {
    let (group, folder) = (Group::new(1.0), TempDir::new().unwrap());
    let first = journalled(&group, &folder).await.unwrap();
    let error = journalled(&group, &folder).await.unwrap_err();
    assert!(matches!(error, AggregatorError::Journal(JournalError::Locked { .. })), "{error}");
    first.shutdown().await.unwrap();
}
