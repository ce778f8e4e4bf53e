//! Two leaders of one group: one decides, the other waits and takes its place.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use headwater_edge_aggregator::{Aggregator, AggregatorConfig, GroupLeader, OpenedGroup, Shared};
use headwater_link::{Incoming, Link, LinkConfig, QoS};
use headwater_protocol::status::GroupState;
use headwater_protocol::{DeviceState, InstanceId, LeaderClaim, SampleId, Topic};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::group::{Group, LIMIT, filled, until};
use crate::groups::{ANYTHING, Mosquitto, get};

const SURE: f32 = 1.0;
const SAMPLES: u64 = 20;

/// A leader with a client id of its own.
async fn leader(group: &Group, name: &str, change: impl FnOnce(&mut OpenedGroup)) -> GroupLeader {
    let mut config = group.config();
    config.settings.client_id = Some(name.into());
    change(&mut config);
    GroupLeader::start(&Shared::new(group.shared()).unwrap(), config).await.unwrap()
}

async fn wait_for(leader: &GroupLeader, state: GroupState) {
    until(leader, &format!("{state:?}"), |report| report.lead == state).await;
}

/// A leader that leads, and a second one that waits for it.
async fn one_leads_and_one_waits(group: &Group) -> [GroupLeader; 2] {
    let first = leader(group, "first", |_| {}).await;
    wait_for(&first, GroupState::Leading).await;
    let second = leader(group, "second", |_| {}).await;
    wait_for(&second, GroupState::Waiting).await;
    [first, second]
}

/// Lets a device answer samples. The leader must decide each of them, and nobody decides one again.
async fn decides_each_once(group: &Group, leader: &GroupLeader) {
    let (mut observer, cameras) = group.joined(leader, 1).await;
    for sample in 1..=SAMPLES {
        cameras[0].sees(sample, 1);
        assert_eq!(observer.result().await.sample, SampleId(sample), "a sample was decided twice");
    }
}

/// Reads and publishes claims on the group's topic `leader`.
struct Claims {
    link: Link,
    incoming: mpsc::Receiver<Incoming>,
    topic: String,
}

impl Claims {
    async fn of(group: &Group) -> Self {
        let topic = group.topics.name(&Topic::Leader);
        let config = LinkConfig::new(group.broker.clone(), "claims").subscribe(&topic, QoS::AtLeastOnce);
        let (link, mut incoming) = Link::start(config).unwrap();
        assert_eq!(timeout(LIMIT, incoming.recv()).await.unwrap(), Some(Incoming::Connected));
        Self { link, incoming, topic }
    }

    /// The next message that is a claim.
    async fn next(&mut self) -> LeaderClaim {
        loop {
            let incoming = timeout(LIMIT, self.incoming.recv()).await.expect("a claim").unwrap();
            let Incoming::Message { payload, .. } = incoming else { continue };
            if let Ok(claim) = LeaderClaim::read(&payload) {
                return claim;
            }
        }
    }

    /// Waits for a claim in this state; if `instance` is given, for one of that leader.
    async fn until(&mut self, state: DeviceState, instance: Option<InstanceId>) -> LeaderClaim {
        loop {
            let claim = self.next().await;
            if claim.state == state && instance.is_none_or(|instance| claim.instance == instance) {
                return claim;
            }
        }
    }

    fn publish(&self, payload: impl Into<Vec<u8>>) {
        self.link.publish(self.topic.as_str(), payload.into(), QoS::AtLeastOnce, true).unwrap();
    }
}

#[tokio::test]
async fn two_leaders_of_a_group_decide_every_sample_once() {
    let group = Group::new(SURE);
    let [first, second] = one_leads_and_one_waits(&group).await;
    decides_each_once(&group, &first).await;
    let second = second.shutdown().await.unwrap();
    assert_eq!((first.shutdown().await.unwrap().decided, second.decided), (SAMPLES, 0));
}

#[tokio::test]
async fn leaders_that_start_at_the_same_moment_agree_on_one() {
    let group = Group::new(SURE);
    let mut leaders = Vec::new();
    for name in ["first", "second", "third"] {
        leaders.push(leader(&group, name, |_| {}).await);
    }
    let count = |leaders: &[GroupLeader], state| leaders.iter().filter(|l| l.report().lead == state).count();
    let wait = async {
        while (count(&leaders, GroupState::Leading), count(&leaders, GroupState::Waiting)) != (1, 2) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LIMIT, wait).await.expect("one leader, and two that wait");
    let leading = leaders.iter().find(|leader| leader.report().lead == GroupState::Leading).unwrap();
    decides_each_once(&group, leading).await;
    for leader in leaders {
        leader.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_waiting_leader_follows_one_that_stops_and_one_that_is_killed() {
    let group = Group::new(SURE);
    let [first, second] = one_leads_and_one_waits(&group).await;
    first.shutdown().await.unwrap();
    wait_for(&second, GroupState::Leading).await;
    assert_eq!(second.report().claim.term, 2);
    let third = leader(&group, "third", |_| {}).await;
    wait_for(&third, GroupState::Waiting).await;
    second.kill().await;
    wait_for(&third, GroupState::Leading).await;
    decides_each_once(&group, &third).await;
    third.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_leader_that_is_taken_over_stops_deciding_and_waits() {
    let group = Group::new(SURE);
    let mut claims = Claims::of(&group).await;
    let first = leader(&group, "first", |_| {}).await;
    let (mut observer, cameras) = group.joined(&first, 1).await;
    cameras[0].sees(1, 1);
    assert_eq!(observer.result().await.sample, SampleId(1));
    let held = claims.until(DeviceState::Up, None).await;
    let second = leader(&group, "second", |config| config.settings.take_over = true).await;
    wait_for(&first, GroupState::Waiting).await;
    filled(&second, 1).await;
    let claim = loop {
        let claim = claims.next().await;
        if claim.instance != held.instance {
            break claim;
        }
    };
    assert_eq!((claim.term, first.report().claim.waits_for), (held.term + 1, Some(claim.instance)));
    for sample in 2..=SAMPLES {
        cameras[0].sees(sample, 1);
        assert_eq!(observer.result().await.sample, SampleId(sample), "a sample was decided twice");
    }
    assert_eq!(first.report().decided, 1);
    second.shutdown().await.unwrap();
    wait_for(&first, GroupState::Leading).await;
    first.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_leader_repairs_a_claim_that_was_cleared_or_altered() {
    let group = Group::new(SURE);
    let mut claims = Claims::of(&group).await;
    let leader = leader(&group, "first", |_| {}).await;
    let held = claims.until(DeviceState::Up, None).await;
    let stranger = InstanceId(held.instance.0 ^ 1);
    let older = LeaderClaim { instance: stranger, term: 0, ..held.clone() };
    for altered in [Vec::new(), b"rubbish".to_vec(), serde_json::to_vec(&older).unwrap()] {
        wait_for(&leader, GroupState::Leading).await;
        claims.publish(altered);
        // A claim from before the alteration may still be on its way: a claim with a later beat must follow.
        let beat = claims.until(DeviceState::Up, Some(held.instance)).await.beat;
        while claims.until(DeviceState::Up, Some(held.instance)).await.beat < beat + 1 {}
    }
    leader.shutdown().await.unwrap();
    assert_eq!(claims.until(DeviceState::Down, None).await.instance, held.instance);
}

#[tokio::test]
async fn a_restart_with_its_journal_follows_its_own_claim_without_waiting() {
    let group = Group::new(SURE);
    let folder = TempDir::new().unwrap();
    let mut claims = Claims::of(&group).await;
    let journal = Some(folder.path().join("journal"));
    let first = leader(&group, "first", |config| config.settings.journal.path = journal.clone()).await;
    // The leader has its connection as leader once it has published the claim a second time.
    let held = loop {
        let claim = claims.next().await;
        if claim.beat > 0 {
            break claim;
        }
    };
    first.shutdown().await.unwrap();
    // Publishes the claim `up` again, as a broker keeps the claim of a leader that dies together with the broker.
    claims.until(DeviceState::Down, None).await;
    claims.publish(serde_json::to_vec(&held).unwrap());
    let again = leader(&group, "first", |config| config.settings.journal.path = journal).await;
    wait_for(&again, GroupState::Leading).await;
    assert_eq!(again.report().claim.term, held.term + 1);
    let other = leader(&group, "other", |_| {}).await;
    wait_for(&other, GroupState::Waiting).await;
    assert_eq!(other.report().claim.waits_for, Some(held.instance));
    other.shutdown().await.unwrap();
    again.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_broker_that_is_killed_and_forgets_the_claim_leaves_one_leader() {
    let Some(mut broker) = Mosquitto::start(ANYTHING, "").await else { return };
    let group = Group::named("gate", broker.address.clone(), SURE);
    let [first, second] = one_leads_and_one_waits(&group).await;
    broker.restart().await;
    let mut claims = Claims::of(&group).await;
    let claim = claims.until(DeviceState::Up, None).await;
    wait_for(&second, GroupState::Waiting).await;
    assert_eq!(second.report().claim.waits_for, Some(claim.instance));
    decides_each_once(&group, &first).await;
    assert_eq!(second.shutdown().await.unwrap().decided, 0);
    assert_eq!(first.shutdown().await.unwrap().decided, SAMPLES);
}

/// The answer of an admin port, once it is as expected.
async fn answer_that(address: SocketAddr, path: &str, is_expected: impl Fn(&str) -> bool) -> String {
    let until = Instant::now() + LIMIT;
    loop {
        let answer = get(address, path).await;
        if is_expected(&answer) {
            return answer;
        }
        assert!(Instant::now() < until, "not as expected: {path} {answer}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_leader_whose_broker_cannot_carry_its_messages_is_not_ready_and_says_why() {
    for (lines, found) in [
        ("max_qos 0\n", "QoS 0 alone"),
        ("retain_available false\n", "no retained messages"),
        ("max_packet_size 150\n", "max_packet_size is 150 bytes"),
    ] {
        let Some(broker) = Mosquitto::start(ANYTHING, lines).await else { return };
        let group = Group::named("gate", broker.address.clone(), SURE);
        let mut shared = group.shared();
        shared.admin.listen = Some(([127, 0, 0, 1], 0).into());
        let config = AggregatorConfig { shared, groups: vec![group.config()] };
        let aggregator = Aggregator::start(config).await.unwrap();
        let address = aggregator.admin_address().expect("an admin listener");
        let ready = answer_that(address, "/ready", |answer| answer.contains(found)).await;
        assert!(ready.starts_with("not ready") && ready.contains("group plant/gate"), "{ready}");
        aggregator.shutdown().await;
    }
}

#[tokio::test]
async fn a_leader_whose_claim_the_broker_refuses_is_not_ready_and_says_why() {
    let Some(mut broker) = Mosquitto::start("topic read #\n", "").await else { return };
    let group = Group::named("gate", broker.address.clone(), SURE);
    let mut shared = group.shared();
    shared.admin.listen = Some(([127, 0, 0, 1], 0).into());
    let aggregator =
        Aggregator::start(AggregatorConfig { shared, groups: vec![group.config()] }).await.unwrap();
    let admin = aggregator.admin_address().unwrap();
    let answer = answer_that(admin, "/ready", |answer| answer.starts_with("not ready")).await;
    let topic = group.topics.name(&Topic::Leader);
    for part in [topic.as_str(), "not authorized", "the role of a leader of the group"] {
        assert!(answer.contains(part), "{part} in {answer}");
    }
    answer_that(admin, "/live", |answer| answer == "live\n").await;
    let count =
        "headwater_aggregator_broker_refused_messages_total{group=\"gate\",site=\"plant\",topic=\"leader\"} ";
    answer_that(admin, "/metrics", |answer| answer.contains(count)).await;
    // A broker with the right rules: the link connects again, and the claim is accepted.
    broker.restart().await;
    answer_that(admin, "/ready", |answer| answer == "ready\n").await;
    let leads = "headwater_aggregator_leader_state{group=\"gate\",site=\"plant\"} 1\n";
    answer_that(admin, "/metrics", |answer| answer.contains(leads)).await;
    aggregator.shutdown().await;
}

#[tokio::test]
async fn a_result_that_the_broker_refuses_is_counted_by_its_topic() {
    let rules = "topic read #\ntopic write headwater/v1/plant/gate/leader\ntopic write headwater/v1/plant/gate/dev/#\n";
    let Some(broker) = Mosquitto::start(rules, "").await else { return };
    let group = Group::named("gate", broker.address.clone(), SURE);
    let leader = leader(&group, "first", |_| {}).await;
    let camera = group.camera(0).await;
    filled(&leader, 1).await;
    camera.sees(1, 1);
    let report =
        until(&leader, "a refused result", |report| report.refused_by_broker.contains_key("result")).await;
    assert_eq!((report.results_unsent, report.claim.claim_refused), (1, None));
    leader.shutdown().await.unwrap();
}
