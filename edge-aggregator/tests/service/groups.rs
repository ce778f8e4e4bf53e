//! Several groups in one process.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use headwater_edge_aggregator::{
    Aggregator, AggregatorConfig, AggregatorError, GroupReport, LeaderReport, OpenedGroup, Role,
};
use headwater_link::Endpoint;
use headwater_link::broker::EmbeddedBroker;
use headwater_protocol::{EdgeId, EdgeIndex, SampleId, SlotSet};
use headwater_transport::held_port;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use crate::group::{Camera, Group, LIMIT, Observer};

const SURE: f32 = 1.0;
/// Samples that each group decides.
const SAMPLES: u64 = 40;

/// Two groups on one broker, each with its own journal.
struct TwoGroups {
    groups: [Group; 2],
    folder: TempDir,
}

impl TwoGroups {
    fn new(broker: &Endpoint) -> Self {
        let groups = ["north", "south"].map(|name| Group::named(name, broker.clone(), SURE));
        Self { groups, folder: TempDir::new().unwrap() }
    }

    fn config(&self) -> AggregatorConfig {
        let [north, south] = &self.groups;
        let mut shared = north.shared();
        shared.admin.listen = Some(([127, 0, 0, 1], 0).into());
        let groups = [(north, "north"), (south, "south")]
            .map(|(group, name)| group.config().with_journal(self.folder.path().join(name)));
        AggregatorConfig { shared, groups: groups.into() }
    }

    async fn cameras(&self, group: usize) -> [Camera; 2] {
        let group = &self.groups[group];
        [group.camera(0).await, group.camera(1).await]
    }

    async fn observers(&self) -> [Observer; 2] {
        let [north, south] = &self.groups;
        [north.observer().await, south.observer().await]
    }
}

fn leader(report: &GroupReport) -> &LeaderReport {
    match report {
        GroupReport::Leader(report) => report,
        GroupReport::Edge(_) => panic!("expected a leader"),
    }
}

async fn wait_until_filled(aggregator: &Aggregator, slots: &[usize]) {
    let filled = || {
        let reports = aggregator.reports();
        reports.iter().zip(slots).all(|(report, count)| leader(report).filled_slots == SlotSet::first(*count))
    };
    let wait = async {
        while !filled() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LIMIT, wait).await.expect("births of all devices");
}

/// Interleaves samples of both groups with the same ids and different classes, and checks that each group decides all its own samples
/// and none of the other group's.
async fn each_group_decides_its_own_samples(broker: &Endpoint) {
    let two = TwoGroups::new(broker);
    let aggregator = Aggregator::start(two.config()).await.unwrap();
    let [mut north, mut south] = two.observers().await;
    let cameras = [two.cameras(0).await, two.cameras(1).await];
    wait_until_filled(&aggregator, &[2, 2]).await;
    for sample in 1..=SAMPLES {
        for (class, camera) in [(1, 0), (2, 0), (1, 1), (2, 1)] {
            cameras[class - 1][camera].sees(sample, class);
        }
    }
    for (observer, class) in [(&mut north, 1), (&mut south, 2)] {
        let mut decided = BTreeSet::new();
        while decided.len() < SAMPLES as usize {
            let decision = observer.result().await;
            assert_eq!(decision.class.unwrap(), class, "a decision of the other group");
            assert_eq!(decision.presence.missing_count(), 1);
            decided.insert(decision.sample);
        }
        assert_eq!(decided, (1..=SAMPLES).map(SampleId).collect());
        assert_eq!(observer.settled(SAMPLES).await.highest, SampleId(SAMPLES));
    }
    let address = aggregator.admin_address().expect("an admin listener");
    let metrics = tokio::task::spawn_blocking(move || metrics(address)).await.unwrap();
    for group in ["north", "south"] {
        let line =
            format!("headwater_aggregator_decisions_total{{group=\"{group}\",site=\"plant\"}} {SAMPLES}");
        assert!(metrics.lines().any(|found| found == line), "{line} in\n{metrics}");
    }
    headwater_telemetry::testing::check_metrics(&metrics);
    for end in aggregator.shutdown().await {
        let report = end.outcome.unwrap();
        let report = leader(&report);
        assert_eq!((report.decided, report.open, report.inbox.unroutable), (SAMPLES, 0, 0), "{}", end.group);
        assert_eq!(report.leader.duplicates, 0, "{}", end.group);
    }
}

/// Text of the metrics of an admin listener.
fn metrics(address: std::net::SocketAddr) -> String {
    get(address, "/metrics")
}

/// Body of the answer of an admin listener to a request for `path`.
pub(crate) fn get(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").expect("a head and a body").1.to_owned()
}

#[tokio::test]
async fn two_groups_decide_their_own_samples_on_the_embedded_broker() {
    let broker = EmbeddedBroker::start().unwrap();
    each_group_decides_its_own_samples(&broker.address()).await;
}

/// A Mosquitto of the test; killed when dropped.
pub(crate) struct Mosquitto(Child, pub(crate) Endpoint);

impl Mosquitto {
    /// A broker whose access rules allow everything; `None` if no Mosquitto is installed.
    pub(crate) async fn start(folder: &TempDir, port: u16) -> Option<Self> {
        Self::start_with(folder, port, "topic readwrite #\n").await
    }

    /// A broker with these access rules; `None` if no Mosquitto is installed.
    pub(crate) async fn start_with(folder: &TempDir, port: u16, rules: &str) -> Option<Self> {
        let access = folder.path().join("access.rules");
        std::fs::write(&access, rules).unwrap();
        Self::start_of(folder, port, &format!("acl_file {}\n", access.display())).await
    }

    /// A broker with these further lines of configuration; `None` if no Mosquitto is installed.
    pub(crate) async fn start_of(folder: &TempDir, port: u16, lines: &str) -> Option<Self> {
        let address = Endpoint::mqtt("127.0.0.1", port).unwrap();
        let file = folder.path().join("mosquitto.conf");
        // Without `user root`, a Mosquitto started by root runs as a user who may not read the folder.
        let common = format!("user root\nlistener {port} 127.0.0.1\nallow_anonymous true\n");
        std::fs::write(&file, common + lines).unwrap();
        let path = format!("{}:/usr/sbin:/usr/local/sbin", std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new("mosquitto");
        command.arg("-c").arg(file).env("PATH", path).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().ok()?;
        let wait = async {
            while TcpStream::connect(("127.0.0.1", port)).is_err() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let broker = Self(child, address);
        timeout(LIMIT, wait).await.expect("mosquitto listens");
        Some(broker)
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        // A process that has ended already needs no signal.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn two_groups_decide_their_own_samples_on_mosquitto() {
    let (folder, port) = (TempDir::new().unwrap(), held_port().unwrap());
    match Mosquitto::start(&folder, port).await {
        Some(broker) => each_group_decides_its_own_samples(&broker.1).await,
        None => eprintln!("skipped: mosquitto is not installed (scripts/install/test-tools)"),
    }
}

#[tokio::test]
async fn a_group_whose_journal_cannot_be_opened_does_not_stop_the_other() {
    let broker = EmbeddedBroker::start().unwrap();
    let two = TwoGroups::new(&broker.address());
    std::fs::write(two.folder.path().join("north"), "no entry\n").unwrap();
    let aggregator = Aggregator::start(two.config()).await.unwrap();
    let [_, mut south] = two.observers().await;
    let cameras = two.cameras(1).await;
    wait_until_filled(&aggregator, &[2]).await;
    cameras.iter().for_each(|camera| camera.sees(1, 2));
    assert_eq!(south.result().await.class.unwrap(), 2);
    let address = aggregator.admin_address().expect("an admin listener");
    let live = tokio::task::spawn_blocking(move || get(address, "/live")).await.unwrap();
    assert!(live.contains("group plant/north: journal "), "{live}");
    let ends = aggregator.shutdown().await;
    let failed = ends.iter().find(|end| end.group.as_str() == "north").unwrap();
    assert!(matches!(failed.outcome, Err(AggregatorError::Journal(_))), "{failed:?}");
    assert_eq!(ends.iter().filter(|end| end.outcome.is_ok()).count(), 1);
}

#[tokio::test]
async fn a_group_whose_journal_cannot_be_compacted_goes_on_with_the_old_file() {
    let broker = EmbeddedBroker::start().unwrap();
    let two = TwoGroups::new(&broker.address());
    let mut config = two.config();
    // A journal that is to be compacted at once, and a folder with the name of the compacted file, so that compaction fails.
    std::fs::create_dir(two.folder.path().join("north.new")).unwrap();
    config.groups[0].settings.journal.max_bytes = 1;
    let aggregator = Aggregator::start(config).await.unwrap();
    let [mut north, _] = two.observers().await;
    let cameras = two.cameras(0).await;
    wait_until_filled(&aggregator, &[2, 0]).await;
    for sample in 1..=SAMPLES {
        cameras.iter().for_each(|camera| camera.sees(sample, 1));
        assert_eq!(north.result().await.sample, SampleId(sample));
    }
    let ends = aggregator.shutdown().await;
    let end = ends.iter().find(|end| end.group.as_str() == "north").unwrap();
    let report = leader(end.outcome.as_ref().unwrap());
    assert_eq!((report.decided, report.journal.compactions), (SAMPLES, 0));
    assert_eq!(report.journal.failed_compactions, 1, "not tried again for each sample");
}

#[tokio::test]
async fn one_group_twice_and_one_client_id_twice_are_refused() {
    let two = TwoGroups::new(&"mqtt://127.0.0.1:1".parse().unwrap());
    let mut config = two.config();
    config.groups.iter_mut().for_each(|group| group.settings.client_id = Some("leader".into()));
    config.groups.push(config.groups[0].clone());
    config.groups[2].settings.client_id = None;
    let error = Aggregator::start(config).await.err().expect("a refusal");
    let AggregatorError::Config(mistakes) = error else { panic!("{error}") };
    assert_eq!(
        mistakes,
        [
            "group[1].client_id: expected another id for each group, found leader again",
            "group[2].group: expected each role of a group once, found north again",
        ]
    );
}

#[tokio::test]
async fn two_edges_of_one_group_with_one_name_are_refused() {
    let two = TwoGroups::new(&"mqtt://127.0.0.1:1".parse().unwrap());
    let edge = |edge, id: Option<&str>| {
        let default = Role::edge(EdgeIndex::new(edge).unwrap());
        match (default, id) {
            (Role::Edge { edge, .. }, Some(id)) => Role::Edge { edge, id: EdgeId::new(id).unwrap() },
            (default, _) => default,
        }
    };
    // The last edge has the name `edge-0`, which the first edge gets from its position.
    let roles = [edge(0, None), edge(1, Some("yard")), edge(2, Some("yard")), edge(3, Some("edge-0"))];
    let mut config = two.config();
    let north = config.groups[0].clone();
    config.groups = roles.map(|role| OpenedGroup { role, ..north.clone() }).into();
    // The name of an edge in another group is no mistake.
    config.groups.push(OpenedGroup { role: edge(0, Some("yard")), ..two.config().groups[1].clone() });
    let error = Aggregator::start(config).await.err().expect("a refusal");
    let AggregatorError::Config(mistakes) = error else { panic!("{error}") };
    assert_eq!(
        mistakes,
        [
            "group[2].edge_id: expected another name for each edge, found yard again",
            "group[3].edge_id: expected another name for each edge, found edge-0 again",
        ]
    );
}
