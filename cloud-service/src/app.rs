//! Routes: the Open Inference Protocol v2 (metadata, health, inference) and `/metrics`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use headwater_inference::bundle::{Networks, PerNetwork};
use headwater_inference::engine::Engine;
use headwater_protocol::Fault;
use headwater_telemetry::{METRICS_CONTENT_TYPE, ReportMetric};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::health::Healths;
use crate::infer::infer;
use crate::metrics::{CloudMetrics, CloudReport};
use crate::model_name::ModelName;
use crate::network::ServedNetworks;
use crate::refusal::Refusal;
use crate::service::CloudError;
use crate::settings::CloudConfig;

/// State of the handlers; clones share it. The model threads end when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct CloudState(Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) model_name: String,
    pub(crate) networks: ServedNetworks,
    pub(crate) max_deadline: Duration,
    pub(crate) metrics: Arc<CloudMetrics>,
    pub(crate) healths: Healths,
    stopping: watch::Sender<bool>,
}

/// Metric of the readiness.
const READY: [ReportMetric<bool>; 1] = [ReportMetric::gauge(
    "headwater_cloud_ready",
    "1 while every model thread answers and the service is not stopping.",
    |&is_ready| is_ready.into(),
)];

impl CloudState {
    /// Starts a model thread for each network, and waits until their sections are loaded.
    ///
    /// # Errors
    /// [`CloudError::Model`] when a section does not load.
    pub async fn start(
        config: &CloudConfig,
        networks: impl Into<Networks>,
        engine: Arc<dyn Engine>,
    ) -> Result<Self, CloudError> {
        let networks = networks.into();
        let ids = networks.bundles().as_ref().map(|_, bundle| bundle.network_id());
        let metrics = Arc::new(CloudMetrics::new(ids));
        let networks = ServedNetworks::start(config, &networks, &engine, &metrics.models).await?;
        let stopping = watch::Sender::new(false);
        let healths = networks.healths(stopping.subscribe());
        let of_metrics = healths.clone();
        metrics.registry.register_report(&READY, &[], move || of_metrics.is_ready());
        Ok(Self(Arc::new(Shared {
            model_name: config.model.name.clone(),
            max_deadline: Duration::from_millis(u64::from(config.http.deadline_ms.get())),
            metrics,
            healths,
            networks,
            stopping,
        })))
    }

    /// Work of the service so far.
    pub fn report(&self) -> CloudReport {
        self.0.metrics.report()
    }

    /// Ends readiness; requests are still answered.
    pub(crate) fn stop(&self) {
        self.0.stopping.send_replace(true);
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }
}

impl Shared {
    /// Checks that a name is the model's.
    ///
    /// # Errors
    /// [`Fault::NotFound`] for any other name than the model's.
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

/// The service as a router, from request to answer.
pub fn app(state: CloudState) -> Router {
    Router::new()
        .route("/v2", get(server))
        .route("/v2/health/live", get(live))
        .route("/v2/health/ready", get(ready))
        .route("/v2/models/{model}", get(metadata))
        .route("/v2/models/{model}/ready", get(model_ready))
        .route("/v2/models/{model}/infer", post(infer))
        .route("/metrics", get(metrics))
        .fallback(not_found)
        .method_not_allowed_fallback(not_found)
        .with_state(state)
}

async fn server() -> Response {
    json_answer(&json!({
        "name": "headwater-cloud",
        "version": env!("CARGO_PKG_VERSION"),
        "extensions": ["binary_tensor_data"],
    }))
}

/// Answers 503 once a model thread has failed: only a new process helps.
async fn live(State(state): State<CloudState>) -> Result<Response, Refusal> {
    if state.shared().healths.is_live() {
        Ok(json_answer(&json!({ "live": true })))
    } else {
        Err(not_available("the model has failed"))
    }
}

async fn ready(State(state): State<CloudState>) -> Result<Response, Refusal> {
    if state.shared().healths.is_ready() {
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
    if !state.shared().healths.is_ready() {
        return Err(not_available("the model is not ready"));
    }
    Ok(json_answer(&json!({ "name": model, "ready": true })))
}

async fn metadata(State(state): State<CloudState>, ModelName(model): ModelName) -> Result<Response, Refusal> {
    let shared = state.shared();
    shared.check_model(&model)?;
    let PerNetwork { current, next } = &shared.networks.0;
    let (slots, packed_bytes) = (current.shape.slots, current.shape.packed_bytes());
    let mut parameters = json!({ "network": current.id });
    if let Some(next) = next {
        parameters["next_network"] = json!(next.id);
    }
    Ok(json_answer(&json!({
        "name": model,
        "versions": [],
        "platform": "headwater",
        "parameters": parameters,
        "inputs": [
            { "name": "features", "datatype": "UINT8", "shape": [-1, slots, packed_bytes] },
            { "name": "presence", "datatype": "BOOL", "shape": [-1, slots] },
        ],
        "outputs": [{ "name": "logits", "datatype": "FP32", "shape": [-1, current.classes] }],
    })))
}

async fn metrics(State(state): State<CloudState>) -> Response {
    let text = state.shared().metrics.registry.text();
    ([(header::CONTENT_TYPE, METRICS_CONTENT_TYPE)], text).into_response()
}

async fn not_found() -> Refusal {
    Refusal::new(Fault::NotFound, "no such endpoint, or not by this method: see GET /v2")
}

fn not_available(why: &str) -> Refusal {
    Refusal::new(Fault::Unavailable, why)
}

fn json_answer(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}
