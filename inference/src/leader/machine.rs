//! [`Leader`]: events in, actions out.

use std::collections::BTreeMap;

use headwater_protocol::{
    Decision, Degraded, Dropped, Exit, HopBytes, Presence, SampleId, Settled, Slot, Stages, View,
};

use super::closed::Closed;
use super::devices::Devices;
use super::horizon::Horizon;
use super::journal::Recovered;
use super::open::{Answer, Open, Sizes, Stage};
use super::wakes::Wakes;
use super::{Action, Event, LeaderConfig, Micros};
use crate::exit::Assessment;
use crate::sections::ScoresExit;

/// Open samples kept for reuse of their buffers.
const SPARE: usize = 64;

/// Decides the samples of one group.
pub struct Leader {
    config: LeaderConfig,
    sizes: Sizes,
    local: ScoresExit,
    /// Logits of the local exit; a field so that no event allocates.
    logits: Vec<f32>,
    devices: Devices,
    horizon: Horizon,
    open: BTreeMap<SampleId, Box<Open>>,
    #[expect(clippy::vec_box, reason = "an open sample moves between the map and here without being copied")]
    spare: Vec<Box<Open>>,
    closed: Closed,
    wakes: Wakes,
    newest: SampleId,
    counts: Counts,
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
    /// Features or a cloud answer that nobody waited for.
    pub unasked: u64,
    /// Windows that ended by time.
    pub windows_timed_out: u64,
    /// Sample-slot pairs that were missing when their window closed.
    pub missing: u64,
}

impl Leader {
    /// A leader with no samples. `local` must be of the same network as `config`.
    pub fn new(config: LeaderConfig, local: ScoresExit) -> Self {
        let classes = config.labels.len();
        let sizes = Sizes { slots: config.slots, classes, packed_bytes: config.packed_bytes };
        Self {
            sizes,
            local,
            logits: vec![0.0; classes],
            devices: Devices::new(),
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
                if scores.len() != self.sizes.classes {
                    self.counts.misfits += 1;
                } else if let Some(open) = self.answering(now, slot, sample, age_ms, late, actions) {
                    open.presence.set(slot, View::Present);
                    open.scores[slot.index() * scores.len()..][..scores.len()].copy_from_slice(scores);
                    open.device_edge_bytes += score_bytes;
                    self.close_window_if_complete(now, sample, actions);
                }
            }
            Event::NotInView { slot, sample, age_ms, late } => {
                if let Some(open) = self.answering(now, slot, sample, age_ms, late, actions) {
                    open.presence.set(slot, View::NotInView);
                    self.close_window_if_complete(now, sample, actions);
                }
            }
            Event::Features { slot, sample, bits } => self.features(now, slot, sample, Some(bits), actions),
            Event::Gone { slot, sample } => self.features(now, slot, sample, None, actions),
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

    /// Messages that changed nothing.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The open sample that an answer of `slot` belongs to, opened if it is new; `None` when the answer is not to be taken.
    fn answering(
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

    fn close_window_if_complete(&mut self, now: Micros, sample: SampleId, actions: &mut Vec<Action>) {
        let awaited = self.devices.awaited();
        let complete = awaited != 0
            && self.open.get(&sample).is_some_and(|open| {
                open.stage == Stage::Window && awaited & !open.presence.answered_mask() == 0
            });
        if complete {
            self.close_window(now, sample, actions);
        }
    }

    /// Aggregates what came and applies the local exit.
    fn close_window(&mut self, now: Micros, sample: SampleId, actions: &mut Vec<Action>) {
        let Some(open) = self.open.get_mut(&sample) else { return };
        open.stages.window_us = open.elapsed(now);
        self.counts.missing += u64::from(open.presence.missing_count());
        self.devices.window_closed(open.presence.answered_mask());
        let present = open.presence.present_count();
        if present == 0 {
            open.degrade(Degraded::NoView);
            let answer = Answer::from(&Assessment::of_prior(&self.config.class_prior));
            return self.decide(now, sample, Exit::Local, answer, actions);
        }
        let assessed = self
            .local
            .scores(&open.scores, open.presence.present_mask(), &mut self.logits)
            .ok()
            .map(|()| self.config.policy.local.assess(&self.logits, present));
        open.local = assessed.as_ref().map(Answer::from);
        match (assessed, open.local) {
            (Some(assessment), Some(answer)) if assessment.leaves => {
                self.decide(now, sample, Exit::Local, answer, actions);
            }
            _ => self.ask_features(now, sample, actions),
        }
    }

    fn ask_features(&mut self, now: Micros, sample: SampleId, actions: &mut Vec<Action>) {
        let Some(open) = self.open.get_mut(&sample) else { return };
        open.stage = Stage::Features;
        open.owing = open.presence.present_mask();
        open.due = now.plus_ms(self.config.policy.features_ms).min(open.deadline);
        self.wakes.push(open.due, sample);
        actions.push(Action::Request { sample, slots: open.owing });
    }

    fn features(
        &mut self,
        now: Micros,
        slot: Slot,
        sample: SampleId,
        bits: Option<&[u8]>,
        actions: &mut Vec<Action>,
    ) {
        let packed = self.sizes.packed_bytes;
        if bits.is_some_and(|bits| bits.len() != packed) || slot.index() >= self.sizes.slots {
            self.counts.misfits += 1;
            return;
        }
        let Some(open) = self.open.get_mut(&sample).filter(|open| open.owes(slot)) else {
            self.counts.unasked += 1;
            return;
        };
        open.owing &= !(1 << slot.index());
        if let Some(bits) = bits {
            open.delivered |= 1 << slot.index();
            open.features[slot.index() * packed..][..packed].copy_from_slice(bits);
            open.device_edge_bytes += packed as u64;
        }
        if open.owing == 0 {
            self.ask_cloud(now, sample, actions);
        }
    }

    /// Sends what came to the cloud; a slot that had a view and did not deliver counts as missing from here on.
    fn ask_cloud(&mut self, now: Micros, sample: SampleId, actions: &mut Vec<Action>) {
        let Some(open) = self.open.get_mut(&sample) else { return };
        open.stages.features_us = open.elapsed(now);
        if open.delivered != open.presence.present_mask() {
            open.degrade(Degraded::FeaturesMissing);
        }
        let left_ms = u32::try_from(open.deadline.since(now) / 1000).unwrap_or(u32::MAX);
        if open.delivered == 0 {
            return self.decide_without_cloud(now, sample, None, actions);
        }
        if left_ms == 0 {
            return self.decide_without_cloud(now, sample, Some(Degraded::CloudTimeout), actions);
        }
        open.stage = Stage::Cloud;
        open.due = open.deadline;
        open.edge_cloud_bytes = (open.features.len() + self.sizes.slots) as u64;
        self.wakes.push(open.due, sample);
        actions.push(Action::AskCloud {
            sample,
            features: open.features.clone(),
            presence: (0..self.sizes.slots).map(|slot| open.delivered >> slot & 1 == 1).collect(),
            deadline_ms: left_ms,
        });
    }

    fn cloud_answer(&mut self, now: Micros, sample: SampleId, logits: &[f32], actions: &mut Vec<Action>) {
        if logits.len() != self.sizes.classes {
            self.counts.misfits += 1;
            return self.cloud_failed(now, sample, Degraded::CloudRefused, actions);
        }
        if let Some(open) = self.open.get_mut(&sample).filter(|open| open.stage == Stage::Cloud) {
            open.stages.cloud_us = open.elapsed(now);
            let delivered = open.delivered;
            withhold_undelivered(&mut open.presence, delivered);
            let assessment = self.config.policy.cloud.assess(logits, delivered.count_ones());
            return self.decide(now, sample, Exit::Cloud, Answer::from(&assessment), actions);
        }
        let Some(mut decision) = self.closed.take_revisable(sample) else {
            self.counts.unasked += 1;
            return;
        };
        let assessment = self.config.policy.cloud.assess(logits, decision.presence.present_count());
        decision.exit = Exit::Cloud;
        decision.class = assessment.class;
        decision.label = label(&self.config.labels, assessment.class);
        decision.confidence = assessment.confidence;
        decision.degraded.retain(|reason| *reason != Degraded::CloudTimeout);
        actions.push(Action::Revise(decision));
    }

    fn cloud_failed(&mut self, now: Micros, sample: SampleId, reason: Degraded, actions: &mut Vec<Action>) {
        match self.open.get_mut(&sample).filter(|open| open.stage == Stage::Cloud) {
            Some(open) => {
                open.stages.cloud_us = open.elapsed(now);
                self.decide_without_cloud(now, sample, Some(reason), actions);
            }
            None => self.counts.unasked += 1,
        }
    }

    /// The best exit so far answers, marked.
    fn decide_without_cloud(
        &mut self,
        now: Micros,
        sample: SampleId,
        reason: Option<Degraded>,
        actions: &mut Vec<Action>,
    ) {
        let Some(open) = self.open.get_mut(&sample) else { return };
        if let Some(reason) = reason {
            open.degrade(reason);
        }
        // Without a local answer (its section failed) the prior is all there is.
        let answer =
            open.local.unwrap_or_else(|| Answer::from(&Assessment::of_prior(&self.config.class_prior)));
        self.decide(now, sample, Exit::Local, answer, actions);
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
                Stage::Cloud => {
                    let stages = &mut self.open.get_mut(&sample).expect("looked up above").stages;
                    stages.cloud_us = 0;
                    self.decide_without_cloud(now, sample, Some(Degraded::CloudTimeout), actions);
                }
            }
        }
    }

    fn decide(
        &mut self,
        now: Micros,
        sample: SampleId,
        exit: Exit,
        answer: Answer,
        actions: &mut Vec<Action>,
    ) {
        let Some(mut open) = self.open.remove(&sample) else { return };
        if open.late {
            open.degrade(Degraded::Late);
        }
        let decision = Decision {
            sample,
            class: answer.class,
            label: label(&self.config.labels, answer.class),
            confidence: answer.confidence,
            exit,
            presence: open.presence,
            degraded: std::mem::take(&mut open.degraded),
            network: self.config.network,
            policy: self.config.policy_id,
            stages: Stages { decided_us: open.elapsed(now), ..open.stages },
            bytes: HopBytes { device_edge: open.device_edge_bytes, edge_cloud: open.edge_cloud_bytes },
        };
        if decision.degraded.contains(&Degraded::CloudTimeout) {
            self.closed.keep_revisable(decision.clone());
        }
        self.closed.decided(sample);
        actions.push(Action::Decide(decision));
        self.retire(open);
    }

    fn drop_sample(&mut self, sample: SampleId, reason: Dropped, actions: &mut Vec<Action>) {
        let Some(open) = self.open.remove(&sample) else { return };
        self.closed.dropped(sample, reason);
        actions.push(Action::Drop { sample, reason });
        self.retire(open);
    }

    fn retire(&mut self, open: Box<Open>) {
        let oldest = self.open.first_key_value().map(|(&sample, _)| sample);
        self.closed.settle(oldest, self.newest);
        if self.spare.len() < SPARE {
            self.spare.push(open);
        }
    }
}

/// Slots that had a view and whose features did not reach the exit are missing at it.
fn withhold_undelivered(presence: &mut Presence, delivered: u64) {
    for slot in Slot::first(presence.slots()) {
        if presence.is_present(slot) && delivered >> slot.index() & 1 == 0 {
            presence.set(slot, View::Missing);
        }
    }
}

fn label(labels: &[String], class: u16) -> String {
    labels.get(usize::from(class)).cloned().unwrap_or_default()
}

impl From<&Assessment> for Answer {
    fn from(assessment: &Assessment) -> Self {
        Self { class: assessment.class, confidence: assessment.confidence }
    }
}
