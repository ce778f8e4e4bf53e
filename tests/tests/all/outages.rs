//! Devices that capture by the clock go on while the broker or the leader is away. Every sample of this time is decided later, as late, and
//! no sample is decided twice.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use headwater_edge_aggregator::GroupLeader;
use headwater_end_device::{CaptureWord, Device, DeviceHandle, DeviceReport, Frames};
use headwater_group::start::{InProcessGroup, Program, Service};
use headwater_inference::manifest::Configuration;
use headwater_inference::policy::{ExitThreshold, Policy, Threshold};
use headwater_inference::testing::TinyNetwork;
use headwater_protocol::{Degraded, Dropped, Exit, Slot};
use headwater_tests::group::{WAIT_LIMIT, bundle, group_at, network};
use headwater_tests::journal_contents::JournalContents;
use headwater_tests::other_programs::{loopback, mosquitto_at};
use headwater_transport::held_port;
use tokio::time::{Instant, sleep};

/// Milliseconds between samples.
const PERIOD_MS: u64 = 40;
/// Milliseconds after which a device sends an unsettled sample again, as late.
const KEEP_MS: u64 = 700;
/// Fewest samples that become late in each outage.
const LATE_SAMPLES: u64 = 20;

/// A group over Mosquitto. The test stops and starts the broker and the leader; the devices capture by the clock.
struct OutageGroup {
    folder: tempfile::TempDir,
    broker: Option<Program>,
    /// Cloud, leader and edges, without the devices.
    services: InProcessGroup,
    devices: Vec<DeviceHandle>,
}

/// A network in which about half of the samples leave at the first exit.
fn half_sure(configuration: Configuration) -> TinyNetwork {
    let mut network = TinyNetwork { policy: Policy::default(), ..network(configuration) };
    for exit in [Exit::DEVICE, Exit::LOCAL, Exit::EDGE] {
        network.policy.of_mut(exit).threshold = Threshold::One(ExitThreshold::new(0.95).expect("in [0, 1]"));
    }
    network
}

impl OutageGroup {
    /// Starts cloud, leader and edges, without a broker and devices.
    async fn start(configuration: Configuration) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let broker = loopback(held_port().unwrap());
        let mut settings = group_at(broker, bundle(&half_sure(configuration).bundle()));
        settings.site.journal = Some(folder.path().join("journal.jsonl"));
        // In an outage windows run to their ends, which must come before devices send the samples again as late.
        let policy = settings.policy.get_or_insert_default();
        (policy.window_ms, policy.features_ms, policy.deadline_ms) = (50, 2_000, 5_000);
        settings.slots.clear();
        let services = InProcessGroup::start(settings).await.unwrap();
        Self { folder, broker: None, services, devices: Vec::new() }
    }

    fn start_broker(&mut self) {
        self.broker = Some(mosquitto_at(self.folder.path(), &self.services.settings.site.broker));
    }

    /// Starts all devices together, so that their clocks begin with the same sample.
    async fn start_devices(&mut self) {
        let network = Arc::clone(&self.services.settings.device_network);
        for slot in Slot::first(usize::from(network.manifest().slots)) {
            let mut config = self.services.device_config(slot);
            (config.settings.capture, config.settings.period_ms) = (CaptureWord::Clock, Some(PERIOD_MS));
            config.settings.keep_ms = KEEP_MS;
            config.settings.state_dir = Some(self.folder.path().join(format!("cam-{slot}")));
            let frames = Arc::clone(&self.services.settings.frames);
            let frames = Frames::of_archive(frames, slot).expect("the frames have the slot");
            let device = Device::start(config, Arc::clone(&network), frames).await;
            self.devices.push(device.expect("the device starts"));
        }
    }

    fn journal(&self) -> JournalContents {
        JournalContents::read(&self.folder.path().join("journal.jsonl"))
    }

    async fn wait_until(&self, expected: &str, is_so: impl Fn(&JournalContents, &[DeviceReport]) -> bool) {
        let until = Instant::now() + WAIT_LIMIT;
        loop {
            let reports: Vec<_> = self.devices.iter().map(DeviceHandle::report).collect();
            if is_so(&self.journal(), &reports) {
                return;
            }
            let leader = self.services.leader().map(GroupLeader::report);
            assert!(Instant::now() < until, "waiting for {expected}: {reports:?}\n{leader:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until every device has captured `samples` samples more than those of the next [`KEEP_MS`], which may still be sent in time.
    async fn wait_for_late_captures(&self, samples: u64) {
        let captured = |device: &DeviceHandle| device.report().counts.captured;
        let before = self.devices.iter().map(captured).max().expect("a device");
        let in_time = KEEP_MS.div_ceil(PERIOD_MS);
        self.wait_until("captures", |_, reports| {
            reports.iter().all(|report| report.counts.captured >= before + in_time + samples)
        })
        .await;
    }

    /// Waits until every device has at least this many samples in its spool.
    async fn wait_for_spools(&self, samples: u64) {
        let expected = format!("{samples} samples in each spool");
        self.wait_until(&expected, |_, reports| {
            reports.iter().all(|report| report.counts.spooled >= samples)
        })
        .await;
    }

    /// Waits until at least this many more samples are decided.
    async fn wait_for_decisions(&self, more: usize) {
        let before = self.journal().decided.len();
        self.wait_until("decisions", |journal, _| journal.decided.len() >= before + more).await;
    }

    /// Waits until all spools are empty, stops the devices, waits until all samples have ended, and checks that no sample is lost.
    async fn finish(mut self) -> JournalContents {
        self.wait_until("empty spools", |_, reports| reports.iter().all(|report| report.counts.spooled == 0))
            .await;
        let mut reports = Vec::new();
        for device in std::mem::take(&mut self.devices) {
            let report = device.shutdown().await;
            assert_eq!(
                (report.counts.lost, report.counts.given_up.len(), report.counts.shed),
                (0, 0, 0),
                "{report:?}"
            );
            reports.push(report);
        }
        // The last samples were sent in time, so all captured samples must end.
        let captured = reports.iter().map(|report| report.counts.captured).max().expect("a device");
        self.wait_until("the last decisions", |journal, _| {
            (journal.decided.len() + journal.dropped.len()) as u64 >= captured
        })
        .await;
        self.services.stop(Service::Leader).await.unwrap();
        let journal = self.journal();
        let closed: BTreeSet<u64> =
            journal.decided.keys().chain(journal.dropped.keys()).map(|sample| sample.0).collect();
        let (first, last) = (closed.first().expect("some"), closed.last().expect("some"));
        // Every id between the first and the last one is in the journal, unless all devices missed the capture.
        let gaps = last - first + 1 - closed.len() as u64;
        let missed = reports.iter().map(|report| report.counts.captures_missed).max().expect("a device");
        assert!(gaps <= missed, "{gaps} gaps between {first} and {last}, {missed} captures missed");
        journal
    }
}

fn late_count(journal: &JournalContents) -> u64 {
    journal.decided.values().filter(|decision| decision.degraded.contains(&Degraded::Late)).count() as u64
}

/// The broker is away twice: when the devices start, and after a kill.
async fn check_outage_of_the_broker(configuration: Configuration) {
    let mut group = OutageGroup::start(configuration).await;
    group.start_devices().await;
    group.wait_for_spools(10).await;
    group.start_broker();
    group.wait_for_decisions(40).await;
    drop(group.broker.take().expect("a broker"));
    group.wait_for_late_captures(LATE_SAMPLES).await;
    group.start_broker();
    group.wait_for_decisions(60).await;
    let journal = group.finish().await;
    assert!(journal.dropped.is_empty(), "{:?}", journal.dropped);
    assert!(late_count(&journal) >= LATE_SAMPLES, "late: {}", late_count(&journal));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_devices_lose_no_sample_while_the_broker_is_away() {
    check_outage_of_the_broker(Configuration::C).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_device_loses_no_sample_while_the_broker_is_away() {
    check_outage_of_the_broker(Configuration::B).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_samples_go_through_an_edge() {
    check_outage_of_the_broker(Configuration::E).await;
}

/// The leader is killed, and starts again after samples have become late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_sample_is_lost_while_the_leader_is_away() {
    let mut group = OutageGroup::start(Configuration::C).await;
    group.start_broker();
    group.start_devices().await;
    group.wait_for_decisions(30).await;
    group.services.kill(Service::Leader).await;
    let open = group.journal().open();
    group.wait_for_late_captures(LATE_SAMPLES).await;
    group.services.start_service(Service::Leader).await.unwrap();
    group.wait_for_decisions(60).await;
    let journal = group.finish().await;
    assert!(journal.dropped.values().all(|reason| *reason == Dropped::Restart), "{:?}", journal.dropped);
    let were_open = |sample| open.contains(sample);
    assert!(journal.dropped.keys().all(were_open), "{:?} were open, {:?} dropped", open, journal.dropped);
    assert!(late_count(&journal) >= LATE_SAMPLES, "late: {}", late_count(&journal));
}
