//! Routes: the Open Inference Protocol v2 (metadata, health, inference) and `/metrics`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use headwater_inference::bundle::Networks;
use headwater_inference::engine::Engine;
use headwater_protocol::Fault;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::config::CloudConfig;
use crate::counters::{CloudReport, Counters};
use crate::health::Healths;
use crate::held::Held;
use crate::infer::infer;
use crate::model_name::ModelName;
use crate::network::Network;
use crate::networks::with_next;
use crate::refusal::Refusal;
use crate::service::CloudError;

/// What the handlers share; cheap to clone. The model threads end when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct CloudState(Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) model_name: String,
    pub(crate) networks: Held<Network>,
    pub(crate) longest: Duration,
    pub(crate) counters: Arc<Counters>,
    pub(crate) healths: Healths,
    stopping: watch::Sender<bool>,
}

impl CloudState {
    /// Starts a model thread for each network, given or named in the settings, and waits until their sections are loaded.
    ///
    /// # Errors
    /// [`CloudError::Config`] for settings out of range, [`CloudError::Model`] when a section does not load.
    pub async fn start(
        config: &CloudConfig,
        networks: impl Into<Networks>,
        engine: Arc<dyn Engine>,
    ) -> Result<Self, CloudError> {
        config.check().map_err(CloudError::Config)?;
        let networks = with_next(networks.into(), config.next_bundle.as_deref())?;
        let networks = Held::<Network>::start(config, &networks, &engine).await?;
        Ok(Self(Arc::new(Shared {
            model_name: config.model_name.clone(),
            longest: Duration::from_millis(u64::from(config.deadline_ms)),
            counters: Arc::new(Counters::new(networks.map(|network| Arc::clone(&network.counters)))),
            healths: networks.healths(),
            networks,
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
        self.0.healths.is_live()
    }

    fn is_ready(&self) -> bool {
        self.0.healths.is_ready() && !*self.0.stopping.borrow()
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

/// Live unless a model thread has failed: then only a new process helps, and whoever probes should start one.
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
    let Held { current, next } = &shared.networks;
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
