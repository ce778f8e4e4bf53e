//! Configuration (f) as real processes over a real Mosquitto: either edge, then the leader, killed with SIGKILL and started again.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use headwater_inference::bundle::Bundle;
use headwater_inference::manifest::Configuration;
use headwater_inference::policy::{ExitThreshold, Policy, Threshold};
use headwater_inference::testing::TinyNetwork;
use headwater_protocol::{Dropped, Exit, SampleId, Slot, Topics, View};
use headwater_tests::account::Account;
use headwater_tests::observer::{Observer, PATIENCE};
use headwater_tests::process::mosquitto;
use headwater_tests::programs::Programs;
use headwater_tests::tiers::names;
use tokio::time::{Instant, interval, sleep};

/// Between triggers.
const PERIOD: Duration = Duration::from_millis(20);

/// Six slots, two edges; nothing leaves in front of the cloud, so that every sample takes the whole way. Waits that no busy test machine
/// reaches.
fn network() -> TinyNetwork {
    let mut policy =
        Policy { window_ms: 2_000, features_ms: 2_000, deadline_ms: 15_000, ..Policy::default() };
    policy.local.threshold = Threshold::One(ExitThreshold::NEVER);
    policy.edge.threshold = Threshold::One(ExitThreshold::NEVER);
    let edges = vec![vec![0, 2, 4], vec![1, 3, 5]];
    TinyNetwork {
        slots: 6,
        edges,
        classes: 10,
        view: [3, 32, 32],
        policy,
        ..TinyNetwork::of(Configuration::F)
    }
}

/// Ids of samples that nobody has had.
fn fresh(last: SampleId, samples: u64) -> Vec<SampleId> {
    let ids: Range<u64> = last.0 + 1..last.0 + 1 + samples;
    ids.map(SampleId).collect()
}

/// Waits until the leader has opened all of them.
async fn until_opened(journal: &Path, samples: &[SampleId]) {
    let until = Instant::now() + PATIENCE;
    while !samples.iter().all(|sample| Account::read(journal).opened.contains(sample)) {
        assert!(Instant::now() < until, "samples not opened in {PATIENCE:?}");
        sleep(Duration::from_millis(10)).await;
    }
}

async fn triggers(observer: &Observer, samples: &[SampleId]) {
    let mut ticks = interval(PERIOD);
    for &sample in samples {
        ticks.tick().await;
        observer.trigger(sample).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edges_and_then_the_leader_are_killed_with_sigkill_and_come_back() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_mosquitto, broker) = mosquitto(folder.path());
    let (file, bytes) = (folder.path().join("f.hwb"), network().bundle());
    std::fs::write(&file, &bytes).expect("the folder can be written");
    let bundle = Bundle::from_bytes(&bytes).expect("a sound bundle");
    let groups = &bundle.manifest().edge.as_ref().expect("edges").groups;

    let programs = Programs::new(file, broker.clone(), folder.path());
    let cloud = programs.cloud();
    let mut edges: Vec<_> = (0..groups.len()).map(|edge| Some(programs.edge(edge))).collect();
    let mut leader = programs.leader();
    let _devices: Vec<_> = Slot::first(6).map(|slot| programs.device(slot)).collect();
    let (site, group) = names();
    let mut observer = Observer::connect(broker, Topics::new(&site, &group), bundle.network_id()).await;
    let mut last = observer.until_whole(SampleId(1000)).await;

    // Samples that were triggered while the leader was there.
    let mut seen = Vec::new();
    for (edge, slots) in groups.iter().enumerate() {
        let ids = fresh(last, 60);
        triggers(&observer, &ids[..20]).await;
        edges[edge].take().expect("a running edge").kill();
        triggers(&observer, &ids[20..40]).await;
        // The last of them has been through without the edge before it comes back.
        let alone = observer.decisions(&ids[20..40]).await;
        let is_missing = |slot: &Slot| alone[&ids[39]].presence.get(*slot) != View::Present;
        assert!(slots.iter().all(is_missing), "edge {edge}: {:?}", alone[&ids[39]]);
        assert!(alone.values().any(|decision| decision.presence.present_count() > 0), "edge {edge}");
        edges[edge] = Some(programs.edge(edge));
        triggers(&observer, &ids[40..]).await;
        assert_eq!(observer.decisions(&ids).await.len(), ids.len(), "edge {edge}");
        seen.extend(&ids);
        last = observer.until_whole(SampleId(last.0 + 1000)).await;
    }

    // In a burst, and while samples wait for the cloud: what was decided stays so, what was open is dropped as `restart`.
    let burst = fresh(last, 40);
    triggers(&observer, &burst[..20]).await;
    for &sample in &burst[20..] {
        observer.trigger(sample).await;
    }
    observer.decisions(&burst[..22]).await;
    leader.kill();
    leader = programs.leader();
    seen.extend(&burst[..22]);
    last = observer.until_whole(SampleId(last.0 + 1000)).await;

    let decided = fresh(last, 10);
    triggers(&observer, &decided).await;
    let decisions = observer.decisions(&decided).await;
    assert!(decisions.values().any(|decision| decision.exit == Exit::Cloud), "{decisions:?}");
    cloud.pause();
    let open = fresh(decided[9], 10);
    triggers(&observer, &open).await;
    until_opened(programs.journal(), &open).await;
    leader.kill();
    cloud.resume();
    let _leader = programs.leader();
    seen.extend(decided.iter().chain(&open));
    last = observer.until_whole(SampleId(last.0 + 1000)).await;

    let settled = observer.settled_when(|settled| settled.highest >= last).await;
    observer.assert_no_contradiction();
    let heard: BTreeSet<_> = observer.heard.iter().map(|decision| decision.sample).collect();
    let Account { opened, decided, dropped } = Account::read(programs.journal());
    let decided: BTreeSet<_> = decided.into_keys().collect();
    assert_eq!(heard, decided, "what was journalled was published");
    assert!(dropped.values().all(|reason| *reason == Dropped::Restart), "{dropped:?}");
    let dropped: BTreeSet<_> = dropped.into_keys().collect();
    assert!(decided.is_disjoint(&dropped), "{dropped:?}");
    assert_eq!(&decided | &dropped, opened, "each sample that was opened came to one end");
    assert!(seen.iter().all(|sample| opened.contains(sample)), "triggered, and not opened");
    assert!(dropped.is_superset(&open.iter().copied().collect()), "{dropped:?}");
    assert_eq!(settled.decided, decided.len() as u64, "{settled:?}");
    assert_eq!(settled.dropped, [(Dropped::Restart, dropped.len() as u64)].into(), "{settled:?}");
}
