//! `POST /v2/models/{m}/infer`: parse the request, ask the model, encode the answer.

use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use headwater_protocol::Fault;
use headwater_protocol::v2::{
    FeatureBatch, Form, HEADER_LENGTH, InferResponse, encode_response, open_request,
};
use headwater_transport::RequestConnection;
use tokio::time::Instant;

use crate::body;
use crate::network::Network;
use crate::refusal::{Refusal, clipped};
use crate::state::{CloudState, ModelName, Shared};

pub(crate) async fn infer(
    State(state): State<CloudState>,
    model: ModelName,
    request: Request,
) -> Result<Response, Refusal> {
    counted(&state.shared, answer_http(&state.shared, model, request)).await
}

async fn answer_http(shared: &Shared, model: ModelName, request: Request) -> Result<Response, Refusal> {
    let arrived = Instant::now();
    shared.check_model(model)?;
    let headers = request.headers().clone();
    let head_bytes = head_length(&headers)?;
    let client = request.extensions().get::<RequestConnection>().map(|connection| connection.peer().ip());
    let limit = shared.body_limit(head_bytes.is_some());
    let body = body::read(request, limit, arrived + shared.max_deadline).await?;
    shared.metrics.counts().body_received_bytes += body.len() as u64;
    let body = body::decoded(body, &headers, body::CONTENT_ENCODING, limit)?;
    let question = Question { client, body: &body, head_bytes, arrived, longest: shared.max_deadline };
    let (response, form, network) = question.ask(shared).await?;
    let (body, head_bytes) = encode_response(response, form, &network.labels);
    shared.metrics.counts().body_sent_bytes += body.len() as u64;
    let Some(head_bytes) = head_bytes else {
        return Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response());
    };
    let mut response = ([(header::CONTENT_TYPE, "application/octet-stream")], body).into_response();
    response.headers_mut().insert(HEADER_LENGTH, HeaderValue::from(head_bytes));
    Ok(response)
}

/// Waits for the answer to an inference request, and counts it with its time.
pub(crate) async fn counted<T>(
    shared: &Shared,
    answer: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    let arrived = Instant::now();
    let answered = answer.await;
    let took = arrived.elapsed();
    let mut counts = shared.metrics.counts();
    counts.request_durations.add(took);
    match &answered {
        Ok(_) => counts.count_answered(),
        Err(refusal) => {
            counts.refused_durations.add(took);
            counts.count_refused(refusal.fault);
        }
    }
    drop(counts);
    answered
}

/// An inference request as a body of the HTTP interface, also if it came over gRPC.
pub(crate) struct Question<'a> {
    /// Address of the client, for the log.
    pub(crate) client: Option<IpAddr>,
    pub(crate) body: &'a [u8],
    /// Length of the JSON part in bytes; `None` if the whole body is JSON.
    pub(crate) head_bytes: Option<usize>,
    pub(crate) arrived: Instant,
    /// Longest time for the answer; the request may name a shorter one.
    pub(crate) longest: Duration,
}

impl Question<'_> {
    /// The answer, the form in which the request wants it, and the network that gave it.
    pub(crate) async fn ask(self, shared: &Shared) -> Result<(InferResponse, Form, &Network), Refusal> {
        let opened = open_request(self.body, self.head_bytes)?;
        let asked = opened.network();
        let network = shared.network(asked).inspect_err(|_| {
            if let (Some(client), Some(asked)) = (self.client, asked) {
                shared.refused_clients.log_network(client, asked, &shared.served());
            }
        })?;
        let limit = network.body_limit(self.head_bytes.is_some());
        if self.body.len() > limit {
            return Err(body::oversize(limit, self.body.len()));
        }
        let (request, form) = opened.read(&network.shape)?;
        check_presence(&request.batch)?;
        if !network.encoding.takes(&request.batch.features) {
            let reason = "features: expected finite floats, found NaN or infinity";
            return Err(Refusal::new(Fault::Malformed, reason));
        }
        let asked = request.deadline_ms.map(|ms| Duration::from_millis(u64::from(ms)));
        let time = asked.into_iter().fold(self.longest, Duration::min);
        let logits = network.queue.ask(request.batch, self.arrived + time).await?;
        let (id, model_name) = (request.id, shared.model_name.clone());
        let response = InferResponse { id, model_name, network: Some(network.id), logits };
        Ok((response, form, network))
    }
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
    let text = String::from_utf8_lossy(value.as_bytes());
    text.trim().parse().map(Some).map_err(|_| {
        let found = clipped(&text);
        let reason =
            format!("{HEADER_LENGTH}: expected the bytes of the JSON, a whole number, found {found:?}");
        Refusal::new(Fault::Malformed, reason)
    })
}
