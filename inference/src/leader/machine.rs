//! [`Leader`]: events in, actions out. Here samples are opened and events find their sample; `window.rs` applies the first exit,
//! `deeper.rs` what is behind it, `decide.rs` ends a sample.

use std::collections::BTreeMap;

use headwater_protocol::{Body, Degraded, Dropped, Exit, SampleId, Settled, Slot, View};

use super::closed::Closed;
use super::devices::Devices;
use super::horizon::Horizon;
use super::journal::Recovered;
use super::open::{Answer, Open, Sizes, Stage};
use super::wakes::Wakes;
use super::{Action, Event, Exits, LeaderConfig, Micros};

/// Open samples kept for reuse of their buffers.
pub(super) const SPARE: usize = 64;

/// Decides the samples of one group.
pub struct Leader {
    pub(super) config: LeaderConfig,
    pub(super) sizes: Sizes,
    pub(super) exits: Exits,
    /// Logits of an exit; a field so that no event allocates.
    pub(super) logits: Vec<f32>,
    pub(super) devices: Devices,
    /// Edges that are up, bit i = edge i.
    pub(super) edges_up: u64,
    horizon: Horizon,
    pub(super) open: BTreeMap<SampleId, Box<Open>>,
    #[expect(clippy::vec_box, reason = "an open sample moves between the map and here without being copied")]
    pub(super) spare: Vec<Box<Open>>,
    pub(super) closed: Closed,
    pub(super) wakes: Wakes,
    pub(super) newest: SampleId,
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
    /// Bit `i` set where slot `i` named one.
    pub implausible_slots: u64,
    /// Features, an edge's or the cloud's answer that nobody waited for.
    pub unasked: u64,
    /// Windows that ended by time.
    pub windows_timed_out: u64,
    /// Sample-slot pairs that were missing when their window closed.
    pub missing: u64,
}

impl Leader {
    /// A leader with no samples. `exits` must be of the same network as `config`.
    pub fn new(config: LeaderConfig, exits: Exits) -> Self {
        let classes = config.labels.len();
        let maps_bytes = config.cloud_sources() * config.cloud_map_bytes;
        let sizes = Sizes { slots: config.slots, classes, edges: config.edges.len(), maps_bytes };
        Self {
            sizes,
            exits,
            logits: vec![0.0; classes],
            devices: Devices::new(),
            edges_up: 0,
            horizon: Horizon::new(),
            open: BTreeMap::new(),
            spare: Vec::new(),
            closed: Closed::default(),
            wakes: Wakes::default(),
            newest: SampleId(0),
            counts: Counts::default(),
            config,
        }
    }

    /// Takes over what an earlier life journalled: its decisions are published again unchanged, its open samples are dropped.
    /// Call it before the first event.
    pub fn recover(&mut self, journal: Recovered, actions: &mut Vec<Action>) {
        let last = journal.open.last().copied().unwrap_or_default();
        self.newest = journal.settled.highest.max(last);
        self.horizon.reach(self.newest);
        self.closed.restore(journal.settled);
        actions.extend(journal.decisions.into_iter().map(Action::Republish));
        for sample in journal.open {
            self.closed.dropped(sample, Dropped::Restart);
            actions.push(Action::Drop { sample, reason: Dropped::Restart });
        }
        self.closed.settle(None, self.newest);
    }

    /// Takes one event at `now`, which must not go backwards, and appends what is to be done.
    pub fn handle(&mut self, now: Micros, event: Event<'_>, actions: &mut Vec<Action>) {
        let score_bytes = self.config.score_bytes as u64;
        match event {
            Event::DeviceUp { slot } => self.devices.set_up(slot),
            Event::DeviceDown { slot } => self.device_down(now, slot, actions),
            Event::Summary { slot, sample, age_ms, late, scores } => {
                if scores.len() != self.sizes.classes || !self.config.configuration.has_device_section() {
                    self.counts.misfits += 1;
                } else if let Some(open) = self.answering(now, slot, sample, age_ms, late, actions) {
                    open.presence.set(slot, View::Present);
                    open.scores[slot.index() * scores.len()..][..scores.len()].copy_from_slice(scores);
                    open.bytes.device_edge += score_bytes;
                    self.close_window_if_complete(now, sample, actions);
                }
            }
            Event::NotInView { slot, sample, age_ms, late } => {
                if let Some(open) = self.answering(now, slot, sample, age_ms, late, actions) {
                    open.presence.set(slot, View::NotInView);
                    self.close_window_if_complete(now, sample, actions);
                }
            }
            Event::Input { slot, sample, age_ms, late, pixels } => {
                if pixels.len() != self.config.packed_bytes || self.config.configuration.has_device_section()
                {
                    self.counts.misfits += 1;
                } else if let Some(open) = self.answering(now, slot, sample, age_ms, late, actions) {
                    open.presence.set(slot, View::Present);
                    open.put_map(slot.index(), pixels);
                    open.delivered |= 1 << slot.index();
                    open.bytes.device_edge += pixels.len() as u64;
                    self.close_window_if_complete(now, sample, actions);
                }
            }
            Event::DeviceDecided { slot, sample, age_ms, late, decision } => {
                let is_known = usize::from(decision.class) < self.sizes.classes;
                if !is_known || !self.config.configuration.has(Exit::Device) {
                    self.counts.misfits += 1;
                } else if let Some(open) = self.answering(now, slot, sample, age_ms, late, actions) {
                    open.presence.set(slot, View::Present);
                    open.bytes.device_edge += Body::Decided(decision).len() as u64;
                    open.stages.window_us = open.elapsed(now);
                    let answered = open.presence.answered_mask();
                    self.devices.window_closed(answered);
                    let answer = Answer { class: decision.class, confidence: decision.confidence };
                    self.decide_under(now, sample, (Exit::Device, answer), decision.policy, actions);
                }
            }
            Event::Features { slot, sample, bits } => self.features(now, slot, sample, Some(bits), actions),
            Event::Gone { slot, sample } => self.features(now, slot, sample, None, actions),
            Event::EdgeUp { edge } => self.edges_up |= 1u64.checked_shl(edge as u32).unwrap_or(0),
            Event::EdgeDown { edge } => self.edge_down(now, edge, actions),
            Event::EdgeAnswer { edge, sample, slots, scores, map, body_bytes } => {
                self.edge_answer(now, (edge, sample), Some((slots, scores, map, body_bytes)), actions);
            }
            Event::EdgeGone { edge, sample } => self.edge_answer(now, (edge, sample), None, actions),
            Event::CloudAnswer { sample, logits } => self.cloud_answer(now, sample, logits, actions),
            Event::CloudFailed { sample, reason } => self.cloud_failed(now, sample, reason, actions),
            Event::Trigger { sample } => self.horizon.reach(sample),
            Event::Tick => {}
        }
        self.end_what_is_due(now, actions);
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

    /// Slots that are up, bit i = slot i.
    pub fn slots_up(&self) -> u64 {
        self.devices.up()
    }

    /// Edges that are up, bit i = edge i.
    pub fn edges_up(&self) -> u64 {
        self.edges_up
    }

    /// Messages that changed nothing.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The open sample that an answer of `slot` belongs to, opened if it is new; `None` when the answer is not to be taken.
    pub(super) fn answering(
        &mut self,
        now: Micros,
        slot: Slot,
        sample: SampleId,
        age_ms: u16,
        late: bool,
        actions: &mut Vec<Action>,
    ) -> Option<&mut Open> {
        if slot.index() >= self.sizes.slots {
            self.counts.misfits += 1;
            return None;
        }
        if !self.open.contains_key(&sample) {
            if self.closed.contains(sample) {
                self.counts.after_close += 1;
                return None;
            }
            if !self.horizon.believes(slot, sample, self.devices.up()) {
                self.counts.implausible += 1;
                self.counts.implausible_slots |= 1 << slot.index();
                return None;
            }
            self.open_sample(now, sample, age_ms, late, actions);
        }
        let open = self.open.get_mut(&sample)?;
        if open.stage != Stage::Window {
            self.counts.after_close += 1;
            return None;
        }
        if open.has_answered(slot) {
            self.counts.duplicates += 1;
            return None;
        }
        Some(open)
    }

    fn open_sample(
        &mut self,
        now: Micros,
        sample: SampleId,
        age_ms: u16,
        late: bool,
        actions: &mut Vec<Action>,
    ) {
        if self.open.len() >= self.config.most_open
            && let Some((&oldest, _)) = self.open.first_key_value()
        {
            self.drop_sample(oldest, Dropped::Shed, actions);
        }
        let mut open = self.spare.pop().unwrap_or_else(|| Box::new(Open::new(self.sizes)));
        let policy = &self.config.policy;
        // A late sample's time is over; it gets a whole one from now, and says so.
        let age_us = if late { 0 } else { u64::from(age_ms) * 1000 };
        let captured = Micros(now.0.saturating_sub(age_us));
        open.reset(sample, captured);
        open.late = late || age_us > u64::from(policy.deadline_ms) * 1000;
        open.deadline = if open.late { now } else { captured }.plus_ms(policy.deadline_ms);
        open.due = now.plus_ms(policy.window_ms).min(open.deadline);
        open.stages.opened_us = age_us;
        self.wakes.push(open.due, sample);
        self.newest = self.newest.max(sample);
        self.open.insert(sample, open);
        actions.push(Action::Open(sample));
    }

    fn device_down(&mut self, now: Micros, slot: Slot, actions: &mut Vec<Action>) {
        self.devices.set_down(slot);
        let waiting: Vec<(SampleId, bool)> =
            self.open.values().map(|open| (open.sample, open.owes(slot))).collect();
        for (sample, owes) in waiting {
            if owes {
                self.features(now, slot, sample, None, actions);
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
