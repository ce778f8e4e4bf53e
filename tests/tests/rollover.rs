//! A group changes its network one device at a time, live over broker and HTTP: no sample is lost, every decision is right for the network
//! it names and the slots it had, and none is made twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headwater_inference::bundle::Bundle;
use headwater_inference::engine::TractEngine;
use headwater_inference::manifest::Configuration;
use headwater_inference::policy::Policy;
use headwater_inference::testing::TinyNetwork;
use headwater_inference::whole::Whole;
use headwater_protocol::{Decision, Degraded, NetworkId, SampleId, Slot};
use headwater_tests::shipped;
use headwater_tests::tiers::Plan;

/// Samples between two devices.
const SAMPLES: u64 = 20;

/// Networks of six slots that differ in their weights and in the shape of their maps.
fn network(configuration: Configuration, seed: u64) -> TinyNetwork {
    let edges = match configuration {
        Configuration::F => vec![vec![0, 2, 4], vec![1, 3, 5]],
        _ => Vec::new(),
    };
    // The window of a sample is short, so that devices of the other network are not waited for.
    let policy = Policy { window_ms: 300, features_ms: 5_000, deadline_ms: 10_000, ..Policy::default() };
    TinyNetwork {
        slots: 6,
        edges,
        classes: 10,
        view: [3, 32, 32],
        policy,
        seed,
        filters: 3 + seed as u32,
        ..TinyNetwork::of(configuration)
    }
}

/// What a network in one piece says of a sample, of the slots that a decision had.
fn expected(whole: &mut Whole, decision: &Decision) -> (u16, f32) {
    let frames = shipped::frames();
    let views = shipped::views(&frames, (decision.sample.0 % frames.len() as u64) as usize);
    let views: Vec<_> = Slot::first(6)
        .zip(&views)
        .map(|(slot, view)| view.as_deref().filter(|_| decision.presence.is_present(slot)))
        .collect();
    let answer = whole.run(&[views]).expect("the sample fits").remove(0);
    let logits = answer.logits.of(decision.exit);
    let policy = Policy::default();
    let assessment = policy.of(decision.exit).assess(logits, decision.presence.present_count());
    (assessment.class, assessment.confidence)
}

async fn check(configuration: Configuration) {
    let [current, next] = [1, 2].map(|seed| {
        Arc::new(Bundle::from_bytes(&network(configuration, seed).bundle()).expect("a sound bundle"))
    });
    let mut wholes: BTreeMap<NetworkId, Whole> = [&current, &next]
        .into_iter()
        .map(|bundle| {
            (bundle.network_id(), Whole::load(bundle, &TractEngine::new()).expect("the network loads"))
        })
        .collect();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plan = Plan {
        bundle: Arc::clone(&current),
        next: Some(Arc::clone(&next)),
        policy: current.policy().clone(),
        journal: Some(folder.path().join("journal.jsonl")),
        ..Plan::default()
    };
    let mut tiers = plan.start().await;
    let mut observer = tiers.observer().await;
    let frames = shipped::frames();
    let first = 13 * frames.len() as u64;
    let mut id = first;
    let mut networks = BTreeSet::new();
    for round in 0..=7u8 {
        match round {
            0 => {}
            7 => tiers = tiers.only_next().await,
            _ => tiers.switch_device(Slot::new(round - 1).expect("one of six"), &frames).await,
        }
        let ids: Vec<_> = (id..id + SAMPLES).map(SampleId).collect();
        id += SAMPLES;
        for chunk in ids.chunks(4) {
            for &sample in chunk {
                observer.trigger(sample).await;
            }
            observer.decisions(chunk).await;
        }
        for decision in observer.decisions(&ids).await.values() {
            let what = format!("{configuration:?} round {round}: {decision:?}");
            networks.insert(decision.network);
            match round {
                0 => assert_eq!(decision.network, current.network_id(), "{what}"),
                6 | 7 => assert_eq!(decision.network, next.network_id(), "{what}"),
                _ => {}
            }
            // Devices of the other network are missing, and nobody else.
            let others = match (round, decision.network == next.network_id()) {
                (0 | 7, _) => 0,
                (_, true) => 6 - u32::from(round),
                (_, false) => u32::from(round),
            };
            assert_eq!(decision.presence.missing_count(), others, "{what}");
            if decision.presence.present_count() == 0 {
                assert_eq!(decision.degraded, [Degraded::NoView], "{what}");
                continue;
            }
            assert!(decision.degraded.is_empty(), "{what}");
            let (class, confidence) =
                expected(wholes.get_mut(&decision.network).expect("one of the two"), decision);
            assert_eq!(decision.class, class, "{what}");
            assert!((decision.confidence - confidence).abs() <= 1e-5, "{what}: {confidence}");
        }
    }
    assert_eq!(networks.len(), 2, "both networks decided");
    let settled = observer.settled_when(|settled| settled.highest.0 + 1 >= id).await;
    assert_eq!((settled.decided, settled.dropped.len()), (id - first, 0), "{settled:?}");
    observer.assert_no_contradiction();
    tiers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_devices_change_their_network_one_by_one() {
    check(Configuration::C).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_do_those_of_several_edges() {
    check(Configuration::F).await;
}
