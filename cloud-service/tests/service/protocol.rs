//! Open Inference Protocol v2: metadata, health, inference in both forms, and every refusal by its code.

use std::io::Read;

use axum::body::Body;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{Request, StatusCode};
use bytes::Bytes;
use flate2::Compression;
use flate2::read::{GzEncoder, ZlibEncoder};
use headwater_cloud_service::app;
use headwater_protocol::v2::{HEADER_LENGTH, InferRequest};
use headwater_protocol::{Fault, NetworkId};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio_util::io::ReaderStream;
use tower::ServiceExt;

use crate::calls::{Answer, CLASSES, Direct, PACKED, SLOTS, batch, infer, infer_json, request};

fn json_request(seed: u8, samples: usize) -> Value {
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
    let extensions = json!(["binary_tensor_data", "classification", "model_repository", "statistics"]);
    assert_eq!(cloud.get("/v2").await.json()["extensions"], extensions);
    assert_eq!(cloud.get("/v2/health/live").await.status, StatusCode::OK);
    assert_eq!(cloud.get("/v2/health/ready").await.status, StatusCode::OK);
    assert_eq!(cloud.get("/v2/models/headwater/ready").await.status, StatusCode::OK);
    assert_eq!(cloud.get("/v2/models/headwater/versions/1/ready").await.status, StatusCode::OK);
    let metadata = cloud.get("/v2/models/headwater").await.json();
    assert_eq!(cloud.get("/v2/models/headwater/versions/1").await.json(), metadata);
    assert_eq!(metadata["versions"], json!(["1"]));
    assert_eq!(metadata["inputs"][0]["shape"], json!([-1, SLOTS, PACKED]));
    assert_eq!(metadata["outputs"][0]["shape"], json!([-1, CLASSES]));
    // There is no next network.
    assert_eq!(metadata["parameters"], json!({ "network": cloud.bundle.network_id().to_string() }));
}

#[tokio::test]
async fn an_unknown_model_or_endpoint_is_not_found() {
    let cloud = Direct::new().await;
    for path in [
        "/v2/models/other",
        "/v2/models/%ff",
        "/v2/models/other/ready",
        "/v2/models/other/stats",
        "/v2/models/headwater/versions/2",
        "/v2/models/headwater/versions/2/ready",
        "/v2/models/headwater/versions/%ff/stats",
        "/v3",
        "/v2/logging",
        "/v2/models/headwater/config",
        "/v2/models/headwater/trace/setting",
    ] {
        cloud.get(path).await.is_refused(404, "not_found");
    }
    for path in ["/v2/", "//v2", "/v2/models/headwater/"] {
        let error = cloud.get(path).await.json()["error"].to_string();
        assert!(error.contains(path) && error.contains("leave out the extra slash"), "{error}");
    }
    let long = cloud.get(&format!("/v2/{}", "x".repeat(5000))).await.json()["error"].to_string();
    assert!(long.len() < 200, "{long}");
    assert_eq!(cloud.get("/v2/models/head%77ater").await.status, StatusCode::OK);
    // The name in the second path is percent-encoded, but not UTF-8.
    for path in ["/v2/models/other/infer", "/v2/models/%ff/infer", "/v2/models/headwater/versions/2/infer"] {
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
    let unreadable = cloud.ask(unreadable).await;
    unreadable.is_refused(400, "malformed");
    assert!(unreadable.json()["error"].to_string().contains("a whole number, found \\\"many\\\""));
    assert_eq!(cloud.state.report().requests["malformed"], 8);
    assert_eq!(cloud.infer(1, 1).await.status, StatusCode::OK, "works on");
}

#[tokio::test]
async fn an_endpoint_of_another_method_names_its_methods() {
    let cloud = Direct::new().await;
    for (request, allowed) in [
        (Request::get("/v2/models/headwater/infer"), "POST"),
        (Request::get("/v2/repository/index"), "POST"),
        (Request::post("/v2/health/live"), "GET,HEAD"),
        (Request::options("/v2/models/headwater/infer"), "POST"),
    ] {
        let request = request.body(Body::empty()).unwrap();
        let response = app(cloud.state.clone()).oneshot(request).await.unwrap();
        assert_eq!(response.headers()["allow"], allowed);
        let answer = Answer::of(response.map(|body| body.map_err(std::io::Error::other))).await;
        answer.is_refused(405, "wrong_method");
    }
    let head = |path: &str| cloud.ask(Request::head(path).body(Body::empty()).unwrap());
    let answer = head("/v2/models/headwater").await;
    assert_eq!((answer.status, answer.body.len()), (StatusCode::OK, 0));
    assert_eq!(head("/v2/models/headwater/infer").await.status, StatusCode::METHOD_NOT_ALLOWED);
}

type Change = fn(&mut Value);

#[tokio::test]
async fn null_is_absent() {
    let cloud = Direct::new().await;
    let changes: [Change; 5] = [
        |request| request["id"] = Value::Null,
        |request| request["parameters"] = Value::Null,
        |request| request["outputs"] = Value::Null,
        |request| request["inputs"][0]["parameters"] = Value::Null,
        |request| request["outputs"] = json!([{ "name": "logits", "parameters": null }]),
    ];
    for change in changes {
        let mut request = json_request(4, 2);
        change(&mut request);
        let answer = cloud.ask(infer_json(request.to_string())).await;
        assert_eq!(answer.logits(2), cloud.expected(4, 2), "{request}");
    }
}

#[tokio::test]
async fn a_request_that_is_not_understood_is_refused_with_what_is_wrong() {
    let cloud = Direct::new().await;
    const SHAPE: &str = "expected shape [n, 3, 8] with n from 1 to 64";
    let changes: [(Change, &str); 8] = [
        (|r| r["outputs"] = json!([{ "name": "probabilities" }]), "\"probabilities\" is unknown"),
        (|r| r["parameters"] = json!({ "sequence_id": 5 }), "found \"sequence_id\": 5"),
        (|r| r["inputs"][1]["shape"] = json!([SLOTS, PACKED]), SHAPE),
        (|r| r["inputs"][1]["shape"] = json!([SLOTS * PACKED]), SHAPE),
        (|r| r["inputs"][1]["shape"] = Value::Null, SHAPE),
        (
            |r| r["inputs"][1]["data"][5] = json!(256),
            "value 5: expected a whole number from 0 to 255, found 256",
        ),
        (
            |r| r["inputs"][1]["data"][0] = json!(0.0),
            "value 0: expected a whole number from 0 to 255, found 0.0",
        ),
        (
            |r| r["inputs"][1]["data"] = json!("AAAA"),
            "value 0: expected a whole number from 0 to 255, found \"AAAA\"",
        ),
    ];
    for (change, expected) in changes {
        let mut request = json_request(1, 1);
        change(&mut request);
        let answer = cloud.ask(infer_json(request.to_string())).await;
        answer.is_refused(400, "malformed");
        let error = answer.json()["error"].to_string().replace("\\\"", "\"");
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn a_body_is_read_whatever_its_content_type_says_and_a_long_id_comes_back_whole() {
    let cloud = Direct::new().await;
    let mut body = json_request(4, 2);
    body["id"] = json!("i".repeat(1_000));
    for kind in ["application/json; charset=utf-8", "text/plain", "application/x-www-form-urlencoded"] {
        let mut request = infer_json(format!("\u{feff}{body}"));
        request.headers_mut().insert(CONTENT_TYPE, kind.parse().unwrap());
        let answer = cloud.ask(request).await;
        assert_eq!(answer.logits(2), cloud.expected(4, 2), "{kind}");
        assert_eq!(answer.json()["id"], body["id"]);
    }
}

#[tokio::test]
async fn a_classification_names_classes_by_their_labels() {
    let cloud = Direct::new().await;
    let mut request = json_request(4, 2);
    request["outputs"] = json!([{ "name": "logits", "parameters": { "classification": 2 } }]);
    let output = cloud.ask(infer_json(request.to_string())).await.json()["outputs"][0].clone();
    assert_eq!((&output["datatype"], &output["shape"]), (&json!("BYTES"), &json!([2, 2])));
    let logits = cloud.expected(4, 2);
    let best = (0..CLASSES).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
    let text = format!("{:.6}:{best}:{}", logits[best], cloud.bundle.manifest().labels[best]);
    assert_eq!(output["data"][0], text);
}

#[tokio::test]
async fn a_timeout_in_microseconds_is_a_deadline() {
    let cloud = Direct::new().await;
    cloud.model.stop();
    let mut request = json_request(1, 1);
    request["parameters"] = json!({ "timeout": 5000 });
    cloud.ask(infer_json(request.to_string())).await.is_refused(504, "deadline_exceeded");
    cloud.model.run();
}

/// The body of a request in an encoding.
fn encoded(request: Request<Bytes>, encoding: &str) -> Request<Body> {
    let (mut parts, body) = request.into_parts();
    let mut bytes = Vec::new();
    match encoding.to_ascii_lowercase().as_str() {
        "deflate" => ZlibEncoder::new(&body[..], Compression::fast()).read_to_end(&mut bytes),
        "identity" => (&body[..]).read_to_end(&mut bytes),
        _ => GzEncoder::new(&body[..], Compression::fast()).read_to_end(&mut bytes),
    }
    .unwrap();
    parts.headers.insert(CONTENT_ENCODING, encoding.parse().unwrap());
    Request::from_parts(parts, bytes.into())
}

#[tokio::test]
async fn a_compressed_body_is_read() {
    let cloud = Direct::new().await;
    for encoding in ["gzip", "x-gzip", "GZIP", "deflate", "identity"] {
        let answer = cloud.ask(encoded(infer(&request(7, 2)), encoding)).await;
        assert_eq!(answer.logits(2), cloud.expected(7, 2), "{encoding}");
        let json = infer_json(Body::empty()).map(|_| json_request(7, 2).to_string().into());
        assert_eq!(cloud.ask(encoded(json, encoding)).await.logits(2), cloud.expected(7, 2), "{encoding}");
    }
}

#[tokio::test]
async fn a_body_whose_encoding_is_unknown_damaged_or_too_large_is_refused() {
    let cloud = Direct::new().await;
    for encoding in ["br", "zstd", "gzip, gzip"] {
        cloud.ask(encoded(infer(&request(1, 1)), encoding)).await.is_refused(415, "unknown_encoding");
    }
    let mut twice = encoded(infer(&request(1, 1)), "gzip");
    twice.headers_mut().append(CONTENT_ENCODING, "gzip".parse().unwrap());
    cloud.ask(twice).await.is_refused(415, "unknown_encoding");
    for encoding in ["gzip", "deflate"] {
        let mut plain = infer(&request(1, 1)).map(Body::from);
        plain.headers_mut().insert(CONTENT_ENCODING, encoding.parse().unwrap());
        cloud.ask(plain).await.is_refused(400, "malformed");
        let empty = infer(&request(1, 1)).map(|_| Bytes::new());
        let mut empty = empty.map(Body::from);
        empty.headers_mut().insert(CONTENT_ENCODING, encoding.parse().unwrap());
        cloud.ask(empty).await.is_refused(400, "malformed");
        // One MB of zeros takes about one kB when it is compressed.
        let bomb = infer(&request(1, 1)).map(|_| Bytes::from(vec![0; 1_000_000]));
        cloud.ask(encoded(bomb, encoding)).await.is_refused(413, "oversize");
    }
    assert_eq!(cloud.infer(1, 1).await.status, StatusCode::OK, "works on");
}

#[tokio::test]
async fn statistics_count_samples_batches_answers_and_refusals() {
    let cloud = Direct::new().await;
    cloud.infer(1, 3).await;
    cloud.ask(infer_json("{")).await.is_refused(400, "malformed");
    let statistics = cloud.get("/v2/models/headwater/stats").await.json();
    for path in ["/v2/models/stats", "/v2/models/headwater/versions/1/stats"] {
        assert_eq!(cloud.get(path).await.json(), statistics);
    }
    let model = &statistics["model_stats"][0];
    assert_eq!((&model["name"], &model["version"]), (&json!("headwater"), &json!("1")));
    assert_eq!((&model["inference_count"], &model["execution_count"]), (&json!(3), &json!(1)));
    for stage in ["success", "fail", "queue", "compute_infer"] {
        assert_eq!(model["inference_stats"][stage]["count"], 1, "{stage}: {model}");
    }
    assert!(model["inference_stats"]["success"]["ns"].as_u64() > Some(0), "{model}");
}

#[tokio::test]
async fn the_index_of_the_repository_lists_the_model() {
    let cloud = Direct::new().await;
    let index =
        |body: &'static str| cloud.ask(Request::post("/v2/repository/index").body(body.into()).unwrap());
    let listed = json!([{ "name": "headwater", "version": "1", "state": "READY", "reason": "" }]);
    for body in ["", "{}", "null", r#"{"ready": true}"#, r#"{"ready": null}"#, "\u{feff}{}"] {
        assert_eq!(index(body).await.json(), listed, "{body}");
    }
    index("{\"ready\": 1}").await.is_refused(400, "malformed");
    cloud.model.panic();
    cloud.infer(1, 1).await.is_refused(500, "internal");
    assert_eq!(index("").await.json()[0]["state"], "UNAVAILABLE");
    assert_eq!(index(r#"{"ready": true}"#).await.json(), json!([]));
}

/// Paths of the router.
fn routes() -> Vec<&'static str> {
    let routes = include_str!("../../src/app.rs").split(".route(\"").skip(1);
    routes.map(|rest| rest.split('"').next().unwrap()).collect()
}

#[test]
fn the_page_of_the_api_has_every_endpoint_parameter_and_limit_and_the_status_of_each_code() {
    let page = include_str!("../../../docs/api.md");
    let declared = include_str!("../../headwater-cloud.toml").split("\n[http]\n").nth(1).unwrap();
    let settings = declared.split("\n[").next().unwrap().lines();
    for key in settings.filter_map(|line| line.strip_prefix("# ")?.split_once(" = ")).map(|(key, _)| key) {
        assert!(page.contains(&format!("`http.{key}`")), "http.{key}");
    }
    for route in routes().into_iter().filter(|route| !route.contains("/versions/")) {
        let path = route.replace("{model}", "{m}");
        assert!(page.contains(&format!(" {path}`")), "{path}");
    }
    for parameter in
        ["network", "deadline_ms", "timeout", "binary_data_output", "binary_data", "classification"]
    {
        assert!(page.contains(&format!("\n| `{parameter}` |")), "{parameter}");
    }
    let table = page.split("| `code` | status | in gRPC | meaning |").nth(1).unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let rows: Vec<_> = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>()).collect();
    let expected = Fault::all().map(|fault| {
        let code = format!("`{}`", fault.code());
        let row = rows.iter().find(|row| row[1] == code);
        row.map(|row| (row[2] == fault.http_status().to_string(), row[3] == fault.grpc_status().to_string()))
    });
    let found: Vec<_> = expected.flatten().collect();
    assert_eq!(found, vec![(true, true); rows.len()], "{rows:?}");
    assert_eq!(rows.len(), 11);
}

#[tokio::test]
async fn the_page_of_the_interface_lists_its_endpoints() {
    let cloud = Direct::new().await;
    let page = cloud.get("/openapi.json").await.json();
    assert_eq!(page["info"]["version"], env!("CARGO_PKG_VERSION"));
    let paths = page["paths"].as_object().unwrap();
    for (path, methods) in paths {
        let path = path.replace("{model}", "headwater").replace("{version}", "1");
        let method = if methods.get("get").is_some() { "GET" } else { "POST" };
        let request = Request::builder().method(method).uri(&path).body(Body::empty()).unwrap();
        assert!(![404, 405].contains(&cloud.ask(request).await.status.as_u16()), "{method} {path}");
    }
    let routes = routes();
    assert_eq!(routes.iter().filter(|route| !paths.contains_key(**route)).collect::<Vec<_>>(), [&""; 0]);
    assert_eq!(routes.len(), paths.len());
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
    let large = cloud.ask(infer_json("x".repeat(10_000_000))).await;
    large.is_refused(413, "oversize");
    assert!(large.json()["error"].to_string().contains("bytes, found 10000000"), "{large:?}");
    // A body without a length and without an end.
    let endless = Body::from_stream(ReaderStream::new(tokio::io::repeat(b' ')));
    cloud.ask(infer_json(endless)).await.is_refused(413, "oversize");
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
