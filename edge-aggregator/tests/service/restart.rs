//! A leader that is killed and started again: the journal keeps every sample decided once.

use headwater_edge_aggregator::{
    AggregatorError, GroupConfig, GroupLeader, JournalConfig, JournalError, Shared,
};
use headwater_protocol::{Dropped, SampleId};
use tempfile::TempDir;

use crate::group::{Group, filled};

pub(crate) async fn journalled(group: &Group, folder: &TempDir) -> Result<GroupLeader, AggregatorError> {
    let journal = Some(JournalConfig::new(folder.path().join("journal")));
    GroupLeader::start(&Shared::new(group.shared())?, GroupConfig { journal, ..group.config() }).await
}

#[tokio::test]
async fn a_killed_leader_publishes_its_decisions_again_and_drops_open_samples() {
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
    // A late answer for the dropped sample opens nothing; the next sample is decided.
    cameras[1].sees(2, 2);
    cameras.iter().for_each(|camera| camera.sees(3, 1));
    assert_eq!(observer.result().await.sample, SampleId(3));
    let settled = observer.settled(2).await;
    assert_eq!((settled.highest, settled.dropped[&Dropped::Restart]), (SampleId(3), 1));
    let report = leader.shutdown().await.unwrap();
    assert_eq!((report.decided, report.republished, report.leader.after_close), (1, 1, 1));
}

#[tokio::test]
async fn two_leaders_cannot_share_a_journal() {
    let (group, folder) = (Group::new(1.0), TempDir::new().unwrap());
    let first = journalled(&group, &folder).await.unwrap();
    let error = journalled(&group, &folder).await.unwrap_err();
    assert!(matches!(error, AggregatorError::Journal(JournalError::Locked { .. })), "{error}");
    first.shutdown().await.unwrap();
}
