//! Answers of devices: each answer finds its open sample, or opens a sample.

use headwater_protocol::{
    Body, DeviceDecision, Dropped, Exit, FrameName, LeaveReason, Numbering, SampleId, Slot, SlotPresence,
    SlotSet, SlotView, UtcTime,
};
use serde::{Deserialize, Serialize};

use super::Leader;
use crate::cascade::ExitAnswer;
use crate::exit::Assessment;
use crate::leader::clock_offsets::Allowed;
use crate::leader::implausible::{Implausible, Limit};
use crate::leader::open_sample::{OpenSample, Stage};
use crate::leader::plausible_ids::Claim;
use crate::leader::{Action, Generation, Micros};

/// A device's answer to one sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DeviceAnswer<'a> {
    /// Scores of one view, one per class.
    Summary(&'a [f32]),
    /// The device is up and has no view.
    NotInView,
    /// The view of a device that has no section (configuration a), [`LeaderConfig::packed_bytes`](crate::leader::LeaderConfig) long.
    Input(&'a [u8]),
    /// The decision of a device with an exit (configurations b and d).
    Decided(DeviceDecision),
    /// The device can no longer send its answer: its spool was full, or the answer was unreadable or of another network.
    GivenUp,
}

/// The frame behind a device's answer, where the device names its frames.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NamedFrame {
    /// Name of the frame.
    pub name: FrameName,
    /// Scores of a device that decided, one per class; otherwise empty.
    #[serde(with = "crate::leader::float_bits")]
    pub scores: Vec<f32>,
}

/// The sender of a device's message, the sample that it is about, and when it was sent.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct DeviceMessage {
    /// The network that the device runs.
    pub(super) generation: Generation,
    pub(super) slot: Slot,
    pub(super) sample: SampleId,
    /// Time from capture to sending, ms.
    pub(super) age_ms: u16,
    /// True when the message comes from a spool, after the sample's time.
    pub(super) late: bool,
}

/// Largest number of open samples that late messages of one device have opened: as many as the device sends without an acknowledgement.
const MAX_SPOOLED: usize = 256;

impl Leader {
    pub(super) fn device_answer(
        &mut self,
        message: DeviceMessage,
        answer: DeviceAnswer<'_>,
        frame: Option<&NamedFrame>,
    ) {
        if !self.fits(message, answer) {
            self.state.counts.misfits += 1;
            return;
        }
        if self.is_early(message) {
            return self.hold(message, answer.into(), frame);
        }
        self.take_early(message.sample);
        self.take_answer(message, answer, frame);
    }

    /// Takes an answer that fits its network.
    pub(super) fn take_answer(
        &mut self,
        message: DeviceMessage,
        answer: DeviceAnswer<'_>,
        frame: Option<&NamedFrame>,
    ) {
        self.measure_clock(message);
        let captured_wall_ms = self.captured_wall_ms(message);
        let config = self.networks.get(message.generation).map(|network| &network.config);
        let score_bytes = config.map_or(0, |config| config.score_bytes as u64);
        let (slot, details) = (message.slot, self.details);
        let Some(open) = self.open_for(message) else { return };
        open.captured_wall_ms = open.captured_wall_ms.or(captured_wall_ms);
        let is_view = !matches!(answer, DeviceAnswer::NotInView | DeviceAnswer::GivenUp);
        if is_view && (details || frame.is_some()) {
            let name = frame.map(|frame| &frame.name);
            open.views.push(SlotView {
                slot,
                device: None,
                captured_at: captured_wall_ms.and_then(UtcTime::from_ms),
                frame: name.map(|name| name.frame),
                file: name.map(|name| name.file.clone()).filter(|file| !file.is_empty()),
            });
        }
        match answer {
            DeviceAnswer::Summary(scores) => {
                open.presence.set(slot, SlotPresence::Present);
                open.put_scores(slot, scores);
                open.bytes.device_edge += score_bytes;
            }
            DeviceAnswer::Input(pixels) => {
                open.presence.set(slot, SlotPresence::Present);
                open.put_slot_map(slot, pixels);
                open.bytes.device_edge += pixels.len() as u64;
            }
            DeviceAnswer::Decided(decision) => {
                let scores = frame.map_or(&[][..], |frame| &frame.scores[..]);
                return self.device_decided(message, decision, scores);
            }
            DeviceAnswer::GivenUp => open.given_up.insert(slot),
            DeviceAnswer::NotInView => open.presence.set(slot, SlotPresence::NotInView),
        }
        self.close_window_if_complete(message.sample);
    }

    /// Takes the decision of a device. `scores` are the scores of the device's exit; empty if the device did not
    /// send them.
    fn device_decided(&mut self, message: DeviceMessage, decision: DeviceDecision, scores: &[f32]) {
        let Some(open) = self.state.open.get_mut(&message.sample) else { return };
        open.presence.set(message.slot, SlotPresence::Present);
        open.bytes.device_edge += Body::Decided(decision).len() as u64;
        open.stages.window_us = open.elapsed(self.state.now);
        if !open.is_from_spool() {
            let answered = open.presence.answered();
            self.state.networks[message.generation].devices.window_closed(self.state.now, answered);
        }
        let DeviceDecision { class, confidence, policy } = decision;
        let assessment = Assessment { class, confidence, leaves: true };
        let answer = ExitAnswer { exit: Exit::DEVICE, assessment };
        let network = &self.state.networks[message.generation];
        let policy_here = (policy == network.policy_id).then(|| network.policy.of(Exit::DEVICE));
        let scores = policy_here.map(|policy| open.probabilities(policy, scores));
        open.note_exit(
            answer,
            policy_here.map(|policy| policy.threshold_confidence(1)),
            scores.unwrap_or_default(),
        );
        self.end(message.sample, (answer, None), LeaveReason::Sure, Some(policy));
    }

    /// True when the network has the slot of the message, and answers of this kind and size.
    pub(super) fn fits(&self, message: DeviceMessage, answer: DeviceAnswer<'_>) -> bool {
        let Some(network) = self.networks.get(message.generation) else { return false };
        let configuration = network.config.configuration;
        let has_section = configuration.has_device_section();
        let fits_network = match answer {
            DeviceAnswer::Summary(scores) => scores.len() == network.config.classes() && has_section,
            DeviceAnswer::Input(pixels) => pixels.len() == network.config.packed_bytes && !has_section,
            DeviceAnswer::Decided(decision) => {
                usize::from(decision.class) < network.config.classes() && configuration.has(Exit::DEVICE)
            }
            DeviceAnswer::NotInView | DeviceAnswer::GivenUp => true,
        };
        fits_network && message.slot.index() < network.config.slots
    }

    /// The open sample that an answer belongs to, opened if it is new. `None` when the answer is ignored or refused. The slot must be one of
    /// the network.
    pub(super) fn open_for(&mut self, message: DeviceMessage) -> Option<&mut OpenSample> {
        let DeviceMessage { generation, slot, sample, late, .. } = message;
        if self.state.open.contains_key(&sample) {
            // Later answers are noted too: the ids of a device that is always first are confirmed by the devices after it.
            self.state.plausible_ids.claim(slot, sample);
        } else if self.has_ended(message) {
            self.after_close(message);
            return None;
        } else if let Err(implausible) = self.check_new(message) {
            self.refuse(message, implausible);
            return None;
        } else if self.state.closed.is_too_old(sample) {
            if late {
                self.drop_refused(sample, Dropped::TooOld);
            }
            self.after_close(message);
            return None;
        } else {
            self.open_sample(message);
        }
        if self
            .state
            .open
            .get(&sample)
            .is_some_and(|open| open.generation != generation && !open.has_device_answer())
        {
            self.move_to(generation, sample);
        }
        let open = self.state.open.get_mut(&sample)?;
        if open.generation != generation {
            self.state.counts.other_network += 1;
            return None;
        }
        open.is_awaited_late |= late;
        if open.stage != Stage::Window {
            self.state.counts.after_close += 1;
            return None;
        }
        if open.presence.answered().contains(slot) {
            self.state.counts.duplicates += 1;
            return None;
        }
        self.bring_into_time(message);
        self.state.open.get_mut(&sample).map(Box::as_mut)
    }

    /// True when the sample of a message has ended. If ids tell the time, a refused sample has not ended for answers in time.
    fn has_ended(&self, DeviceMessage { sample, late, .. }: DeviceMessage) -> bool {
        let tells_time = self.state.plausible_ids.period_ms().is_some();
        if tells_time && !late {
            self.state.closed.has_ended(sample)
        } else {
            self.state.closed.contains(sample)
        }
    }

    /// Checks the id of a sample that is not open. The id of an awaited sample is plausible already.
    pub(super) fn check_new(&mut self, message: DeviceMessage) -> Result<(), Implausible> {
        let DeviceMessage { slot, sample, late, .. } = message;
        if self.state.awaited.contains(sample) {
            self.state.plausible_ids.claim(slot, sample);
            return Ok(());
        }
        let up = self.slots_up();
        self.state.plausible_ids.check(Claim { slot, sample, late }, up, self.wall_ms)?;
        self.check_clock(message, up)
    }

    /// Checks the clock of a message's device against the clocks of its group, if the group numbers by clock.
    fn check_clock(&self, message: DeviceMessage, up: SlotSet) -> Result<(), Implausible> {
        let DeviceMessage { generation, slot, sample, late, .. } = message;
        let Some(Numbering::Clock { period_ms }) = self.state.plausible_ids.numbering else { return Ok(()) };
        let allowed = Allowed::new(period_ms.into(), self.state.networks[generation].policy.window_ms);
        let ahead = if late {
            let least_ms = sample.0.saturating_mul(period_ms.into()).saturating_sub(self.wall_ms);
            self.state.clock_offsets.names_future(slot, least_ms, allowed, up)
        } else {
            self.state.clock_offsets.ahead(slot, allowed, up)
        };
        // The id becomes plausible with time.
        let ahead = ahead.map(|off| Implausible { sample, limit: Limit::Group(off), is_final: false });
        ahead.map_or(Ok(()), Err)
    }

    /// Measures the clock of a device by a message that it sent in time.
    fn measure_clock(&mut self, message: DeviceMessage) {
        let DeviceMessage { slot, sample, age_ms, late, .. } = message;
        if let Some(Numbering::Clock { period_ms }) = self.state.plausible_ids.numbering
            && !late
            && age_ms < u16::MAX
        {
            let captured_ms = sample.0.saturating_mul(period_ms.into());
            let sent_ms = captured_ms.saturating_add(age_ms.into());
            self.state.clock_offsets.measure(slot, sent_ms, self.state.now.0 / 1000);
        }
    }

    /// Counts a message of a closed sample. If the message is late, a notice tells its device that the sample is closed.
    fn after_close(&mut self, message: DeviceMessage) {
        self.state.counts.after_close += 1;
        if message.late {
            self.state.closed.add_late(message.sample);
        }
    }

    /// Refuses a message. A late message whose id stays implausible ends as a drop, so that its device frees the answer.
    fn refuse(&mut self, message: DeviceMessage, implausible: Implausible) {
        self.count_implausible(message.slot);
        self.refusal = Some(implausible);
        if implausible.is_final {
            self.drop_refused(message.sample, Dropped::Implausible);
            self.state.closed.add_late(message.sample);
        }
    }

    /// Moves a sample without answers to the network of its first answer. A report that a device gave the sample up is no answer.
    fn move_to(&mut self, generation: Generation, sample: SampleId) {
        let Some(mut open) = self.state.open.remove(&sample) else { return };
        let policy = self.state.networks[generation].policy_id;
        let mut moved = self.networks[generation].new_sample(generation, sample, open.captured, policy);
        moved.take_over(&mut open);
        self.networks[open.generation].recycle(open);
        self.state.open.insert(sample, moved);
    }

    /// True when a message is marked late and is at least as old as a window. A message marked late but younger counts as in time.
    fn is_spooled(&self, DeviceMessage { generation, age_ms, late, .. }: DeviceMessage) -> bool {
        late && u32::from(age_ms) >= self.state.networks[generation].policy.window_ms
    }

    /// Gives a sample that a late message opened the times of an ordinary sample, when an answer in time comes.
    fn bring_into_time(&mut self, message: DeviceMessage) {
        let now = self.state.now;
        let (is_spooled, policy) =
            (self.is_spooled(message), &self.state.networks[message.generation].policy);
        let Some(open) = self.state.open.get_mut(&message.sample) else { return };
        if is_spooled || !open.is_from_spool() || open.stage != Stage::Window {
            return;
        }
        let age_us = u64::from(message.age_ms) * 1000;
        open.spooled_by = None;
        open.captured = Micros(now.0.saturating_sub(age_us));
        open.is_past_deadline = age_us > u64::from(policy.deadline_ms) * 1000;
        open.deadline = if open.is_past_deadline { now } else { open.captured }.plus_ms(policy.deadline_ms);
        open.due = now.plus_ms(policy.window_ms).min(open.deadline);
        self.state.timers.push(open.due, message.sample);
    }

    /// Drops the oldest sample that late messages of this device opened, if [`MAX_SPOOLED`] of these samples are open.
    fn bound_spooled(&mut self, slot: Slot) {
        if self.state.open.len() < MAX_SPOOLED {
            return;
        }
        let mut own = self.state.open.values().filter(|open| open.spooled_by == Some(slot));
        let oldest = own.next().map(|open| open.sample);
        if own.count() + 1 >= MAX_SPOOLED
            && let Some(oldest) = oldest
        {
            self.drop_sample(oldest, Dropped::Shed);
        }
    }

    fn open_sample(&mut self, message: DeviceMessage) {
        let DeviceMessage { generation, slot, sample, age_ms, .. } = message;
        // The current network's bound holds for the samples of both networks.
        if self.state.open.len() >= self.networks.current.config.max_open_samples
            && let Some((&oldest, _)) = self.state.open.first_key_value()
        {
            self.drop_sample(oldest, Dropped::Shed);
        }
        let now = self.state.now;
        let is_spooled = self.is_spooled(message);
        if is_spooled {
            self.bound_spooled(slot);
        }
        let state = &self.state.networks[generation];
        // The age of a spooled sample says nothing about its deadline, so its times count from now.
        let age_us = if is_spooled { 0 } else { u64::from(age_ms) * 1000 };
        let captured = Micros(now.0.saturating_sub(age_us));
        let mut open = self.networks[generation].new_sample(generation, sample, captured, state.policy_id);
        let policy = &state.policy;
        open.is_past_deadline = is_spooled || age_us > u64::from(policy.deadline_ms) * 1000;
        open.spooled_by = is_spooled.then_some(slot);
        open.deadline = if open.is_past_deadline { now } else { captured }.plus_ms(policy.deadline_ms);
        open.due = now.plus_ms(policy.window_ms).min(open.deadline);
        if is_spooled {
            open.due = now.plus_ms(policy.late_ms);
            open.deadline = open.due.plus_ms(policy.deadline_ms);
        }
        open.stages.opened_us = age_us.max(1);
        self.state.timers.push(open.due, sample);
        self.state.newest = self.state.newest.max(sample);
        self.state.awaited.samples.remove(&sample);
        self.state.open.insert(sample, open);
        self.actions.push(Action::Open(sample));
    }
}
