//! Routes: the Open Inference Protocol v2 (metadata, health, inference) and `/metrics`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use headwater_inference::bundle::Bundle;
use headwater_inference::engine::Engine;
use headwater_inference::manifest::FeatureEncoding;
use headwater_protocol::v2::FeatureShape;
use headwater_protocol::{Fault, NetworkId};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::config::CloudConfig;
use crate::counters::{CloudReport, Counters};
use crate::infer::{BodyLimits, infer};
use crate::model::{self, Health};
use crate::model_name::ModelName;
use crate::queue::ModelQueue;
use crate::refusal::Refusal;
use crate::service::CloudError;

/// What the handlers share; cheap to clone. The model thread ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct CloudState(Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) model_name: String,
    pub(crate) network: NetworkId,
    pub(crate) shape: FeatureShape,
    pub(crate) encoding: FeatureEncoding,
    pub(crate) classes: usize,
    pub(crate) limits: BodyLimits,
    pub(crate) longest: Duration,
    pub(crate) queue: ModelQueue,
    pub(crate) counters: Arc<Counters>,
    pub(crate) health: watch::Receiver<Health>,
    stopping: watch::Sender<bool>,
}

impl CloudState {
    /// Starts the model thread and waits until its section is loaded.
    ///
    /// # Errors
    /// [`CloudError::Config`] for settings out of range, [`CloudError::Model`] when the section does not load.
    pub async fn start(
        config: &CloudConfig,
        bundle: Arc<Bundle>,
        engine: Arc<dyn Engine>,
    ) -> Result<Self, CloudError> {
        config.check().map_err(CloudError::Config)?;
        let manifest = bundle.manifest();
        let shape = FeatureShape {
            slots: manifest.cloud_sources(),
            bits: manifest.cloud_map().bits(),
            most_samples: config.most_samples,
        };
        let (classes, network) = (manifest.classes(), bundle.network_id());
        let encoding = manifest.cloud_map().encoding;
        let counters = Arc::new(Counters::default());
        let (queue, receiver) = ModelQueue::new(config.most_requests);
        let mut health = model::spawn(bundle, engine, receiver, config.max_batch, Arc::clone(&counters))
            .map_err(|error| CloudError::Model(error.to_string()))?;
        let loaded = health.wait_for(|health| *health != Health::Loading).await.map(|health| health.clone());
        if let Ok(Health::Failed(reason)) = loaded {
            return Err(CloudError::Model(reason));
        }
        Ok(Self(Arc::new(Shared {
            model_name: config.model_name.clone(),
            network,
            shape,
            encoding,
            classes,
            limits: BodyLimits::of(&shape),
            longest: Duration::from_millis(u64::from(config.deadline_ms)),
            queue,
            counters,
            health,
            stopping: watch::Sender::new(false),
        })))
    }

    /// What the service did so far.
    pub fn report(&self) -> CloudReport {
        self.0.counters.report()
    }

    /// From now on the service says that it is not ready; requests are still answered.
    pub(crate) fn stop(&self) {
        self.0.stopping.send_replace(true);
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }

    fn is_live(&self) -> bool {
        !matches!(*self.0.health.borrow(), Health::Failed(_))
    }

    fn is_ready(&self) -> bool {
        *self.0.health.borrow() == Health::Ready && !*self.0.stopping.borrow()
    }
}

impl Shared {
    /// # Errors
    /// [`Fault::NotFound`] for a name that is not the model's.
    pub(crate) fn check_model(&self, name: &str) -> Result<(), Refusal> {
        if name == self.model_name {
            return Ok(());
        }
        let name: String = name.chars().take(64).collect();
        Err(Refusal::new(
            Fault::NotFound,
            format!("no model {name:?}: this service has {:?}", self.model_name),
        ))
    }
}

/// The service as a function from request to answer.
pub fn app(state: CloudState) -> Router {
    Router::new()
        .route("/v2", get(server))
        .route("/v2/health/live", get(live))
        .route("/v2/health/ready", get(ready))
        .route("/v2/models/{model}", get(metadata))
        .route("/v2/models/{model}/ready", get(model_ready))
        .route("/v2/models/{model}/infer", post(infer))
        .route("/metrics", get(metrics))
        .fallback(nothing_here)
        .method_not_allowed_fallback(nothing_here)
        .with_state(state)
}

async fn server() -> Response {
    json_answer(&json!({
        "name": "headwater-cloud",
        "version": env!("CARGO_PKG_VERSION"),
        "extensions": ["binary_tensor_data"],
    }))
}

/// Live unless the model thread has failed: then only a new process helps, and whoever probes should start one.
async fn live(State(state): State<CloudState>) -> Result<Response, Refusal> {
    if state.is_live() {
        Ok(json_answer(&json!({ "live": true })))
    } else {
        Err(not_available("the model has failed"))
    }
}

async fn ready(State(state): State<CloudState>) -> Result<Response, Refusal> {
    if state.is_ready() {
        Ok(json_answer(&json!({ "ready": true })))
    } else {
        Err(not_available("not ready"))
    }
}

async fn model_ready(
    State(state): State<CloudState>,
    ModelName(model): ModelName,
) -> Result<Response, Refusal> {
    state.shared().check_model(&model)?;
    if !state.is_ready() {
        return Err(not_available("the model is not ready"));
    }
    Ok(json_answer(&json!({ "name": model, "ready": true })))
}

async fn metadata(State(state): State<CloudState>, ModelName(model): ModelName) -> Result<Response, Refusal> {
    let shared = state.shared();
    shared.check_model(&model)?;
    let (slots, packed_bytes) = (shared.shape.slots, shared.shape.packed_bytes());
    Ok(json_answer(&json!({
        "name": model,
        "versions": [],
        "platform": "headwater",
        "parameters": { "network": shared.network },
        "inputs": [
            { "name": "features", "datatype": "UINT8", "shape": [-1, slots, packed_bytes] },
            { "name": "presence", "datatype": "BOOL", "shape": [-1, slots] },
        ],
        "outputs": [{ "name": "logits", "datatype": "FP32", "shape": [-1, shared.classes] }],
    })))
}

async fn metrics(State(state): State<CloudState>) -> Response {
    let ready = u8::from(state.is_ready());
    let text = format!(
        "{}# TYPE headwater_cloud_ready gauge\nheadwater_cloud_ready {ready}\n",
        state.shared().counters.render()
    );
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

async fn nothing_here() -> Refusal {
    Refusal::new(Fault::NotFound, "no such endpoint, or not by this method: see GET /v2")
}

fn not_available(why: &str) -> Refusal {
    Refusal::new(Fault::Unavailable, why)
}

fn json_answer(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}
