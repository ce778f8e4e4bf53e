//! Two networks while a group switches over: each request is answered by the network that the request names.

use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use axum::http::StatusCode;
use headwater_cloud_service::{CloudService, CloudState};
use headwater_inference::bundle::{Bundle, Networks, SectionBytes};
use headwater_inference::engine::{Engine, EngineError, Section, TractEngine};
use headwater_inference::sections::CloudSection;
use headwater_inference::testing::TinyNetwork;
use headwater_protocol::NetworkId;
use headwater_protocol::v2::{FeatureBatch, InferRequest, decode_response};
use serde_json::json;

use crate::calls::{Answer, Direct, bundle, config, infer_json, infer_of, poll_once};
use crate::model_control::ModelControl;

/// Another network of the same shapes.
fn retrained() -> Arc<Bundle> {
    made(&TinyNetwork { seed: 2, ..TinyNetwork::default() })
}

/// Another network of larger views, fewer slots and more classes.
fn larger() -> Arc<Bundle> {
    made(&TinyNetwork { seed: 2, slots: 2, classes: 6, view: [3, 16, 16], ..TinyNetwork::default() })
}

fn made(network: &TinyNetwork) -> Arc<Bundle> {
    Arc::new(Bundle::from_bytes(&network.bundle()).unwrap())
}

/// Samples of a network's shape, made from a seed; every slot is present.
fn batch(bundle: &Bundle, seed: u8, samples: usize) -> FeatureBatch {
    let slots = bundle.manifest().cloud_sources();
    let bytes = samples * slots * bundle.manifest().cloud_map().bits() / 8;
    let features = (0..bytes).map(|i| (i as u8).wrapping_mul(37).wrapping_add(seed)).collect();
    FeatureBatch { samples, features, presence: vec![true; samples * slots] }
}

/// The logits from running the section directly.
fn expected(bundle: &Bundle, seed: u8, samples: usize) -> Vec<f32> {
    let mut section = CloudSection::load(bundle, &TractEngine::new()).unwrap();
    let FeatureBatch { features, presence, .. } = batch(bundle, seed, samples);
    section.run(samples, &features, &presence).unwrap()
}

/// A service of two networks, with a control for each model thread.
struct Both {
    direct: Direct,
    next_model: ModelControl,
    next: Arc<Bundle>,
}

/// An engine that loads the sections of two networks, each under a control of its own.
struct TwoModels {
    next_shape: Vec<usize>,
    current: ModelControl,
    next: ModelControl,
}

impl Engine for TwoModels {
    fn name(&self) -> &'static str {
        "two controlled tracts"
    }

    fn load(&self, section: &SectionBytes<'_>) -> Result<Box<dyn Section>, EngineError> {
        let is_next = section.manifest.input.shape == self.next_shape;
        if is_next { self.next.load(section) } else { self.current.load(section) }
    }
}

impl Both {
    async fn with(settings: &str, next: Arc<Bundle>) -> Self {
        let (current, model, next_model) = (bundle(), ModelControl::new(), ModelControl::new());
        let shape = &next.section("cloud").unwrap().manifest.input.shape;
        let engine =
            TwoModels { next_shape: shape.clone(), current: model.clone(), next: next_model.clone() };
        let networks = Networks::both(Arc::clone(&current), Arc::clone(&next)).unwrap();
        let state = CloudState::start(&config(settings), networks, Arc::new(engine)).await.unwrap();
        Self { direct: Direct { state, model, bundle: current }, next_model, next }
    }

    /// Sends features in the shape of network `of`, in a request that names the network `named`.
    async fn infer(&self, of: &Bundle, named: Option<NetworkId>, seed: u8) -> Answer {
        let request = InferRequest { id: None, network: named, deadline_ms: None, batch: batch(of, seed, 1) };
        self.direct.ask(infer_of(&request, of.manifest().cloud_sources()).map(Body::from)).await
    }

    /// Asks for the next network by its id.
    async fn infer_next(&self, seed: u8) -> Answer {
        self.infer(&self.next, Some(self.next.network_id()), seed).await
    }

    /// Asserts that `network` answered, with its logits for the samples made from `seed`.
    #[track_caller]
    fn is_answered_by(answer: &Answer, network: &Bundle, seed: u8) {
        assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
        let classes = network.manifest().classes();
        let found = decode_response(&answer.body, answer.head_bytes, 1, classes).unwrap();
        assert_eq!(found.network, Some(network.network_id()));
        assert_eq!(found.logits, expected(network, seed, 1));
    }
}

#[tokio::test]
async fn each_request_is_answered_by_the_network_that_it_names() {
    for next in [retrained(), larger()] {
        let both = Both::with("", next).await;
        let current = Arc::clone(&both.direct.bundle);
        for seed in 1..4 {
            Both::is_answered_by(&both.infer(&current, None, seed).await, &current, seed);
            let named = Some(current.network_id());
            Both::is_answered_by(&both.infer(&current, named, seed).await, &current, seed);
            Both::is_answered_by(&both.infer_next(seed).await, &both.next, seed);
        }
        let report = both.direct.state.report();
        assert_eq!(report.answered(), 9);
        let samples = [&current, &both.next].map(|bundle| report.models[&bundle.network_id()].samples);
        assert_eq!(samples, [6, 3]);
    }
}

#[tokio::test]
async fn any_other_network_is_refused_naming_both() {
    let both = Both::with("", larger()).await;
    let current = &both.direct.bundle;
    let answer = both.infer(current, Some(NetworkId([9; 32])), 1).await;
    answer.is_refused(409, "wrong_network");
    let error = answer.json()["error"].to_string();
    for id in [current.network_id(), both.next.network_id(), NetworkId([9; 32])] {
        assert!(error.contains(&id.short()), "{error}");
    }
}

#[tokio::test]
async fn a_body_is_read_by_the_shapes_of_its_network() {
    let both = Both::with("", larger()).await;
    let current = &both.direct.bundle;
    both.infer(current, Some(both.next.network_id()), 1).await.is_refused(400, "malformed");
    both.infer(&both.next, Some(current.network_id()), 1).await.is_refused(400, "malformed");
    both.infer(&both.next, None, 1).await.is_refused(400, "malformed");
}

#[tokio::test]
async fn a_body_has_the_limit_of_the_larger_network_and_then_of_its_own() {
    let both = Both::with("http.max_samples = 64", larger()).await;
    let json = |named: NetworkId, spaces: usize| {
        let head = json!({ "parameters": { "network": named } }).to_string();
        infer_json(head + &" ".repeat(spaces))
    };
    let (current, next) = (both.direct.bundle.network_id(), both.next.network_id());
    // A body within the limit of its network is read, and then refused since it lacks its tensors.
    both.direct.ask(json(current, 15_000)).await.is_refused(400, "malformed");
    both.direct.ask(json(current, 25_000)).await.is_refused(413, "oversize");
    both.direct.ask(json(next, 25_000)).await.is_refused(400, "malformed");
    both.direct.ask(json(next, 10_000_000)).await.is_refused(413, "oversize");
}

#[tokio::test]
async fn a_stopped_network_does_not_delay_the_other() {
    let both = Both::with("http.max_requests = 1", larger()).await;
    both.next_model.stop();
    let mut waiting = Box::pin(both.infer_next(1));
    poll_once(&mut waiting).await;
    both.next_model.entered(1).await;
    both.infer_next(2).await.is_refused(429, "overloaded");
    let current = &both.direct.bundle;
    Both::is_answered_by(&both.infer(current, None, 3).await, current, 3);
    both.next_model.run();
    Both::is_answered_by(&waiting.await, &both.next, 1);
}

#[tokio::test]
async fn the_service_is_ready_while_both_networks_are_ready() {
    let both = Both::with("", larger()).await;
    let paths = ["/v2/health/ready", "/v2/health/live", "/v2/models/headwater/ready"];
    for path in paths {
        assert_eq!(both.direct.get(path).await.status, StatusCode::OK);
    }
    both.next_model.panic();
    both.infer_next(1).await.is_refused(500, "internal");
    for path in paths {
        both.direct.get(path).await.is_refused(503, "unavailable");
    }
    let current = &both.direct.bundle;
    Both::is_answered_by(&both.infer(current, None, 3).await, current, 3);
}

#[tokio::test]
async fn metadata_and_metrics_name_both_networks() {
    let both = Both::with("", larger()).await;
    both.infer_next(1).await;
    let (current, next) = (both.direct.bundle.network_id(), both.next.network_id());
    let metadata = both.direct.get("/v2/models/headwater").await.json();
    let parameters = json!({ "network": current.to_string(), "next_network": next.to_string() });
    assert_eq!(metadata["parameters"], parameters);
    let answer = both.direct.get("/metrics").await;
    let text = std::str::from_utf8(&answer.body).unwrap();
    for (name, generation, id, count) in [
        ("samples_total{", "current", current, 0),
        ("samples_total{", "next", next, 1),
        ("batches_total{", "next", next, 1),
        ("stage_duration_seconds_count{stage=\"model\",", "next", next, 1),
        ("stage_duration_seconds_count{stage=\"model\",", "current", current, 0),
        ("skipped_requests_total{reason=\"deadline\",", "next", next, 0),
    ] {
        let (name, label) = name.split_once('{').unwrap();
        let mut labels = vec![format!("generation=\"{generation}\""), format!("network=\"{}\"", id.short())];
        labels.extend(label.strip_suffix(',').map(str::to_owned));
        let line = format!("headwater_cloud_{name}{{{}}} {count}", labels.join(","));
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
    let mut types: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
    types.sort_unstable();
    types.dedup();
    assert_eq!(types.len(), text.matches("# TYPE").count(), "each metric once:\n{text}");
}

/// Writes the current bundle, and `next` as the next one, into files; the files are deleted when the returned folder is dropped.
fn files(next: &[u8]) -> (PathBuf, PathBuf, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let [current_file, next_file] = ["current.hwb", "next.hwb"].map(|name| folder.path().join(name));
    std::fs::write(&current_file, TinyNetwork::default().bundle()).unwrap();
    std::fs::write(&next_file, next).unwrap();
    (current_file, next_file, folder)
}

#[tokio::test]
async fn the_settings_may_name_the_next_network() {
    let next = TinyNetwork { seed: 2, ..TinyNetwork::default() };
    let (current_file, next_file, _folder) = files(&next.bundle());
    let networks = Networks::open(&current_file, Some(&next_file), None).unwrap();
    let state = CloudState::start(&config(""), networks, Arc::new(ModelControl::new())).await.unwrap();
    let (current, next) = (bundle().network_id(), made(&next).network_id());
    let models = state.report().models;
    assert!(models.len() == 2 && models.contains_key(&current) && models.contains_key(&next), "{models:?}");
}

#[tokio::test]
async fn a_next_bundle_that_does_not_fit_is_named() {
    let (current_file, next_file, _folder) = files(&TinyNetwork::default().bundle());
    let mistakes = Networks::open(&current_file, Some(&next_file), None).unwrap_err();
    assert!(matches!(&mistakes[..], [same] if same.starts_with("next_bundle: ")), "the same: {mistakes:?}");

    let (current_file, next_file, folder) = files(b"no bundle");
    let mistakes = Networks::open(&current_file, Some(&next_file), None).unwrap_err();
    assert!(matches!(&mistakes[..], [next] if next.contains("next.hwb")), "{mistakes:?}");
    let mistakes = Networks::open(&folder.path().join("none.hwb"), Some(&next_file), None).unwrap_err();
    assert!(mistakes[0].contains("none.hwb") && mistakes[1].contains("next.hwb"), "both: {mistakes:?}");

    let without_a_tail = retrained().only(&["device-0"]).unwrap();
    let (current_file, next_file, _folder) = files(&without_a_tail);
    let networks = Networks::open(&current_file, Some(&next_file), None).unwrap();
    let error = CloudService::start(config(""), networks).await.unwrap_err();
    assert!(error.to_string().contains("the next network"), "{error}");
}
