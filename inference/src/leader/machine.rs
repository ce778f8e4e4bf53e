//! [`Leader`]: events in, actions out. Here events find what they are about; `opening.rs` opens samples, `window.rs` applies the first exit,
//! `deeper.rs` what is behind it, `decide.rs` ends a sample. The networks it holds are in `held.rs`.

use std::collections::BTreeMap;

use headwater_protocol::{Degraded, Dropped, EdgeSet, SampleId, Settled, SettledNotice, SlotSet};

use super::closed::Closed;
use super::held::Held;
use super::horizon::Horizon;
use super::journal::Recovered;
use super::open::{Open, Stage};
use super::opening::From;
use super::wakes::Wakes;
use super::{Action, Event, Exits, Generation, LeaderConfig, Micros};
use crate::bundle::PerNetwork;

/// Decides the samples of one group.
pub struct Leader {
    /// State of the current network, and of the next where there is one.
    pub(super) held: PerNetwork<Held>,
    pub(super) horizon: Horizon,
    pub(super) open: BTreeMap<SampleId, Box<Open>>,
    pub(super) closed: Closed,
    pub(super) wakes: Wakes,
    pub(super) newest: SampleId,
    /// The first sample since the connection that did not come from a spool.
    pub(super) since: Option<SampleId>,
    pub(super) counts: Counts,
}

/// Messages that changed nothing, by what was wrong with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// A slot answered twice; normal on a busy link.
    pub duplicates: u64,
    /// The sample was decided or dropped before the message came.
    pub after_close: u64,
    /// The slot is outside the network, or the vector has another length than the network's.
    pub misfits: u64,
    /// New samples too far ahead of what a trigger or a second device named; see [`Counts::implausible_slots`].
    pub implausible: u64,
    /// Slots that named such a sample.
    pub implausible_slots: SlotSet,
    /// Features, an edge's or the cloud's answer that nobody waited for.
    pub unasked: u64,
    /// Answers under one network for a sample that is decided under the other; their slots are missing in it.
    pub other_network: u64,
    /// Windows that ended by time.
    pub windows_timed_out: u64,
    /// Sample-slot pairs that were missing when their window closed.
    pub missing: u64,
}

impl Leader {
    /// A leader with no samples. `exits` must be of the same network as `config`.
    pub fn new(config: LeaderConfig, exits: Exits) -> Self {
        Self {
            held: PerNetwork::new(Held::new(config, exits)),
            horizon: Horizon::new(),
            open: BTreeMap::new(),
            closed: Closed::default(),
            wakes: Wakes::default(),
            newest: SampleId(0),
            since: None,
            counts: Counts::default(),
        }
    }

    /// Holds the next network too, for devices that run it already: see [`Generation`]. Call it before the first event.
    #[must_use]
    pub fn with_next(mut self, config: LeaderConfig, exits: Exits) -> Self {
        self.held.next = Some(Held::new(config, exits));
        self
    }

    /// Takes over what an earlier life journalled: its decisions are published again unchanged, its open samples are dropped.
    /// Call it before the first event.
    pub fn recover(&mut self, journal: Recovered, actions: &mut Vec<Action>) {
        let last = journal.open.last().copied().unwrap_or_default();
        self.newest = journal.settled.highest.max(last);
        self.horizon.reach(self.newest);
        self.closed.restore(journal.settled, journal.floor, journal.closed);
        actions.extend(journal.decisions.into_iter().map(Action::Republish));
        for sample in journal.open {
            self.closed.dropped(sample, Dropped::Restart);
            actions.push(Action::Drop { sample, reason: Dropped::Restart });
        }
        self.closed.settle(None, self.newest);
    }

    /// Takes one event at `now`, which must not go backwards, and appends what is to be done. What devices and edges say they say under
    /// a network: `generation`; for every other event it does not matter.
    pub fn handle(
        &mut self,
        now: Micros,
        generation: Generation,
        event: Event<'_>,
        actions: &mut Vec<Action>,
    ) {
        if let Some(said) = event.answer() {
            self.answer(now, generation, said, event, actions);
        } else {
            self.happened(now, generation, event, actions);
        }
        self.end_what_is_due(now, actions);
    }

    /// What is not the answer of a device to a sample.
    fn happened(&mut self, now: Micros, generation: Generation, event: Event<'_>, actions: &mut Vec<Action>) {
        let Some(held) = self.held.get_mut(generation) else { return };
        match event {
            Event::DeviceUp { slot } => held.devices.set_up(slot),
            Event::DeviceDown { slot } => self.device_down(now, From { generation, slot }, actions),
            Event::Features { slot, sample, late, bits } => {
                self.features(now, From { generation, slot }, sample, (Some(bits), late), actions);
            }
            Event::Gone { slot, sample } => {
                self.features(now, From { generation, slot }, sample, (None, false), actions);
            }
            Event::EdgeUp { edge } => held.edges_up.insert(edge),
            Event::EdgeDown { edge } => self.edge_down(now, generation, edge, actions),
            Event::EdgeAnswer { edge, sample, slots, scores, map, body_bytes } => {
                let answer = Some((slots, scores, map, body_bytes));
                self.edge_answer(now, generation, (edge, sample), answer, actions);
            }
            Event::EdgeGone { edge, sample } => {
                self.edge_answer(now, generation, (edge, sample), None, actions);
            }
            Event::CloudAnswer { sample, logits } => self.cloud_answer(now, sample, logits, actions),
            Event::CloudFailed { sample, reason } => self.cloud_failed(now, sample, reason, actions),
            Event::Trigger { sample } => self.horizon.reach(sample),
            Event::Connected => self.since = None,
            _ => {}
        }
    }

    /// When [`Event::Tick`] is needed next; `None` while nothing is open. May be early, never late.
    pub fn next_wake(&self) -> Option<Micros> {
        self.wakes.earliest()
    }

    /// The account of decided and dropped samples.
    pub fn settled(&self) -> &Settled {
        self.closed.settled()
    }

    /// The newest sample that was opened.
    pub fn newest(&self) -> SampleId {
        self.newest
    }

    /// The newest sample that was opened or triggered; the low half of an id in a header is widened near it.
    pub fn newest_known(&self) -> SampleId {
        self.newest.max(self.horizon.known())
    }

    /// Samples that are open, oldest first.
    pub fn open_samples(&self) -> impl ExactSizeIterator<Item = SampleId> + '_ {
        self.open.keys().copied()
    }

    /// What devices may take its word for; at most [`SettledNotice::MOST_LATE`] ids, the rest after [`Leader::told`].
    pub fn notice(&self) -> SettledNotice {
        let late = self.closed.late().take(SettledNotice::MOST_LATE).collect();
        SettledNotice { account: self.settled().clone(), since: self.since, late }
    }

    /// The devices were sent that notice.
    pub fn told(&mut self, notice: &SettledNotice) {
        self.closed.told_late(&notice.late);
    }

    /// Samples from spools that are closed and that the devices were not told of.
    pub fn untold(&self) -> usize {
        self.closed.late().len()
    }

    /// What a journal that is written anew must keep beside the account: everything up to the first is closed, and so are the others.
    pub fn remembered(&self) -> (SampleId, impl Iterator<Item = SampleId> + '_) {
        self.closed.remembered()
    }

    /// Slots that are up under either network.
    pub fn slots_up(&self) -> SlotSet {
        self.held.iter().fold(SlotSet::EMPTY, |up, (_, held)| up | held.devices.up())
    }

    /// Edges that are up under either network.
    pub fn edges_up(&self) -> EdgeSet {
        self.held.iter().fold(EdgeSet::EMPTY, |up, (_, held)| up | held.edges_up)
    }

    /// Messages that changed nothing.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn device_down(&mut self, now: Micros, from: From, actions: &mut Vec<Action>) {
        let From { generation, slot } = from;
        self.held[generation].devices.set_down(slot);
        let open = self.open.values().filter(|open| open.generation == generation);
        let waiting: Vec<(SampleId, bool)> = open.map(|open| (open.sample, open.owes(slot))).collect();
        for (sample, owes) in waiting {
            if owes {
                self.features(now, from, sample, (None, false), actions);
            } else {
                self.close_window_if_complete(now, sample, actions);
            }
        }
    }

    fn end_what_is_due(&mut self, now: Micros, actions: &mut Vec<Action>) {
        while let Some(sample) = self.wakes.pop_due(now) {
            // A stale entry: the sample is closed, or its present stage ends later and has an entry of its own.
            let Some(open) = self.open.get(&sample).filter(|open| open.due <= now) else { continue };
            match open.stage {
                Stage::Window => {
                    self.counts.windows_timed_out += 1;
                    self.close_window(now, sample, actions);
                }
                Stage::Features => self.ask_cloud(now, sample, actions),
                Stage::Edges => self.edges_done(now, sample, actions),
                Stage::Cloud => {
                    self.decide_without_cloud(now, sample, Some(Degraded::CloudTimeout), actions);
                }
            }
        }
    }
}
