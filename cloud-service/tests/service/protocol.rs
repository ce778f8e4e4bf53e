//! Open Inference Protocol v2: metadata, health, inference in both forms, and every refusal by its code.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use headwater_protocol::NetworkId;
use headwater_protocol::v2::{HEADER_LENGTH, InferRequest};
use serde_json::json;

use crate::calls::{CLASSES, Direct, PACKED, SLOTS, batch, infer, infer_json, request};

fn json_request(seed: u8, samples: usize) -> serde_json::Value {
    let batch = batch(seed, samples);
    json!({
        "id": "j",
        "inputs": [
            { "name": "presence", "datatype": "BOOL", "shape": [samples, SLOTS], "data": batch.presence },
            { "name": "features", "datatype": "UINT8", "shape": [samples, SLOTS, PACKED], "data": batch.features },
        ],
    })
}

#[tokio::test]
async fn binary_requests_get_the_logits_of_the_section() {
    let cloud = Direct::new().await;
    for samples in [1, 2, 7] {
        let answer = cloud.infer(9, samples).await;
        assert_eq!(answer.logits(samples), cloud.expected(9, samples), "{samples} samples");
    }
}

#[tokio::test]
async fn json_requests_get_the_same_logits_as_json() {
    let cloud = Direct::new().await;
    let answer = cloud.ask(infer_json(json_request(4, 2).to_string())).await;
    assert_eq!(answer.head_bytes, None);
    assert_eq!(answer.logits(2), cloud.expected(4, 2));
    let json = answer.json();
    assert_eq!((&json["id"], &json["model_name"]), (&json!("j"), &json!("headwater")));
    assert_eq!(json["outputs"][0]["shape"], json!([2, CLASSES]));
}

#[tokio::test]
async fn server_model_and_health_have_metadata() {
    let cloud = Direct::new().await;
    assert_eq!(cloud.get("/v2").await.json()["extensions"], json!(["binary_tensor_data"]));
    assert_eq!(cloud.get("/v2/health/live").await.status, StatusCode::OK);
    assert_eq!(cloud.get("/v2/health/ready").await.status, StatusCode::OK);
    assert_eq!(cloud.get("/v2/models/headwater/ready").await.status, StatusCode::OK);
    let metadata = cloud.get("/v2/models/headwater").await.json();
    assert_eq!(metadata["inputs"][0]["shape"], json!([-1, SLOTS, PACKED]));
    assert_eq!(metadata["outputs"][0]["shape"], json!([-1, CLASSES]));
    assert_eq!(metadata["parameters"]["network"], json!(cloud.bundle.network_id().to_string()));
}

#[tokio::test]
async fn an_unknown_model_or_endpoint_is_not_found() {
    let cloud = Direct::new().await;
    for path in
        ["/v2/models/other", "/v2/models/%ff", "/v2/models/other/ready", "/v3", "/v2/models/headwater/infer"]
    {
        cloud.get(path).await.is_refused(404, "not_found");
    }
    // The second path is percent-encoded, but not UTF-8.
    for path in ["/v2/models/other/infer", "/v2/models/%ff/infer"] {
        let (mut parts, body) = infer(&request(1, 1)).map(Body::from).into_parts();
        parts.uri = path.parse().unwrap();
        cloud.ask(Request::from_parts(parts, body)).await.is_refused(404, "not_found");
    }
}

#[tokio::test]
async fn features_of_another_network_are_refused() {
    let cloud = Direct::new().await;
    let ours = InferRequest { network: Some(cloud.bundle.network_id()), ..request(1, 1) };
    assert_eq!(cloud.ask(infer(&ours).map(Body::from)).await.status, StatusCode::OK);
    let theirs = InferRequest { network: Some(NetworkId([9; 32])), ..request(1, 1) };
    cloud.ask(infer(&theirs).map(Body::from)).await.is_refused(409, "wrong_network");
}

#[tokio::test]
async fn bodies_that_do_not_fit_are_refused_with_the_reason() {
    let cloud = Direct::new().await;
    for body in ["", "{", "[]", "{}", r#"{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}"#]
    {
        cloud.ask(infer_json(body)).await.is_refused(400, "malformed");
    }
    let mut wrong_shape = json_request(1, 1);
    wrong_shape["inputs"][1]["shape"] = json!([1, SLOTS, PACKED + 1]);
    cloud.ask(infer_json(wrong_shape.to_string())).await.is_refused(400, "malformed");
    let truncated = infer(&request(1, 1)).map(|body| Body::from(body.slice(..body.len() - 1)));
    cloud.ask(truncated).await.is_refused(400, "malformed");
    let mut unreadable = infer(&request(1, 1)).map(Body::from);
    unreadable.headers_mut().insert(HEADER_LENGTH, "many".parse().unwrap());
    cloud.ask(unreadable).await.is_refused(400, "malformed");
    assert_eq!(cloud.state.report().requests["malformed"], 8);
    assert_eq!(cloud.infer(1, 1).await.status, StatusCode::OK, "works on");
}

#[tokio::test]
async fn a_sample_without_a_present_slot_is_refused_at_once() {
    let cloud = Direct::new().await;
    let mut unseen = request(1, 2);
    unseen.batch.presence[SLOTS..].fill(false);
    let answer = cloud.ask(infer(&unseen).map(Body::from)).await;
    answer.is_refused(400, "malformed");
    assert!(answer.json()["error"].as_str().unwrap().contains("sample 1"));
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_unread() {
    let cloud = Direct::new().await;
    let max = 64;
    assert_eq!(cloud.infer(1, max).await.status, StatusCode::OK);
    assert_eq!(cloud.ask(infer_json(json_request(200, max).to_string())).await.status, StatusCode::OK);
    cloud.infer(1, max + 1).await.is_refused(400, "malformed");
    cloud.ask(infer_json("x".repeat(10_000_000))).await.is_refused(413, "oversize");
    let chunks = Body::new(Endless);
    cloud.ask(infer_json(chunks)).await.is_refused(413, "oversize");
}

/// A body without a length and without an end.
struct Endless;

impl hyper::body::Body for Endless {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Self::Data>, Self::Error>>> {
        let chunk = bytes::Bytes::from_static(&[b' '; 4096]);
        std::task::Poll::Ready(Some(Ok(hyper::body::Frame::data(chunk))))
    }
}

#[tokio::test]
async fn metrics_name_requests_samples_batches_and_times() {
    let cloud = Direct::new().await;
    cloud.infer(1, 3).await;
    cloud.get("/v2/models/other").await;
    let answer = cloud.get("/metrics").await;
    let text = std::str::from_utf8(&answer.body).unwrap();
    let network = format!("generation=\"current\",network=\"{}\"", cloud.bundle.network_id().short());
    for line in [
        "headwater_cloud_requests_total{code=\"ok\"} 1",
        &format!("headwater_cloud_samples_total{{{network}}} 3"),
        &format!("headwater_cloud_batches_total{{{network}}} 1"),
        "headwater_cloud_ready 1",
        &format!("headwater_cloud_stage_duration_seconds_count{{{network},stage=\"model\"}} 1"),
        &format!("headwater_cloud_max_batch_samples{{{network}}} 3"),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
}
