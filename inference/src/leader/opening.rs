//! A device's answer to a sample: finds the open sample it belongs to, opens it where it is new, and takes the answer in.

use headwater_protocol::{Body, Dropped, Exit, SampleId, Slot, View};

use super::open::{Answer, Open, Stage};
use super::{Action, Event, Generation, Leader, Micros};

/// Who said it: a slot under a network.
#[derive(Clone, Copy, Debug)]
pub(super) struct From {
    pub(super) generation: Generation,
    pub(super) slot: Slot,
}

/// When it was said.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said {
    /// Time from capture to sending, ms.
    pub(super) age_ms: u16,
    /// From the spool, after the sample's time.
    pub(super) late: bool,
}

impl Event<'_> {
    /// Slot, sample and when, of an answer; `None` for every other event.
    pub(super) fn answer(&self) -> Option<(Slot, SampleId, Said)> {
        match *self {
            Self::Summary { slot, sample, age_ms, late, .. }
            | Self::NotInView { slot, sample, age_ms, late }
            | Self::Input { slot, sample, age_ms, late, .. }
            | Self::DeviceDecided { slot, sample, age_ms, late, .. } => {
                Some((slot, sample, Said { age_ms, late }))
            }
            Self::GivenUp { slot, sample } => Some((slot, sample, Said { age_ms: 0, late: true })),
            _ => None,
        }
    }
}

impl Leader {
    pub(super) fn answer(
        &mut self,
        now: Micros,
        generation: Generation,
        (slot, sample, said): (Slot, SampleId, Said),
        event: Event<'_>,
        actions: &mut Vec<Action>,
    ) {
        if !self.fits(generation, slot, &event) {
            self.counts.misfits += 1;
            return;
        }
        let Some(open) = self.answering(now, From { generation, slot }, sample, said, actions) else {
            return;
        };
        match event {
            Event::Summary { scores, .. } => {
                open.presence.set(slot, View::Present);
                open.scores[slot.index() * scores.len()..][..scores.len()].copy_from_slice(scores);
                open.bytes.device_edge += 4 * scores.len() as u64;
            }
            Event::Input { pixels, .. } => {
                open.presence.set(slot, View::Present);
                open.put_slot_map(slot, pixels);
                open.bytes.device_edge += pixels.len() as u64;
            }
            Event::DeviceDecided { decision, .. } => {
                open.presence.set(slot, View::Present);
                open.bytes.device_edge += Body::Decided(decision).len() as u64;
                open.stages.window_us = open.elapsed(now);
                let answered = open.presence.answered();
                if !open.is_from_spool {
                    self.held[generation].devices.window_closed(answered);
                }
                let answer = Answer { class: decision.class, confidence: decision.confidence };
                let by = (Exit::Device, answer);
                return self.decide_by_device(now, sample, by, Some(decision.policy), actions);
            }
            Event::GivenUp { .. } => open.given_up.insert(slot),
            _ => open.presence.set(slot, View::NotInView),
        }
        self.close_window_if_complete(now, sample, actions);
    }

    /// Whether an answer is one that the network has, in its sizes.
    fn fits(&self, generation: Generation, slot: Slot, event: &Event<'_>) -> bool {
        let Some(held) = self.held.get(generation) else { return false };
        let configuration = held.config.configuration;
        let is_right = match event {
            Event::Summary { scores, .. } => {
                scores.len() == held.sizes.classes && configuration.has_device_section()
            }
            Event::Input { pixels, .. } => {
                pixels.len() == held.config.packed_bytes && !configuration.has_device_section()
            }
            Event::DeviceDecided { decision, .. } => {
                usize::from(decision.class) < held.sizes.classes && configuration.has(Exit::Device)
            }
            _ => true,
        };
        is_right && slot.index() < held.sizes.slots
    }

    /// The open sample that an answer belongs to, opened if it is new; `None` when the answer is not to be taken. The slot is one of the
    /// network's.
    pub(super) fn answering(
        &mut self,
        now: Micros,
        from: From,
        sample: SampleId,
        said: Said,
        actions: &mut Vec<Action>,
    ) -> Option<&mut Open> {
        let From { generation, slot } = from;
        if !self.open.contains_key(&sample) {
            if self.closed.contains(sample) {
                self.counts.after_close += 1;
                if said.late {
                    self.closed.tell_late(sample);
                }
                return None;
            }
            if !self.horizon.believes(slot, sample, self.slots_up()) {
                self.counts.implausible += 1;
                self.counts.implausible_slots.insert(slot);
                return None;
            }
            self.open_sample(now, generation, sample, said, actions);
        } else {
            // Those who are never the first bear out the one who always is.
            self.horizon.claim(slot, sample);
        }
        if self.open.get(&sample).is_some_and(|open| open.generation != generation && !open.has_begun()) {
            self.move_to(generation, sample);
        }
        let open = self.open.get_mut(&sample)?;
        if open.generation != generation {
            self.counts.other_network += 1;
            return None;
        }
        open.is_awaited_late |= said.late;
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

    /// A device under one network gave the sample up before one under the other answered: it is the other's, whose answer is the first.
    fn move_to(&mut self, generation: Generation, sample: SampleId) {
        let Some(open) = self.open.remove(&sample) else { return };
        let mut moved = self.held[generation].fresh(generation);
        moved.reset(sample, open.captured);
        (moved.due, moved.deadline, moved.stages) = (open.due, open.deadline, open.stages);
        (moved.late, moved.is_from_spool) = (open.late, open.is_from_spool);
        (moved.is_awaited_late, moved.given_up) = (open.is_awaited_late, open.given_up);
        self.held[open.generation].retire(open);
        self.open.insert(sample, moved);
    }

    fn open_sample(
        &mut self,
        now: Micros,
        generation: Generation,
        sample: SampleId,
        Said { age_ms, late }: Said,
        actions: &mut Vec<Action>,
    ) {
        if self.open.len() >= self.held.current.config.most_open
            && let Some((&oldest, _)) = self.open.first_key_value()
        {
            self.drop_sample(oldest, Dropped::Shed, actions);
        }
        let held = &mut self.held[generation];
        let mut open = held.fresh(generation);
        let policy = &held.config.policy;
        // A late sample's time is over; it gets a whole one from now, and says so.
        let age_us = if late { 0 } else { u64::from(age_ms) * 1000 };
        let captured = Micros(now.0.saturating_sub(age_us));
        open.reset(sample, captured);
        open.late = late || age_us > u64::from(policy.deadline_ms) * 1000;
        open.is_from_spool = late;
        open.deadline = if open.late { now } else { captured }.plus_ms(policy.deadline_ms);
        open.due = now.plus_ms(policy.window_ms).min(open.deadline);
        if late {
            open.due = now.plus_ms(policy.late_ms);
            open.deadline = open.due.plus_ms(policy.deadline_ms);
        } else {
            self.since.get_or_insert(sample);
        }
        open.stages.opened_us = age_us;
        self.wakes.push(open.due, sample);
        self.newest = self.newest.max(sample);
        self.open.insert(sample, open);
        actions.push(Action::Open(sample));
    }
}
