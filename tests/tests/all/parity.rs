//! A distributed network gives the same answers as the network in one piece: for every shipped sample and exit, single and in batches.

use std::sync::Arc;

use headwater_cloud_service::{CloudConfig, CloudService, EngineChoice};
use headwater_group::start::InProcessSettings;
use headwater_inference::engine::{PackedOrTract, TractEngine};
use headwater_inference::sections::{CloudSection, DeviceSection};
use headwater_inference::whole::Whole;
use headwater_link::QoS;
use headwater_protocol::v2::{FeatureBatch, HEADER_LENGTH, InferRequest, decode_response, encode_request};
use headwater_protocol::{Exit, Slot};
use headwater_tests::group::{client_of, decide_all, ids, shipped_group, start, with_local_threshold};
use headwater_tests::shipped;

/// Tolerance of confidences: for another batch size an engine may add floats in another order. Classes must be equal.
const CONFIDENCE_TOLERANCE: f32 = 1e-4;

/// Samples in flight at once, so that the cloud decides them in batches.
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

/// One HTTP request with many samples returns the same logits as requests with one sample each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_with_many_samples_gives_the_logits_of_single_samples() {
    use http_body_util::{BodyExt, Full};

    const BATCH: usize = 13;
    let (bundle, frames) = (shipped::bundle(), shipped::frames());
    let (engine, slots) = (TractEngine::new(), usize::from(bundle.manifest().slots));
    let mut batch = FeatureBatch { samples: BATCH, features: Vec::new(), presence: Vec::new() };
    let packed = bundle.manifest().features.packed_bytes();
    for sample in 0..BATCH {
        for (slot, view) in Slot::first(slots).zip(shipped::views(&frames, sample)) {
            batch.presence.push(view.is_some());
            let features = view.map(|view| {
                let mut section = DeviceSection::load(&bundle, slot, &engine).expect("the section loads");
                section.run(&view, 1).expect("the view fits").remove(0).features
            });
            batch.features.extend(features.unwrap_or_else(|| vec![0; packed]));
        }
    }
    let mut cloud_section = CloudSection::load(&bundle, &engine).expect("the section loads");
    let single: Vec<f32> = (0..BATCH)
        .flat_map(|sample| {
            let features = &batch.features[sample * slots * packed..][..slots * packed];
            let presence = &batch.presence[sample * slots..][..slots];
            cloud_section.run(1, features, presence).expect("one sample fits").to_vec()
        })
        .collect();

    let mut config = CloudConfig::default();
    config.http.listen = ([127, 0, 0, 1], 0).into();
    config.engine = EngineChoice::Tract;
    let cloud = CloudService::start(config, Arc::clone(&bundle)).await.expect("the cloud starts");
    let request =
        InferRequest { id: None, network: Some(bundle.network_id()), deadline_ms: Some(10_000), batch };
    let (body, head) = encode_request(&request, slots);
    let request = hyper::Request::post(format!("http://{}/v2/models/headwater/infer", cloud.addr()))
        .header(HEADER_LENGTH, head)
        .body(Full::new(bytes::Bytes::from(body)))
        .expect("a sound request");
    let client =
        hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build_http();
    let response = client.request(request).await.expect("the cloud answers");
    assert_eq!(response.status(), 200);
    let head = response.headers().get(HEADER_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
    let body = response.into_body().collect().await.expect("a whole body").to_bytes();
    let answer = decode_response(&body, head, BATCH, bundle.manifest().classes()).expect("an answer of ours");
    for (index, (together, single)) in answer.logits.iter().zip(&single).enumerate() {
        assert!((together - single).abs() <= CONFIDENCE_TOLERANCE, "logit {index}: {together} and {single}");
    }
    cloud.shutdown().await;
}
