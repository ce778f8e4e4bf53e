//! The event loop: one task owns the leader and everything its actions touch.
//!
//! Each turn takes all that has come, gives it to the leader, writes the journal once, and only then publishes and asks.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headwater_inference::edge::EdgeEvent;
use headwater_inference::leader::journal::Entry;
use headwater_inference::leader::{Action, Event, Generation, Leader};
use headwater_inference::sections::EdgeOutput;
use headwater_link::Incoming;
use headwater_protocol::{NetworkTag, SampleId, Settled};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use crate::clock::Clock;
use crate::cloud::{CloudClient, CloudReply, Question};
use crate::edge::{EdgeReply, OwnEdges};
use crate::inbox::Inbox;
use crate::journal::{Journal, JournalError};
use crate::outbox::Outbox;
use crate::report::{AggregatorReport, LeaderAccount};

/// Messages taken from the link in one turn.
const TURN_MESSAGES: usize = 256;

/// How often results are tried again while the link's queue is full.
const RETRY: Duration = Duration::from_millis(10);

/// Everything the event loop owns.
pub(crate) struct Worker {
    pub(crate) leader: Leader,
    pub(crate) edges: OwnEdges,
    pub(crate) clock: Clock,
    pub(crate) inbox: Inbox,
    pub(crate) incoming: mpsc::Receiver<Incoming>,
    pub(crate) outbox: Outbox,
    /// In the order of [`Generation`].
    pub(crate) networks: Vec<NetworkTag>,
    pub(crate) cloud: CloudClient,
    pub(crate) journal: Journal,
    pub(crate) settled_every: Duration,
    pub(crate) grace: Duration,
    pub(crate) report: Arc<Mutex<AggregatorReport>>,
    /// What the leader wants done; empty between turns.
    pub(crate) actions: Vec<Action>,
    pub(crate) account: PublishedAccount,
}

/// The account as the group knows it.
#[derive(Debug, Default)]
pub(crate) struct PublishedAccount {
    settled: Settled,
    /// When it may be published next; `None` before the first time.
    next: Option<Instant>,
}

/// Why the loop ended.
enum End {
    /// It was asked to stop.
    Asked,
    /// The link's task is gone.
    LinkEnded,
}

impl Worker {
    /// Runs until `stop` turns true, then until no sample is open or the grace time is over.
    ///
    /// # Errors
    /// [`JournalError::Write`]: what cannot be journalled must not be decided.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) -> Result<(), JournalError> {
        for (generation, edge) in self.edges.all().collect::<Vec<_>>() {
            self.tell_leader_of(Instant::now(), generation, Event::EdgeUp { edge });
        }
        // What an earlier life left, as the leader asked when it recovered.
        self.act(Instant::now()).await?;
        let asked = async move { _ = stop.wait_for(|&stop| stop).await };
        match self.turn_until(asked).await? {
            End::LinkEnded => warn!("the link ended: no message will come"),
            End::Asked => {
                self.inbox.stop_after(self.leader.newest());
                let grace = Instant::now() + self.grace;
                while self.leader.open_samples().len() > 0 && Instant::now() < grace {
                    let soon = Instant::now() + RETRY;
                    if matches!(self.turn_until(sleep_until(soon.min(grace))).await?, End::LinkEnded) {
                        break;
                    }
                }
            }
        }
        let open = self.leader.open_samples().len();
        if open > 0 {
            warn!(open, "stopped with open samples; a restart with this journal drops them");
        }
        self.account.next = None;
        self.publish_account(Instant::now());
        self.tell();
        Ok(())
    }

    async fn turn_until(&mut self, stop: impl Future<Output = ()>) -> Result<End, JournalError> {
        let mut stop = std::pin::pin!(stop);
        let mut messages = Vec::with_capacity(TURN_MESSAGES);
        loop {
            let wake = self.next_wake();
            let (mut reply, mut edge_reply) = (None, None);
            tokio::select! {
                biased;
                () = &mut stop => return Ok(End::Asked),
                taken = self.incoming.recv_many(&mut messages, TURN_MESSAGES) => if taken == 0 {
                    return Ok(End::LinkEnded);
                },
                first = self.cloud.next() => reply = Some(first),
                first = self.edges.next() => edge_reply = Some(first),
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
            // Whatever woke it, every turn looks at everything: no source can starve another.
            let now = Instant::now();
            messages.drain(..).for_each(|message| self.take(now, message));
            while let Some(next) = reply.take().or_else(|| self.cloud.try_next()) {
                self.replied(now, next);
            }
            self.edges.tick(self.clock.micros(now));
            while let Some(next) = edge_reply.take().or_else(|| self.edges.try_next()) {
                self.edge_replied(now, &next);
            }
            self.tell_leader(now, Event::Tick);
            self.act(now).await?;
            self.publish_account(now);
            self.tell();
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let leader = [self.leader.next_timer(), self.edges.next_wake()].into_iter().flatten().min();
        let leader = leader.map(|at| self.clock.instant(at));
        let account = self.account_is_news().then(|| self.account.next.unwrap_or_else(Instant::now));
        let retry = (self.outbox.waiting() > 0).then(|| Instant::now() + RETRY);
        [leader, account, retry].into_iter().flatten().min()
    }

    fn take(&mut self, now: Instant, message: Incoming) {
        match message {
            Incoming::Message { topic, payload, .. } => {
                let (newest, at) = (self.leader.newest_known(), self.clock.micros(now));
                let (leader, edges, actions) = (&mut self.leader, &mut self.edges, &mut self.actions);
                self.inbox.receive(&topic, &payload, newest, |generation, event| {
                    edges.overhear(at, generation, &event);
                    leader.handle(at, generation, event, actions);
                });
            }
            Incoming::Connected => {
                self.outbox.reconnected(now);
                self.tell_leader(now, Event::Connected);
                // A broker that was restarted has lost what it kept.
                self.account = PublishedAccount::default();
            }
            Incoming::Disconnected { reason } => {
                debug!(reason, "results wait for the broker");
                self.outbox.disconnected(now);
            }
        }
    }

    fn replied(&mut self, now: Instant, reply: CloudReply) {
        let CloudReply { sample, result } = reply;
        match result {
            Ok(logits) => self.tell_leader(now, Event::CloudAnswer { sample, logits: &logits }),
            Err(reason) => self.tell_leader(now, Event::CloudFailed { sample, reason }),
        }
    }

    fn edge_replied(&mut self, now: Instant, reply: &EdgeReply) {
        let EdgeReply { generation, edge, sample, slots, ref output, .. } = *reply;
        match output {
            Some(EdgeOutput { scores, features }) => {
                let (map, body_bytes) = (&features[..], 0);
                let answer = Event::EdgeAnswer { edge, sample, slots, scores, map, body_bytes };
                self.tell_leader_of(now, generation, answer);
            }
            None => self.tell_leader_of(now, generation, Event::EdgeGone { edge, sample }),
        }
    }

    /// What is true whichever network the group runs.
    fn tell_leader(&mut self, now: Instant, event: Event<'_>) {
        self.tell_leader_of(now, Generation::Current, event);
    }

    fn tell_leader_of(&mut self, now: Instant, generation: Generation, event: Event<'_>) {
        self.leader.handle(self.clock.micros(now), generation, event, &mut self.actions);
    }

    /// Does what the leader wants: journal first, then the rest. A question that cannot be asked makes new actions.
    async fn act(&mut self, now: Instant) -> Result<(), JournalError> {
        while !self.actions.is_empty() {
            let mut actions = std::mem::take(&mut self.actions);
            for action in &actions {
                self.journal_entry(action);
            }
            self.journal.flush().await?;
            for action in actions.drain(..) {
                self.perform(now, action);
            }
            if self.actions.is_empty() {
                // Keep the allocation for the next turn.
                self.actions = actions;
                break;
            }
        }
        let (leader, journal) = (&self.leader, &mut self.journal);
        let closed = (leader.closed_floor(), leader.closed_samples());
        journal.compact_if_full(leader.settled(), closed, leader.open_samples())
    }

    fn journal_entry(&mut self, action: &Action) {
        let entry = match action {
            Action::Open(sample) => Entry::Opened(*sample),
            Action::Decide(decision) => Entry::Decided(decision.clone()),
            Action::Drop { sample, reason } => Entry::Dropped { sample: *sample, reason: *reason },
            Action::Request { .. }
            | Action::Collect { .. }
            | Action::AskCloud { .. }
            | Action::Revise(_)
            | Action::Republish(_) => return,
        };
        self.journal.append(&entry);
    }

    fn perform(&mut self, now: Instant, action: Action) {
        match action {
            Action::Open(_) => {}
            Action::Request { generation, sample, slots } => {
                // The leader asks under networks that it holds alone.
                if let Some(network) = self.networks.get(generation as usize) {
                    self.outbox.request(*network, sample, slots);
                }
            }
            Action::Collect { generation, sample, slots } => {
                let collect = EdgeEvent::Collect { sample, slots };
                self.edges.hear(self.clock.micros(now), generation, collect);
            }
            Action::AskCloud { generation, sample, features, presence, deadline_ms } => {
                let question = Question { generation, sample, features, presence, deadline_ms };
                if let Err(reason) = self.cloud.ask(question, now) {
                    self.tell_leader(now, Event::CloudFailed { sample, reason });
                }
            }
            Action::Decide(decision) => {
                self.counts(|report| report.count(&decision));
                self.outbox.result(&decision, now);
            }
            Action::Revise(decision) => {
                self.counts(|report| report.revisions += 1);
                self.outbox.revision(&decision);
            }
            Action::Drop { reason, .. } => {
                self.counts(|report| *report.dropped.entry(reason).or_default() += 1);
            }
            Action::Republish(decision) => {
                self.counts(|report| report.republished += 1);
                self.outbox.result(&decision, now);
            }
        }
    }

    fn account_is_news(&self) -> bool {
        self.account.next.is_none()
            || *self.leader.settled() != self.account.settled
            || self.leader.unpublished_late() > 0
    }

    fn publish_account(&mut self, now: Instant) {
        let is_time = self.account.next.is_none_or(|next| now >= next);
        if !is_time || !self.account_is_news() {
            return;
        }
        let notice = self.leader.notice();
        // Not taken, because the broker is away: said again when it is back, at the latest.
        if self.outbox.settled(&notice) {
            self.leader.notice_published(&notice);
            self.account.settled = notice.account;
        }
        self.account.next = Some(now + self.settled_every);
    }

    fn counts(&self, count: impl FnOnce(&mut AggregatorReport)) {
        count(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Brings the report up to date with what others count.
    fn tell(&mut self) {
        let waiting = self.outbox.waiting();
        if waiting > 0 {
            self.outbox.flush(Instant::now());
        }
        self.counts(|report| {
            report.open = self.leader.open_samples().len() as u64;
            report.filled_slots = self.inbox.filled_slots();
            report.leader = LeaderAccount::from(&self.leader.counts());
            report.journal = self.journal.account();
            report.strays = self.inbox.strays();
            report.results_waiting = self.outbox.waiting() as u64;
            report.results_unsent = self.outbox.unsent();
            report.cloud = self.cloud.account();
            report.refused = self.inbox.refusals();
            report.refused_edges = self.inbox.edge_refusals();
            report.edges_up = self.leader.edges_up().bits();
        });
    }
}

/// Says what a start found.
pub(crate) fn log_recovery(highest: SampleId, decisions: usize, open: usize, torn_bytes: u64) {
    if torn_bytes > 0 {
        warn!(torn_bytes, "the journal's last line was torn and is cut off; it was never published");
    }
    if highest > SampleId(0) || open > 0 {
        info!(%highest, republishing = decisions, dropping = open, "going on from the journal");
    }
}
