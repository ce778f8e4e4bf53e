//! Real parts for the tests: a broker, a tiny network, frames, and a leader that the test controls.

pub(crate) mod source;

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use headwater_end_device::{
    Capture, CaptureWord, Device, DeviceError, DeviceHandle, DeviceReport, Frames, OpenedDevice, Sent, Source,
};
use headwater_inference::bundle::Bundle;
use headwater_inference::engine::TractEngine;
use headwater_inference::manifest::Configuration;
use headwater_inference::policy::{ExitThreshold, Policy, Threshold};
use headwater_inference::sections::{DeviceSection, TierOutput};
use headwater_inference::testing::TinyNetwork;
use headwater_link::broker::EmbeddedBroker;
use headwater_link::{Endpoint, Incoming, Link, LinkConfig, QoS};
use headwater_protocol::{
    Birth, Body, Boot, DeviceId, DeviceState, DeviceTopic, Exit, GroupId, Header, Kind, Limits, Message,
    NetworkId, SampleId, Session, Settled, SettledNotice, SiteId, Slot, SlotSet, Status, Topic, Topics,
    decode, encode,
};
use headwater_samples::archive::{Archive, ArchiveWriter, FrameFormat, Labels};
use headwater_samples::{SampleViews, Shape, View};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Longest wait of a test; only a failing test waits so long, also on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Number of samples in the frames of the tests.
pub(crate) const SAMPLES: u64 = 8;

/// The sample that no slot has in view.
pub(crate) const NOT_IN_VIEW: u64 = 5;

/// The broker that all tests of this binary share; each test has groups of its own.
pub(crate) fn broker() -> Endpoint {
    static BROKER: OnceLock<EmbeddedBroker> = OnceLock::new();
    BROKER.get_or_init(|| EmbeddedBroker::start().expect("a broker on a free port")).address()
}

pub(crate) fn network() -> TinyNetwork {
    TinyNetwork::default()
}

pub(crate) fn bundle() -> Arc<Bundle> {
    Arc::new(Bundle::from_bytes(&network().bundle()).expect("a bundle as written"))
}

pub(crate) fn single() -> TinyNetwork {
    TinyNetwork { slots: 1, ..network() }
}

pub(crate) fn single_bundle() -> Arc<Bundle> {
    Arc::new(Bundle::from_bytes(&single().bundle()).expect("a bundle as written"))
}

/// A network of configuration (b), whose device decides at this threshold.
pub(crate) fn deciding_bundle(threshold: f32) -> Arc<Bundle> {
    let mut policy = Policy::default();
    policy.of_mut(Exit::DEVICE).threshold = Threshold::One(ExitThreshold::new(threshold).expect("in [0, 1]"));
    let network = TinyNetwork { policy, ..TinyNetwork::of(Configuration::B) };
    Arc::new(Bundle::from_bytes(&network.bundle()).expect("a bundle as written"))
}

/// The view of a slot and a sample, before it is stored in an archive; `None` for [`NOT_IN_VIEW`].
pub(crate) fn view(sample: u64, slot: usize) -> Option<Vec<u8>> {
    (sample != NOT_IN_VIEW).then(|| network().view_of(sample * 100 + slot as u64))
}

/// Writes the frames of every slot to one archive.
pub(crate) fn write_frames(path: &Path) {
    let [channels, height, width] = network().view.map(|side| side as usize);
    let shape = Shape { channels, height, width };
    let slots = usize::from(network().slots);
    let mut writer = ArchiveWriter::new(Labels::new("made up", slots, shape, &["a", "b"]), FrameFormat::Png);
    for sample in 0..SAMPLES {
        let views = (0..slots).map(|slot| view(sample, slot).map(|pixels| View::new(shape, pixels)));
        writer.push(&SampleViews { label: None, views: views.collect() }).expect("views of the shape");
    }
    let bytes = writer.finish(Vec::new()).expect("samples that fit");
    std::fs::write(path, bytes).expect("a writable folder");
}

/// Output of the section for a sample.
pub(crate) fn expected(sample: u64, slot: u8) -> TierOutput {
    let slot = Slot::new(slot).expect("below 64");
    let mut section = DeviceSection::load(&bundle(), slot, &TractEngine::new()).expect("the section");
    let view = view(sample, slot.index()).expect("a sample in view");
    section.run(&view, 1).expect("one view").remove(0)
}

pub(crate) fn scores_bytes(output: &TierOutput) -> Vec<u8> {
    output.scores.iter().flat_map(|score| score.to_le_bytes()).collect()
}

pub(crate) fn config(group: &str, slot: u8) -> OpenedDevice {
    let group = GroupId::new(group).expect("a valid name");
    let id = DeviceId::new(format!("cam-{slot}")).expect("a valid name");
    let site = SiteId::new("test").expect("a valid name");
    let mut config = OpenedDevice::new(site, group, id, Slot::new(slot).expect("below 64"), broker());
    // On a busy machine no answer is sent late merely because its time in memory is over.
    config.settings.keep_ms = 600_000;
    config
}

/// Sets the cause of a capture, and the period of the clock.
pub(crate) fn set_capture(config: &mut OpenedDevice, capture: Capture) {
    let (word, period_ms) = match capture {
        Capture::Trigger => (CaptureWord::Trigger, None),
        Capture::Clock { period_ms } => (CaptureWord::Clock, Some(period_ms)),
        Capture::Source => (CaptureWord::Source, None),
    };
    config.settings.capture = word;
    config.settings.period_ms = period_ms;
}

/// The frames of one slot, written to an archive and read again.
pub(crate) fn frames(slot: u8) -> Frames {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("frames.tar.gz");
    write_frames(&path);
    let archive = Archive::open(&path).expect("frames as written");
    Frames::of_archive(Arc::new(archive), Slot::new(slot).expect("below 64")).expect("it has samples")
}

pub(crate) fn sent_of(report: &DeviceReport, kind: Kind) -> Sent {
    report.counts.sent.get(kind.name()).copied().unwrap_or_default()
}

/// A device that is connected.
pub(crate) async fn started(config: OpenedDevice) -> DeviceHandle {
    let frames = frames(u8::from(config.settings.slot));
    let device = Device::start(config, bundle(), frames).await.expect("a device that fits");
    timeout(PATIENCE, device.connected()).await.expect("connected in time");
    device
}

/// A leader, and a connected device of a slot, in a group of their own.
pub(crate) async fn leader_and_device(group: &str, slot: u8) -> (Leader, DeviceHandle) {
    (Leader::of(group).await, started(config(group, slot)).await)
}

pub(crate) async fn refusal(
    config: OpenedDevice,
    bundle: Arc<Bundle>,
    source: impl Into<Source>,
) -> DeviceError {
    Device::start(config, bundle, source).await.err().expect("a refusal")
}

/// Waits until `is_so` holds for the device's report.
pub(crate) async fn until(device: &DeviceHandle, is_so: impl Fn(&DeviceReport) -> bool) {
    let reached = async {
        while !is_so(&device.report()) {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("{:?}", device.report()));
}

/// A leader that the test controls: it triggers, requests, settles, and receives the messages of every device of the group.
pub(crate) struct Leader {
    pub(crate) link: Link,
    pub(crate) topics: Topics,
    pub(crate) network: NetworkId,
    incoming: mpsc::Receiver<Incoming>,
}

/// A message of a device: the last level of its topic, and its payload.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) leaf: String,
    pub(crate) payload: Bytes,
}

impl Leader {
    pub(crate) async fn of(group: &str) -> Self {
        let config = config(group, 0);
        let topics = Topics::new(&config.settings.site, &config.settings.group);
        let mut link = LinkConfig::new(broker(), format!("leader-{group}"));
        for leaf in [
            DeviceTopic::Status,
            DeviceTopic::Birth,
            DeviceTopic::Summary,
            DeviceTopic::Features,
            DeviceTopic::Decision,
        ] {
            link = link.subscribe(topics.every_device(leaf), QoS::AtLeastOnce);
        }
        let (link, mut incoming) = Link::start(link).expect("valid settings");
        let first = timeout(PATIENCE, incoming.recv()).await.expect("connected in time");
        assert_eq!(first, Some(Incoming::Connected));
        Self { link, topics, network: bundle().network_id(), incoming }
    }

    pub(crate) fn triggers(&self, sample: u64) {
        let sample = SampleId(sample);
        self.publishes(&Topic::Trigger, self.message(sample, Body::Trigger));
    }

    /// Requests the features of the slots whose bits are set in `mask`.
    pub(crate) fn requests(&self, sample: u64, mask: u64) {
        self.publishes(
            &Topic::Request,
            self.message(SampleId(sample), Body::Request(SlotSet::from_bits(mask))),
        );
    }

    /// Settles these ranges of samples, both ends included, and these late samples.
    pub(crate) fn settles(&self, closed: &[(u64, u64)], late: &[u64]) {
        self.settles_and_allows(None, closed, late);
    }

    /// Settles samples, and allows answers to wait for `batch_ms` for a common message; `None` if the leader reads no batches.
    pub(crate) fn settles_and_allows(&self, batch_ms: Option<u32>, closed: &[(u64, u64)], late: &[u64]) {
        let closed: Vec<_> = closed.iter().map(|(first, last)| (SampleId(*first), SampleId(*last))).collect();
        let highest = closed.iter().map(|(_, last)| *last).max().unwrap_or_default();
        let notice = SettledNotice {
            account: Settled { highest, ..Settled::default() },
            late: late.iter().map(|id| SampleId(*id)).collect(),
            closed,
            batch_ms,
            ..SettledNotice::default()
        };
        self.publishes(&Topic::Settled, serde_json::to_vec(&notice).expect("JSON"));
    }

    pub(crate) fn publishes(&self, topic: &Topic, payload: Vec<u8>) {
        let sent = self.link.publish(self.topics.name(topic), payload, QoS::AtLeastOnce, false);
        sent.expect("connected");
    }

    pub(crate) fn message(&self, sample: SampleId, body: Body<'_>) -> Vec<u8> {
        let header = Header::to_group(Session::of_network(self.network), sample);
        let mut payload = Vec::new();
        encode(&Message { header, body }, &limits(), &mut payload).expect("a message of ours");
        payload
    }

    /// The next message of any device on these topics (last levels); other messages are skipped.
    pub(crate) async fn receives(&mut self, leaves: &[&str]) -> Received {
        loop {
            let event = timeout(PATIENCE, self.incoming.recv()).await.expect("nothing arrived in time");
            let Incoming::Message { topic, payload, .. } = event.expect("the link lives") else { continue };
            let leaf = topic.rsplit('/').next().unwrap_or_default().to_owned();
            if leaves.contains(&leaf.as_str()) {
                return Received { leaf, payload };
            }
        }
    }

    /// The next summary or features message.
    pub(crate) async fn answer(&mut self) -> Received {
        self.receives(&["summary", "features"]).await
    }

    /// The sample of the next summary or features message, and true if the message is marked late.
    pub(crate) async fn answered(&mut self) -> (u64, bool) {
        let answer = self.answer().await;
        let header = answer.message().header;
        (header.sample.0, header.late)
    }

    /// Triggers a sample and waits for its answer in time.
    pub(crate) async fn gets(&mut self, sample: u64) {
        self.triggers(sample);
        assert_eq!(self.answered().await, (sample, false));
    }

    pub(crate) async fn birth(&mut self) -> Birth {
        serde_json::from_slice(&self.receives(&["birth"]).await.payload).expect("a birth")
    }

    /// The reason in the next status for which samples are not answered: a frozen, dark or covered camera; `None` if the status has no reason.
    pub(crate) async fn frozen(&mut self) -> Option<String> {
        let status = self.receives(&["status"]).await;
        serde_json::from_slice::<Status>(&status.payload).expect("a status").frozen
    }

    /// State and boot of the next status.
    pub(crate) async fn status(&mut self) -> (DeviceState, Boot) {
        let status = self.receives(&["status"]).await;
        let Status { state, boot, .. } = serde_json::from_slice(&status.payload).expect("a status");
        (state, boot)
    }
}

impl Received {
    pub(crate) fn message(&self) -> Message<'_> {
        decode(&self.payload, &limits()).expect("a message of ours")
    }
}

pub(crate) fn limits() -> Limits {
    let manifest = network().manifest();
    manifest.limits()
}
