//! Event loop of a group's leader: one task owns the state machine and everything that its actions change.
//!
//! Each round takes all pending input, gives it to the leader, writes the journal once, and only then publishes and asks.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headwater_inference::edge::EdgeEvent;
use headwater_inference::leader::journal::Entry;
use headwater_inference::leader::{Action, EdgeAnswer, Event, Generation, Leader};
use headwater_inference::sections::TierOutput;
use headwater_link::Incoming;
use headwater_protocol::Settled;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use crate::clock::Clock;
use crate::cloud::{CloudClient, CloudQuestion, CloudReply};
use crate::edge::{EdgeReply, LocalEdges};
use crate::inbox::Inbox;
use crate::journal::{Journal, JournalError};
use crate::outbox::Outbox;
use crate::report::LeaderReport;

/// Messages taken from the link in one round.
pub(crate) const ROUND_MESSAGES: usize = 256;

/// Time between two attempts to publish results while the link's queue is full.
const RETRY: Duration = Duration::from_millis(10);

/// State of the event loop.
pub(crate) struct Worker {
    pub(crate) leader: Leader,
    pub(crate) edges: LocalEdges,
    pub(crate) clock: Clock,
    pub(crate) inbox: Inbox,
    pub(crate) incoming: mpsc::Receiver<Incoming>,
    pub(crate) outbox: Outbox,
    pub(crate) cloud: CloudClient,
    pub(crate) journal: Journal,
    pub(crate) settled_every: Duration,
    pub(crate) grace: Duration,
    pub(crate) report: Arc<Mutex<LeaderReport>>,
    /// Actions of the leader; empty between rounds.
    pub(crate) actions: Vec<Action>,
    pub(crate) published: PublishedSettled,
}

/// Settled samples as last published.
#[derive(Debug, Default)]
pub(crate) struct PublishedSettled {
    settled: Settled,
    /// Earliest time of the next publication; `None` before the first one.
    next: Option<Instant>,
}

/// Why the rounds ended.
enum End {
    /// A stop was requested.
    Requested,
    /// The task of the link ended.
    LinkEnded,
}

impl Worker {
    /// Runs until `stop` becomes true, then until no sample is open or the grace time is over.
    ///
    /// # Errors
    /// [`JournalError::Write`]: a decision that cannot be journalled must not be published.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) -> Result<(), JournalError> {
        for (generation, edge) in self.edges.all().collect::<Vec<_>>() {
            self.handle_under(Instant::now(), generation, Event::EdgeUp { edge });
        }
        // The recovery from the journal may have left actions.
        self.act(Instant::now()).await?;
        let requested = async move { _ = stop.wait_for(|&stop| stop).await };
        match self.rounds_until(requested).await? {
            End::LinkEnded => warn!("the link ended: no more messages will come"),
            End::Requested => {
                self.inbox.last_sample = Some(self.leader.newest());
                let grace = Instant::now() + self.grace;
                while self.leader.open_samples().len() > 0 && Instant::now() < grace {
                    let soon = Instant::now() + RETRY;
                    if matches!(self.rounds_until(sleep_until(soon.min(grace))).await?, End::LinkEnded) {
                        break;
                    }
                }
            }
        }
        let open = self.leader.open_samples().len();
        if open > 0 {
            warn!(open, "stopped with open samples; a restart with this journal drops them");
        }
        self.published.next = None;
        self.publish_settled(Instant::now());
        self.update_report();
        Ok(())
    }

    async fn rounds_until(&mut self, stop: impl Future<Output = ()>) -> Result<End, JournalError> {
        let mut stop = std::pin::pin!(stop);
        let mut messages = Vec::with_capacity(ROUND_MESSAGES);
        loop {
            let timer = self.next_timer();
            let (mut reply, mut edge_reply) = (None, None);
            tokio::select! {
                biased;
                () = &mut stop => return Ok(End::Requested),
                taken = self.incoming.recv_many(&mut messages, ROUND_MESSAGES) => if taken == 0 {
                    return Ok(End::LinkEnded);
                },
                first = self.cloud.next() => reply = Some(first),
                first = self.edges.next() => edge_reply = Some(first),
                () = sleep_until(timer.unwrap_or_else(Instant::now)), if timer.is_some() => {}
            }
            // Every round reads every source, so that no source can starve another.
            let now = Instant::now();
            messages.drain(..).for_each(|message| self.receive(now, message));
            while let Some(CloudReply { sample, result }) = reply.take().or_else(|| self.cloud.try_next()) {
                match result {
                    Ok(logits) => self.handle(now, Event::CloudAnswer { sample, logits: &logits }),
                    Err(reason) => self.handle(now, Event::CloudFailed { sample, reason }),
                }
            }
            self.edges.tick(self.clock.micros(now));
            while let Some(next) = edge_reply.take().or_else(|| self.edges.try_next()) {
                self.on_edge_reply(now, &next);
            }
            self.handle(now, Event::Tick);
            self.act(now).await?;
            self.publish_settled(now);
            self.update_report();
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        let leader = [self.leader.next_timer(), self.edges.next_timer()].into_iter().flatten().min();
        let leader = leader.map(|at| self.clock.instant(at));
        let settled = self.has_new_settled().then(|| self.published.next.unwrap_or_else(Instant::now));
        let retry = (!self.outbox.waiting.is_empty()).then(|| Instant::now() + RETRY);
        [leader, settled, retry].into_iter().flatten().min()
    }

    fn receive(&mut self, now: Instant, message: Incoming) {
        match message {
            Incoming::Message { topic, payload, .. } => {
                let (newest, at) = (self.leader.newest_known(), self.clock.micros(now));
                let (leader, edges, actions) = (&mut self.leader, &mut self.edges, &mut self.actions);
                self.inbox.receive(&topic, &payload, newest, |generation, event| {
                    edges.handle_leader_event(at, generation, &event);
                    leader.handle(at, generation, event, actions);
                });
            }
            Incoming::Connected => {
                self.outbox.reconnected(now);
                self.handle(now, Event::Connected);
                // A restarted broker has lost its retained messages.
                self.published = PublishedSettled::default();
            }
            Incoming::Disconnected { reason } => {
                debug!(reason, "results wait for the broker");
                self.outbox.disconnected(now);
            }
        }
    }

    fn on_edge_reply(&mut self, now: Instant, reply: &EdgeReply) {
        let EdgeReply { generation, edge, sample, slots, ref output, .. } = *reply;
        let answer = output.as_ref().map(|TierOutput { scores, features }| EdgeAnswer {
            slots,
            scores,
            map: features,
            body_bytes: 0,
        });
        self.handle_under(now, generation, Event::EdgeAnswer { edge, sample, answer });
    }

    /// Gives the leader an event that is the same under every network.
    fn handle(&mut self, now: Instant, event: Event<'_>) {
        self.handle_under(now, Generation::Current, event);
    }

    fn handle_under(&mut self, now: Instant, generation: Generation, event: Event<'_>) {
        self.leader.handle(self.clock.micros(now), generation, event, &mut self.actions);
    }

    /// Performs the leader's actions after their entries are in the journal. A question that cannot be asked causes new actions.
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
                // The next round reuses the allocation.
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
                // The leader requests only under networks that it holds.
                if let Some(format) = self.inbox.formats.get(generation) {
                    self.outbox.request(format.network.tag(), sample, slots);
                }
            }
            Action::Collect { generation, sample, slots } => {
                let collect = EdgeEvent::Collect { sample, slots };
                self.edges.handle(self.clock.micros(now), generation, collect);
            }
            Action::AskCloud { generation, sample, features, presence, deadline_ms } => {
                let question = CloudQuestion { generation, sample, features, presence, deadline_ms };
                if let Err(reason) = self.cloud.ask(question, now) {
                    self.handle(now, Event::CloudFailed { sample, reason });
                }
            }
            Action::Decide(decision) => {
                self.with_report(|report| report.count(&decision));
                self.outbox.result(&decision, now);
            }
            Action::Revise(decision) => {
                self.with_report(|report| report.revisions += 1);
                self.outbox.revision(&decision);
            }
            Action::Drop { reason, .. } => {
                self.with_report(|report| *report.dropped.entry(reason).or_default() += 1);
            }
            Action::Republish(decision) => {
                self.with_report(|report| report.republished += 1);
                self.outbox.result(&decision, now);
            }
        }
    }

    /// Whether the settled samples differ from those published last.
    fn has_new_settled(&self) -> bool {
        self.published.next.is_none()
            || *self.leader.settled() != self.published.settled
            || self.leader.unpublished_late() > 0
    }

    fn publish_settled(&mut self, now: Instant) {
        let is_time = self.published.next.is_none_or(|next| now >= next);
        if !is_time || !self.has_new_settled() {
            return;
        }
        let notice = self.leader.notice();
        // Without a broker the link refuses the message. The next connection publishes the samples again.
        if self.outbox.settled(&notice) {
            self.leader.notice_published(&notice);
            self.published.settled = notice.account;
        }
        self.published.next = Some(now + self.settled_every);
    }

    fn with_report(&self, update: impl FnOnce(&mut LeaderReport)) {
        update(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Copies the counts of the parts into the report.
    fn update_report(&mut self) {
        if !self.outbox.waiting.is_empty() {
            self.outbox.flush(Instant::now());
        }
        self.with_report(|report| {
            report.open = self.leader.open_samples().len() as u64;
            report.filled_slots = self.inbox.devices.filled();
            report.leader = self.leader.counts();
            report.journal = self.journal.counts;
            report.unroutable = self.inbox.unroutable;
            report.results_waiting = self.outbox.waiting.len() as u64;
            report.results_unsent = self.outbox.unsent;
            report.cloud = self.cloud.counts();
            report.refused = self.inbox.devices.refusals();
            report.refused_edges = self.inbox.edges.refusals();
            report.edges_up = self.leader.edges_up();
        });
    }
}
