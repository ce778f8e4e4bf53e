//! A distributed network gives the same answers as the network in one piece, for every shipped sample and at every exit.

use headwater_group::start::InProcessSettings;
use headwater_inference::engine::PackedOrTract;
use headwater_inference::whole::Whole;
use headwater_link::QoS;
use headwater_protocol::Exit;
use headwater_tests::group::{
    client_of, decide_all, group_at, ids, shipped_group, start, with_local_threshold,
};
use headwater_tests::other_programs::mosquitto;
use headwater_tests::shipped;

/// Tolerance of confidences, since an engine may add floats in another order at another batch size. Classes must be equal.
const CONFIDENCE_TOLERANCE: f32 = 1e-4;

/// Number of samples in flight at once, so that the cloud decides them in batches.
const IN_FLIGHT: usize = 16;

struct Expected {
    exit: Exit,
    class: u16,
    confidence: f32,
}

fn answers_of_the_whole_network(settings: &InProcessSettings) -> Vec<Expected> {
    let whole = Whole::load(settings.networks.current(), &PackedOrTract).expect("the network loads");
    let mut whole = whole.with_policy(settings.policy.clone().expect("a policy"));
    (0..settings.frames.len())
        .map(|sample| {
            let views = shipped::views(&settings.frames, sample);
            let views: Vec<_> = views.iter().map(Option::as_deref).collect();
            let answer = whole.run(&[views]).expect("the sample fits").remove(0);
            Expected { exit: answer.exit, class: answer.class, confidence: answer.confidence }
        })
        .collect()
}

async fn check(settings: InProcessSettings, exits: &[Exit]) {
    let expected = answers_of_the_whole_network(&settings);
    let group = start(settings).await;
    let mut client = client_of(&group).await;
    let count = expected.len() as u64;
    let decisions = decide_all(&mut client, &ids(7 * count, count), IN_FLIGHT).await;
    group.shutdown().await.unwrap();
    for (index, (expected, decision)) in expected.iter().zip(&decisions).enumerate() {
        assert!(decision.degraded.is_empty(), "sample {index}: {decision:?}");
        assert_eq!(decision.presence.missing_count(), 0, "sample {index}");
        assert_eq!(
            (decision.exit, decision.class.unwrap()),
            (expected.exit, expected.class),
            "sample {index}"
        );
        let difference = (decision.confidence - expected.confidence).abs();
        assert!(difference <= CONFIDENCE_TOLERANCE, "sample {index}: confidences differ by {difference}");
    }
    for exit in exits {
        assert!(decisions.iter().any(|decision| decision.exit == *exit), "no sample left at {exit:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_equal_under_the_shipped_policy() {
    check(shipped_group(), &[Exit::LOCAL, Exit::CLOUD]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_equal_when_all_samples_go_to_the_cloud() {
    check(with_local_threshold(shipped_group(), 0.0), &[Exit::CLOUD]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_equal_when_all_samples_leave_locally_at_qos_1() {
    let mut settings = with_local_threshold(shipped_group(), 1.0);
    settings.site.qos = QoS::AtLeastOnce;
    check(settings, &[Exit::LOCAL]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_equal_over_mosquitto_at_qos_1() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_mosquitto, broker) = mosquitto(folder.path());
    let mut settings = group_at(broker, shipped::bundle());
    settings.site.qos = QoS::AtLeastOnce;
    check(settings, &[Exit::LOCAL, Exit::CLOUD]).await;
}
