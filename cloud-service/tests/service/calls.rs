//! Requests and answers of the tests.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use bytes::Bytes;
use headwater_cloud_service::{CloudConfig, CloudSettings, CloudState, ModelCounts, app};
use headwater_inference::bundle::Bundle;
use headwater_inference::sections::CloudSection;
use headwater_inference::testing::TinyNetwork;
use headwater_protocol::v2::{FeatureBatch, HEADER_LENGTH, InferRequest, decode_response, encode_request};
use headwater_settings::{Sources, load};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::TokioExecutor;
use tower::ServiceExt;

use crate::model_control::ModelControl;

/// Slots, bytes of a packed map and classes of the tiny network.
pub(crate) const SLOTS: usize = 3;
pub(crate) const PACKED: usize = 8;
pub(crate) const CLASSES: usize = 4;

/// A service without sockets: the router is called directly.
pub(crate) struct Direct {
    pub(crate) state: CloudState,
    pub(crate) model: ModelControl,
    pub(crate) bundle: Arc<Bundle>,
}

/// Status and body of an answer, with the length of its JSON part.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) head_bytes: Option<usize>,
    pub(crate) body: Bytes,
}

/// Settings from a TOML text, on a free port. A stop closes the listener at once, unless the text sets `stop_delay_ms`.
pub(crate) fn config(settings: &str) -> CloudConfig {
    let delay = if settings.contains("stop_delay_ms") { "" } else { "stop_delay_ms = 0\n" };
    let settings = format!("bundle = \"network.hwb\"\n{delay}{settings}");
    let loaded = load::<CloudSettings>(Sources::default().with_file(&settings)).unwrap();
    let mut config = loaded.settings.service;
    config.http.listen = ([127, 0, 0, 1], 0).into();
    config
}

pub(crate) fn bundle() -> Arc<Bundle> {
    Arc::new(Bundle::from_bytes(&TinyNetwork::default().bundle()).unwrap())
}

impl Direct {
    pub(crate) async fn new() -> Self {
        Self::with("").await
    }

    pub(crate) fn counts(&self) -> ModelCounts {
        self.state.report().models.remove(&self.bundle.network_id()).unwrap()
    }

    /// A service with the settings of a TOML text.
    pub(crate) async fn with(settings: &str) -> Self {
        let (model, bundle) = (ModelControl::new(), bundle());
        let state =
            CloudState::start(&config(settings), Arc::clone(&bundle), Arc::new(model.clone())).await.unwrap();
        Self { state, model, bundle }
    }

    pub(crate) async fn ask(&self, request: Request<Body>) -> Answer {
        let response = app(self.state.clone()).oneshot(request).await.unwrap();
        Answer::of(response.map(|body| body.map_err(std::io::Error::other))).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(Request::get(path).body(Body::empty()).unwrap()).await
    }

    /// Sends a binary request for the logits of samples made from `seed`.
    pub(crate) async fn infer(&self, seed: u8, samples: usize) -> Answer {
        self.ask(infer(&request(seed, samples)).map(Body::from)).await
    }

    /// Logits of the samples made from `seed`, from running the section directly.
    pub(crate) fn expected(&self, seed: u8, samples: usize) -> Vec<f32> {
        let engine = headwater_inference::engine::TractEngine::new();
        let mut section = CloudSection::load(&self.bundle, &engine).unwrap();
        let FeatureBatch { features, presence, .. } = batch(seed, samples);
        section.run(samples, &features, &presence).unwrap()
    }
}

impl Answer {
    pub(crate) async fn of<B>(response: Response<B>) -> Self
    where
        B: hyper::body::Body<Data = Bytes, Error: std::fmt::Debug>,
    {
        let head_bytes =
            response.headers().get(HEADER_LENGTH).map(|value| value.to_str().unwrap().parse().unwrap());
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Self { status, head_bytes, body }
    }

    #[track_caller]
    pub(crate) fn logits(&self, samples: usize) -> Vec<f32> {
        assert_eq!(self.status, StatusCode::OK, "{:?}", self.body);
        decode_response(&self.body, self.head_bytes, samples, CLASSES).unwrap().logits
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Asserts that the answer is an error of this code, with a message for people.
    #[track_caller]
    pub(crate) fn is_refused(&self, status: u16, code: &str) {
        let json = self.json();
        assert_eq!((self.status.as_u16(), json["code"].as_str()), (status, Some(code)), "{json}");
        assert!(json["error"].as_str().is_some_and(|error| error.len() > 5), "{json}");
    }
}

/// Samples made from a seed; not every slot is present.
pub(crate) fn batch(seed: u8, samples: usize) -> FeatureBatch {
    let features =
        (0..samples * SLOTS * PACKED).map(|i| (i as u8).wrapping_mul(37).wrapping_add(seed)).collect();
    let presence = (0..samples * SLOTS).map(|i| i % SLOTS == 0 || (i + usize::from(seed)) % 2 == 0).collect();
    FeatureBatch { samples, features, presence }
}

pub(crate) fn request(seed: u8, samples: usize) -> InferRequest {
    InferRequest { id: Some("q".into()), network: None, deadline_ms: None, batch: batch(seed, samples) }
}

/// An inference request in binary form.
pub(crate) fn infer(request: &InferRequest) -> Request<Bytes> {
    infer_of(request, SLOTS)
}

/// An inference request in binary form, for a network with this number of slots.
pub(crate) fn infer_of(request: &InferRequest, slots: usize) -> Request<Bytes> {
    let (body, head_bytes) = encode_request(request, slots);
    Request::post("/v2/models/headwater/infer").header(HEADER_LENGTH, head_bytes).body(body.into()).unwrap()
}

/// An inference request with a JSON body.
pub(crate) fn infer_json(json: impl Into<Body>) -> Request<Body> {
    Request::post("/v2/models/headwater/infer").body(json.into()).unwrap()
}

/// Sends a request over a real socket with a real client.
pub(crate) async fn over_http(addr: SocketAddr, request: Request<Bytes>) -> Result<Answer, ClientError> {
    over_http_from(addr.ip(), addr, request).await
}

/// Sends a request over a real socket from the address `from` of this machine.
pub(crate) async fn over_http_from(
    from: IpAddr,
    addr: SocketAddr,
    request: Request<Bytes>,
) -> Result<Answer, ClientError> {
    let mut connector = HttpConnector::new();
    connector.set_local_address(Some(from));
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
    let (mut parts, body) = request.into_parts();
    parts.uri = format!("http://{addr}{}", parts.uri.path()).parse().unwrap();
    let response = client.request(Request::from_parts(parts, Full::new(body))).await?;
    Ok(Answer::of(response).await)
}

/// Polls a future once, after which an inference request is in the queue.
pub(crate) async fn poll_once<F: Future + Unpin>(future: &mut F) {
    tokio::select! {
        biased;
        _ = future => panic!("answered at once"),
        () = std::future::ready(()) => {}
    }
}
