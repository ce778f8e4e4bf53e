//! The distributed answer is the answer of the same network in one piece: every shipped sample, every exit, alone and in batches.

use std::sync::Arc;

use headwater_inference::engine::TractEngine;
use headwater_inference::sections::{CloudSection, DeviceSection};
use headwater_inference::whole::Whole;
use headwater_link::QoS;
use headwater_protocol::v2::{FeatureBatch, HEADER_LENGTH, InferRequest, decode_response, encode_request};
use headwater_protocol::{Decision, Exit, SampleId, Slot};
use headwater_tests::shipped;
use headwater_tests::tiers::{Plan, start_cloud};

/// Engines may add floats in another order for another batch size; classes and bits must be equal all the same.
const CONFIDENCE_TOLERANCE: f32 = 1e-4;

/// Samples in flight at once, so that the cloud batches.
const IN_FLIGHT: usize = 16;

struct Expected {
    exit: Exit,
    class: u16,
    confidence: f32,
}

fn in_one_piece(plan: &Plan) -> Vec<Expected> {
    let whole = Whole::load(&plan.bundle, &TractEngine::new()).expect("the network loads");
    let mut whole = whole.with_policy(plan.policy.clone());
    (0..plan.frames.len())
        .map(|sample| {
            let views = shipped::views(&plan.frames, sample);
            let views: Vec<_> = views.iter().map(Option::as_deref).collect();
            let answer = whole.run(&[views]).expect("the sample fits").remove(0);
            Expected { exit: answer.exit, class: answer.class, confidence: answer.confidence }
        })
        .collect()
}

async fn distributed(plan: Plan) -> Vec<Decision> {
    let count = plan.frames.len();
    let tiers = plan.start().await;
    let mut observer = tiers.observer().await;
    let first = 7 * count as u64;
    let ids: Vec<_> = (0..count as u64).map(|sample| SampleId(first + sample)).collect();
    for chunk in ids.chunks(IN_FLIGHT) {
        for &sample in chunk {
            observer.trigger(sample).await;
        }
        observer.decisions(chunk).await;
    }
    let decisions = observer.decisions(&ids).await.into_values().collect();
    observer.assert_no_contradiction();
    tiers.shutdown().await;
    decisions
}

async fn check(plan: Plan, must_see: &[Exit]) {
    let expected = in_one_piece(&plan);
    let decisions = distributed(plan).await;
    for (index, (expected, decision)) in expected.iter().zip(&decisions).enumerate() {
        assert!(decision.degraded.is_empty(), "sample {index}: {decision:?}");
        assert_eq!(decision.presence.missing_count(), 0, "sample {index}");
        assert_eq!((decision.exit, decision.class), (expected.exit, expected.class), "sample {index}");
        let apart = (decision.confidence - expected.confidence).abs();
        assert!(apart <= CONFIDENCE_TOLERANCE, "sample {index}: confidence apart by {apart}");
    }
    for exit in must_see {
        assert!(decisions.iter().any(|decision| decision.exit == *exit), "no sample left at {exit:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_shipped_policy() {
    check(Plan::default(), &[Exit::Local, Exit::Cloud]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_everything_goes_to_the_cloud() {
    check(Plan::default().threshold(0.0), &[Exit::Cloud]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_everything_leaves_locally_at_qos_1() {
    check(Plan { qos: QoS::AtLeastOnce, ..Plan::default().threshold(1.0) }, &[Exit::Local]).await;
}

/// One HTTP request of many samples gives each the logits it gets alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_requests_in_one_is_each_of_them_alone() {
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
    let alone: Vec<f32> = (0..BATCH)
        .flat_map(|sample| {
            let features = &batch.features[sample * slots * packed..][..slots * packed];
            let presence = &batch.presence[sample * slots..][..slots];
            cloud_section.run(1, features, presence).expect("one sample fits").to_vec()
        })
        .collect();

    let cloud = start_cloud(Arc::clone(&bundle)).await;
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
    for (index, (together, alone)) in answer.logits.iter().zip(&alone).enumerate() {
        assert!((together - alone).abs() <= CONFIDENCE_TOLERANCE, "logit {index}: {together} and {alone}");
    }
    cloud.shutdown().await;
}
