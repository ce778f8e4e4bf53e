//! The leader's part of its event loop: each round gives all input to the state machine, writes the journal once, and only then publishes
//! and asks.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use headwater_inference::edge::EdgeEvent;
use headwater_inference::leader::journal::Entry;
use headwater_inference::leader::{Action, EdgeAnswer, Event, Generation, Implausible, Leader, Micros};
use headwater_inference::sections::TierOutput;
use headwater_link::Incoming;
use headwater_protocol::{Dropped, LeaderClaim, SampleId, Session, SettledNotice, encode_request};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use crate::claim::HeldClaim;
use crate::clock::{Clock, Moment};
use crate::cloud::{CloudClient, CloudQuestion, CloudReply};
use crate::devices::device_watch::{CheckInputs, DeviceWatch};
use crate::devices::inbox::{Inbox, Received};
use crate::devices::message_format::Arrival;
use crate::devices::refused_devices::RefusedDevices;
use crate::error::AggregatorError;
use crate::group::edge::{EdgeReply, LocalEdges};
use crate::group::event_loop::{End, EventLoop, RoundHandler};
use crate::group::policy_desk::{Executed, PolicyDesk};
use crate::journal::{Flush, Journal, RoomChange};
use crate::publishing::outbox::Outbox;
use crate::publishing::settled_schedule::SettledSchedule;
use crate::report::LeaderReport;
use crate::settings::live::{DeviceUpdates, PolicyUpdates, next_update};

/// Number of actions waiting for the journal from which on no messages are taken.
const MAX_WAITING_ACTIONS: usize = 65_536;

/// Time between two checks, while the process stops, whether the last open samples are decided.
const RETRY: Duration = Duration::from_millis(10);

/// A leader in its event loop: the state machine, and the parts that its actions change.
pub(crate) struct Worker {
    pub(crate) leader: Leader,
    pub(crate) edges: LocalEdges,
    pub(crate) policy_desk: PolicyDesk,
    pub(crate) policy_updates: Option<PolicyUpdates>,
    pub(crate) device_updates: Option<DeviceUpdates>,
    pub(crate) clock: Clock,
    pub(crate) device_watch: DeviceWatch,
    pub(crate) inbox: Inbox,
    /// While this process stops or the journal has no room: the newest sample that is still taken. Otherwise `None`.
    pub(crate) last_sample: Option<SampleId>,
    pub(crate) outbox: Outbox,
    pub(crate) claim: HeldClaim,
    pub(crate) cloud: CloudClient,
    pub(crate) journal: Journal,
    pub(crate) refused: RefusedDevices,
    pub(crate) settled: SettledSchedule,
    pub(crate) grace: Duration,
    pub(crate) report: Arc<Mutex<LeaderReport>>,
    /// Actions of the leader that are not performed yet: empty between rounds, unless the journal cannot be written.
    pub(crate) actions: Vec<Action>,
}

/// Input of a round other than messages of the broker.
pub(crate) enum Input {
    Policy,
    Devices,
    Command(Executed),
    Cloud(CloudReply),
    Edge(EdgeReply),
}

impl Worker {
    /// Runs until `stop` becomes true, then until no sample is open or the grace time is over, and returns `None`. When another leader takes
    /// over, ends at once without a further message, and returns that leader's claim.
    ///
    /// # Errors
    /// [`AggregatorError::Stopped`] when the link ended by itself.
    pub(crate) async fn run(
        mut self: Box<Self>,
        mut rounds: EventLoop,
        mut stop: watch::Receiver<bool>,
    ) -> Result<Option<LeaderClaim>, AggregatorError> {
        let at = rounds.read_clock();
        for (generation, edge) in self.edges.all().collect::<Vec<_>>() {
            self.handle_under(at, generation, Event::EdgeUp { edge });
        }
        // There is no connection yet: the time of awaited samples does not run, since no device can repeat its answers.
        self.handle(at, Event::Disconnected);
        // The policy may have changed while another process led.
        self.take_policy();
        self.take_devices(at);
        // The recovery from the journal may have left actions.
        self.act(at).await;
        self.follow_room(at);
        let requested = async move { _ = stop.wait_for(|&stop| stop).await };
        let end = rounds.run(&mut *self, requested).await;
        let link_ended = matches!(end, End::LinkEnded);
        match end {
            End::LinkEnded => warn!("the link ended: no more messages will come"),
            End::Own(claim) => return Ok(Some(claim)),
            End::Requested => {
                let last_sample = Some(self.leader.newest());
                let grace = Instant::now() + self.grace;
                while self.has_open_work() && Instant::now() < grace {
                    self.last_sample = last_sample;
                    let soon = Instant::now() + RETRY;
                    match rounds.run(&mut *self, sleep_until(soon.min(grace))).await {
                        End::Requested => {}
                        End::LinkEnded => break,
                        End::Own(claim) => return Ok(Some(claim)),
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
                "stopped while the journal could not be written: a restart decides those that devices still hold and drops the others"
            );
        }
        self.settled.restart();
        self.leader.begin_notices();
        let at = rounds.read_clock();
        self.publish_settled(at);
        self.outbox.flush(at.instant);
        self.report_state();
        if link_ended { Err(AggregatorError::Stopped("the link ended".into())) } else { Ok(None) }
    }

    /// True if samples are open, or decisions wait for the journal.
    fn has_open_work(&self) -> bool {
        self.leader.open_samples().len() > 0 || !self.actions.is_empty()
    }

    fn take_input(&mut self, at: Moment, input: Input) {
        match input {
            Input::Policy => self.take_policy(),
            Input::Devices => self.take_devices(at),
            Input::Command(executed) => self.policy_desk.take_executed(at.micros(), executed),
            Input::Cloud(CloudReply { sample, result: Ok(logits) }) => {
                self.handle(at, Event::CloudAnswer { sample, logits: &logits });
            }
            Input::Cloud(CloudReply { sample, result: Err(reason) }) => {
                self.handle(at, Event::CloudFailed { sample, reason });
            }
            Input::Edge(reply) => self.on_edge_reply(at, &reply),
        }
    }

    /// Takes the newest policy. Open samples keep the policy under which they were opened.
    fn take_policy(&mut self) {
        let Some(updates) = &mut self.policy_updates else { return };
        let (policy, id) = updates.borrow_and_update().clone();
        self.edges.set_features_ms(Generation::Current, policy.features_ms);
        self.policy_desk.set_policy(policy.clone(), id);
        self.leader.set_policy(policy, id);
    }

    /// Takes the newest list `devices` (ids by slot): devices that the list no longer names lose their slots, and newly named devices may
    /// fill their slots.
    fn take_devices(&mut self, at: Moment) {
        let Some(updates) = &mut self.device_updates else { return };
        let devices = updates.borrow_and_update().clone();
        let (inbox, event) = self.listening(at);
        inbox.set_owners(devices, at.micros(), event);
    }

    /// Clears the retained births of devices that the setting `devices` does not name.
    fn clear_births(&mut self, at: Moment) {
        let outbox = &self.outbox;
        self.inbox.devices.clear_births(at.micros(), |device| outbox.clear_birth(device));
    }

    /// Publishes the claim when that is due, and gives the slots of silent devices to other devices that claim these slots.
    fn renew(&mut self, at: Moment) {
        if let Some(claim) = self.claim.due(at.instant) {
            self.outbox.claim(claim);
        }
        let (inbox, event) = self.listening(at);
        inbox.tick(at.micros(), event);
    }

    /// The inbox, and a function that gives its events to the local edges and the leader.
    fn listening(
        &mut self,
        at: Moment,
    ) -> (&mut Inbox, impl FnMut(Generation, Event<'_>) -> Option<Implausible>) {
        let Self { inbox, edges, leader, actions, .. } = self;
        let event = move |generation, event: Event<'_>| {
            edges.handle_leader_event(at.micros(), generation, &event);
            leader.handle(at.now, generation, event, actions)
        };
        (inbox, event)
    }

    pub(crate) fn receive(&mut self, at: Moment, message: Incoming) {
        match message {
            Incoming::Message { topic, payload, .. } if self.outbox.is_leader_topic(&topic) => {
                if self.claim.receive(at.instant, &payload) {
                    self.outbox.open(at.instant);
                    // A restarted broker may have lost the retained notice of settled samples: publish it again.
                    self.settled.restart();
                    self.leader.begin_notices();
                }
            }
            Incoming::Message { topic, payload, retain } => {
                if let Some(member) = self.policy_desk.member_of(&topic) {
                    return self.policy_desk.receive(member, &payload, retain, &self.outbox);
                }
                let arrival = Arrival { now: at.micros(), is_retained: retain };
                let last_sample = self.last_sample;
                let received = Received { topic: &topic, payload: &payload, arrival, last_sample };
                let (inbox, event) = self.listening(at);
                inbox.receive(received, event);
            }
            Incoming::Refused { topic, reason } => {
                self.outbox.answers.refused_otherwise(at.instant, &topic, &reason);
            }
            Incoming::Connected => {
                self.claim.connected(at.instant);
                self.device_watch.connected(at.micros());
                self.inbox.devices.connected();
                self.handle(at, Event::Connected);
            }
            Incoming::Disconnected { reason, by_message } => {
                debug!(reason, "results wait for the broker");
                self.claim.disconnected();
                self.device_watch.disconnected();
                self.inbox.devices.disconnected(at.micros());
                self.outbox.close(at.instant, by_message);
                self.handle(at, Event::Disconnected);
            }
        }
    }

    /// Checks the state of each device, when the next check is due.
    fn watch_devices(&mut self, at: Moment) {
        let now = at.micros();
        if self.device_watch.is_due(now) {
            let (clock, leader, registry) = (self.clock, &self.leader, &self.inbox.devices);
            let inputs = CheckInputs { now, clock, leader, registry };
            let devices = &mut self.report.lock().devices;
            self.device_watch.check(inputs, devices);
            self.refused.update(devices);
        }
    }

    fn on_edge_reply(&mut self, at: Moment, reply: &EdgeReply) {
        let EdgeReply { generation, edge, sample, slots, ref output, .. } = *reply;
        let answer = output.as_ref().map(|TierOutput { scores, features }| EdgeAnswer {
            slots,
            scores,
            map: features,
            body_bytes: 0,
        });
        self.handle_under(at, generation, Event::EdgeAnswer { edge, sample, answer });
    }

    /// Gives the leader an event that does not depend on the network; passed as one of the current network.
    fn handle(&mut self, at: Moment, event: Event<'_>) {
        self.handle_under(at, Generation::Current, event);
    }

    fn handle_under(&mut self, at: Moment, generation: Generation, event: Event<'_>) {
        // The leader refuses only messages of devices and triggers, which come through the inbox: the result is not needed.
        self.leader.handle(at.now, generation, event, &mut self.actions);
    }

    /// Performs the leader's actions after their entries are in the journal. A cloud request that cannot be sent causes new actions, which
    /// are performed too. While the journal cannot be written, the actions wait; their number is bounded, since no samples are opened.
    async fn act(&mut self, at: Moment) {
        while !self.actions.is_empty() && self.journal.may_write(at.instant) {
            let mut actions = std::mem::take(&mut self.actions);
            for action in &actions {
                self.journal_entry(action);
            }
            if self.journal.flush().await == Flush::Failed {
                self.actions = actions;
                return;
            }
            for action in actions.drain(..) {
                self.perform(at, action);
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

    /// Lets no samples be opened while the journal has no room for their decisions.
    fn follow_room(&mut self, at: Moment) {
        self.journal.reserve_again(at.instant);
        match self.journal.room_change() {
            Some(RoomChange::Lost) => {
                self.last_sample = Some(self.leader.newest());
                // Answers to awaited samples are ignored until there is room: as without a connection, their time does not run out.
                self.handle(at, Event::Disconnected);
            }
            Some(RoomChange::Back) => {
                self.last_sample = None;
                // This is handled like a new connection, since samples were not taken meanwhile and devices keep their answers to these
                // samples.
                self.handle(at, Event::Connected);
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

    fn perform(&mut self, at: Moment, action: Action) {
        match action {
            Action::Numbering(Some(numbering)) => {
                info!(%numbering, "the numbering of the group is known; devices with another one are refused");
            }
            Action::Numbering(None) | Action::Open(_) | Action::Await(_) => {}
            Action::Request { generation, sample, slots } => {
                // The leader requests only under networks that it holds.
                if let Some(format) = self.inbox.formats.get(generation) {
                    let request = encode_request(Session::of_network(format.network), sample, slots);
                    self.outbox.request(request);
                }
            }
            Action::Collect { generation, sample, slots } => {
                let collect = EdgeEvent::Collect { sample, slots };
                self.edges.handle(at.micros(), generation, collect);
            }
            Action::AskCloud { generation, sample, features, presence, deadline_ms } => {
                let question = CloudQuestion { generation, sample, features, presence, deadline_ms };
                if let Err(reason) = self.cloud.ask(question, at.instant) {
                    self.handle(at, Event::CloudFailed { sample, reason });
                }
            }
            Action::Decide(decision) => {
                self.device_watch.sample_decided();
                self.with_report(|report| report.count(&decision));
                self.outbox.result(&decision, at.instant);
            }
            Action::Revise(decision) => {
                self.with_report(|report| report.revisions += 1);
                self.outbox.revision(&decision);
            }
            Action::Drop { reason, .. } => {
                if reason == Dropped::Unanswered {
                    self.device_watch.sample_unanswered(at.micros());
                }
                self.with_report(|report| *report.dropped.entry(reason).or_default() += 1);
            }
            Action::Republish(decision) => self.outbox.repeat(&decision, at.instant),
        }
    }

    /// Time of the next publication of the settled samples; `None` while there is nothing new.
    fn settled_due(&self, now: Micros) -> Option<Micros> {
        let news = self.leader.unpublished_late() + usize::from(self.refused.has_news());
        self.settled.due(now, self.leader.settled(), news)
    }

    fn publish_settled(&mut self, at: Moment) {
        let now = at.micros();
        // While decisions wait for the journal, the account counts samples that the journal does not have: nothing is published.
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

    /// Writes the present state into the report, such as the number of open samples. Events are counted when they happen.
    pub(crate) fn report_state(&mut self) {
        self.with_report(|report| {
            report.open = self.leader.open_samples().len() as u64;
            report.policy = self.leader.policy_id();
            report.awaited = self.leader.awaited_samples() as u64;
            report.unconfirmed_trigger = self.leader.unconfirmed_trigger();
            report.filled_slots = self.inbox.devices.filled();
            report.slots = self.leader.slots();
            report.numbering = self.leader.numbering();
            report.edges_up = self.leader.edges_up();
            report.results_waiting = self.outbox.waiting.len() as u64;
            report.results_unacknowledged = self.outbox.unacknowledged() as u64;
            // Leader and journal count by themselves, and go on from the counts of earlier times that this process led.
            (report.leader, report.journal) = (self.leader.counts(), self.journal.counts);
        });
    }
}

impl RoundHandler for Worker {
    type Input = Input;
    /// The claim of a leader that took over.
    type End = LeaderClaim;

    fn next_timer(&self, last: Moment) -> Option<Instant> {
        let devices = [self.inbox.devices.next_timer(), self.device_watch.next_check()];
        let settled = self.settled_due(last.micros()).filter(|_| self.actions.is_empty());
        let desk = self.policy_desk.next_timer(&self.inbox.devices);
        let pure =
            [self.leader.next_timer(), self.edges.next_timer(), settled, desk].into_iter().chain(devices);
        let pure = pure.flatten().min().map(|at| self.clock.instant(at));
        let retry = self.outbox.retry_after().map(|wait| last.instant + wait);
        [pure, retry, self.claim.timer(), self.journal.next_try()].into_iter().flatten().min()
    }

    fn takes_messages(&self) -> bool {
        self.actions.len() < MAX_WAITING_ACTIONS
    }

    async fn next_input(&mut self) -> Input {
        tokio::select! {
            biased;
            () = next_update(&mut self.policy_updates) => Input::Policy,
            // Executed commands come after the policy updates, so that a policy that a command has changed is in effect before the command's
            // answer is taken.
            executed = self.policy_desk.executed() => Input::Command(executed),
            () = next_update(&mut self.device_updates) => Input::Devices,
            reply = self.cloud.next() => Input::Cloud(reply),
            reply = self.edges.next() => Input::Edge(reply),
        }
    }

    async fn round(
        &mut self,
        at: Moment,
        input: Option<Input>,
        messages: impl Iterator<Item = Incoming>,
    ) -> ControlFlow<LeaderClaim> {
        let (reply, other) = match input {
            Some(Input::Cloud(_) | Input::Edge(_)) => (input, None),
            other => (None, other),
        };
        if let Some(input) = other {
            self.take_input(at, input);
        }
        messages.for_each(|message| self.receive(at, message));
        if let Some(claim) = self.claim.taken_over() {
            return ControlFlow::Break(claim.clone());
        }
        self.renew(at);
        self.watch_devices(at);
        self.clear_births(at);
        self.policy_desk.step(at.micros(), &self.inbox.devices, &self.outbox);
        // A reply of cloud or edge is taken after the messages: it ends windows that are due, which messages of this round may complete.
        if let Some(reply) = reply {
            self.take_input(at, reply);
        }
        while let Some(reply) = self.cloud.try_next() {
            self.take_input(at, Input::Cloud(reply));
        }
        self.edges.tick(at.micros());
        while let Some(reply) = self.edges.try_next() {
            self.take_input(at, Input::Edge(reply));
        }
        for sample in std::mem::take(&mut self.outbox.refused) {
            self.handle(at, Event::ResultRefused { sample });
        }
        self.handle(at, Event::Tick);
        self.act(at).await;
        self.follow_room(at);
        self.publish_settled(at);
        self.outbox.flush(at.instant);
        self.report_state();
        ControlFlow::Continue(())
    }
}
