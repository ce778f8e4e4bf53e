//! Every configuration, live over a broker and HTTP: the tiers together give the same answers as the whole network in one piece. The
//! networks have random weights, and thresholds at which about half of the samples leave at each exit.

use std::collections::BTreeSet;

use headwater_group::start::Service;
use headwater_inference::engine::TractEngine;
use headwater_inference::manifest::{Aggregation, Configuration, FeatureEncoding};
use headwater_inference::policy::{ExitThreshold, Policy, Threshold};
use headwater_inference::testing::TinyNetwork;
use headwater_inference::whole::{Whole, WholeAnswer};
use headwater_protocol::{Degraded, Dropped, EdgeIndex, Exit, ScoreEncoding, SlotPresence};
use headwater_tests::group::{
    WAIT_LIMIT, bundle, client_of, decide_all, embedded_broker, group_at, ids, patient, start,
};
use headwater_tests::shipped;
use headwater_tests::waits::Waits;

/// Number of shipped samples that are decided.
const SAMPLES: usize = 60;
/// Samples in flight at once.
const IN_FLIGHT: usize = 8;

/// A network of the configuration that fits the shipped frames: with six slots, or one if a device decides alone.
fn network(configuration: Configuration) -> TinyNetwork {
    let slots = if configuration.has(Exit::DEVICE) { 1 } else { 6 };
    let edges = match configuration {
        Configuration::D => vec![vec![0]],
        Configuration::E => vec![(0..6).collect()],
        Configuration::F => vec![vec![0, 2, 4], vec![1, 3, 5]],
        _ => Vec::new(),
    };
    let policy = patient(Policy::default());
    TinyNetwork { slots, edges, classes: 10, view: [3, 32, 32], policy, ..TinyNetwork::of(configuration) }
}

/// Answers of the network in one piece to each sample.
fn whole_answers(network: &TinyNetwork) -> Vec<WholeAnswer> {
    let frames = shipped::frames();
    let mut whole = Whole::load(&bundle(&network.bundle()), &TractEngine::new()).expect("the network loads");
    (0..SAMPLES)
        .map(|sample| {
            let views = shipped::views(&frames, sample);
            let views: Vec<_> = views.iter().take(usize::from(network.slots)).map(Option::as_deref).collect();
            whole.run(&[views]).expect("the sample fits").remove(0)
        })
        .collect()
}

/// Sets each threshold before the cloud to the median uncertainty of its exit.
fn with_thresholds(mut network: TinyNetwork) -> TinyNetwork {
    let answers = whole_answers(&network);
    for &exit in network.configuration.exits().iter().filter(|exit| **exit != Exit::CLOUD) {
        let policy = network.policy.of_mut(exit);
        let seen = answers.iter().filter(|answer| answer.presence.present_count() > 0);
        let mut unsure: Vec<f32> = seen.filter_map(|answer| policy.uncertainty(answer.input(exit))).collect();
        unsure.sort_by(f32::total_cmp);
        let middle = ExitThreshold::new(unsure[unsure.len() / 2]).expect("in [0, 1]");
        policy.threshold = Threshold::One(middle);
    }
    network
}

async fn check(network: TinyNetwork) {
    let network = with_thresholds(network);
    let expected = whole_answers(&network);
    let group = start(group_at(embedded_broker(), bundle(&network.bundle()))).await;
    let mut client = client_of(&group).await;
    // The id of a sample, modulo the number of frames, picks the frames: these ids begin with frame 0.
    let samples = ids(9 * shipped::frames().len() as u64, SAMPLES as u64);
    let decisions = decide_all(&mut client, &samples, IN_FLIGHT).await;
    let configuration = network.configuration.letter();
    for (index, (expected, found)) in expected.iter().zip(&decisions).enumerate() {
        let what = format!("({configuration}) sample {index}: {found:?}");
        if expected.presence.present_count() > 0 {
            assert!(found.degraded.is_empty(), "{what}");
        } else {
            assert_eq!(found.degraded, [Degraded::NoView], "{what}");
        }
        let class = (expected.presence.present_count() > 0).then_some(expected.class);
        assert_eq!((found.exit, found.class), (expected.exit, class), "{what}");
        assert!((found.confidence - expected.confidence).abs() <= 1e-5, "{what}");
        assert_eq!(found.presence, expected.presence, "{what}");
    }
    for exit in network.configuration.exits() {
        assert!(
            decisions.iter().any(|decision| decision.exit == *exit),
            "({configuration}) none left at {exit:?}"
        );
    }
    group.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configuration_a_sends_views_to_the_cloud() {
    for cloud in [Aggregation::Mp, Aggregation::Cc] {
        check(TinyNetwork { cloud, ..network(Configuration::A) }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configuration_b_decides_on_the_device_or_sends_everything_at_once() {
    for encoding in [FeatureEncoding::Bits, FeatureEncoding::F32] {
        check(TinyNetwork { encoding, ..network(Configuration::B) }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configuration_d_has_a_device_an_edge_and_the_cloud() {
    for encoding in [FeatureEncoding::Bits, FeatureEncoding::F32] {
        check(TinyNetwork { encoding, ..network(Configuration::D) }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configuration_e_has_several_devices_one_edge_and_the_cloud() {
    for local in [Aggregation::Ap, Aggregation::Cc] {
        check(TinyNetwork { local, ..network(Configuration::E) }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configuration_f_has_several_devices_several_edges_and_the_cloud() {
    for fusion in [Aggregation::Mp, Aggregation::Cc] {
        check(TinyNetwork { edge: [Aggregation::Cc, fusion], ..network(Configuration::F) }).await;
    }
}

/// With scores in levels and coded maps: the leader decides from the same rounded values as the network in one piece.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coded_scores_and_maps_give_the_answers_of_the_whole_network() {
    use Configuration::{B, C, D, E, F};
    for (configuration, scores) in [
        (B, ScoreEncoding::Bits6),
        (C, ScoreEncoding::Bits4),
        (D, ScoreEncoding::Bits8),
        (E, ScoreEncoding::Bits3),
        (F, ScoreEncoding::Bits4),
    ] {
        check(TinyNetwork { scores, codes_maps: true, ..network(configuration) }).await;
    }
}

/// In configuration f, each edge is killed and restarted, then the leader. Each sample is decided or dropped once. While an edge is
/// killed, its slots are missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edges_and_then_the_leader_are_killed_and_restarted() {
    let mut network = network(Configuration::F);
    // No sample leaves before the edges, and every sample that reaches an edge leaves there.
    network.policy.of_mut(Exit::LOCAL).threshold = Threshold::One(ExitThreshold::ONLY_CERTAIN);
    network.policy.of_mut(Exit::EDGE).threshold = Threshold::One(ExitThreshold::ALWAYS);
    let bundle = bundle(&network.bundle());
    let edge_slots = bundle.manifest().edge.as_ref().expect("edges").groups.clone();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut settings = group_at(embedded_broker(), bundle);
    settings.site.journal = Some(folder.path().join("journal.jsonl"));
    let mut group = start(settings).await;
    let mut client = client_of(&group).await;
    let first = 11 * shipped::frames().len() as u64;
    let mut next = first;
    for (edge, slots) in EdgeIndex::first(edge_slots.len()).zip(&edge_slots) {
        for is_running in [true, false, true] {
            match (is_running, group.is_running(Service::Edge(edge))) {
                (false, true) => group.kill(Service::Edge(edge)).await,
                (true, false) => group.start_service(Service::Edge(edge)).await.unwrap(),
                (true, true) | (false, false) => {}
            }
            group.wait_until_ready(WAIT_LIMIT).await.unwrap();
            let samples = ids(next, 10);
            next += 10;
            for decision in decide_all(&mut client, &samples, 10).await {
                let views = |view| slots.iter().filter(|slot| decision.presence.get(**slot) == view).count();
                let missing = views(SlotPresence::Missing);
                if is_running {
                    assert_eq!(missing, 0, "{decision:?}");
                } else if decision.exit == Exit::EDGE {
                    assert_eq!(views(SlotPresence::Present), 0, "{decision:?}");
                    let others = decision.presence.present_count();
                    assert!(others > 0 && (missing == 0) == decision.degraded.is_empty(), "{decision:?}");
                }
            }
        }
    }

    // The leader is killed between samples: it must publish earlier decisions again unchanged, and decide or drop open samples.
    let before = next - first;
    let samples = ids(next, 40);
    for &sample in &samples[..30] {
        client.trigger(sample).await.unwrap();
    }
    client.wait_for_decisions(&samples[..3]).await.unwrap();
    group.kill(Service::Leader).await;
    group.start_service(Service::Leader).await.unwrap();
    group.wait_until_ready(WAIT_LIMIT).await.unwrap();
    decide_all(&mut client, &samples[30..], 10).await;
    let last = samples[samples.len() - 1];
    let settled = client.wait_for_settled(|settled| settled.highest >= last).await.unwrap();
    let decided: BTreeSet<_> = client.account().decisions().map(|decision| decision.sample).collect();
    let dropped: u64 = settled.dropped.values().sum();
    assert_eq!(settled.decided, decided.len() as u64, "{settled:?}");
    assert!(settled.decided + dropped <= before + samples.len() as u64, "{settled:?}");
    let is_named = |reason: &Dropped| matches!(reason, Dropped::Restart | Dropped::Unanswered);
    assert!(settled.dropped.keys().all(is_named), "{settled:?}");
    assert_eq!(client.account().contradicted_count(), 0);
    group.shutdown().await.unwrap();
}
