//! The claim of a process that leads.

use headwater_protocol::{DeviceState, LeaderClaim};
use headwater_transport::LogLimit;
use tokio::time::Instant;
use tracing::warn;

use super::{BEAT, RETRY, claim_text, read_claim};

/// The claim of a process that leads, and whether the broker has confirmed it on this connection.
#[derive(Debug)]
pub(crate) struct HeldClaim {
    claim: LeaderClaim,
    /// True once the claim came back on this connection, with no better claim before.
    is_confirmed: bool,
    /// The claim of the leader that took over; `None` while none has.
    taken_over: Option<LeaderClaim>,
    /// Time of the next publication; `None` without a connection.
    next: Option<Instant>,
    published: Option<Instant>,
    /// Limit on log lines about an altered claim.
    log: LogLimit,
}

impl HeldClaim {
    /// Holds a claim that came back before any other claim of its term.
    pub(crate) fn new(claim: LeaderClaim) -> Self {
        Self {
            claim,
            is_confirmed: false,
            taken_over: None,
            next: None,
            published: None,
            log: LogLimit::new(1),
        }
    }

    /// A new connection: the claim is published again, and counts again when it has come back.
    pub(crate) fn connected(&mut self, now: Instant) {
        self.is_confirmed = false;
        self.next = Some(now);
    }

    pub(crate) fn disconnected(&mut self) {
        self.is_confirmed = false;
        self.next = None;
    }

    /// Takes a message of the topic `leader`. Returns true for the first message on this connection that confirms the claim.
    pub(crate) fn receive(&mut self, now: Instant, payload: &[u8]) -> bool {
        let Some(found) = read_claim(payload).ok() else {
            self.repair(now, "no claim");
            return false;
        };
        let (own, is_up) = (&self.claim, found.state == DeviceState::Up);
        if is_up && (found.instance, found.process, found.term) == (own.instance, own.process, own.term) {
            return !std::mem::replace(&mut self.is_confirmed, true);
        }
        // The first claim of a term counts, and its leader alone goes on to publish it. A broker that forgot the claim may have let a
        // second leader begin with the same term: then the larger name stays leader, and of two equal names the one with the larger number.
        let is_larger = (found.instance, found.process) > (own.instance, own.process);
        let is_better = found.term > own.term || found.term == own.term && found.beat > 0 && is_larger;
        if is_up && is_better {
            self.taken_over = Some(found);
        } else {
            self.repair(now, if is_up { "an older claim" } else { "a last will" });
        }
        false
    }

    /// The claim of the leader that took over, after which this process must not decide; `None` while none has.
    pub(crate) fn taken_over(&self) -> Option<&LeaderClaim> {
        self.taken_over.as_ref()
    }

    /// Time of the next publication; `None` without a connection to the broker.
    pub(crate) fn timer(&self) -> Option<Instant> {
        self.next
    }

    /// The claim as a message, if it is to be published now; `None` otherwise.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.next.filter(|next| *next <= now && self.taken_over.is_none())?;
        self.next = Some(now + if self.is_confirmed { BEAT } else { RETRY });
        self.published = Some(now);
        self.claim.beat += 1;
        Some(claim_text(&self.claim))
    }

    /// Makes the next publication due soon, since the topic `leader` holds something else than the claim.
    fn repair(&mut self, now: Instant, found: &str) {
        if self.log.take(now).is_some() {
            warn!(
                found,
                "the claim of this leader was altered or cleared at the broker, and is published again"
            );
        }
        let earliest = self.published.map_or(now, |published| published + RETRY).max(now);
        self.next = self.next.map(|next| next.min(earliest));
    }
}
