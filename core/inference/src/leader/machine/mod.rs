//! [`Leader`]: events in, actions out.

mod awaited;
mod capture_time;
mod decide;
mod device_answers;
mod early_answers;
mod escalation;
mod policies;
mod state;
mod window;

use std::collections::BTreeMap;

use headwater_protocol::{
    Degraded, Dropped, EdgeSet, Numbering, SampleId, Schema, Settled, SettledNotice, Slot, SlotSet,
    TriggeredIds,
};
use serde::{Deserialize, Serialize};

use self::device_answers::DeviceMessage;
use self::early_answers::EarlyAnswers;
use self::escalation::EdgeSender;
use crate::bundle::PerNetwork;
use crate::leader::clock_offsets::{Allowed, ClockOff};
use crate::leader::implausible::Implausible;
use crate::leader::journal::{Entry, Recovered};
use crate::leader::network::Network;
use crate::leader::network_state::NetworkState;
use crate::leader::open_sample::Stage;
use crate::leader::plausible_ids::PlausibleIds;
use crate::leader::smoothing::{Smoothing, Votes};
use crate::leader::{Action, Event, Exits, Generation, LeaderConfig, Micros, Now};

pub use device_answers::{DeviceAnswer, NamedFrame};
pub use escalation::EdgeAnswer;
pub use state::{LeaderState, StateError};

/// Decides the samples of one group.
///
/// Each network has its own exits and buffers (`Network`), and its own devices (`NetworkState`). Both networks share samples, ids, timers,
/// counts and the journal.
pub struct Leader {
    networks: PerNetwork<Network>,
    pub(super) state: LeaderState,
    /// True when every result lists the views and the class probabilities.
    details: bool,
    /// Smoothing of the answers over time; `None` if results have no smoothed answer.
    smoothing: Option<Smoothing>,
    /// Wall clock at the event being handled, ms since 1970.
    wall_ms: u64,
    /// The refused id of the event being handled; `None` unless it was refused.
    refusal: Option<Implausible>,
    /// While an event is handled: the actions that the caller gave, then those that the event causes. Empty between events.
    actions: Vec<Action>,
}

/// Counts of ignored messages by reason, and of windows without all answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Answers of a slot that had answered the sample before; normal on a busy link.
    pub duplicates: u64,
    /// Messages that came after the sample's window had ended, or whose sample was closed or too old.
    pub after_close: u64,
    /// Messages that do not fit the network: another slot, edge, kind of answer, class or length.
    pub misfits: u64,
    /// Messages and triggers of new samples whose ids are not plausible.
    pub implausible: u64,
    /// Slots that named a sample whose id is not plausible.
    pub implausible_slots: SlotSet,
    /// Features, edge answers, cloud answers and failed cloud requests for which no open sample was waiting.
    pub unawaited: u64,
    /// Answers under one network for a sample that is decided under the other; in that sample their slots are missing.
    pub other_network: u64,
    /// Windows that ended by time.
    pub windows_timed_out: u64,
    /// Slots that were missing when a window closed, summed over the windows.
    pub missing: u64,
}

impl Leader {
    /// A leader with no samples. `exits` must be of the same network as `config`.
    pub fn new(config: LeaderConfig, exits: Exits) -> Self {
        Self {
            state: LeaderState::new(NetworkState::new(&config)),
            networks: PerNetwork::new(Network::new(config, exits)),
            details: false,
            smoothing: None,
            wall_ms: 0,
            refusal: None,
            actions: Vec::new(),
        }
    }

    /// Adds the next network, for devices that already run that network; see [`Generation`]. Call this before the first event.
    #[must_use]
    pub fn with_next(mut self, config: LeaderConfig, exits: Exits) -> Self {
        self.state.networks.next = Some(NetworkState::new(&config));
        self.networks.next = Some(Network::new(config, exits));
        self
    }

    /// Sets the largest difference between a sample's time and the wall clock, used if ids tell the time. Call this before the first event.
    #[must_use]
    pub fn with_max_clock_difference_ms(mut self, max_ms: u32) -> Self {
        self.state.plausible_ids.max_clock_difference_ms = max_ms.into();
        self
    }

    /// Sets `details`: if true, every result lists its views with their capture times, and the class probabilities; if false, only results
    /// of samples whose devices name their frames do.
    #[must_use]
    pub fn with_details(mut self, details: bool) -> Self {
        self.details = details;
        self
    }

    /// Sets the smoothing of the answers over time.
    #[must_use]
    pub fn with_smoothing(mut self, smoothing: Option<Smoothing>) -> Self {
        self.smoothing = smoothing;
        self
    }

    /// Continues the counts of an earlier leader of the same process. Call this before the first event.
    #[must_use]
    pub fn with_counts(mut self, counts: Counts) -> Self {
        self.state.counts = counts;
        self
    }

    /// Continues after a restart: journalled decisions are published again unchanged. Samples that were open are awaited, since devices may
    /// hold answers to them. Scores, maps and revisable decisions are not journalled, so these are lost. Call this before the first event.
    pub fn recover(&mut self, mut journal: Recovered, actions: &mut Vec<Action>) {
        std::mem::swap(&mut self.actions, actions);
        let last = journal.open.last().copied().unwrap_or_default();
        self.state.newest = journal.settled.highest.max(last);
        self.state.plausible_ids.numbering = journal.numbering;
        if self.state.newest > SampleId(0) {
            self.state.plausible_ids.believed.believe(self.state.newest);
        }
        self.state.closed.restore(&mut journal);
        self.actions.extend(journal.decisions.into_iter().map(Action::Republish));
        for sample in journal.open {
            self.await_answer(sample, Dropped::Restart);
        }
        self.state.closed.settle(None, self.state.newest);
        std::mem::swap(&mut self.actions, actions);
    }

    /// Begins a new numbering: forgets all ids and keeps the counts. Awaited samples are dropped. Call this after [`Leader::recover`].
    pub fn begin_numbering(&mut self, actions: &mut Vec<Action>) {
        std::mem::swap(&mut self.actions, actions);
        self.drop_all_awaited();
        self.state.early = EarlyAnswers::default();
        self.actions.push(Action::Numbering(None));
        self.state.closed.forget_ids();
        self.state.votes = Votes::default();
        self.state.newest = SampleId(0);
        let PlausibleIds { numbering, believed, .. } = &mut self.state.plausible_ids;
        (*numbering, *believed) = (None, TriggeredIds::default());
        std::mem::swap(&mut self.actions, actions);
    }

    /// Takes one event and appends the actions that follow. `generation` is the network that the event's device or edge runs; other
    /// events ignore it. Returns the refused id if the id of the event's sample is not plausible, otherwise `None`.
    pub fn handle(
        &mut self,
        now: Now,
        generation: Generation,
        event: Event<'_>,
        actions: &mut Vec<Action>,
    ) -> Option<Implausible> {
        (self.state.now, self.wall_ms) = (now.since_start, now.wall_ms);
        self.state.clock_offsets.set_now(now.wall_ms, now.since_start.0 / 1000);
        std::mem::swap(&mut self.actions, actions);
        let sent = |slot, sample, age_ms, late| DeviceMessage { generation, slot, sample, age_ms, late };
        match event {
            Event::DeviceNamed { slot, name } => {
                self.state.device_names.insert(slot, name.as_ref().into());
            }
            Event::DeviceUp { slot } => {
                if let Some(network) = self.state.networks.get_mut(generation) {
                    network.devices.set_up(slot);
                }
            }
            Event::DeviceDown { slot } => self.device_down(generation, slot),
            Event::DeviceAnswer { slot, sample, age_ms, late, answer, frame } => {
                // A device no longer knows the age of a sample that it gave up.
                let age_ms = if answer == DeviceAnswer::GivenUp { u16::MAX } else { age_ms };
                self.device_answer(sent(slot, sample, age_ms, late), answer, frame);
            }
            Event::Features { slot, sample, late, bits, body_bytes } => {
                // The message has no age, and late features are sent long after their sample.
                self.features(
                    sent(slot, sample, if late { u16::MAX } else { 0 }, late),
                    Some((bits, body_bytes)),
                );
            }
            Event::Gone { slot, sample } => self.features(sent(slot, sample, 0, false), None),
            Event::EdgeUp { edge } => {
                if let Some(network) = self.state.networks.get_mut(generation) {
                    network.edges_up.insert(edge);
                }
            }
            Event::EdgeDown { edge } => self.edge_down(generation, edge),
            Event::EdgeAnswer { edge, sample, answer } => {
                self.edge_answer(EdgeSender { generation, edge, sample }, answer);
            }
            Event::CloudAnswer { sample, logits } => self.cloud_answer(sample, logits),
            Event::CloudFailed { sample, reason } => self.cloud_failed(sample, reason),
            Event::ResultRefused { sample } => {
                self.state.closed.result_refused();
                self.actions.push(Action::Drop { sample, reason: Dropped::ResultRefused });
            }
            Event::Trigger { sample } => self.trigger(sample),
            Event::Numbering(numbering) => self.learn_numbering(numbering),
            Event::Connected => self.connected(),
            Event::Disconnected => self.disconnected(),
            Event::Tick => {}
        }
        self.end_due_stages();
        std::mem::swap(&mut self.actions, actions);
        self.refusal.take()
    }

    /// Time at which [`Event::Tick`] is needed next; `None` if no tick is needed. The time may be too early, never too late.
    pub fn next_timer(&self) -> Option<Micros> {
        self.state.timers.earliest()
    }

    /// The account of decided and dropped samples.
    pub fn settled(&self) -> &Settled {
        &self.state.closed.settled
    }

    /// Largest id of the opened samples, those before a restart included.
    pub fn newest(&self) -> SampleId {
        self.state.newest
    }

    /// Numbering of samples by the devices; `None` until a device's birth message or the journal has named it.
    pub fn numbering(&self) -> Option<Numbering> {
        self.state.plausible_ids.numbering
    }

    /// Samples that are open, lowest id first.
    pub fn open_samples(&self) -> impl ExactSizeIterator<Item = SampleId> + '_ {
        self.state.open.keys().copied()
    }

    /// Number of samples that were triggered, or open at a restart, and that no device has answered.
    pub fn awaited_samples(&self) -> usize {
        self.state.awaited.samples.len()
    }

    /// The latest trigger that is too far ahead to be believed before a second trigger near it comes; `None` if there is none.
    pub fn unconfirmed_trigger(&self) -> Option<SampleId> {
        self.state.plausible_ids.believed.unconfirmed()
    }

    /// Samples that are open or awaited, the open ones first.
    pub fn unfinished_samples(&self) -> impl Iterator<Item = SampleId> + '_ {
        self.open_samples().chain(self.state.awaited.samples.keys().copied())
    }

    /// The account that devices are sent, with at most [`SettledNotice::MAX_LATE`] late samples and the ranges of samples that were closed
    /// lately. Three notices in a row name each change; the first notice on a connection and every tenth name all changes of 30 seconds.
    pub fn notice(&self) -> SettledNotice {
        let late = self.state.closed.late.iter().copied().take(SettledNotice::MAX_LATE).collect();
        let closed = self.state.closed.named_ranges(self.state.now);
        SettledNotice {
            schema: Schema,
            account: self.settled().clone(),
            late,
            closed,
            refused: BTreeMap::new(),
            batch_ms: None,
        }
    }

    /// Notes that a notice was published, and forgets the late samples that it names.
    pub fn notice_published(&mut self, notice: &SettledNotice) {
        self.state.closed.notice_published(&notice.late, self.state.now);
    }

    /// Makes the next notice complete: the broker may have lost the retained notice.
    pub fn begin_notices(&mut self) {
        self.state.closed.begin_notices();
    }

    /// Number of closed late samples that no published notice named.
    pub fn unpublished_late(&self) -> usize {
        self.state.closed.late.len()
    }

    /// Entries that a compacted journal needs after its account: the numbering and the closed samples.
    pub fn journal_entries(&self) -> impl Iterator<Item = Entry> + '_ {
        let numbering = self.state.plausible_ids.numbering.map(|numbering| Entry::Numbering(Some(numbering)));
        numbering.into_iter().chain(std::iter::once_with(|| self.state.closed.entry()))
    }

    /// Slots that are up under either network.
    pub fn slots_up(&self) -> SlotSet {
        self.state.networks.iter().fold(SlotSet::EMPTY, |up, (_, network)| up | network.devices.up)
    }

    /// End of the first of the latest three windows, for a slot that is up and answered none of the three; `None` for any other slot.
    pub fn unanswered_since(&self, generation: Generation, slot: Slot) -> Option<Micros> {
        self.state.networks.get(generation)?.devices.unanswered_since(slot)
    }

    /// Slots of the current network.
    pub fn slots(&self) -> SlotSet {
        SlotSet::first(self.networks.current.config.slots)
    }

    /// Longest time in ms from capture until a sample in time is decided under the current network.
    pub fn deadline_ms(&self) -> u32 {
        self.state.networks.current.policy.deadline_ms
    }

    /// Longest time, ms, for which devices of either network may collect answers into one message; 0 if they must not collect.
    pub fn max_batch_ms(&self) -> u32 {
        let of_networks = self.state.networks.iter().map(|(_, network)| network.policy.max_batch_ms());
        of_networks.min().unwrap_or(0)
    }

    /// Devices that are left out because their clocks are ahead of their group, or whose clocks are behind by more than a quarter of the
    /// period; empty unless the group numbers by clock.
    pub fn clocks_off(&self) -> Vec<(Slot, ClockOff)> {
        match self.state.plausible_ids.numbering {
            Some(Numbering::Clock { period_ms }) => {
                let window_ms = self.state.networks.current.policy.window_ms;
                self.state.clock_offsets.off(Allowed::new(period_ms.into(), window_ms), self.slots_up())
            }
            Some(Numbering::Source | Numbering::Trigger) | None => Vec::new(),
        }
    }

    /// Edges that are up under either network.
    pub fn edges_up(&self) -> EdgeSet {
        self.state.networks.iter().fold(EdgeSet::EMPTY, |up, (_, network)| up | network.edges_up)
    }

    /// Counts of ignored messages, and of windows without all answers.
    pub fn counts(&self) -> Counts {
        self.state.counts
    }

    fn device_down(&mut self, generation: Generation, slot: Slot) {
        let Some(network) = self.state.networks.get_mut(generation) else { return };
        network.devices.up.remove(slot);
        let open = self.state.open.values().filter(|open| open.generation == generation);
        let waiting: Vec<(SampleId, bool)> = open.map(|open| (open.sample, open.owes(slot))).collect();
        for (sample, owes) in waiting {
            if owes {
                let message = DeviceMessage { generation, slot, sample, age_ms: 0, late: false };
                self.features(message, None);
            } else {
                self.close_window_if_complete(sample);
            }
        }
    }

    /// Takes the numbering of an accepted device, if the group has none yet.
    fn learn_numbering(&mut self, numbering: Numbering) {
        if self.state.plausible_ids.numbering.is_none() {
            self.state.plausible_ids.numbering = Some(numbering);
            self.actions.push(Action::Numbering(Some(numbering)));
        }
    }

    fn end_due_stages(&mut self) {
        while let Some(sample) = self.state.timers.pop_due(self.state.now) {
            let Some(open) = self.state.open.get(&sample) else {
                self.end_awaited(sample);
                continue;
            };
            // The timer of a stage that has ended is ignored.
            if open.due > self.state.now {
                continue;
            }
            match open.stage {
                Stage::Window => {
                    self.state.counts.windows_timed_out += 1;
                    self.close_window(sample);
                }
                Stage::Features => self.ask_cloud(sample),
                Stage::Edges => self.apply_edge_exit(sample),
                Stage::Cloud => self.decide_without_cloud(sample, Some(Degraded::CloudTimeout)),
            }
        }
    }
}
