//! Devices that capture by the clock go on while the broker or the leader is away: every sample of that time is decided when they are
//! back, marked late, and none twice.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use headwater_cloud_service::CloudHandle;
use headwater_edge_aggregator::{Aggregator, AggregatorConfig, AggregatorHandle, JournalConfig};
use headwater_end_device::{Capture, Device, DeviceHandle, DeviceReport, Frames};
use headwater_inference::bundle::Bundle;
use headwater_inference::manifest::Configuration;
use headwater_inference::policy::{ExitThreshold, Policy, Threshold};
use headwater_inference::testing::TinyNetwork;
use headwater_link::BrokerAddress;
use headwater_protocol::{Degraded, Dropped, Slot};
use headwater_tests::account::Account;
use headwater_tests::observer::PATIENCE;
use headwater_tests::process::{Process, mosquitto_at};
use headwater_tests::shipped;
use headwater_tests::tiers::{device_config, names, start_cloud};
use tokio::time::{Instant, sleep};

/// Between samples.
const PERIOD_MS: u64 = 40;
/// What a sample has to be settled before its device sends it late.
const KEEP_MS: u64 = 700;

/// A group over a real broker whose parts can be taken away.
struct Scene {
    folder: tempfile::TempDir,
    bundle: Arc<Bundle>,
    port: u16,
    broker: Option<Process>,
    leader_config: AggregatorConfig,
    leader: Option<AggregatorHandle>,
    devices: Vec<DeviceHandle>,
    _cloud: CloudHandle,
}

/// A network of that configuration, half of whose samples leave at its first exit.
fn network(configuration: Configuration) -> TinyNetwork {
    let slots = if configuration == Configuration::B { 1 } else { 6 };
    let edges = if configuration == Configuration::E { vec![(0..6).collect()] } else { Vec::new() };
    let mut policy = Policy { features_ms: 2_000, deadline_ms: 5_000, ..Policy::default() };
    for exit in [&mut policy.device, &mut policy.local, &mut policy.edge] {
        exit.threshold = Threshold::One(ExitThreshold::new(0.95).expect("in [0, 1]"));
    }
    TinyNetwork { slots, edges, classes: 10, view: [3, 32, 32], policy, ..TinyNetwork::of(configuration) }
}

impl Scene {
    async fn of(configuration: Configuration) -> Self {
        let bundle = Arc::new(Bundle::from_bytes(&network(configuration).bundle()).expect("a sound bundle"));
        let folder = tempfile::tempdir().expect("a temporary folder");
        let port = headwater_tests::process::free_port();
        let cloud = start_cloud(Arc::clone(&bundle)).await;
        let (site, group) = names();
        let mut config = AggregatorConfig::new(site, group, address(port));
        config.cloud_url = Some(format!("http://{}", cloud.addr()));
        config.journal = Some(JournalConfig::new(folder.path().join("journal.jsonl")));
        Self {
            folder,
            bundle,
            port,
            broker: None,
            leader_config: config,
            leader: None,
            devices: Vec::new(),
            _cloud: cloud,
        }
    }

    fn start_broker(&mut self) {
        self.broker = Some(mosquitto_at(self.folder.path(), self.port).0);
    }

    async fn start_leader(&mut self) {
        let leader = Aggregator::start(self.leader_config.clone(), Arc::clone(&self.bundle)).await;
        self.leader = Some(leader.expect("the leader starts"));
    }

    /// All devices, at once, so that their clocks begin with the same sample.
    async fn start_devices(&mut self) {
        for slot in Slot::first(usize::from(self.bundle.manifest().slots)) {
            let mut config = device_config(slot, address(self.port));
            config.capture = Capture::Clock { period_ms: PERIOD_MS };
            config.keep_ms = KEEP_MS;
            config.state_dir = Some(self.folder.path().join(format!("cam-{slot}")));
            let frames = Frames::of_archive(shipped::frames(), slot).expect("the frames have the slot");
            let device = Device::start(config, Arc::clone(&self.bundle), frames).await;
            self.devices.push(device.expect("the device starts"));
        }
    }

    fn journal(&self) -> PathBuf {
        self.folder.path().join("journal.jsonl")
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Account, &[DeviceReport]) -> bool) {
        let until = Instant::now() + PATIENCE;
        loop {
            let reports: Vec<_> = self.devices.iter().map(DeviceHandle::report).collect();
            let account = Account::read(&self.journal());
            if is_so(&account, &reports) {
                return;
            }
            let leader = self.leader.as_ref().map(AggregatorHandle::report);
            assert!(Instant::now() < until, "{what}: {reports:?}\n{leader:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Until so many more samples are decided.
    async fn decides(&self, more: usize) {
        let before = Account::read(&self.journal()).decided.len();
        self.until("decisions", |account, _| account.decided.len() >= before + more).await;
    }

    /// Stops capturing, waits until all is settled, and checks that nothing was lost. The account is given.
    async fn ends(mut self) -> Account {
        self.until("spools that empty themselves", |_, reports| {
            reports.iter().all(|report| report.spooled == 0)
        })
        .await;
        let (mut captured, mut missed) = (0, 0);
        for device in std::mem::take(&mut self.devices) {
            let report = device.shutdown().await;
            assert_eq!((report.lost, report.given_up.len(), report.shed), (0, 0, 0), "{report:?}");
            captured = captured.max(report.captured);
            missed += report.captures_missed;
        }
        // The last ones were sent in time and are decided like any other.
        self.until("the last decisions", |account, _| {
            (account.decided.len() + account.dropped.len()) as u64 >= captured
        })
        .await;
        self.leader.take().expect("a leader").shutdown().await.expect("the leader ends well");
        let account = Account::read(&self.journal());
        let closed: BTreeSet<u64> =
            account.decided.keys().chain(account.dropped.keys()).map(|sample| sample.0).collect();
        let (first, last) = (closed.first().expect("some"), closed.last().expect("some"));
        // Every id of the clock from the first to the last is in the journal, or a device reports it as missed.
        let gaps = last - first + 1 - closed.len() as u64;
        assert!(gaps <= missed, "{gaps} gaps between {first} and {last}, {missed} captures missed");
        account
    }
}

fn address(port: u16) -> BrokerAddress {
    BrokerAddress::mqtt("127.0.0.1", port).expect("an address")
}

fn late(account: &Account) -> usize {
    account.decided.values().filter(|decision| decision.degraded.contains(&Degraded::Late)).count()
}

/// The broker is killed twice, for longer than a connection takes to be found lost.
async fn the_broker_is_away(configuration: Configuration) {
    let mut scene = Scene::of(configuration).await;
    scene.start_leader().await;
    // Devices are there before there is a broker.
    scene.start_devices().await;
    scene
        .until("samples in the spools", |_, reports| reports.iter().all(|report| report.spooled >= 10))
        .await;
    scene.start_broker();
    scene.decides(40).await;
    scene.broker.take().expect("a broker").kill();
    scene
        .until("samples in the spools", |_, reports| reports.iter().all(|report| report.spooled >= 25))
        .await;
    scene.start_broker();
    scene.decides(60).await;
    let account = scene.ends().await;
    assert!(account.dropped.is_empty(), "{:?}", account.dropped);
    assert!(late(&account) >= 20, "late: {}", late(&account));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_devices_whose_broker_is_away_lose_nothing() {
    the_broker_is_away(Configuration::C).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_is_alone_and_whose_broker_is_away_loses_nothing() {
    the_broker_is_away(Configuration::B).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_samples_go_through_an_edge_too() {
    the_broker_is_away(Configuration::E).await;
}

/// The leader is killed, and comes back after devices have begun to send late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_the_leader_is_away() {
    let mut scene = Scene::of(Configuration::C).await;
    scene.start_broker();
    scene.start_leader().await;
    scene.start_devices().await;
    scene.decides(30).await;
    scene.leader.take().expect("a leader").kill().await;
    scene
        .until("samples in the spools", |_, reports| reports.iter().all(|report| report.spooled >= 10))
        .await;
    scene.start_leader().await;
    scene.decides(60).await;
    let account = scene.ends().await;
    assert!(account.dropped.values().all(|reason| *reason == Dropped::Restart), "{:?}", account.dropped);
    assert!(account.dropped.len() <= 3, "what was open when it was killed: {:?}", account.dropped);
    assert!(late(&account) >= 10, "late: {}", late(&account));
}
