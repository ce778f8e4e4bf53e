//! Event loop of a group's leader: one task owns the state machine and everything that its actions change.
//!
//! Each round takes all pending input, gives it to the leader, writes the journal once, and only then publishes and asks.

use std::sync::Arc;
use std::time::Duration;

use headwater_inference::edge::EdgeEvent;
use headwater_inference::leader::journal::Entry;
use headwater_inference::leader::{Action, EdgeAnswer, Event, Generation, Implausible, Leader, Now};
use headwater_inference::sections::TierOutput;
use headwater_link::Incoming;
use headwater_protocol::{Dropped, LeaderClaim, SampleId, Session, SettledNotice, encode_request};
use headwater_telemetry::WorkLoop;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use crate::claim::HeldClaim;
use crate::clock::Clock;
use crate::cloud::{CloudClient, CloudQuestion, CloudReply};
use crate::devices::device_watch::{CheckInputs, DeviceWatch};
use crate::devices::inbox::{Inbox, Received};
use crate::devices::message_format::Arrival;
use crate::devices::refused_devices::RefusedDevices;
use crate::error::AggregatorError;
use crate::group::edge::{EdgeReply, LocalEdges};
use crate::group::member::ROUND_MESSAGES;
use crate::group::policy_desk::PolicyDesk;
use crate::journal::{Flush, Journal, RoomChange};
use crate::publishing::outbox::Outbox;
use crate::publishing::settled_schedule::SettledSchedule;
use crate::report::LeaderReport;
use crate::settings::live::{DeviceUpdates, PolicyUpdates, next_update};

/// Actions that may wait for the journal. Beyond it no messages are taken.
const MAX_WAITING_ACTIONS: usize = 65_536;

/// Time between two checks whether the last open samples are decided.
const RETRY: Duration = Duration::from_millis(10);

/// State of the event loop.
pub(crate) struct Worker {
    pub(crate) leader: Leader,
    pub(crate) edges: LocalEdges,
    pub(crate) policy_desk: PolicyDesk,
    pub(crate) policy_updates: Option<PolicyUpdates>,
    pub(crate) device_updates: Option<DeviceUpdates>,
    pub(crate) clock: Clock,
    pub(crate) device_watch: DeviceWatch,
    pub(crate) work_loop: WorkLoop,
    pub(crate) inbox: Inbox,
    /// Newest sample that is taken, while this process stops or the journal has no room.
    pub(crate) last_sample: Option<SampleId>,
    pub(crate) incoming: mpsc::Receiver<Incoming>,
    pub(crate) outbox: Outbox,
    pub(crate) claim: HeldClaim,
    pub(crate) cloud: CloudClient,
    pub(crate) journal: Journal,
    pub(crate) refused: RefusedDevices,
    pub(crate) settled: SettledSchedule,
    pub(crate) grace: Duration,
    pub(crate) report: Arc<Mutex<LeaderReport>>,
    /// Actions of the leader; empty between rounds.
    pub(crate) actions: Vec<Action>,
}

/// Why the rounds ended.
enum End {
    /// A stop was requested.
    Requested,
    /// The task of the link ended.
    LinkEnded,
    /// Another process leads now.
    TakenOver(LeaderClaim),
}

impl Worker {
    /// Runs until `stop` becomes true, then until no sample is open or the grace time is over. Ends at once, without a further message,
    /// with the claim of a leader that took over.
    ///
    /// # Errors
    /// [`AggregatorError::Stopped`] when the link ended by itself.
    pub(crate) async fn run(
        mut self,
        mut stop: watch::Receiver<bool>,
    ) -> Result<Option<LeaderClaim>, AggregatorError> {
        let now = Instant::now();
        for (generation, edge) in self.edges.all().collect::<Vec<_>>() {
            self.handle_under(now, generation, Event::EdgeUp { edge });
        }
        // Until the connection stands no device can send again what it holds.
        self.handle(now, Event::Disconnected);
        // The policy may have changed while another process led.
        self.take_policy();
        self.take_devices(now);
        // The recovery from the journal may have left actions.
        self.act(now).await;
        self.follow_room(now);
        let requested = async move { _ = stop.wait_for(|&stop| stop).await };
        let end = self.rounds_until(requested).await;
        let link_ended = matches!(end, End::LinkEnded);
        match end {
            End::LinkEnded => warn!("the link ended: no more messages will come"),
            End::TakenOver(claim) => return Ok(Some(claim)),
            End::Requested => {
                let last_sample = Some(self.leader.newest());
                let grace = Instant::now() + self.grace;
                while self.has_open_work() && Instant::now() < grace {
                    self.last_sample = last_sample;
                    let soon = Instant::now() + RETRY;
                    match self.rounds_until(sleep_until(soon.min(grace))).await {
                        End::Requested => {}
                        End::LinkEnded => break,
                        End::TakenOver(claim) => return Ok(Some(claim)),
                    }
                }
            }
        }
        let open = self.leader.open_samples().len();
        if open > 0 {
            warn!(
                open,
                "stopped with open samples; a restart with this journal decides those that devices still hold"
            );
        }
        if !self.actions.is_empty() {
            warn!(
                "stopped while the journal could not be written: a restart drops the samples whose decisions it lacks"
            );
        }
        self.settled.restart();
        self.leader.begin_notices();
        let now = Instant::now();
        self.publish_settled(now);
        self.outbox.flush(now);
        self.report_state();
        if link_ended { Err(AggregatorError::Stopped("the link ended".into())) } else { Ok(None) }
    }

    /// Whether samples are open, or decisions wait for the journal.
    fn has_open_work(&self) -> bool {
        self.leader.open_samples().len() > 0 || !self.actions.is_empty()
    }

    async fn rounds_until(&mut self, stop: impl Future<Output = ()>) -> End {
        let mut stop = std::pin::pin!(stop);
        let mut messages = Vec::with_capacity(ROUND_MESSAGES);
        loop {
            let timer = self.next_timer(Instant::now());
            let takes_messages = self.actions.len() < MAX_WAITING_ACTIONS;
            let (mut reply, mut edge_reply) = (None, None);
            self.work_loop.end_round();
            tokio::select! {
                biased;
                () = &mut stop => return End::Requested,
                // Before the messages: samples that they open are decided under the new policy.
                () = next_update(&mut self.policy_updates) => self.take_policy(),
                // After the policy that an accepted command has changed.
                () = self.policy_desk.executed() => {}
                () = next_update(&mut self.device_updates) => self.take_devices(Instant::now()),
                taken = self.incoming.recv_many(&mut messages, ROUND_MESSAGES), if takes_messages => if taken == 0 {
                    return End::LinkEnded;
                },
                first = self.cloud.next() => reply = Some(first),
                first = self.edges.next() => edge_reply = Some(first),
                () = sleep_until(timer.unwrap_or_else(Instant::now)), if timer.is_some() => {}
            }
            self.work_loop.begin_round();
            // Every round reads every source, so that no source can starve another.
            let now = Instant::now();
            messages.drain(..).for_each(|message| self.receive(now, message));
            if let Some(claim) = self.claim.taken_over() {
                return End::TakenOver(claim.clone());
            }
            self.renew(now);
            self.watch_devices(now);
            self.clear_births(now);
            self.policy_desk.step(now, &self.inbox.devices, &self.outbox);
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
            self.act(now).await;
            self.follow_room(now);
            self.publish_settled(now);
            self.outbox.flush(now);
            self.report_state();
        }
    }

    /// Takes the newest policy. Open samples keep theirs.
    fn take_policy(&mut self) {
        let Some(updates) = &mut self.policy_updates else { return };
        let (policy, id) = updates.borrow_and_update().clone();
        self.edges.set_features_ms(Generation::Current, policy.features_ms);
        self.policy_desk.set_policy(policy.clone(), id);
        self.leader.set_policy(policy, id);
    }

    /// Takes the newest names of the group's devices.
    fn take_devices(&mut self, now: Instant) {
        let Some(updates) = &mut self.device_updates else { return };
        let devices = updates.borrow_and_update().clone();
        let at = self.clock.now(now);
        let (inbox, event) = self.listening(at);
        inbox.set_owners(devices, at.since_start, event);
    }

    /// Clears the retained births of devices that the setting `devices` does not name.
    fn clear_births(&mut self, now: Instant) {
        let (now, outbox) = (self.clock.micros(now), &self.outbox);
        self.inbox.devices.clear_births(now, |device| outbox.clear_birth(device));
    }

    fn next_timer(&self, now: Instant) -> Option<Instant> {
        let devices = [self.inbox.devices.next_timer(), self.device_watch.next_check()];
        let leader = [self.leader.next_timer(), self.edges.next_timer()];
        let leader = leader.into_iter().chain(devices).flatten().min().map(|at| self.clock.instant(at));
        let settled = self.settled_due(now).filter(|_| self.actions.is_empty());
        let retry = self.outbox.retry_after().map(|wait| now + wait);
        let desk = self.policy_desk.next_timer(&self.inbox.devices);
        let others = [self.claim.timer(), self.journal.next_try(), desk];
        [leader, settled, retry].into_iter().chain(others).flatten().min()
    }

    /// Renews the claim, and gives the slots of silent devices to others that claim them.
    fn renew(&mut self, now: Instant) {
        if let Some(claim) = self.claim.due(now) {
            self.outbox.claim(claim);
        }
        let at = self.clock.now(now);
        let (inbox, event) = self.listening(at);
        inbox.tick(at.since_start, event);
    }

    /// The inbox, and those who take its events: edges and leader.
    fn listening(
        &mut self,
        at: Now,
    ) -> (&mut Inbox, impl FnMut(Generation, Event<'_>) -> Option<Implausible>) {
        let Self { inbox, edges, leader, actions, .. } = self;
        let event = move |generation, event: Event<'_>| {
            edges.handle_leader_event(at.since_start, generation, &event);
            leader.handle(at, generation, event, actions)
        };
        (inbox, event)
    }

    pub(crate) fn receive(&mut self, now: Instant, message: Incoming) {
        match message {
            Incoming::Message { topic, payload, .. } if self.outbox.is_leader_topic(&topic) => {
                if self.claim.receive(now, &payload) {
                    self.outbox.open(now);
                    // A restarted broker has lost its retained messages.
                    self.settled.restart();
                    self.leader.begin_notices();
                }
            }
            Incoming::Message { topic, payload, retain } => {
                if let Some(member) = self.policy_desk.member_of(&topic) {
                    return self.policy_desk.receive(member, &payload, retain);
                }
                let at = self.clock.now(now);
                let arrival = Arrival { now: at.since_start, is_retained: retain };
                let last_sample = self.last_sample;
                let received = Received { topic: &topic, payload: &payload, arrival, last_sample };
                let (inbox, event) = self.listening(at);
                inbox.receive(received, event);
            }
            Incoming::Refused { topic, reason } => self.outbox.refused(now, &topic, &reason),
            Incoming::Connected => {
                self.claim.connected(now);
                self.device_watch.connected(self.clock.micros(now));
                self.inbox.devices.connected();
                self.handle(now, Event::Connected);
            }
            Incoming::Disconnected { reason } => {
                debug!(reason, "results wait for the broker");
                self.claim.disconnected();
                self.device_watch.disconnected();
                self.inbox.devices.disconnected(self.clock.micros(now));
                self.outbox.close(now);
                self.handle(now, Event::Disconnected);
            }
        }
    }

    /// Checks the state of each device.
    fn watch_devices(&mut self, now: Instant) {
        let now = self.clock.micros(now);
        if self.device_watch.is_due(now) {
            let (clock, leader, registry) = (self.clock, &self.leader, &self.inbox.devices);
            let inputs = CheckInputs { now, clock, leader, registry };
            let devices = &mut self.report.lock().devices;
            self.device_watch.check(inputs, devices);
            self.refused.update(devices);
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
        // Only messages of devices and triggers are refused; the inbox reads those.
        self.leader.handle(self.clock.now(now), generation, event, &mut self.actions);
    }

    /// Performs the leader's actions after their entries are in the journal. A question that cannot be asked causes new actions. While the
    /// journal cannot be written, the actions wait; their number is bounded, since no samples are opened.
    async fn act(&mut self, now: Instant) {
        while !self.actions.is_empty() && self.journal.may_write(now) {
            let mut actions = std::mem::take(&mut self.actions);
            for action in &actions {
                self.journal_entry(action);
            }
            if self.journal.flush().await == Flush::Failed {
                self.actions = actions;
                return;
            }
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
        if self.actions.is_empty() {
            journal.compact_if_full(leader.settled(), leader.journal_entries(), leader.unfinished_samples());
        }
    }

    /// Opens no samples while the journal has no room for their decisions.
    fn follow_room(&mut self, now: Instant) {
        self.journal.reserve_again(now);
        match self.journal.room_change() {
            Some(RoomChange::Lost) => {
                self.last_sample = Some(self.leader.newest());
                // Answers to awaited samples are passed over until there is room: their time stands still.
                self.handle(now, Event::Disconnected);
            }
            Some(RoomChange::Back) => {
                self.last_sample = None;
                // Samples were passed over, as on a new connection: devices keep their answers.
                self.handle(now, Event::Connected);
            }
            None => {}
        }
    }

    fn journal_entry(&mut self, action: &Action) {
        let entry = match action {
            Action::Numbering(numbering) => Entry::Numbering(*numbering),
            Action::Open(sample) | Action::Await(sample) => Entry::Opened(*sample),
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
            Action::Numbering(Some(numbering)) => {
                info!(%numbering, "the numbering of the group is known; devices with another one are refused");
            }
            Action::Numbering(None) | Action::Open(_) | Action::Await(_) => {}
            Action::Request { generation, sample, slots } => {
                // The leader requests only under networks that it holds.
                if let Some(format) = self.inbox.formats.get(generation) {
                    let request = encode_request(Session::of_network(format.network), sample, slots);
                    self.outbox.request(sample, request);
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
                self.device_watch.sample_decided();
                self.with_report(|report| report.count(&decision));
                self.outbox.result(&decision, now);
            }
            Action::Revise(decision) => {
                self.with_report(|report| report.revisions += 1);
                self.outbox.revision(&decision);
            }
            Action::Drop { reason, .. } => {
                if reason == Dropped::Unanswered {
                    self.device_watch.sample_unanswered(self.clock.micros(now));
                }
                self.with_report(|report| *report.dropped.entry(reason).or_default() += 1);
            }
            Action::Republish(decision) => self.outbox.repeat(&decision, now),
        }
    }

    /// Time of the next publication of the settled samples; `None` while there is nothing new.
    fn settled_due(&self, now: Instant) -> Option<Instant> {
        let news = self.leader.unpublished_late() + usize::from(self.refused.has_news());
        self.settled.due(now, self.leader.settled(), news)
    }

    fn publish_settled(&mut self, now: Instant) {
        // Waiting decisions are in the account and not in the journal.
        if self.settled_due(now).is_none_or(|due| due > now) || !self.actions.is_empty() {
            return;
        }
        let batch_ms = self.inbox.takes_batches().then(|| self.leader.max_batch_ms()).filter(|ms| *ms > 0);
        let notice = SettledNotice { refused: self.refused.named(), batch_ms, ..self.leader.notice() };
        // Without a broker the link refuses the message. The next connection publishes the samples again.
        let account = self.outbox.settled(&notice).then(|| {
            self.leader.notice_published(&notice);
            self.refused.note_published(&notice);
            notice.account
        });
        self.settled.note_attempt(now, account);
    }

    fn with_report(&self, update: impl FnOnce(&mut LeaderReport)) {
        update(&mut self.report.lock());
    }

    /// Says in the report what holds now. Events are counted where they happen.
    pub(crate) fn report_state(&mut self) {
        self.with_report(|report| {
            report.open = self.leader.open_samples().len() as u64;
            report.policy = self.leader.policy_id();
            report.awaited = self.leader.awaited_samples() as u64;
            report.filled_slots = self.inbox.devices.filled();
            report.slots = self.leader.slots();
            report.numbering = self.leader.numbering();
            report.edges_up = self.leader.edges_up();
            report.results_waiting = self.outbox.waiting.len() as u64;
            report.results_unacknowledged = self.outbox.unacknowledged() as u64;
            // The counts of pure parts, which go on from those of the process before it led again.
            (report.leader, report.journal) = (self.leader.counts(), self.journal.counts);
        });
    }
}
