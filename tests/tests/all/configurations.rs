//! Every configuration, live over a broker and HTTP: the tiers together give the same answers as the whole network in one piece. The
//! networks have random weights, and the threshold of each exit is the median uncertainty of the samples at this exit.

use headwater_inference::engine::TractEngine;
use headwater_inference::manifest::{Aggregation, Configuration, FeatureEncoding};
use headwater_inference::policy::{ExitThreshold, Threshold};
use headwater_inference::testing::TinyNetwork;
use headwater_inference::whole::{Whole, WholeAnswer};
use headwater_protocol::{Degraded, Exit, ScoreEncoding};
use headwater_tests::group::{bundle, client_of, decide_all, embedded_broker, group_at, ids, network, start};
use headwater_tests::shipped;

/// Number of shipped samples that are decided.
const SAMPLES: usize = 60;
/// Number of samples in flight at once.
const IN_FLIGHT: usize = 8;

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
    // The frames of a sample have the index `id` modulo the number of frames, so these samples begin with index 0.
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

/// The scores are rounded to levels and the maps are coded: the leader decides from the same rounded values as the network in one piece.
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
