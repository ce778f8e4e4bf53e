//! Samples of a device while its broker or its leader is away, and after a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use crate::support::{
    Leader, NOT_IN_VIEW, PATIENCE, SAMPLES, broker, bundle, config, deciding_bundle, expected, frames,
    limits, network, scores_bytes, set_capture, single_bundle, until,
};
use headwater_end_device::{
    Capture, Device, DeviceHandle, DeviceReport, Ended, OpenedDevice, Source, StdinFormat, StdinSettings,
};
use headwater_inference::bundle::Bundle;
use headwater_inference::testing::TinyNetwork;
use headwater_link::testing::TcpProxy;
use headwater_protocol::{Body, Boot, Kind, Session, Slot, frame_details};
use tokio::time::timeout;

/// A device that captures by the clock, has a state folder, and reaches the broker through a proxy that can be closed.
struct DeviceSetup {
    leader: Leader,
    proxy: TcpProxy,
    config: OpenedDevice,
    state: tempfile::TempDir,
}

impl DeviceSetup {
    async fn of(group: &str) -> Self {
        let leader = Leader::of(group).await;
        let proxy = TcpProxy::to(broker()).await.unwrap();
        let state = tempfile::tempdir().unwrap();
        let mut config = config(group, 0);
        config.broker = proxy.address().into();
        set_capture(&mut config, Capture::Clock { period_ms: 10 });
        config.settings.state_dir = Some(state.path().into());
        config.settings.grace_ms = 20_000;
        Self { leader, proxy, config, state }
    }

    async fn start(&self) -> DeviceHandle {
        Device::start(self.config.clone(), bundle(), frames(0)).await.unwrap()
    }

    /// Runs a device without a broker until it has spooled this many samples, and kills it; returns its report.
    async fn run_without_a_broker(&self, spooled: u64) -> DeviceReport {
        self.proxy.close();
        let device = self.start().await;
        until(&device, |report| report.counts.spooled >= spooled).await;
        device.kill();
        device.report()
    }

    /// Starts the device again, connected and capturing by trigger.
    async fn restart(&mut self, bundle: Arc<Bundle>) -> DeviceHandle {
        self.proxy.open();
        set_capture(&mut self.config, Capture::Trigger);
        let device = Device::start(self.config.clone(), bundle, frames(0)).await.unwrap();
        timeout(PATIENCE, device.connected()).await.unwrap();
        device
    }

    fn segments(&self) -> usize {
        std::fs::read_dir(self.state.path().join("spool")).unwrap().count()
    }
}

/// Receives and settles samples until `is_all` holds for `received`, which has each received sample, with true if it came late.
async fn receives_and_settles(
    leader: &mut Leader,
    received: &mut BTreeMap<u64, bool>,
    is_all: impl Fn(&BTreeMap<u64, bool>) -> bool,
) {
    while !is_all(received) {
        let answer = leader.answer().await;
        let (id, is_late) = (answer.message().header.sample.0, answer.message().header.late);
        match answer.message().body {
            Body::NotInView => assert_eq!(id % SAMPLES, NOT_IN_VIEW),
            body => assert_eq!(body, Body::Summary(&scores_bytes(&expected(id % SAMPLES, 0)))),
        }
        received.insert(id, is_late);
        match is_late {
            true => leader.settles(&[], &[id]),
            false => leader.settles(&[(id, id)], &[]),
        }
    }
}

#[tokio::test]
async fn samples_captured_before_there_is_a_broker_arrive_late() {
    let mut setup = DeviceSetup::of("away-at-start").await;
    setup.proxy.close();
    let device = setup.start().await;
    until(&device, |report| report.counts.spooled >= 20).await;
    assert_eq!(setup.segments(), 1);
    setup.proxy.open();
    let mut received = BTreeMap::new();
    let is_all = |received: &BTreeMap<_, _>| received.len() >= 30 && device.report().counts.spooled == 0;
    receives_and_settles(&mut setup.leader, &mut received, is_all).await;
    assert!(received.values().filter(|is_late| **is_late).count() >= 20, "{received:?}");
    assert_eq!(setup.segments(), 0);
    let report = device.shutdown().await;
    receives_and_settles(&mut setup.leader, &mut received, |received| {
        received.len() as u64 == report.counts.captured
    })
    .await;
    assert_eq!(
        (report.counts.given_up.len(), report.counts.lost, report.counts.dropped.len()),
        (0, 0, 0),
        "{report:?}"
    );
}

#[tokio::test]
async fn nothing_is_lost_while_the_broker_is_away() {
    let mut setup = DeviceSetup::of("away-between").await;
    let device = setup.start().await;
    let mut received = BTreeMap::new();
    for round in 1..4 {
        receives_and_settles(&mut setup.leader, &mut received, |received| received.len() >= 30 * round).await;
        setup.proxy.close();
        until(&device, |report| report.counts.spooled >= 20).await;
        setup.proxy.open();
    }
    let is_all = |received: &BTreeMap<_, _>| received.len() >= 150 && device.report().counts.spooled == 0;
    receives_and_settles(&mut setup.leader, &mut received, is_all).await;
    let report = device.shutdown().await;
    receives_and_settles(&mut setup.leader, &mut received, |received| {
        received.len() as u64 == report.counts.captured
    })
    .await;
    assert!(received.values().any(|is_late| *is_late) && report.counts.late_sent > 0);
}

#[tokio::test]
async fn a_late_sample_is_repeated_until_it_is_settled() {
    let mut setup = DeviceSetup::of("repeated-late").await;
    let first = setup.run_without_a_broker(3).await;
    let device = setup.restart(bundle()).await;
    let mut times = BTreeMap::new();
    while times.len() < first.counts.spooled as usize || times.values().any(|times| *times < 2) {
        let (id, is_late) = setup.leader.answered().await;
        assert!(is_late);
        *times.entry(id).or_insert(0) += 1;
    }
    let all: Vec<u64> = times.into_keys().collect();
    setup.leader.settles(&[], &all[1..]);
    until(&device, |report| report.counts.spooled == 1).await;
    setup.leader.settles(&[], &all[..1]);
    until(&device, |report| report.counts.spooled == 0).await;
    assert_eq!(setup.segments(), 0);
    assert_eq!(device.shutdown().await.counts.spooled, 0);
}

#[tokio::test]
async fn a_killed_device_sends_spooled_samples_after_a_restart_and_answers_requests() {
    let mut setup = DeviceSetup::of("killed").await;
    let first = setup.run_without_a_broker(10).await;
    let device = setup.restart(bundle()).await;
    let boot = device.report().boot;
    assert_ne!(boot, first.boot);
    let session = Session::of_boot(bundle().network_id(), boot);
    let mut ids = BTreeSet::new();
    while ids.len() < first.counts.spooled as usize {
        let answer = setup.leader.answer().await;
        let header = answer.message().header;
        assert!(header.late && header.session == session && header.age_ms > 0, "{header:?}");
        ids.insert(answer.message().header.sample.0);
    }
    let in_view = ids.iter().copied().find(|id| id % SAMPLES != NOT_IN_VIEW).unwrap();
    setup.leader.requests(in_view, 1);
    let features = setup.leader.receives(&["features"]).await;
    assert_eq!(features.message().body, Body::Features(&expected(in_view % SAMPLES, 0).features));
    assert!(features.message().header.late && features.message().header.sample.0 == in_view);
}

#[tokio::test]
async fn without_a_leader_samples_are_sent_late_after_their_time() {
    let mut setup = DeviceSetup::of("silent").await;
    setup.config.settings.keep_ms = 1000;
    let device = setup.restart(bundle()).await;
    setup.leader.triggers(1);
    setup.leader.triggers(2);
    // On a busy machine the first sample may come late, even twice, before the second sample comes.
    let mut came: BTreeMap<u64, Vec<bool>> = BTreeMap::new();
    while came.len() < 2 || came.values().any(|times| times.len() < 2) {
        let answer = setup.leader.answer().await;
        let header = answer.message().header;
        assert!(!header.late || header.age_ms >= 1000, "{header:?}");
        came.entry(header.sample.0).or_default().push(header.late);
    }
    assert!(came.values().all(|times| times.iter().position(|is_late| *is_late) == Some(1)), "{came:?}");
    setup.leader.settles(&[(1, 1)], &[]);
    until(&device, |report| report.counts.spooled == 1).await;
    setup.leader.settles(&[], &[2]);
    until(&device, |report| report.counts.spooled == 0).await;
}

#[tokio::test]
async fn each_sample_that_a_full_spool_gives_up_is_reported() {
    let mut setup = DeviceSetup::of("full").await;
    setup.config.settings.spool.max_bytes = 8 << 10;
    setup.proxy.close();
    let device = setup.start().await;
    until(&device, |report| report.counts.given_up.get("spool_full").is_some_and(|count| *count >= 5)).await;
    setup.proxy.open();
    let mut gone = BTreeSet::new();
    while gone.len() < 5 {
        let answer = setup.leader.receives(&["summary"]).await;
        if let Body::Gone = answer.message().body {
            assert!(answer.message().header.late);
            let id = answer.message().header.sample.0;
            gone.insert(id);
            setup.leader.settles(&[], &[id]);
        }
    }
    let report = device.report();
    assert!(report.counts.spool_bytes <= 8 << 10 && report.counts.lost == 0, "{report:?}");
}

#[tokio::test]
async fn answers_of_another_network_are_given_up_after_a_restart() {
    let mut setup = DeviceSetup::of("other-network").await;
    let first = setup.run_without_a_broker(3).await;
    let other = Arc::new(Bundle::from_bytes(&TinyNetwork { seed: 2, ..network() }.bundle()).unwrap());
    let device = setup.restart(Arc::clone(&other)).await;
    let mut ids = BTreeSet::new();
    while ids.len() < first.counts.spooled as usize {
        let answer = setup.leader.receives(&["summary"]).await;
        let message = answer.message();
        assert_eq!(
            (message.body, message.header.session),
            (Body::Gone, Session::of_boot(other.network_id(), device.report().boot))
        );
        ids.insert(answer.message().header.sample.0);
    }
    assert_eq!(device.report().counts.given_up, [("other_network", first.counts.spooled)].into());
    setup.leader.settles(&[], &ids.into_iter().collect::<Vec<_>>());
    until(&device, |report| report.counts.spooled == 0).await;
    assert_eq!(setup.segments(), 0);
}

#[tokio::test]
async fn a_device_that_is_alone_sends_late_decisions_and_late_summaries_with_features() {
    for (group, threshold, kinds) in [
        ("late-decided", 1.0, vec![Kind::Decided]),
        ("late-unsure", 0.0, vec![Kind::Summary, Kind::Features]),
    ] {
        let alone = deciding_bundle(threshold);
        let mut setup = DeviceSetup::of(group).await;
        setup.proxy.close();
        setup.config.settings.state_dir = None;
        let device = Device::start(setup.config.clone(), alone, frames(0)).await.unwrap();
        until(&device, |report| report.counts.spooled >= 10).await;
        setup.proxy.open();
        // Summaries and features have separate topics, so they may come in any order.
        let mut came = BTreeMap::new();
        while came.len() < kinds.len() || came.values().any(|count| *count < 5) {
            let received = setup.leader.receives(&["summary", "features", "decision"]).await;
            let (kind, header) = (received.message().body.kind(), received.message().header);
            if kind != Kind::NotInView && header.late {
                assert!(kinds.contains(&kind), "{kind:?}");
                *came.entry(kind.name()).or_insert(0) += 1;
            }
        }
    }
}

#[tokio::test]
async fn frames_that_are_samples_are_spooled_on_disk_before_there_is_a_broker() {
    let mut setup = DeviceSetup::of("frames-first").await;
    setup.proxy.close();
    let bundle = single_bundle();
    set_capture(&mut setup.config, Capture::Source);
    // No leader settles the samples, so the device waits for the whole grace period at its end.
    setup.config.settings.grace_ms = 500;
    let raw = StdinSettings { format: StdinFormat::Rgb24, size: Some([8, 8]) };
    let input = std::io::Cursor::new(vec![9; 3 * 8 * 8 * 3]);
    let slot = Slot::new(0).unwrap();
    let pipe = Source::of_reader(input, raw, slot, &bundle.manifest().preprocessing).unwrap();
    let mut device = Device::start(setup.config.clone(), Arc::clone(&bundle), pipe).await.unwrap();
    assert_eq!(timeout(PATIENCE, device.ended()).await.unwrap(), Ended::Source);
    let report = device.shutdown().await;
    assert_eq!(
        (report.counts.captured, report.counts.spooled, report.counts.dropped.len()),
        (3, 3, 0),
        "{report:?}"
    );

    let _device = setup.restart(bundle).await;
    let mut ids = BTreeSet::new();
    while ids.len() < 3 {
        let (id, is_late) = setup.leader.answered().await;
        assert!(is_late);
        ids.insert(id);
    }
}

#[tokio::test]
async fn samples_not_settled_at_a_clean_end_are_sent_after_a_restart() {
    let mut setup = DeviceSetup::of("clean-end").await;
    let device = setup.restart(bundle()).await;
    setup.leader.gets(1).await;
    assert_eq!(device.shutdown().await.counts.spooled, 1);
    let _device = setup.restart(bundle()).await;
    let answer = setup.leader.answer().await;
    let header = answer.message().header;
    assert_eq!(
        (header.sample.0, header.late, header.session),
        (1, true, Session::of_boot(bundle().network_id(), Boot(2)))
    );
}

#[tokio::test]
async fn without_a_spool_samples_that_cannot_be_sent_are_dropped_and_counted() {
    let mut setup = DeviceSetup::of("no-spool").await;
    setup.config.settings.spool.max_bytes = 0;
    setup.proxy.close();
    let device = setup.start().await;
    until(&device, |report| report.counts.dropped.get("away").is_some_and(|count| *count >= 3)).await;
    assert!(!Path::exists(&setup.state.path().join("spool")));
    setup.proxy.open();
    // The leader learns of each sample: a sample that could not be sent is reported as given up.
    let (mut gone, mut in_time) = (BTreeSet::new(), 0);
    while gone.len() < 3 || in_time == 0 {
        let answer = setup.leader.answer().await;
        match answer.message().header.late {
            true => {
                assert_eq!(answer.message().body, Body::Gone);
                gone.insert(answer.message().header.sample.0);
            }
            false => in_time += 1,
        }
    }
    let report = device.report();
    assert!(report.counts.given_up.get("spool_full").is_some_and(|count| *count >= 3), "{report:?}");
    assert!(!Path::exists(&setup.state.path().join("spool")));
}

#[tokio::test]
async fn a_late_answer_still_names_its_frame() {
    let mut setup = DeviceSetup::of("away-named").await;
    setup.config.settings.name_frames = true;
    setup.run_without_a_broker(3).await;
    let _device = setup.restart(bundle()).await;
    let named = loop {
        let answer = setup.leader.answer().await;
        if answer.message().body != Body::NotInView {
            break answer;
        }
        assert_eq!(frame_details(&answer.payload, &limits()), None);
    };
    let header = named.message().header;
    let index = header.sample.0 % SAMPLES;
    let details = frame_details(&named.payload, &limits()).expect("a name");
    assert!(header.late);
    assert_eq!((details.frame, details.file), (index, &*format!("{index:05}/cam0.png")));
}

#[tokio::test]
async fn answers_of_another_slot_are_set_aside_and_never_sent() {
    let mut setup = DeviceSetup::of("other-slot").await;
    setup.run_without_a_broker(5).await;
    setup.proxy.open();
    setup.config.settings.slot = Slot::new(1).unwrap();
    set_capture(&mut setup.config, Capture::Trigger);
    let device = Device::start(setup.config.clone(), bundle(), frames(1)).await.unwrap();
    timeout(PATIENCE, device.connected()).await.unwrap();
    let report = device.report();
    assert_eq!((report.counts.spooled, report.counts.segments_of_others), (0, 1), "{report:?}");
    setup.leader.gets(1).await;
    assert!(setup.state.path().join("spool/00000001.seg.other-1").is_file());
}
