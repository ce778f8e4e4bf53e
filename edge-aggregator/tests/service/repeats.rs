//! Results that go out again after a lost connection or a restart are marked; results that the broker acknowledged do not go out again.

use headwater_edge_aggregator::{GroupLeader, Shared, SharedConfig};
use headwater_link::testing::TcpProxy;
use headwater_protocol::{Dropped, SampleId};
use tempfile::TempDir;

use crate::group::{Group, filled, until};
use crate::groups::{ANYTHING, Mosquitto};
use crate::restart::journalled;

const SURE: f32 = 1.0;

#[tokio::test]
async fn a_result_that_the_broker_acknowledged_is_not_sent_again_after_a_reconnect() {
    let group = Group::new(SURE);
    let proxy = TcpProxy::to(group.broker.clone()).await.unwrap();
    let shared = Shared::new(SharedConfig::new(proxy.address())).unwrap();
    let leader = GroupLeader::start(&shared, group.config()).await.unwrap();
    let (mut observer, cameras) = group.joined(&leader, 1).await;
    for round in 0..5 {
        for sample in 10 * round + 1..=10 * round + 10 {
            cameras[0].sees(sample, 1);
            let (decision, marked) = observer.marked_result().await;
            assert_eq!((decision.sample, marked), (SampleId(sample), false), "round {round}");
        }
        until(&leader, "no open acknowledgement", |report| report.results_unacknowledged == 0).await;
        proxy.cut();
        until(&leader, "the end of the connection", |_| !leader.is_connected()).await;
        until(&leader, "a new connection", |_| leader.is_connected()).await;
    }
    leader.shutdown().await.unwrap();
}

/// Mosquitto answers a message that is longer than its `message_size_limit` with a reason code that MQTT 5 does not list for PUBACK.
#[tokio::test]
async fn a_result_that_the_broker_refuses_is_a_drop_in_the_account_and_the_group_goes_on() {
    let folder = TempDir::new().unwrap();
    let Some(broker) = Mosquitto::start(ANYTHING, "message_size_limit 300\n").await else { return };
    let group = Group::named("gate", broker.address.clone(), SURE);
    let leader = journalled(&group, &folder).await.unwrap();
    let (mut observer, cameras) = group.joined(&leader, 1).await;
    let written = leader.report().broker.wire;
    for sample in 1..=3 {
        cameras[0].sees(sample, 1);
        let settled = loop {
            let settled = observer.settled(0).await;
            if settled.dropped.values().sum::<u64>() == sample {
                break settled;
            }
        };
        assert_eq!((settled.decided, settled.dropped), (0, [(Dropped::ResultRefused, sample)].into()));
    }
    let report = leader.report();
    assert_eq!((report.results_unsent, report.refused_by_broker["result"]), (3, 3));
    assert!(report.broker.status.connected, "{report:?}");
    assert!(report.broker.wire.sent - written.sent < 64 * 1024, "{report:?}");
    leader.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_result_that_a_restart_sends_again_is_marked() {
    let (group, folder) = (Group::new(SURE), TempDir::new().unwrap());
    let leader = journalled(&group, &folder).await.unwrap();
    let (mut observer, cameras) = group.joined(&leader, 1).await;
    cameras[0].sees(1, 2);
    let (first, marked) = observer.marked_result().await;
    assert!(!marked);
    leader.kill().await;
    let leader = journalled(&group, &folder).await.unwrap();
    assert_eq!(observer.marked_result().await, (first, true));
    filled(&leader, 1).await;
    cameras[0].sees(2, 2);
    let (second, marked) = observer.marked_result().await;
    assert_eq!((second.sample, marked), (SampleId(2), false));
    leader.shutdown().await.unwrap();
}
