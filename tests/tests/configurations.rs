//! Every configuration, live over a broker and HTTP: what the tiers answer is what the same network answers in one piece. The
//! networks are made up (weights from a seed), their thresholds put where about half of the samples leave.

use std::collections::BTreeSet;

use headwater_inference::bundle::Bundle;
use headwater_inference::engine::TractEngine;
use headwater_inference::manifest::{Aggregation, Configuration, FeatureEncoding};
use headwater_inference::policy::{ExitThreshold, Policy, Threshold};
use headwater_inference::testing::TinyNetwork;
use headwater_inference::whole::{Whole, WholeAnswer};
use headwater_protocol::{Degraded, Dropped, Exit, SampleId, View};
use headwater_tests::shipped;
use headwater_tests::tiers::Plan;

/// Shipped samples that are run.
const SAMPLES: usize = 60;
/// Samples in flight at once.
const IN_FLIGHT: usize = 8;

/// A network of the configuration for the shipped frames: six slots, or the first alone.
fn network(configuration: Configuration) -> TinyNetwork {
    let slots = if configuration.has(Exit::Device) { 1 } else { 6 };
    let edges = match configuration {
        Configuration::D => vec![vec![0]],
        Configuration::E => vec![(0..6).collect()],
        Configuration::F => vec![vec![0, 2, 4], vec![1, 3, 5]],
        _ => Vec::new(),
    };
    let policy = Policy { window_ms: 10_000, features_ms: 10_000, deadline_ms: 20_000, ..Policy::default() };
    TinyNetwork { slots, edges, classes: 10, view: [3, 32, 32], policy, ..TinyNetwork::of(configuration) }
}

/// What the network says of each sample, in one piece.
fn in_one_piece(network: &TinyNetwork) -> Vec<WholeAnswer> {
    let frames = shipped::frames();
    let bundle = Bundle::from_bytes(&network.bundle()).expect("a sound bundle");
    let mut whole = Whole::load(&bundle, &TractEngine::new()).expect("the network loads");
    (0..SAMPLES)
        .map(|sample| {
            let views = shipped::views(&frames, sample);
            let views: Vec<_> = views.iter().take(usize::from(network.slots)).map(Option::as_deref).collect();
            whole.run(&[views]).expect("the sample fits").remove(0)
        })
        .collect()
}

/// The thresholds in front of the cloud at the middle of what the exits say.
fn with_thresholds(mut network: TinyNetwork) -> TinyNetwork {
    let answers = in_one_piece(&network);
    for &exit in network.configuration.exits().iter().filter(|exit| **exit != Exit::Cloud) {
        let policy = network.policy.of_mut(exit);
        let seen = answers.iter().filter(|answer| answer.presence.present_count() > 0);
        let mut unsure: Vec<f32> =
            seen.filter_map(|answer| policy.uncertainty(answer.logits.of(exit))).collect();
        unsure.sort_by(f32::total_cmp);
        let middle = ExitThreshold::new(unsure[unsure.len() / 2]).expect("in [0, 1]");
        policy.threshold = Threshold::One(middle);
    }
    network
}

async fn check(network: TinyNetwork) {
    let network = with_thresholds(network);
    let expected = in_one_piece(&network);
    let bundle = Bundle::from_bytes(&network.bundle()).expect("a sound bundle");
    let tiers = Plan::of(bundle).start().await;
    let mut observer = tiers.observer().await;
    // The frames of a sample are those of its id, modulo their number.
    let first = 9 * shipped::frames().len() as u64;
    let ids: Vec<_> = (0..SAMPLES as u64).map(|sample| SampleId(first + sample)).collect();
    for chunk in ids.chunks(IN_FLIGHT) {
        for &sample in chunk {
            observer.trigger(sample).await;
        }
        observer.decisions(chunk).await;
    }
    let decisions: Vec<_> = observer.decisions(&ids).await.into_values().collect();
    observer.assert_no_contradiction();
    let configuration = network.configuration.letter();
    for (index, (expected, found)) in expected.iter().zip(&decisions).enumerate() {
        let what = format!("({configuration}) sample {index}: {found:?}");
        if expected.presence.present_count() > 0 {
            assert!(found.degraded.is_empty(), "{what}");
        } else {
            assert_eq!(found.degraded, [Degraded::NoView], "{what}");
        }
        assert_eq!((found.exit, found.class), (expected.exit, expected.class), "{what}");
        assert!((found.confidence - expected.confidence).abs() <= 1e-5, "{what}");
        assert_eq!(found.presence, expected.presence, "{what}");
    }
    for exit in network.configuration.exits() {
        assert!(
            decisions.iter().any(|decision| decision.exit == *exit),
            "({configuration}) none left at {exit:?}"
        );
    }
    tiers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_without_a_section_send_their_views_to_the_cloud() {
    for cloud in [Aggregation::Mp, Aggregation::Cc] {
        check(TinyNetwork { cloud, ..network(Configuration::A) }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_is_alone_decides_or_sends_all_at_once() {
    for encoding in [FeatureEncoding::Bits, FeatureEncoding::F32] {
        check(TinyNetwork { encoding, ..network(Configuration::B) }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_an_edge_and_the_cloud() {
    for encoding in [FeatureEncoding::Bits, FeatureEncoding::F32] {
        check(TinyNetwork { encoding, ..network(Configuration::D) }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_devices_one_edge_and_the_cloud() {
    for local in [Aggregation::Ap, Aggregation::Cc] {
        check(TinyNetwork { local, ..network(Configuration::E) }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_devices_several_edges_and_the_cloud() {
    for fusion in [Aggregation::Mp, Aggregation::Cc] {
        check(TinyNetwork { edge: [Aggregation::Cc, fusion], ..network(Configuration::F) }).await;
    }
}

/// Either edge of (f) killed and restarted, then the leader: every sample is decided or dropped with its reason, none twice, and the slots
/// of an edge that is away are missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edges_and_then_the_leader_are_killed_and_come_back() {
    let mut network = network(Configuration::F);
    // Nothing leaves before the edges, so that every sample needs them; everything leaves there.
    network.policy.local.threshold = Threshold::One(ExitThreshold::NEVER);
    network.policy.edge.threshold = Threshold::One(ExitThreshold::ALWAYS);
    let bundle = Bundle::from_bytes(&network.bundle()).expect("a sound bundle");
    let groups = bundle.manifest().edge.as_ref().expect("edges").groups.clone();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plan = Plan { journal: Some(folder.path().join("journal.jsonl")), ..Plan::of(bundle) };
    let mut tiers = plan.start().await;
    let mut observer = tiers.observer().await;
    let first = 11 * shipped::frames().len() as u64;
    let mut next = first;
    for (edge, group) in groups.iter().enumerate() {
        for is_there in [true, false, true] {
            match (is_there, tiers.edges[edge].is_some()) {
                (false, true) => tiers.kill_edge(edge).await,
                (true, false) => {
                    tiers.start_edge(edge).await;
                    tiers.until_filled().await;
                }
                _ => {}
            }
            let ids: Vec<_> = (next..next + 10).map(SampleId).collect();
            next += 10;
            for &sample in &ids {
                observer.trigger(sample).await;
            }
            for decision in observer.decisions(&ids).await.values() {
                let views = |slots: &[_], view| {
                    slots.iter().filter(|slot| decision.presence.get(**slot) == view).count()
                };
                let missing = views(group, View::Missing);
                if is_there {
                    assert_eq!(missing, 0, "{decision:?}");
                } else if decision.exit == Exit::Edge {
                    assert_eq!(views(group, View::Present), 0, "{decision:?}");
                    let others = decision.presence.present_count();
                    assert!(others > 0 && (missing == 0) == decision.degraded.is_empty(), "{decision:?}");
                }
            }
        }
    }
    let all: Vec<_> = (first..next).map(SampleId).collect();
    assert_eq!(observer.decisions(&all).await.len(), all.len());

    // The leader, in the middle of samples: what it had decided is said again unchanged, what was open is dropped as `restart`.
    let ids: Vec<_> = (next..next + 40).map(SampleId).collect();
    for &sample in &ids[..30] {
        observer.trigger(sample).await;
    }
    observer.decisions(&ids[..3]).await;
    tiers = tiers.restart_leader().await;
    for &sample in &ids[30..] {
        observer.trigger(sample).await;
    }
    observer.decisions(&ids[30..]).await;
    let last = ids[ids.len() - 1];
    let settled = observer.settled_when(|settled| settled.highest >= last).await;
    let heard: BTreeSet<_> = observer.heard.iter().map(|decision| decision.sample).collect();
    let dropped: u64 = settled.dropped.values().sum();
    assert_eq!(settled.decided, heard.len() as u64, "{settled:?}");
    assert!(settled.decided + dropped <= (all.len() + ids.len()) as u64, "{settled:?}");
    assert!(settled.dropped.keys().all(|reason| *reason == Dropped::Restart), "{settled:?}");
    observer.assert_no_contradiction();
    tiers.shutdown().await;
}
