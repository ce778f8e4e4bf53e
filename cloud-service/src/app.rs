//! Routes: the Open Inference Protocol v2 (metadata, health, inference) and `/metrics`.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{self, AUTHORIZATION};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use headwater_inference::bundle::PerNetwork;
use headwater_protocol::Fault;
use headwater_telemetry::METRICS_CONTENT_TYPE;
use headwater_transport::RequestConnection;
use headwater_transport::tls::Certificate;
use serde_json::{Value, json};

use crate::infer::infer;
use crate::refusal::Refusal;
use crate::state::{CloudState, ModelName};

/// The service as a router, from request to answer.
pub fn app(state: CloudState) -> Router {
    Router::new()
        .route("/v2", get(server))
        .route("/v2/models/{model}", get(metadata))
        .route("/v2/models/{model}/ready", get(model_ready))
        .route("/v2/models/{model}/infer", post(infer))
        .route("/metrics", get(metrics))
        .route_layer(from_fn_with_state(state.clone(), admit))
        .route("/v2/health/live", get(live))
        .route("/v2/health/ready", get(ready))
        .fallback(not_found)
        .method_not_allowed_fallback(not_found)
        .with_state(state)
}

/// Refuses requests of clients that are not admitted; counts and logs the refusals.
async fn admit(State(state): State<CloudState>, request: Request, next: Next) -> Response {
    let shared = &state.shared;
    let connection = request.extensions().get::<RequestConnection>();
    let authorization = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let certificate = connection.and_then(RequestConnection::certificate);
    if let Err(refusal) = shared.admission.check(certificate, authorization) {
        shared.metrics.counts().count_refused(refusal.fault);
        if let Some(connection) = connection {
            let holder = certificate.and_then(Certificate::holder).unwrap_or_default();
            shared.refused_clients.log_unauthorized(connection.peer().ip(), &holder, &refusal.message);
        }
        return refusal.into_response();
    }
    next.run(request).await
}

async fn server() -> Response {
    json_answer(&json!({
        "name": "headwater-cloud",
        "version": env!("CARGO_PKG_VERSION"),
        "extensions": ["binary_tensor_data"],
    }))
}

/// Answers 503 while a model thread hangs, and for good once one has failed: only a new process helps then.
async fn live(State(state): State<CloudState>) -> Result<Response, Refusal> {
    available(state.shared.healths.is_live(), &json!({ "live": true }), "the model has failed")
}

async fn ready(State(state): State<CloudState>) -> Result<Response, Refusal> {
    available(state.shared.healths.is_ready(), &json!({ "ready": true }), "not ready")
}

async fn model_ready(State(state): State<CloudState>, model: ModelName) -> Result<Response, Refusal> {
    state.shared.check_model(model)?;
    let answer = json!({ "name": state.shared.model_name, "ready": true });
    available(state.shared.healths.is_ready(), &answer, "the model is not ready")
}

async fn metadata(State(state): State<CloudState>, model: ModelName) -> Result<Response, Refusal> {
    let shared = state.shared;
    shared.check_model(model)?;
    let PerNetwork { current, next } = &shared.networks;
    let (slots, packed_bytes) = (current.shape.slots, current.shape.packed_bytes());
    let mut parameters = json!({ "network": current.id });
    if let Some(next) = next {
        parameters["next_network"] = json!(next.id);
    }
    Ok(json_answer(&json!({
        "name": shared.model_name,
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
    let text = state.shared.metrics.registry.text();
    ([(header::CONTENT_TYPE, METRICS_CONTENT_TYPE)], text).into_response()
}

async fn not_found() -> Refusal {
    Refusal::new(Fault::NotFound, "no such endpoint, or not by this method: see GET /v2")
}

/// The answer if the service is available, otherwise 503 with the reason.
fn available(is_available: bool, answer: &Value, otherwise: &str) -> Result<Response, Refusal> {
    if is_available { Ok(json_answer(answer)) } else { Err(Refusal::new(Fault::Unavailable, otherwise)) }
}

fn json_answer(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}
