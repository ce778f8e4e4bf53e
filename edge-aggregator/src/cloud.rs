//! Requests to the cloud: HTTP/1 over kept-alive connections, with a bound on requests, deadlines and a breaker.
//!
//! ```text
//! group north ── CloudClient ──┐
//!                              ├── CloudConnection: connections, permits, breaker ──> POST /v2/models/{m}/infer
//! group south ── CloudClient ──┘
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use headwater_inference::bundle::PerNetwork;
use headwater_inference::leader::Generation;
use headwater_protocol::v2::{FeatureBatch, HEADER_LENGTH, InferRequest, decode_response, encode_request};
use headwater_protocol::{Degraded, Fault, GroupId, SampleId};
use headwater_transport::{
    Connector, Endpoint, HttpAnswers, HttpClient, HttpClientConfig, LogLimit, Secret, random,
};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use hyper::http::request::Builder;
use hyper::{Request, Response, StatusCode, Uri};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use crate::breaker::{Admission, Breaker, Shown};
use crate::devices::message_format::MessageFormat;
use crate::report::LeaderReport;
use crate::settings::config::{CloudConfig, infer_endpoint, model_endpoint};

mod networks;

/// Time after which an idle connection is closed. The cloud service waits longer, so that the aggregator closes first.
const IDLE_TIMEOUT: Duration = Duration::from_secs(45);

/// Longest time to connect; the deadlines of requests are usually shorter.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Time in which a reachable cloud answers a request. The time-out of a request that was sent with less time before its deadline says
/// nothing about the cloud.
const FAIR_TIME: Duration = Duration::from_millis(20);

/// Longest pause that a cloud may ask a group for, by `Retry-After`.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Most bytes of an answer's JSON, without the logits.
const MAX_JSON_BYTES: usize = 16 * 1024;

/// Connections to the cloud service, which all groups share.
#[derive(Debug)]
pub(crate) struct CloudConnection {
    client: HttpClient,
    /// Key that each request carries as a bearer token; `None` if none is set.
    key: Option<Secret>,
    /// Bound on concurrent requests; further requests wait within their deadline.
    permits: Semaphore,
    /// Time after a request's deadline in which the answer still counts, as a revision.
    linger: Duration,
    /// Locked for single updates, never across an await.
    breaker: Mutex<Breaker>,
    /// Limit on log lines about a cloud that cannot be reached. Locked for single updates, never across an await.
    log: Mutex<LogLimit>,
}

/// The group's model at the cloud service, and the group's requests.
#[derive(Debug)]
pub(crate) struct CloudModel {
    connection: Arc<CloudConnection>,
    /// The group, for the log.
    group: GroupId,
    /// `http://host:port/v2/models/{m}/infer`.
    uri: Uri,
    /// `http://host:port/v2/models/{m}`.
    metadata_uri: Uri,
    formats: Arc<PerNetwork<MessageFormat>>,
    /// Name of the model, which each answer names.
    model: String,
    /// Time until which the cloud asked this group to wait; `None` if it never did. Locked for single updates, never across an await.
    paused_until: Mutex<Option<Instant>>,
    /// Asks for a check of the cloud's networks.
    check_networks: Notify,
    /// Limit on log lines about refusals. Locked for single updates, never across an await.
    refusal_log: Mutex<LogLimit>,
    /// Locked for single updates, never across an await.
    report: Arc<Mutex<LeaderReport>>,
}

/// Request for one sample.
#[derive(Clone, Debug)]
pub(crate) struct CloudQuestion {
    pub(crate) generation: Generation,
    pub(crate) sample: SampleId,
    pub(crate) features: Vec<u8>,
    pub(crate) presence: Vec<bool>,
    pub(crate) deadline_ms: u32,
}

/// Outcome of a request: the logits, or the reason why there are none.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CloudReply {
    pub(crate) sample: SampleId,
    pub(crate) result: Result<Vec<f32>, Degraded>,
}

/// Reason why a request has no logits, and the state of the cloud that the request has shown.
#[derive(Clone, Copy, Debug)]
struct Failure {
    reason: Degraded,
    shown: Shown,
}

/// A request that the breaker has admitted. However the request ends, also by a panic or with its group, the breaker learns of it: a probe
/// without an end would suspend the requests of every group for ever.
#[derive(Debug)]
struct Admitted {
    connection: Arc<CloudConnection>,
    admission: Admission,
    shown: Shown,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let (now, jitter) = (Instant::now(), random_fraction());
        self.connection.breaker.lock().ended(self.admission, self.shown, now, jitter);
    }
}

/// Requests of one group. Each request is a separate task; all end when the client is dropped.
#[derive(Debug)]
pub(crate) struct CloudClient {
    /// `None` without a cloud service.
    model: Option<Arc<CloudModel>>,
    /// Locked for single updates, never across an await.
    report: Arc<Mutex<LeaderReport>>,
    pending: JoinSet<CloudReply>,
    /// The task that checks the cloud's networks, if there is one.
    watching: JoinSet<()>,
}

impl CloudConnection {
    /// Connections to the cloud service, made by `connector`. Requests carry `key`, if there is one.
    pub(crate) fn new(config: &CloudConfig, connector: Connector, key: Option<Secret>) -> Self {
        let max_requests = config.max_requests;
        let client = HttpClientConfig {
            connect_timeout: CONNECT_TIMEOUT,
            idle_timeout: IDLE_TIMEOUT,
            max_idle: max_requests,
            answers: HttpAnswers::Standard,
        };
        Self {
            client: client.client(connector),
            key,
            permits: Semaphore::new(max_requests),
            linger: Duration::from_millis(config.linger_ms.into()),
            breaker: Mutex::new(Breaker::new(config.breaker)),
            log: Mutex::new(LogLimit::new(1)),
        }
    }

    /// Name of the state of the connection, for the status.
    pub(crate) fn state(&self) -> &'static str {
        self.breaker.lock().state_name()
    }

    /// Adds the key to a request, as the key's file has it now.
    fn authorized(&self, request: Builder) -> Builder {
        match &self.key {
            Some(key) => request.header(AUTHORIZATION, format!("Bearer {}", key.get())),
            None => request,
        }
    }
}

impl CloudClient {
    /// A client of a group. Without a cloud every request fails with [`Degraded::CloudUnreachable`].
    pub(crate) fn new(model: Option<CloudModel>, report: Arc<Mutex<LeaderReport>>) -> Self {
        Self { model: model.map(Arc::new), report, pending: JoinSet::new(), watching: JoinSet::new() }
    }

    /// Starts the task that compares the cloud's networks with the group's: at once, after a refusal that names a network or a model, and
    /// when the cloud answers again. Needs a tokio runtime.
    pub(crate) fn watch_networks(&mut self) {
        if let Some(model) = &self.model {
            self.watching.spawn(networks::watch(Arc::clone(model)));
        }
    }

    /// Starts a request; [`CloudClient::next`] gives its reply.
    ///
    /// # Errors
    /// The reason why no request goes out: no cloud, an open breaker, or a cloud that asked this group to wait. Such a request has no reply.
    pub(crate) fn ask(&mut self, question: CloudQuestion, now: Instant) -> Result<(), Degraded> {
        let started = self.model.as_ref().ok_or(Degraded::CloudUnreachable).and_then(|model| {
            let admitted = model.admit(now)?;
            self.pending.spawn(Arc::clone(model).run(question, admitted, now));
            Ok(())
        });
        started.inspect_err(|reason| *self.report.lock().cloud.failed.entry(*reason).or_default() += 1)
    }

    /// The next reply; never returns while no request is pending.
    pub(crate) async fn next(&mut self) -> CloudReply {
        loop {
            match self.pending.join_next().await {
                Some(Ok(reply)) => return reply,
                // The task panicked: the leader decides the sample at its deadline.
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }

    pub(crate) fn try_next(&mut self) -> Option<CloudReply> {
        self.pending.try_join_next()?.ok()
    }
}

impl CloudModel {
    /// The model named `model` at the cloud service, for the requests of `group`.
    ///
    /// # Errors
    /// The error of [`infer_endpoint`].
    pub(crate) fn new(
        connection: Arc<CloudConnection>,
        cloud: &Endpoint,
        (group, model): (&GroupId, &str),
        formats: Arc<PerNetwork<MessageFormat>>,
        report: Arc<Mutex<LeaderReport>>,
    ) -> Result<Self, String> {
        Ok(Self {
            uri: infer_endpoint(cloud, model)?,
            metadata_uri: model_endpoint(cloud, model, "")?,
            connection,
            group: group.clone(),
            formats,
            model: model.to_owned(),
            paused_until: Mutex::new(None),
            check_networks: Notify::new(),
            refusal_log: Mutex::new(LogLimit::new(1)),
            report,
        })
    }

    fn admit(&self, now: Instant) -> Result<Admitted, Degraded> {
        if self.paused_until.lock().is_some_and(|until| now < until) {
            return Err(Degraded::CloudRefused);
        }
        match self.connection.breaker.lock().admit(now) {
            Admission::Refuse => Err(Degraded::CloudBreakerOpen),
            admission => {
                Ok(Admitted { connection: Arc::clone(&self.connection), admission, shown: Shown::Nothing })
            }
        }
    }

    async fn run(
        self: Arc<Self>,
        question: CloudQuestion,
        mut admitted: Admitted,
        now: Instant,
    ) -> CloudReply {
        let sample = question.sample;
        let deadline = now + Duration::from_millis(u64::from(question.deadline_ms));
        self.report.lock().cloud.asked += 1;
        let begin = Instant::now();
        let sent_in_time = AtomicBool::new(false);
        let mut exchange = std::pin::pin!(self.exchange(question, deadline, &sent_in_time));
        let result = match timeout_at(deadline, exchange.as_mut()).await {
            Ok(Ok(logits)) => {
                admitted.shown = Shown::Present;
                self.note_outcome(admitted, None);
                self.report.lock().cloud.durations.add_us(begin.elapsed().as_micros() as u64);
                Ok(logits)
            }
            Ok(Err(Failure { reason, shown })) => {
                admitted.shown = shown;
                self.note_outcome(admitted, Some(reason));
                Err(reason)
            }
            Err(_) => {
                admitted.shown = if sent_in_time.load(Relaxed) { Shown::Absent } else { Shown::Nothing };
                self.note_outcome(admitted, Some(Degraded::CloudTimeout));
                // The sample is decided by now; an answer that still comes is a revision.
                let lingering = timeout_at(deadline + self.connection.linger, exchange).await;
                lingering.ok().and_then(Result::ok).ok_or(Degraded::CloudTimeout)
            }
        };
        self.report.lock().cloud.answered += u64::from(result.is_ok());
        CloudReply { sample, result }
    }

    /// Notes the outcome of a request at its deadline, in the breaker and the counts.
    fn note_outcome(&self, admitted: Admitted, failure: Option<Degraded>) {
        let (admission, shown, uri) = (admitted.admission, admitted.shown, &self.uri);
        let opened = self.connection.breaker.lock().opened;
        drop(admitted);
        if shown == Shown::Present && admission == Admission::Probe {
            info!(%uri, "the cloud answers again");
            // The cloud may have been replaced by a cloud with other networks.
            self.check_networks.notify_one();
        }
        let Some(reason) = failure else { return };
        *self.report.lock().cloud.failed.entry(reason).or_default() += 1;
        if self.connection.breaker.lock().opened > opened && admission == Admission::Allow {
            warn!(%uri, reason = reason.name(), "the cloud fails; requests are suspended for a while");
        }
    }

    async fn exchange(
        &self,
        question: CloudQuestion,
        deadline: Instant,
        sent_in_time: &AtomicBool,
    ) -> Result<Vec<f32>, Failure> {
        let of_ours = |reason| Failure { reason, shown: Shown::Nothing };
        let refused = |code| {
            self.count_refusal(code);
            Failure { reason: Degraded::CloudRefused, shown: Shown::Present }
        };
        let absent = Failure { reason: Degraded::CloudUnreachable, shown: Shown::Absent };
        let permit = self.connection.permits.acquire().await;
        let _permit = permit.map_err(|_closed_never| of_ours(Degraded::CloudUnreachable))?;
        // The leader asks only for networks that it holds.
        let format = self.formats.get(question.generation).ok_or(of_ours(Degraded::CloudRefused))?;
        let id = question.sample.to_string();
        let request = self.request(question, format, deadline).map_err(of_ours)?;
        sent_in_time.store(Instant::now() + FAIR_TIME <= deadline, Relaxed);
        // A connection that fails and one that breaks: in both cases the cloud is unreachable.
        let response = self.connection.client.request(request).await.map_err(|error| {
            self.log_unreachable(&error);
            absent
        })?;
        if response.status() != StatusCode::OK {
            let failure = self.refusal(response).await;
            // A time-out of a request that was sent too late shows nothing of the cloud.
            let had_time = failure.reason != Degraded::CloudTimeout || sent_in_time.load(Relaxed);
            return Err(if had_time { failure } else { of_ours(failure.reason) });
        }
        let head_bytes =
            response.headers().get(HEADER_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let max_bytes = MAX_JSON_BYTES + 16 * format.classes;
        let body = Limited::new(response.into_body(), max_bytes).collect().await;
        let body = body.map_err(|error| {
            if error.is::<LengthLimitError>() { refused(Fault::Malformed.code()) } else { absent }
        })?;
        match decode_response(&body.to_bytes(), head_bytes, 1, format.classes) {
            Ok(answer) if answer.network.is_some_and(|network| network != format.network) => {
                self.check_networks.notify_one();
                Err(refused(Fault::WrongNetwork.code()))
            }
            Ok(answer)
                if answer.id.as_ref().is_some_and(|found| *found != id)
                    || answer.model_name != self.model =>
            {
                Err(refused("of_another_request"))
            }
            Ok(answer) => Ok(answer.logits),
            Err(_) => Err(refused(Fault::Malformed.code())),
        }
    }

    /// Logs why the cloud cannot be reached, at most once a minute.
    fn log_unreachable(&self, error: &dyn std::error::Error) {
        if self.connection.log.lock().take(Instant::now()).is_some() {
            let mut reason = error.to_string();
            let mut cause = error.source();
            while let Some(error) = cause {
                reason = format!("{reason}: {error}");
                cause = error.source();
            }
            warn!(uri = %self.uri, reason, "the cloud cannot be reached; samples are decided without it");
        }
    }

    /// Reason of an answer without logits. A refusal is counted by its code; some refusals cause a check of the cloud's networks.
    async fn refusal(&self, response: Response<Incoming>) -> Failure {
        let status = response.status();
        // A refusal of a model or a client concerns this group alone, so it does not count against the cloud.
        let shown = if status.is_server_error() { Shown::Absent } else { Shown::Present };
        if status == Fault::DeadlineExceeded.http_status() {
            return Failure { reason: Degraded::CloudTimeout, shown };
        }
        if status == StatusCode::TOO_MANY_REQUESTS {
            let seconds =
                response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            let pause = Duration::from_secs(seconds.unwrap_or(1)).min(MAX_PAUSE);
            *self.paused_until.lock() = Some(Instant::now() + pause);
        }
        let body = Limited::new(response.into_body(), MAX_JSON_BYTES).collect().await;
        let code = body.ok().and_then(|body| refusal_code(&body.to_bytes())).unwrap_or("other");
        self.count_refusal(code);
        if status == Fault::WrongNetwork.http_status() || status == Fault::NotFound.http_status() {
            self.check_networks.notify_one();
        }
        Failure { reason: Degraded::CloudRefused, shown }
    }

    fn count_refusal(&self, code: &'static str) {
        *self.report.lock().cloud.refused.entry(code).or_default() += 1;
        if let Some(not_logged) = self.refusal_log.lock().take(Instant::now()) {
            warn!(
                group = %self.group, uri = %self.uri, code, not_logged,
                "the cloud refuses requests, or its answers cannot be used; samples are decided without it"
            );
        }
    }

    fn request(
        &self,
        question: CloudQuestion,
        format: &MessageFormat,
        deadline: Instant,
    ) -> Result<Request<Full<Bytes>>, Degraded> {
        // Until `last` the cloud's answer counts: before the deadline as the decision, after it as a revision.
        let last = deadline + self.connection.linger;
        let left = last.saturating_duration_since(Instant::now()).as_millis();
        let request = InferRequest {
            id: Some(question.sample.to_string()),
            network: Some(format.network),
            deadline_ms: Some(u32::try_from(left).unwrap_or(u32::MAX).max(1)),
            batch: FeatureBatch { samples: 1, features: question.features, presence: question.presence },
        };
        let (body, head_bytes) = encode_request(&request, format.cloud_sources);
        self.report.lock().cloud.body_sent_bytes += body.len() as u64;
        self.connection
            .authorized(Request::post(self.uri.clone()))
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(HEADER_LENGTH, head_bytes)
            .body(Full::new(Bytes::from(body)))
            .map_err(|_| Degraded::CloudRefused)
    }
}

/// A random number from 0 to below 1.
fn random_fraction() -> f32 {
    (random() >> 40) as f32 / (1u64 << 24) as f32
}

/// Code of the error table in the body of a refusal; `None` if the body has no known code.
fn refusal_code(body: &[u8]) -> Option<&'static str> {
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    let code = body.get("code")?.as_str()?;
    Fault::all().map(Fault::code).find(|known| *known == code)
}

#[cfg(test)]
mod tests;
