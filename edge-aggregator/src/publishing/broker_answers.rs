//! The broker's answers to a leader. Refused claims and results are counted, and every refusal is logged at most once a minute for each
//! topic. `/ready` reports a refused claim.

use std::sync::Arc;

use headwater_link::{Acknowledgement, Delivery, PublishRefusal};
use headwater_protocol::{Topic, Topics};
use headwater_transport::LogLimit;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::warn;

use crate::report::{LeaderReport, REFUSED_TOPICS};

/// The broker's answers to the claims and results of a group's leader.
#[derive(Debug)]
pub(crate) struct BrokerAnswers {
    claims: RefusedTopic,
    results: RefusedTopic,
    /// Limit on log lines about messages on other topics.
    others: LogLimit,
    report: Arc<Mutex<LeaderReport>>,
    /// The newest claim, until the broker has answered.
    claim: Option<Acknowledgement>,
}

/// A topic of the leader, with its limit on log lines.
#[derive(Debug)]
struct RefusedTopic {
    /// Last level of the topic, which is the label in metrics.
    name: &'static str,
    topic: String,
    log: LogLimit,
}

impl RefusedTopic {
    fn new(name: &'static str, topic: String) -> Self {
        Self { name, topic, log: LogLimit::new(1) }
    }
}

impl BrokerAnswers {
    pub(crate) fn new(topics: &Topics, report: Arc<Mutex<LeaderReport>>) -> Self {
        let [claims, results] = REFUSED_TOPICS;
        let claims = RefusedTopic::new(claims, topics.name(&Topic::Leader));
        let results = RefusedTopic::new(results, topics.name(&Topic::Result));
        Self { claims, results, others: LogLimit::new(1), report, claim: None }
    }

    /// Changes the counts in the leader's report by `update`.
    pub(crate) fn count<T>(&self, update: impl FnOnce(&mut LeaderReport) -> T) -> T {
        update(&mut self.report.lock())
    }

    /// Takes the claim that was just sent. Later answers to earlier claims are ignored.
    pub(crate) fn claim_sent(&mut self, claim: Acknowledgement) {
        self.poll_claim(Instant::now());
        self.claim = Some(claim);
    }

    /// Logs a refused message that is neither a claim nor a result: the refusals of these come with the acknowledgements.
    pub(crate) fn refused_otherwise(&mut self, now: Instant, topic: &str, reason: &PublishRefusal) {
        if topic == self.claims.topic || topic == self.results.topic {
            return;
        }
        if let Some(not_logged) = self.others.take(now) {
            let advice = match reason {
                PublishRefusal::NotAuthorized => "allow its topic in the access rules",
                PublishRefusal::Other(_) => "the broker's log may say more",
            };
            warn!(topic, %reason, advice, not_logged, "the broker refuses a message of the leader");
        }
    }

    /// True if a claim has no answer yet.
    pub(crate) fn awaits_claim(&self) -> bool {
        self.claim.is_some()
    }

    /// Takes the answer to the claim, if it is there.
    pub(crate) fn poll_claim(&mut self, now: Instant) {
        if let Some(answer) = self.claim.as_mut().map(Acknowledgement::poll) {
            self.take_claim(now, answer);
        }
    }

    /// Waits for the broker's answer to the newest claim, for ever if no claim is unanswered. Returns true if the broker refused the claim.
    /// Cancelling the wait loses nothing.
    pub(crate) async fn next_claim(&mut self) -> bool {
        let Some(claim) = &mut self.claim else { return std::future::pending().await };
        let answer = claim.wait().await;
        let is_refused = matches!(answer, Delivery::Refused { .. });
        self.take_claim(Instant::now(), answer);
        is_refused
    }

    fn take_claim(&mut self, now: Instant, answer: Delivery) {
        let refused = match answer {
            Delivery::Pending => return,
            // The connection was lost; another claim is published on the next connection.
            Delivery::Lost => {
                self.claim = None;
                return;
            }
            Delivery::Acknowledged => None,
            Delivery::Refused { reason, needs_rights } => {
                Some(refused(&self.report, &mut self.claims, now, &refusal(&reason, needs_rights)))
            }
        };
        self.claim = None;
        self.report.lock().claim.claim_refused = refused;
    }

    pub(crate) fn result_refused(&mut self, now: Instant, reason: &str, needs_rights: bool) {
        refused(&self.report, &mut self.results, now, &refusal(reason, needs_rights));
    }
}

/// Counts a refusal, and logs it unless this topic had a line in the last minute. Returns the sentence of the log.
fn refused(report: &Mutex<LeaderReport>, kind: &mut RefusedTopic, now: Instant, why: &str) -> String {
    *report.lock().refused_by_broker.entry(kind.name).or_default() += 1;
    let sentence = format!("the broker refuses what this leader publishes on {}: {why}", kind.topic);
    if let Some(not_logged) = kind.log.take(now) {
        warn!(not_logged, "{sentence}");
    }
    sentence
}

/// The broker's reason, followed by what the operator can do.
fn refusal(reason: &str, needs_rights: bool) -> String {
    let advice = match needs_rights {
        true => {
            "; give this client the role of a leader of the group in the broker's access rules (`headwater enroll add leader` writes them)"
        }
        false => "; the broker's log may say more",
    };
    format!("{reason}{advice}")
}
