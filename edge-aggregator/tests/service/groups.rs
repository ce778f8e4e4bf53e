//! Several groups in one process.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use headwater_edge_aggregator::{Aggregator, AggregatorConfig, AggregatorError, GroupReport, LeaderReport};
use headwater_link::Endpoint;
use headwater_link::broker::EmbeddedBroker;
use headwater_protocol::{SampleId, SlotSet};
use headwater_transport::held_port;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
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
    let metrics = get(address, "/metrics").await;
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

/// Body of the answer of an admin listener to a request for `path`.
pub(crate) async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split_once("\r\n\r\n").expect("a head and a body").1.to_owned()
}

#[tokio::test]
async fn two_groups_decide_their_own_samples_on_the_embedded_broker() {
    let broker = EmbeddedBroker::start().unwrap();
    each_group_decides_its_own_samples(&broker.address()).await;
}

/// Access rules that allow everything.
pub(crate) const ANYTHING: &str = "topic readwrite #\n";

/// A Mosquitto of the test; killed when dropped.
pub(crate) struct Mosquitto {
    child: Child,
    pub(crate) address: Endpoint,
    folder: TempDir,
}

impl Mosquitto {
    /// A broker with these access rules and further lines of configuration; `None` if no Mosquitto is installed.
    pub(crate) async fn start(rules: &str, lines: &str) -> Option<Self> {
        let (folder, port) = (TempDir::new().unwrap(), held_port().unwrap());
        let child = mosquitto(folder.path(), port, rules, lines).await?;
        Some(Self { child, address: Endpoint::mqtt("127.0.0.1", port).unwrap(), folder })
    }

    /// Sends SIGKILL to the broker, and starts it again at its port with access rules that allow everything. It keeps nothing on disk.
    pub(crate) async fn restart(&mut self) {
        self.kill();
        let child = mosquitto(self.folder.path(), self.address.port(), ANYTHING, "").await;
        self.child = child.expect("it was installed before");
    }

    fn kill(&mut self) {
        // A process that has ended already needs no signal.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts Mosquitto, and waits until it listens; `None` if it is not installed.
async fn mosquitto(folder: &Path, port: u16, rules: &str, lines: &str) -> Option<Child> {
    let [access, file] = ["access.rules", "mosquitto.conf"].map(|name| folder.join(name));
    std::fs::write(&access, rules).unwrap();
    // Without `user root`, a Mosquitto started by root runs as a user who may not read the folder.
    let config = format!(
        "user root\nlistener {port} 127.0.0.1\nallow_anonymous true\nacl_file {}\n{lines}",
        access.display()
    );
    std::fs::write(&file, config).unwrap();
    let path = format!("{}:/usr/sbin:/usr/local/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("mosquitto");
    command.arg("-c").arg(file).env("PATH", path).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(child) = command.spawn() else {
        eprintln!("skipped: mosquitto is not installed (scripts/install/test-tools)");
        return None;
    };
    let wait = async {
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LIMIT, wait).await.expect("mosquitto listens");
    Some(child)
}

#[tokio::test]
async fn two_groups_decide_their_own_samples_on_mosquitto() {
    let Some(broker) = Mosquitto::start(ANYTHING, "").await else { return };
    each_group_decides_its_own_samples(&broker.address).await;
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
    let live = get(address, "/live").await;
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
