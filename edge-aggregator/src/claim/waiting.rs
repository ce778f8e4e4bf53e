//! A process that does not lead yet: reads the claims on the topic `leader`, and decides when to publish its own.

use headwater_protocol::status::GroupState;
use headwater_protocol::{DeviceState, InstanceId, LeaderClaim};
use headwater_transport::LogLimit;
use tokio::time::Instant;
use tracing::field::display;
use tracing::{info, warn};

use super::{LISTEN, Process, RETRY, SILENT, read_claim};

/// State of a process that waits to lead.
#[derive(Debug)]
pub(crate) struct Waiting {
    own: Process,
    /// True while this process may replace a leader that is up: an operator's order, which holds until this process leads.
    take_over: bool,
    /// True if a second running process, with a copy of the journal, publishes claims with this process's name.
    is_own_foreign: bool,
    /// Time from which a missing claim means that nobody leads; `None` without a connection.
    listen_until: Option<Instant>,
    /// Highest term seen.
    term: u64,
    /// The latest claim on this connection that this process did not publish.
    known: Option<Known>,
    claimed: Option<Claimed>,
    /// Term that this process has claimed last.
    published: u64,
    /// True if a claim of another leader was read since this process led last.
    after_another: bool,
    log: LogLimit,
}

/// Most log lines a minute about claims.
const MAX_LINES: u32 = 6;

/// The latest claim of another process, the time at which it was read, and whether the log has named its leader and that leader's silence.
#[derive(Debug)]
struct Known {
    claim: LeaderClaim,
    heard: Instant,
    is_named: bool,
    is_silence_named: bool,
}

/// A published claim of this process, which does not lead yet.
#[derive(Clone, Copy, Debug)]
struct Claimed {
    term: u64,
    until: Instant,
    is_back: bool,
    is_refused: bool,
}

/// Next action of a waiting leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Wait for a message, or until [`Waiting::timer`].
    Wait,
    /// Publish this process's claim with this term.
    Claim { term: u64 },
    /// This process's claim came back first: this process leads.
    Lead(Won),
}

/// A claim of this process that came back first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Won {
    pub(crate) term: u64,
    /// True if another leader may have led before, and may have decided samples that are open or unsent in this process's journal.
    pub(crate) after_another: bool,
}

impl Waiting {
    pub(crate) fn new(own: Process, take_over: bool) -> Self {
        Self {
            own,
            take_over,
            is_own_foreign: false,
            listen_until: None,
            term: 0,
            known: None,
            claimed: None,
            published: 0,
            after_another: false,
            log: LogLimit::new(MAX_LINES),
        }
    }

    /// This process led, and another process took over with this claim.
    pub(crate) fn lost(&mut self, now: Instant, claim: LeaderClaim) {
        self.is_own_foreign |= claim.instance == self.own.instance;
        self.disconnected();
        self.learn(now, claim);
    }

    /// The broker has accepted the subscription; its retained message comes now.
    pub(crate) fn connected(&mut self, now: Instant) {
        // A restarted broker may have forgotten the claim of a known leader; a leader that lives publishes the claim again in this time.
        let knew_leader = self.known.take().is_some_and(|known| self.is_anothers(&known.claim));
        self.listen_until = Some(now + if knew_leader { SILENT } else { LISTEN });
        self.claimed = None;
    }

    pub(crate) fn disconnected(&mut self) {
        self.listen_until = None;
        self.claimed = None;
    }

    /// Takes a message of the topic `leader`; an empty message clears the claim.
    pub(crate) fn receive(&mut self, now: Instant, payload: &[u8]) {
        if payload.is_empty() {
            if self.known.take().is_some_and(|known| self.is_anothers(&known.claim)) {
                self.listen_until = Some(now + SILENT);
            }
            return;
        }
        match read_claim(payload) {
            Ok(claim) => self.learn(now, claim),
            Err(why) => {
                if self.log.take(now).is_some() {
                    warn!(why, "a message on the topic of the leader is no claim, and is ignored");
                }
            }
        }
    }

    /// The next action of this process.
    pub(crate) fn step(&mut self, now: Instant) -> Step {
        let Some(listen_until) = self.listen_until else { return Step::Wait };
        if let Some(Claimed { term, until, is_back, is_refused }) = self.claimed {
            if is_back {
                (self.take_over, self.claimed) = (false, None);
                let after_another = std::mem::take(&mut self.after_another);
                return Step::Lead(Won { term, after_another });
            }
            if now < until {
                return Step::Wait;
            }
            if !is_refused {
                self.name_missing_echo(now);
            }
        }
        let may_claim = match &self.known {
            None => now >= listen_until,
            Some(known) if self.is_anothers(&known.claim) => {
                let is_silent = now >= known.heard + SILENT;
                // A leader that never published its claim a second time never led.
                let may_follow = known.claim.instance == self.own.instance || known.claim.beat == 0;
                self.take_over || is_silent && may_follow
            }
            Some(_) => true,
        };
        if !may_claim {
            self.name_holder(now);
            return Step::Wait;
        }
        let term = (self.term + 1).min(LeaderClaim::MAX_TERM);
        self.claimed = Some(Claimed { term, until: now + RETRY, is_back: false, is_refused: false });
        self.published = term;
        Step::Claim { term }
    }

    /// Time of the next [`Waiting::step`], if no message comes before; `None` if only a message is waited for.
    pub(crate) fn timer(&self) -> Option<Instant> {
        let listen_until = self.listen_until?;
        match (&self.claimed, &self.known) {
            (Some(claimed), _) => Some(claimed.until),
            (None, None) => Some(listen_until),
            (None, Some(known)) => (!known.is_silence_named).then_some(known.heard + SILENT),
        }
    }

    /// State for the report, and the leader that this process waits for.
    pub(crate) fn state(&self, now: Instant) -> (GroupState, Option<InstanceId>) {
        match self.known.as_ref().filter(|known| self.is_anothers(&known.claim)) {
            None => (GroupState::Starting, None),
            Some(known) if now >= known.heard + SILENT => {
                (GroupState::WaitingForSilent, Some(known.claim.instance))
            }
            Some(known) => (GroupState::Waiting, Some(known.claim.instance)),
        }
    }

    pub(crate) fn claim_refused(&mut self) {
        if let Some(claimed) = &mut self.claimed {
            claimed.is_refused = true;
        }
    }

    fn learn(&mut self, now: Instant, claim: LeaderClaim) {
        let (up, term) = (claim.state == DeviceState::Up, claim.term);
        if self.own.published(&claim) && term == self.published {
            // If no claim is pending, another claim came first: this process's claim came second and does not count.
            if let Some(claimed) = &mut self.claimed {
                claimed.is_back |= up && term == claimed.term;
            }
            return;
        }
        // An earlier process with this journal had a lower term: a claim with this name and this term or a higher one is by a second
        // running process.
        let is_of_term = self.claimed.is_some_and(|claimed| !claimed.is_back && up && term >= claimed.term);
        self.is_own_foreign |= is_of_term && claim.instance == self.own.instance;
        if let Some(Known { claim: known, .. }) = &self.known {
            let is_same = (known.instance, known.process) == (claim.instance, claim.process);
            if term < known.term || term == known.term && !is_same && !up {
                return;
            }
        }
        self.claimed = self.claimed.filter(|claimed| claimed.is_back || !up || term < claimed.term);
        self.term = self.term.max(term);
        self.after_another |= self.is_strangers(&claim);
        let is_same =
            |known: &Known| (known.claim.instance, known.claim.process) == (claim.instance, claim.process);
        let same = self.known.take().filter(is_same);
        // A leader that lives raises the beat of its claim; anybody may publish the same claim again.
        let is_repeat = |known: &Known| {
            up && known.claim.state == DeviceState::Up
                && (term, claim.beat) <= (known.claim.term, known.claim.beat)
        };
        if same.as_ref().is_some_and(is_repeat) {
            self.known = same;
            return;
        }
        let (is_named, was_silent) =
            same.map_or((false, false), |known| (known.is_named, known.is_silence_named));
        if was_silent && self.log.take(now).is_some() {
            info!(leader = %claim.instance, "the leader of the group is heard again");
        }
        self.known = Some(Known { claim, heard: now, is_named, is_silence_named: false });
    }

    /// True if the claim is by another process that is up.
    fn is_anothers(&self, claim: &LeaderClaim) -> bool {
        claim.state == DeviceState::Up && self.is_strangers(claim)
    }

    /// True if the claim is by neither this process nor an earlier process with this journal.
    fn is_strangers(&self, claim: &LeaderClaim) -> bool {
        claim.instance != self.own.instance || self.is_own_foreign && !self.own.published(claim)
    }

    /// Logs the leader that this process waits for: once when that leader is seen first, and once when it is silent.
    fn name_holder(&mut self, now: Instant) {
        let Some(known) = &mut self.known else { return };
        let LeaderClaim { instance, term, since, software, process, .. } = &known.claim;
        let (process, has_own_journal) = (display(process), *instance == self.own.instance);
        if !known.is_named && self.log.take(now).is_some() {
            known.is_named = true;
            warn!(
                leader = %instance, process, has_own_journal, term, since, software,
                "another process leads the group; this one waits until it has ended (--take-over replaces it)"
            );
        }
        if now >= known.heard + SILENT && !known.is_silence_named {
            known.is_silence_named = true;
            let silent_s = (now - known.heard).as_secs();
            warn!(
                leader = %instance, term, since, software, silent_s,
                "the leader of the group is silent; if it is gone for good, start this process with --take-over to replace it"
            );
        }
    }

    fn name_missing_echo(&mut self, now: Instant) {
        if self.log.take(now).is_some() {
            warn!(
                "the broker does not return the claim of this leader; may it publish and read the topic `leader` of its group? see the access rules of the broker"
            );
        }
    }
}
