//! What a device does with samples while its broker or its leader is away, and in its next life.

#[expect(dead_code, reason = "shared with the other tests of this crate")]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use headwater_end_device::{
    Capture, Device, DeviceConfig, DeviceHandle, DeviceReport, Ended, Source, StdinFormat, StdinFrames,
};
use headwater_inference::bundle::Bundle;
use headwater_inference::manifest::Configuration;
use headwater_inference::policy::{ExitThreshold, Policy, Threshold};
use headwater_inference::testing::TinyNetwork;
use headwater_link::broker::TcpProxy;
use headwater_protocol::{Body, Boot, Kind, SampleId, Slot};
use support::{
    Heard, Leader, NOT_IN_VIEW, PATIENCE, SAMPLES, broker, bundle, config, expected, frames, network,
    scores_bytes,
};
use tokio::time::timeout;

/// A device at the end of a proxy that can be pulled, which captures by the clock and has a folder.
struct Scene {
    leader: Leader,
    proxy: TcpProxy,
    config: DeviceConfig,
    state: tempfile::TempDir,
}

impl Scene {
    async fn of(group: &str) -> Self {
        let leader = Leader::of(group).await;
        let proxy = TcpProxy::to(broker()).await.unwrap();
        let state = tempfile::tempdir().unwrap();
        let mut config = config(group, 0);
        config.broker = proxy.address();
        config.capture = Capture::Clock { period_ms: 10 };
        config.state_dir = Some(state.path().into());
        config.grace_ms = 500;
        Self { leader, proxy, config, state }
    }

    async fn start(&self) -> DeviceHandle {
        Device::start(self.config.clone(), bundle(), frames(0)).await.unwrap()
    }

    /// A device whose broker is away until it has spooled so many samples, and that is killed then; what it captured.
    async fn life_without_a_broker(&self, spooled: u64) -> DeviceReport {
        self.proxy.close();
        let device = self.start().await;
        until(&device, |report| report.spooled >= spooled).await;
        device.kill();
        device.report()
    }

    /// The next life: connected, and captures what it is told to.
    async fn next_life(&mut self, bundle: Arc<Bundle>) -> DeviceHandle {
        self.proxy.open();
        self.config.capture = Capture::Trigger;
        let device = Device::start(self.config.clone(), bundle, frames(0)).await.unwrap();
        timeout(PATIENCE, device.connected()).await.unwrap();
        device
    }

    fn segments(&self) -> usize {
        std::fs::read_dir(self.state.path().join("spool")).unwrap().count()
    }
}

async fn until(device: &DeviceHandle, is_so: impl Fn(&DeviceReport) -> bool) {
    let reached = async {
        while !is_so(&device.report()) {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("{:?}", device.report()));
}

/// The whole id: ids of the clock's are far above the low half.
fn whole_id(heard: &Heard) -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    SampleId::widen(heard.message().header.sample_low, SampleId(now.as_millis() as u64 / 10)).0
}

/// Hears a device until there is no more to hear; settles each sample as the leader would, and notes whether it came late.
async fn hears_and_settles(
    leader: &mut Leader,
    heard: &mut BTreeMap<u64, bool>,
    is_all: impl Fn(&BTreeMap<u64, bool>) -> bool,
) {
    let mut since = None;
    while !is_all(heard) {
        let answer = leader.answer().await;
        let (id, is_late) = (whole_id(&answer), answer.message().header.late);
        match answer.message().body {
            Body::NotInView => assert_eq!(id % SAMPLES, NOT_IN_VIEW),
            body => assert_eq!(body, Body::Summary(&scores_bytes(&expected(id % SAMPLES, 0)))),
        }
        heard.insert(id, is_late);
        if is_late {
            leader.settles(since, id, &[id]);
        } else {
            since.get_or_insert(id);
            leader.settles(since, id, &[]);
        }
    }
}

#[tokio::test]
async fn what_is_captured_before_there_is_a_broker_arrives_late() {
    let mut scene = Scene::of("away-at-start").await;
    scene.proxy.close();
    let device = scene.start().await;
    until(&device, |report| report.spooled >= 20).await;
    assert_eq!(scene.segments(), 1);
    scene.proxy.open();
    let mut heard = BTreeMap::new();
    let is_all = |heard: &BTreeMap<_, _>| heard.len() >= 30 && device.report().spooled == 0;
    hears_and_settles(&mut scene.leader, &mut heard, is_all).await;
    assert!(heard.values().filter(|is_late| **is_late).count() >= 20, "{heard:?}");
    assert_eq!(scene.segments(), 0);
    let report = device.shutdown().await;
    hears_and_settles(&mut scene.leader, &mut heard, |heard| heard.len() as u64 == report.captured).await;
    assert_eq!((report.given_up.len(), report.lost, report.dropped.len()), (0, 0, 0), "{report:?}");
}

#[tokio::test]
async fn nothing_is_lost_while_the_broker_is_away() {
    let mut scene = Scene::of("away-between").await;
    let device = scene.start().await;
    let mut heard = BTreeMap::new();
    for round in 1..4 {
        hears_and_settles(&mut scene.leader, &mut heard, |heard| heard.len() >= 30 * round).await;
        scene.proxy.close();
        until(&device, |report| report.spooled >= 20).await;
        scene.proxy.open();
    }
    let is_all = |heard: &BTreeMap<_, _>| heard.len() >= 150 && device.report().spooled == 0;
    hears_and_settles(&mut scene.leader, &mut heard, is_all).await;
    let report = device.shutdown().await;
    hears_and_settles(&mut scene.leader, &mut heard, |heard| heard.len() as u64 == report.captured).await;
    assert!(heard.values().any(|is_late| *is_late) && report.late_sent > 0);
}

#[tokio::test]
async fn a_late_sample_is_repeated_until_it_is_settled() {
    let mut scene = Scene::of("repeated-late").await;
    let life = scene.life_without_a_broker(3).await;
    let device = scene.next_life(bundle()).await;
    let mut times = BTreeMap::new();
    while times.len() < life.captured as usize || times.values().any(|times| *times < 2) {
        let answer = scene.leader.answer().await;
        assert!(answer.message().header.late);
        *times.entry(whole_id(&answer)).or_insert(0) += 1;
    }
    let all: Vec<u64> = times.into_keys().collect();
    scene.leader.settles(None, 0, &all[1..]);
    until(&device, |report| report.spooled == 1).await;
    scene.leader.settles(Some(0), u64::MAX, &[]);
    scene.leader.settles(None, 0, &all[..1]);
    until(&device, |report| report.spooled == 0).await;
    assert_eq!(scene.segments(), 0);
    assert_eq!(device.shutdown().await.spooled, 0);
}

#[tokio::test]
async fn the_next_life_of_a_killed_device_sends_what_was_spooled_and_answers_requests() {
    let mut scene = Scene::of("killed").await;
    let life = scene.life_without_a_broker(10).await;
    let device = scene.next_life(bundle()).await;
    let boot = device.report().boot;
    assert_ne!(boot, life.boot);
    let mut ids = BTreeSet::new();
    while ids.len() < life.captured as usize {
        let answer = scene.leader.answer().await;
        let header = answer.message().header;
        assert!(header.late && header.boot == boot && header.age_ms > 0, "{header:?}");
        ids.insert(whole_id(&answer));
    }
    let in_view = ids.iter().copied().find(|id| id % SAMPLES != NOT_IN_VIEW).unwrap();
    scene.leader.requests(in_view, 1);
    let features = scene.leader.hears(&["features"]).await;
    assert_eq!(features.message().body, Body::Features(&expected(in_view % SAMPLES, 0).features));
    assert!(features.message().header.late && whole_id(&features) == in_view);
}

#[tokio::test]
async fn without_a_leader_samples_are_sent_late_after_their_time() {
    let mut scene = Scene::of("silent").await;
    scene.config.keep_ms = 200;
    let device = scene.next_life(bundle()).await;
    scene.leader.triggers(1);
    scene.leader.triggers(2);
    let mut came = Vec::new();
    while came.len() < 4 {
        let answer = scene.leader.answer().await;
        let header = answer.message().header;
        assert!(!header.late || header.age_ms >= 200, "{header:?}");
        came.push((header.sample_low, header.late));
    }
    assert_eq!(came, [(1, false), (2, false), (1, true), (2, true)]);
    // They were sent on this connection: the leader is past them.
    scene.leader.settles(Some(1), 1, &[]);
    until(&device, |report| report.spooled == 1).await;
    scene.leader.settles(None, 2, &[2]);
    until(&device, |report| report.spooled == 0).await;
}

#[tokio::test]
async fn what_a_full_spool_has_given_up_is_said_of_each_sample() {
    let mut scene = Scene::of("full").await;
    scene.config.spool_bytes = 8 << 10;
    scene.proxy.close();
    let device = scene.start().await;
    until(&device, |report| report.given_up.get("spool_full").is_some_and(|count| *count >= 5)).await;
    scene.proxy.open();
    let mut gone = BTreeSet::new();
    while gone.len() < 5 {
        let answer = scene.leader.hears(&["summary"]).await;
        if let Body::Gone = answer.message().body {
            assert!(answer.message().header.late);
            let id = whole_id(&answer);
            gone.insert(id);
            scene.leader.settles(None, 0, &[id]);
        }
    }
    let report = device.report();
    assert!(report.spool_bytes <= 8 << 10 && report.lost == 0, "{report:?}");
}

#[tokio::test]
async fn answers_of_another_network_are_given_up_by_the_next_life() {
    let mut scene = Scene::of("other-network").await;
    let life = scene.life_without_a_broker(3).await;
    let other = Arc::new(Bundle::from_bytes(&TinyNetwork { seed: 2, ..network() }.bundle()).unwrap());
    let device = scene.next_life(Arc::clone(&other)).await;
    let mut ids = BTreeSet::new();
    while ids.len() < life.captured as usize {
        let answer = scene.leader.hears(&["summary"]).await;
        let message = answer.message();
        assert_eq!((message.body, message.header.network), (Body::Gone, other.network_id().tag()));
        ids.insert(whole_id(&answer));
    }
    assert_eq!(device.report().given_up, [("other_network", life.captured)].into());
    scene.leader.settles(None, 0, &ids.into_iter().collect::<Vec<_>>());
    until(&device, |report| report.spooled == 0).await;
    assert_eq!(scene.segments(), 0);
}

#[tokio::test]
async fn a_device_that_is_alone_sends_its_decisions_late_and_what_it_is_not_sure_of_with_its_features() {
    for (group, threshold, kinds) in [
        ("late-decided", 1.0, vec![Kind::Decided]),
        ("late-unsure", 0.0, vec![Kind::Summary, Kind::Features]),
    ] {
        let mut policy = Policy::default();
        policy.device.threshold = Threshold::One(ExitThreshold::new(threshold).unwrap());
        let alone = TinyNetwork { policy, ..TinyNetwork::of(Configuration::B) };
        let alone = Arc::new(Bundle::from_bytes(&alone.bundle()).unwrap());
        let mut scene = Scene::of(group).await;
        scene.proxy.close();
        scene.config.state_dir = None;
        let device = Device::start(scene.config.clone(), alone, frames(0)).await.unwrap();
        until(&device, |report| report.spooled >= 10).await;
        scene.proxy.open();
        // Summaries and features have topics of their own, so they may come in any order.
        let mut came = BTreeMap::new();
        while came.len() < kinds.len() || came.values().any(|count| *count < 5) {
            let heard = scene.leader.hears(&["summary", "features", "decision"]).await;
            let (kind, header) = (heard.message().body.kind(), heard.message().header);
            if kind != Kind::NotInView && header.late {
                assert!(kinds.contains(&kind), "{kind:?}");
                *came.entry(kind.name()).or_insert(0) += 1;
            }
        }
    }
}

#[tokio::test]
async fn frames_that_are_samples_are_spooled_on_disk_before_there_is_a_broker() {
    let mut scene = Scene::of("frames-first").await;
    scene.proxy.close();
    let single = TinyNetwork { slots: 1, ..network() };
    let bundle = Arc::new(Bundle::from_bytes(&single.bundle()).unwrap());
    scene.config.capture = Capture::Source;
    let raw = StdinFrames { format: StdinFormat::Rgb24, size: None };
    let input = std::io::Cursor::new(vec![9; 3 * 8 * 8 * 3]);
    let slot = Slot::new(0).unwrap();
    let pipe = Source::of_reader(input, raw, None, slot, &bundle.manifest().preprocessing).unwrap();
    let mut device = Device::start(scene.config.clone(), Arc::clone(&bundle), pipe).await.unwrap();
    assert_eq!(timeout(PATIENCE, device.ended()).await.unwrap(), Ended::Source);
    let report = device.shutdown().await;
    assert_eq!((report.captured, report.spooled, report.dropped.len()), (3, 3, 0), "{report:?}");

    let _device = scene.next_life(bundle).await;
    let mut ids = BTreeSet::new();
    while ids.len() < 3 {
        let answer = scene.leader.answer().await;
        assert!(answer.message().header.late);
        ids.insert(answer.message().header.sample_low);
    }
}

#[tokio::test]
async fn what_was_sent_and_not_settled_at_a_clean_end_is_sent_by_the_next_life() {
    let mut scene = Scene::of("clean-end").await;
    let device = scene.next_life(bundle()).await;
    scene.leader.triggers(1);
    assert!(!scene.leader.answer().await.message().header.late);
    assert_eq!(device.shutdown().await.spooled, 1);
    let _device = scene.next_life(bundle()).await;
    let answer = scene.leader.answer().await;
    let header = answer.message().header;
    assert_eq!((header.sample_low, header.late, header.boot), (1, true, Boot(2)));
}

#[tokio::test]
async fn without_a_spool_what_cannot_be_sent_is_given_up_and_counted() {
    let mut scene = Scene::of("no-spool").await;
    scene.config.spool_bytes = 0;
    scene.proxy.close();
    let device = scene.start().await;
    until(&device, |report| report.dropped.get("away").is_some_and(|count| *count >= 3)).await;
    assert!(!Path::exists(&scene.state.path().join("spool")));
    scene.proxy.open();
    assert!(!scene.leader.answer().await.message().header.late);
}
