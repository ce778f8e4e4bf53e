//! Routes: the Open Inference Protocol v2 (metadata, health, inference, statistics, repository), `/metrics` and `/openapi.json`.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use headwater_protocol::Fault;
use headwater_telemetry::METRICS_CONTENT_TYPE;
use headwater_transport::RequestConnection;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::body;
use crate::infer::infer;
use crate::metadata;
use crate::refusal::{Refusal, clipped};
use crate::state::{CloudState, ModelName};

/// Largest body in bytes of a request for the index of the repository.
const MAX_INDEX_BYTES: usize = 1024;

/// The service as a router, from request to answer.
pub fn app(state: CloudState) -> Router {
    Router::new()
        .route("/v2", get(server))
        .route("/v2/models/{model}", get(metadata))
        .route("/v2/models/{model}/ready", get(model_ready))
        .route("/v2/models/{model}/infer", post(infer))
        .route("/v2/models/{model}/stats", get(statistics))
        .route("/v2/models/{model}/versions/{version}", get(metadata))
        .route("/v2/models/{model}/versions/{version}/ready", get(model_ready))
        .route("/v2/models/{model}/versions/{version}/infer", post(infer))
        .route("/v2/models/{model}/versions/{version}/stats", get(statistics))
        .route("/v2/models/stats", get(statistics_of_all))
        .route("/v2/repository/index", post(repository_index))
        .route("/metrics", get(metrics))
        .route_layer(from_fn_with_state(state.clone(), admit))
        .route("/v2/health/live", get(live))
        .route("/v2/health/ready", get(ready))
        .route("/openapi.json", get(openapi))
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .with_state(state)
}

/// Refuses requests of clients that are not admitted.
async fn admit(State(state): State<CloudState>, request: Request, next: Next) -> Response {
    let connection = request.extensions().get::<RequestConnection>();
    match state.shared.admit(connection, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

async fn server() -> Response {
    json_answer(&metadata::server())
}

/// Answers 503 while a model thread hangs, and for good once a model thread has failed: only a new process helps then.
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
    state.shared.check_model(model)?;
    Ok(json_answer(&state.shared.model_metadata()))
}

async fn statistics(State(state): State<CloudState>, model: ModelName) -> Result<Response, Refusal> {
    state.shared.check_model(model)?;
    Ok(statistics_of_all(State(state)).await)
}

async fn statistics_of_all(State(state): State<CloudState>) -> Response {
    json_answer(&state.shared.model_statistics())
}

/// Lists the model; with `{"ready": true}` only while it is ready.
async fn repository_index(State(state): State<CloudState>, request: Request) -> Result<Response, Refusal> {
    let (shared, headers) = (&state.shared, request.headers().clone());
    let body = body::read(request, MAX_INDEX_BYTES, Instant::now() + shared.max_deadline).await?;
    let body = body::decoded(body, &headers, body::CONTENT_ENCODING, MAX_INDEX_BYTES)?;
    let asked = match body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&body) {
        [] => None,
        body => serde_json::from_slice::<Option<Map<String, Value>>>(body)
            .map_err(|error| Refusal::new(Fault::Malformed, format!("body: {error}")))?,
    };
    let only_ready = match asked.unwrap_or_default().remove("ready") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(only_ready)) => only_ready,
        Some(other) => {
            let found = clipped(&other.to_string());
            let message = format!("`ready`: expected true or false, found {found}");
            return Err(Refusal::new(Fault::Malformed, message));
        }
    };
    Ok(json_answer(&shared.index(only_ready)))
}

/// The description of the service's endpoints.
async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], include_str!("../openapi.json")).into_response()
}

async fn metrics(State(state): State<CloudState>) -> Response {
    let text = state.shared.metrics.registry.text();
    ([(header::CONTENT_TYPE, METRICS_CONTENT_TYPE)], text).into_response()
}

async fn not_found(uri: Uri) -> Refusal {
    let path = uri.path();
    let advice = if path.len() > 1 && (path.ends_with('/') || path.contains("//")) {
        "leave out the extra slash; "
    } else {
        ""
    };
    let reason = format!("no endpoint {:?}: {advice}GET /openapi.json lists the endpoints", clipped(path));
    Refusal::new(Fault::NotFound, reason)
}

async fn wrong_method(method: Method) -> Refusal {
    let method = clipped(method.as_str());
    let reason = format!("the endpoint is not asked by {method}: the header Allow names the methods");
    Refusal::new(Fault::WrongMethod, reason)
}

/// The answer if the service is available, otherwise 503 with the reason.
fn available(is_available: bool, answer: &Value, otherwise: &str) -> Result<Response, Refusal> {
    if is_available { Ok(json_answer(answer)) } else { Err(Refusal::new(Fault::Unavailable, otherwise)) }
}

fn json_answer(value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).expect("names, numbers and lists always become JSON");
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}
