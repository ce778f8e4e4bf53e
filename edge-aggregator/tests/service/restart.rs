//! Killed and started again: the journal keeps decisions single.

use std::sync::Arc;

use headwater_edge_aggregator::{Aggregator, AggregatorConfig, AggregatorError, JournalConfig, JournalError};
use headwater_protocol::{Dropped, SampleId};
use tempfile::TempDir;

use crate::group::{Group, filled};

fn journalled(group: &Group, folder: &TempDir) -> AggregatorConfig {
    AggregatorConfig { journal: Some(JournalConfig::new(folder.path().join("journal"))), ..group.config() }
}

#[tokio::test]
async fn a_killed_aggregator_says_its_decisions_again_and_drops_what_was_open() {
    let (group, folder) = (Group::new(1.0), TempDir::new().unwrap());
    let aggregator = Aggregator::start(journalled(&group, &folder), Arc::clone(&group.bundle)).await.unwrap();
    let mut onlooker = group.onlooker().await;
    let cameras = [group.camera(0).await, group.camera(1).await];
    filled(&aggregator, 0b011).await;
    cameras.iter().for_each(|camera| camera.sees(1, 2));
    let first = onlooker.result().await;
    cameras[0].sees(2, 2);
    while aggregator.report().open == 0 {
        tokio::task::yield_now().await;
    }
    aggregator.kill().await;

    let aggregator = Aggregator::start(journalled(&group, &folder), Arc::clone(&group.bundle)).await.unwrap();
    assert_eq!(onlooker.result().await, first, "again, and unchanged");
    filled(&aggregator, 0b011).await;
    // The straggler of the dropped sample opens nothing; the next sample is decided.
    cameras[1].sees(2, 2);
    cameras.iter().for_each(|camera| camera.sees(3, 1));
    assert_eq!(onlooker.result().await.sample, SampleId(3));
    let settled = onlooker.settled(2).await;
    assert_eq!((settled.highest, settled.dropped[&Dropped::Restart]), (SampleId(3), 1));
    let report = aggregator.shutdown().await.unwrap();
    assert_eq!((report.decided, report.republished, report.leader.after_close), (1, 1, 1));
}

#[tokio::test]
async fn two_aggregators_cannot_share_a_journal() {
    let (group, folder) = (Group::new(1.0), TempDir::new().unwrap());
    let first = Aggregator::start(journalled(&group, &folder), Arc::clone(&group.bundle)).await.unwrap();
    let error = Aggregator::start(journalled(&group, &folder), Arc::clone(&group.bundle)).await.unwrap_err();
    assert!(matches!(error, AggregatorError::Journal(JournalError::Held { .. })), "{error}");
    first.shutdown().await.unwrap();
}
