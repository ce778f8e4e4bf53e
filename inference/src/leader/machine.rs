//! [`Leader`]: events in, actions out.

use std::collections::BTreeMap;

use headwater_protocol::{Degraded, Dropped, EdgeSet, SampleId, Settled, SettledNotice, Slot, SlotSet};

use super::closed::ClosedSamples;
use super::device_answers::DeviceMessage;
use super::escalation::EdgeSender;
use super::journal::Recovered;
use super::network_state::NetworkState;
use super::open_sample::{OpenSample, Stage};
use super::plausible_ids::PlausibleIds;
use super::timers::Timers;
use super::{Action, Event, Exits, Generation, LeaderConfig, Micros};
use crate::bundle::PerNetwork;

/// Decides the samples of one group.
///
/// Each network has its own exits, devices and buffers (`NetworkState`). Both networks share samples, ids, timers, counts and the journal.
pub struct Leader {
    pub(super) networks: PerNetwork<NetworkState>,
    pub(super) plausible_ids: PlausibleIds,
    pub(super) open: BTreeMap<SampleId, Box<OpenSample>>,
    pub(super) closed: ClosedSamples,
    pub(super) timers: Timers,
    pub(super) newest: SampleId,
    /// First sample that was opened on the present connection by a message that was not late.
    pub(super) since: Option<SampleId>,
    pub(super) counts: Counts,
    /// Time of the event being handled.
    pub(super) now: Micros,
    /// Actions that the caller gave and that the event being handled has caused; empty between events.
    pub(super) actions: Vec<Action>,
}

/// Counts of ignored messages by reason, and of windows without all answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// A slot answered twice; normal on a busy link.
    pub duplicates: u64,
    /// The sample's window had closed before the message came.
    pub after_close: u64,
    /// The slot is outside the network, or the vector has another length than the network's.
    pub misfits: u64,
    /// New samples too far ahead of the ids that a trigger or a second device named.
    pub implausible: u64,
    /// Slots that named such a sample.
    pub implausible_slots: SlotSet,
    /// Features, edge answers, cloud answers and failed cloud requests for which no open sample was waiting.
    pub unawaited: u64,
    /// Answers under one network for a sample that is decided under the other; their slots are missing in it.
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
            networks: PerNetwork::new(NetworkState::new(config, exits)),
            plausible_ids: PlausibleIds::new(),
            open: BTreeMap::new(),
            closed: ClosedSamples::default(),
            timers: Timers::default(),
            newest: SampleId(0),
            since: None,
            counts: Counts::default(),
            now: Micros(0),
            actions: Vec::new(),
        }
    }

    /// Adds the next network, for devices that run it already; see [`Generation`]. Call it before the first event.
    #[must_use]
    pub fn with_next(mut self, config: LeaderConfig, exits: Exits) -> Self {
        self.networks.next = Some(NetworkState::new(config, exits));
        self
    }

    /// Continues after a restart: journalled decisions are published again unchanged, open samples are dropped.
    /// Scores, maps and revisable decisions are not journalled, so they are lost. Call it before the first event.
    pub fn recover(&mut self, journal: Recovered, actions: &mut Vec<Action>) {
        let last = journal.open.last().copied().unwrap_or_default();
        self.newest = journal.settled.highest.max(last);
        self.plausible_ids.confirm(self.newest);
        self.closed.restore(journal.settled, journal.floor, journal.closed);
        actions.extend(journal.decisions.into_iter().map(Action::Republish));
        for sample in journal.open {
            self.closed.dropped(sample, Dropped::Restart);
            actions.push(Action::Drop { sample, reason: Dropped::Restart });
        }
        self.closed.settle(None, self.newest);
    }

    /// Takes one event and appends the actions that it asks for. `now` must not go backwards. `generation` is the network that the device
    /// or edge runs; other events ignore it.
    pub fn handle(
        &mut self,
        now: Micros,
        generation: Generation,
        event: Event<'_>,
        actions: &mut Vec<Action>,
    ) {
        self.now = now;
        std::mem::swap(&mut self.actions, actions);
        let sent = |slot, sample, age_ms, late| DeviceMessage { generation, slot, sample, age_ms, late };
        match event {
            Event::DeviceUp { slot } => {
                if let Some(network) = self.networks.get_mut(generation) {
                    network.devices.set_up(slot);
                }
            }
            Event::DeviceDown { slot } => self.device_down(generation, slot),
            Event::DeviceAnswer { slot, sample, age_ms, late, answer } => {
                self.device_answer(sent(slot, sample, age_ms, late), answer);
            }
            Event::Features { slot, sample, late, bits } => {
                self.features(sent(slot, sample, 0, late), Some(bits));
            }
            Event::Gone { slot, sample } => self.features(sent(slot, sample, 0, false), None),
            Event::EdgeUp { edge } => {
                if let Some(network) = self.networks.get_mut(generation) {
                    network.edges_up.insert(edge);
                }
            }
            Event::EdgeDown { edge } => self.edge_down(generation, edge),
            Event::EdgeAnswer { edge, sample, answer } => {
                self.edge_answer(EdgeSender { generation, edge, sample }, answer);
            }
            Event::CloudAnswer { sample, logits } => self.cloud_answer(sample, logits),
            Event::CloudFailed { sample, reason } => self.cloud_failed(sample, reason),
            Event::Trigger { sample } => self.plausible_ids.confirm(sample),
            Event::Connected => self.since = None,
            Event::Tick => {}
        }
        self.end_due_stages();
        std::mem::swap(&mut self.actions, actions);
    }

    /// When [`Event::Tick`] is needed next; `None` while nothing is open. It may be early, never late.
    pub fn next_timer(&self) -> Option<Micros> {
        self.timers.earliest()
    }

    /// The account of decided and dropped samples.
    pub fn settled(&self) -> &Settled {
        &self.closed.settled
    }

    /// The newest sample that was opened.
    pub fn newest(&self) -> SampleId {
        self.newest
    }

    /// The newest sample that was opened or triggered. The short id in a header is widened near it.
    pub fn newest_known(&self) -> SampleId {
        self.newest.max(self.plausible_ids.confirmed)
    }

    /// Samples that are open, oldest first.
    pub fn open_samples(&self) -> impl ExactSizeIterator<Item = SampleId> + '_ {
        self.open.keys().copied()
    }

    /// The account that devices are sent, with at most [`SettledNotice::MAX_LATE`] late samples.
    pub fn notice(&self) -> SettledNotice {
        let late = self.closed.late.iter().copied().take(SettledNotice::MAX_LATE).collect();
        SettledNotice { account: self.settled().clone(), since: self.since, late }
    }

    /// Forgets the late samples of a notice that was published.
    pub fn notice_published(&mut self, notice: &SettledNotice) {
        self.closed.remove_late(&notice.late);
    }

    /// Number of closed late samples that no published notice named.
    pub fn unpublished_late(&self) -> usize {
        self.closed.late.len()
    }

    /// Every sample up to this id is closed, unless it is open.
    pub fn closed_floor(&self) -> SampleId {
        self.closed.floor.unwrap_or_default()
    }

    /// Closed samples above [`Leader::closed_floor`], lowest first.
    pub fn closed_samples(&self) -> impl Iterator<Item = SampleId> + '_ {
        self.closed.samples.iter().copied()
    }

    /// Slots that are up under either network.
    pub fn slots_up(&self) -> SlotSet {
        self.networks.iter().fold(SlotSet::EMPTY, |up, (_, network)| up | network.devices.up)
    }

    /// Edges that are up under either network.
    pub fn edges_up(&self) -> EdgeSet {
        self.networks.iter().fold(EdgeSet::EMPTY, |up, (_, network)| up | network.edges_up)
    }

    /// Messages that changed nothing.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn device_down(&mut self, generation: Generation, slot: Slot) {
        let Some(network) = self.networks.get_mut(generation) else { return };
        network.devices.up.remove(slot);
        let open = self.open.values().filter(|open| open.generation == generation);
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

    fn end_due_stages(&mut self) {
        while let Some(sample) = self.timers.pop_due(self.now) {
            // The timer of a closed sample, or of a stage that ended before, means nothing.
            let Some(open) = self.open.get(&sample).filter(|open| open.due <= self.now) else { continue };
            match open.stage {
                Stage::Window => {
                    self.counts.windows_timed_out += 1;
                    self.close_window(sample);
                }
                Stage::Features => self.ask_cloud(sample),
                Stage::Edges => self.apply_edge_exit(sample),
                Stage::Cloud => self.decide_without_cloud(sample, Some(Degraded::CloudTimeout)),
            }
        }
    }
}
