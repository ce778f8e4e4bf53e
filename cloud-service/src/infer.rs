//! `POST /v2/models/{m}/infer`: parse the request, ask the model, encode the answer.

use std::time::Duration;

use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use headwater_protocol::Fault;
use headwater_protocol::v2::{
    FeatureBatch, Form, HEADER_LENGTH, InferResponse, encode_response, open_request,
};
use headwater_transport::RequestConnection;
use http_body_util::LengthLimitError;
use tokio::time::{Instant, timeout_at};

use crate::queue::too_late;
use crate::refusal::Refusal;
use crate::state::{CloudState, ModelName, Shared};

pub(crate) async fn infer(
    State(state): State<CloudState>,
    model: ModelName,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Refusal> {
    let (shared, arrived) = (&*state.shared, Instant::now());
    let (parts, body) = request.into_parts();
    let client = parts.extensions.get::<RequestConnection>();
    let answered = answer(shared, model, &headers, Sender { client, body }).await;
    let mut counts = shared.metrics.counts();
    counts.request_durations.add(arrived.elapsed());
    match &answered {
        Ok(_) => counts.count_answered(),
        Err(refusal) => counts.count_refused(refusal.fault),
    }
    drop(counts);
    answered
}

/// Body of a request, and the connection on which the body arrives; a direct call of the router has no connection.
struct Sender<'a> {
    client: Option<&'a RequestConnection>,
    body: Body,
}

async fn answer(
    shared: &Shared,
    model: ModelName,
    headers: &HeaderMap,
    Sender { client, body }: Sender<'_>,
) -> Result<Response, Refusal> {
    let arrived = Instant::now();
    shared.check_model(model)?;
    let head_bytes = head_length(headers)?;
    let max_deadline = arrived + shared.max_deadline;
    let is_binary = head_bytes.is_some();
    let reading = read_body(shared, body, shared.body_limit(is_binary), max_deadline);
    let body = match client {
        Some(client) => client.while_reading(reading).await?,
        None => reading.await?,
    };
    let opened = open_request(&body, head_bytes)?;
    let asked = opened.network();
    let network = shared.network(asked).inspect_err(|_| {
        if let (Some(client), Some(asked)) = (client, asked) {
            shared.refused_clients.log_network(client.peer().ip(), asked, &shared.served());
        }
    })?;
    let limit = network.body_limit(is_binary);
    if body.len() > limit {
        return Err(oversize(limit));
    }
    let (request, form) = opened.read(&network.shape)?;
    drop(body);
    check_presence(&request.batch)?;
    if !network.encoding.takes(&request.batch.features) {
        return Err(Refusal::new(
            Fault::Malformed,
            "features: expected finite floats, found NaN or infinity",
        ));
    }
    let deadline = match request.deadline_ms {
        Some(ms) => max_deadline.min(arrived + Duration::from_millis(u64::from(ms))),
        None => max_deadline,
    };
    let logits = network.queue.ask(request.batch, deadline).await?;
    let response = InferResponse {
        id: request.id,
        model_name: shared.model_name.clone(),
        network: Some(network.id),
        logits,
        classes: network.classes,
    };
    Ok(write(shared, &response, form))
}

/// Refuses a request with a sample that has no present slot: the network cannot answer such a sample, and its whole batch would fail.
fn check_presence(batch: &FeatureBatch) -> Result<(), Refusal> {
    let slots = batch.presence.len() / batch.samples.max(1);
    match batch.presence.chunks(slots.max(1)).position(|row| !row.contains(&true)) {
        None => Ok(()),
        Some(row) => Err(Refusal::new(
            Fault::Malformed,
            format!(
                "presence: expected at least one present slot in every sample, found none in sample {row}"
            ),
        )),
    }
}

fn head_length(headers: &HeaderMap) -> Result<Option<usize>, Refusal> {
    let Some(value) = headers.get(HEADER_LENGTH) else { return Ok(None) };
    let length = value.to_str().ok().and_then(|text| text.parse().ok());
    length
        .map(Some)
        .ok_or_else(|| Refusal::new(Fault::Malformed, format!("{HEADER_LENGTH}: expected a whole number")))
}

/// Reads a body of at most `limit` bytes; refuses a body whose announced length is larger without reading. The body must arrive before
/// `until`.
async fn read_body(shared: &Shared, body: Body, limit: usize, until: Instant) -> Result<Bytes, Refusal> {
    if body.size_hint().lower() > limit as u64 {
        return Err(oversize(limit));
    }
    let body = timeout_at(until, to_bytes(body, limit)).await.map_err(|_| too_late())?.map_err(|error| {
        // Any other error is a broken connection.
        if error.into_inner().is::<LengthLimitError>() {
            oversize(limit)
        } else {
            Refusal::new(Fault::Malformed, "body: ended early")
        }
    })?;
    shared.metrics.counts().body_received_bytes += body.len() as u64;
    Ok(body)
}

fn oversize(limit: usize) -> Refusal {
    Refusal::new(Fault::Oversize, format!("body: expected at most {limit} bytes"))
}

fn write(shared: &Shared, response: &InferResponse, form: Form) -> Response {
    let (body, head_bytes) = encode_response(response, form);
    shared.metrics.counts().body_sent_bytes += body.len() as u64;
    let Some(head_bytes) = head_bytes else {
        return ([(header::CONTENT_TYPE, "application/json")], body).into_response();
    };
    let mut response = ([(header::CONTENT_TYPE, "application/octet-stream")], body).into_response();
    response.headers_mut().insert(HEADER_LENGTH, HeaderValue::from(head_bytes));
    response
}
