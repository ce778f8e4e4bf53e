//! The hop to the cloud: HTTP/1 with kept-alive connections, a bound on requests, deadlines, a breaker.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use headwater_inference::leader::Generation;
use headwater_protocol::v2::{FeatureBatch, HEADER_LENGTH, InferRequest, decode_response, encode_request};
use headwater_protocol::{Degraded, Fault, NetworkId, SampleId};
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::CONTENT_TYPE;
use hyper::{Request, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use crate::breaker::{Admission, Breaker, BreakerConfig};
use crate::report::CloudAccount;

/// A kept-alive connection is given up before the cloud service would close it.
const IDLE: Duration = Duration::from_secs(45);

/// Room in an answer beside the logits: the JSON part.
const ANSWER_HEAD_BYTES: usize = 16 * 1024;

/// What the client must know of cloud and network.
#[derive(Clone, Debug)]
pub(crate) struct CloudTarget {
    /// `http://host:port/v2/models/{m}/infer`.
    pub(crate) uri: Uri,
    /// In the order of [`Generation`].
    pub(crate) networks: Vec<Tail>,
    /// Requests under way at once; more wait, within their deadline.
    pub(crate) most_requests: usize,
    /// How long after its deadline an answer is still taken, for a revision.
    pub(crate) linger: Duration,
    pub(crate) breaker: BreakerConfig,
}

/// What a question and its answer look like under a network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail {
    pub(crate) network: NetworkId,
    /// Maps that the cloud section joins.
    pub(crate) sources: usize,
    pub(crate) classes: usize,
}

/// One sample's question.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) generation: Generation,
    pub(crate) sample: SampleId,
    pub(crate) features: Vec<u8>,
    pub(crate) presence: Vec<bool>,
    pub(crate) deadline_ms: u32,
}

/// What became of a question.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CloudReply {
    pub(crate) sample: SampleId,
    pub(crate) result: Result<Vec<f32>, Degraded>,
}

/// The client; one task of its own per question, all ended when it is dropped.
#[derive(Debug)]
pub(crate) struct CloudClient {
    hop: Option<Arc<Hop>>,
    asked: JoinSet<CloudReply>,
    /// Failures known at once.
    account: CloudAccount,
}

#[derive(Debug)]
struct Hop {
    target: CloudTarget,
    client: Client<HttpConnector, Full<Bytes>>,
    permits: Semaphore,
    /// Held for the blink of an update, never across an await.
    shared: Mutex<Shared>,
}

#[derive(Debug)]
struct Shared {
    breaker: Breaker,
    account: CloudAccount,
}

impl CloudClient {
    /// A client of that cloud; of none, every question fails with [`Degraded::CloudUnreachable`].
    pub(crate) fn new(target: Option<CloudTarget>) -> Self {
        let hop = target.map(|target| {
            let mut connector = HttpConnector::new();
            connector.set_nodelay(true);
            let client = Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(target.most_requests)
                .build(connector);
            let shared = Shared { breaker: Breaker::new(target.breaker), account: CloudAccount::default() };
            Arc::new(Hop {
                permits: Semaphore::new(target.most_requests),
                client,
                shared: Mutex::new(shared),
                target,
            })
        });
        Self { hop, asked: JoinSet::new(), account: CloudAccount::default() }
    }

    /// Begins a question; [`CloudClient::next`] gives its reply.
    ///
    /// # Errors
    /// Why it is not asked: no cloud, or the breaker is open. There will be no reply.
    pub(crate) fn ask(&mut self, question: Question, now: Instant) -> Result<(), Degraded> {
        let admitted = match &self.hop {
            None => Err(Degraded::CloudUnreachable),
            Some(hop) => match hop.shared().breaker.admit(now) {
                Admission::Refuse => Err(Degraded::CloudBreakerOpen),
                admission => Ok((Arc::clone(hop), admission)),
            },
        };
        match admitted {
            Ok((hop, admission)) => {
                self.asked.spawn(hop.answer(question, admission, now));
                Ok(())
            }
            Err(reason) => {
                *self.account.failed.entry(reason).or_default() += 1;
                Err(reason)
            }
        }
    }

    /// The next reply; waits for ever while nothing is asked.
    pub(crate) async fn next(&mut self) -> CloudReply {
        loop {
            match self.asked.join_next().await {
                Some(Ok(reply)) => return reply,
                // A task that panicked: the leader's own deadline decides the sample.
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// A reply that is there already.
    pub(crate) fn try_next(&mut self) -> Option<CloudReply> {
        self.asked.try_join_next()?.ok()
    }

    pub(crate) fn account(&self) -> CloudAccount {
        let mut account = match &self.hop {
            Some(hop) => {
                let shared = hop.shared();
                CloudAccount { breaker_opened: shared.breaker.opened(), ..shared.account.clone() }
            }
            None => CloudAccount::default(),
        };
        merge(&mut account.failed, &self.account.failed);
        account
    }
}

impl Hop {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(self: Arc<Self>, question: Question, admission: Admission, now: Instant) -> CloudReply {
        let sample = question.sample;
        let deadline = now + Duration::from_millis(u64::from(question.deadline_ms));
        self.shared().account.asked += 1;
        let mut exchange = std::pin::pin!(self.exchange(question, deadline));
        let result = match timeout_at(deadline, exchange.as_mut()).await {
            Ok(result) => {
                self.settle(admission, result.as_ref().map(|_| ()).map_err(|reason| *reason));
                result
            }
            Err(_) => {
                self.settle(admission, Err(Degraded::CloudTimeout));
                // The sample is decided by now; an answer that still comes is a revision.
                let late = timeout_at(deadline + self.target.linger, exchange).await;
                late.ok().and_then(Result::ok).ok_or(Degraded::CloudTimeout)
            }
        };
        if result.is_ok() {
            self.shared().account.answered += 1;
        }
        CloudReply { sample, result }
    }

    /// Tells breaker and account how a question stood at its deadline.
    fn settle(&self, admission: Admission, result: Result<(), Degraded>) {
        let mut shared = self.shared();
        match result {
            Ok(()) => {
                shared.breaker.succeeded();
                if admission == Admission::Probe {
                    info!(uri = %self.target.uri, "the cloud answers again");
                }
            }
            Err(reason) => {
                *shared.account.failed.entry(reason).or_default() += 1;
                let opened = shared.breaker.opened();
                shared.breaker.failed(admission, Instant::now(), die());
                if shared.breaker.opened() > opened && admission == Admission::Ask {
                    warn!(uri = %self.target.uri, reason = reason.name(), "the cloud fails: leaving it alone for a while");
                }
            }
        }
    }

    async fn exchange(&self, question: Question, deadline: Instant) -> Result<Vec<f32>, Degraded> {
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await.map_err(|_| Degraded::CloudUnreachable)?;
        let target = &self.target;
        // The leader asks for networks that it holds alone.
        let tail = target.networks.get(question.generation as usize).ok_or(Degraded::CloudRefused)?;
        let left = deadline.saturating_duration_since(Instant::now()).as_millis();
        let request = InferRequest {
            id: None,
            network: Some(tail.network),
            deadline_ms: Some(u32::try_from(left).unwrap_or(u32::MAX).max(1)),
            batch: FeatureBatch { samples: 1, features: question.features, presence: question.presence },
        };
        let (body, head_bytes) = encode_request(&request, tail.sources);
        self.shared().account.body_sent_bytes += body.len() as u64;
        let request = Request::post(target.uri.clone())
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(HEADER_LENGTH, head_bytes)
            .body(Full::new(Bytes::from(body)))
            .map_err(|_| Degraded::CloudRefused)?;
        // A connection that cannot be made and one that breaks: either way there is no cloud.
        let response = self.client.request(request).await.map_err(|_| Degraded::CloudUnreachable)?;
        if response.status() != StatusCode::OK {
            return Err(refusal(response.status()));
        }
        let head_bytes =
            response.headers().get(HEADER_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let limit = ANSWER_HEAD_BYTES + 16 * tail.classes;
        let body = Limited::new(response.into_body(), limit).collect().await;
        let body = body.map_err(|_| Degraded::CloudUnreachable)?.to_bytes();
        self.shared().account.body_received_bytes += body.len() as u64;
        match decode_response(&body, head_bytes, 1, tail.classes) {
            Ok(answer) if answer.network.is_none_or(|network| network == tail.network) => Ok(answer.logits),
            _ => Err(Degraded::CloudRefused),
        }
    }
}

fn refusal(status: StatusCode) -> Degraded {
    if status.as_u16() == Fault::DeadlineExceeded.http_status() {
        Degraded::CloudTimeout
    } else {
        Degraded::CloudRefused
    }
}

/// A number in `[0, 1]` from the seed of a fresh hasher. Jitter needs no better.
fn die() -> f32 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    (RandomState::new().build_hasher().finish() >> 40) as f32 / (1u64 << 24) as f32
}

fn merge(into: &mut BTreeMap<Degraded, u64>, from: &BTreeMap<Degraded, u64>) {
    for (reason, count) in from {
        *into.entry(*reason).or_default() += count;
    }
}

/// The address of a model's inference endpoint.
///
/// # Errors
/// A sentence for the operator when `url` is not `http://host[:port]`.
pub(crate) fn endpoint(url: &str, model: &str) -> Result<Uri, String> {
    let form = || format!("expected http://host:port, found {url:?}");
    let base: Uri = url.parse().map_err(|_| form())?;
    match base.scheme_str() {
        Some("http") => {}
        Some("https") => {
            return Err(format!(
                "{url:?}: TLS is not built into this version; use http on a trusted network"
            ));
        }
        _ => return Err(form()),
    }
    if base.path() != "/" && !base.path().is_empty() || base.query().is_some() {
        return Err(form());
    }
    let authority = base.authority().ok_or_else(form)?;
    format!("http://{authority}/v2/models/{model}/infer").parse().map_err(|_| form())
}

#[cfg(test)]
mod tests;
