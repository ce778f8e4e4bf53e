//! The window that collects summaries, and the exit at its end.

use headwater_protocol::{
    Degraded, Dropped, Exit, ExitWord, LeaveReason, SampleId, SlotPresence, SlotSet, Undecided,
};

use super::Leader;
use crate::cascade::ExitAnswer;
use crate::leader::open_sample::Stage;

impl Leader {
    pub(super) fn close_window_if_complete(&mut self, sample: SampleId) {
        let complete = self.state.open.get(&sample).is_some_and(|open| {
            let network = &self.networks[open.generation];
            let state = &self.state.networks[open.generation];
            // Devices come back from an outage one after the other, so a late sample waits for every slot.
            let every = SlotSet::first(network.config.slots);
            let awaited = if open.is_from_spool() { every } else { state.devices.awaited() };
            let pushes = network.config.configuration.pushes_maps();
            let has_maps = !pushes || open.presence.present().is_subset(open.delivered);
            open.stage == Stage::Window
                && !awaited.is_empty()
                && awaited.is_subset(open.presence.answered() | open.given_up)
                && has_maps
        });
        if complete {
            self.close_window(sample);
        }
    }

    /// Ends the window: joins the summaries and applies the first exit.
    pub(super) fn close_window(&mut self, sample: SampleId) {
        let Some(open) = self.state.open.get_mut(&sample) else { return };
        let network = &mut self.networks[open.generation];
        let state = &mut self.state.networks[open.generation];
        open.stages.window_us = open.elapsed(self.state.now);
        if open.is_from_spool() {
            // The deadline of a late sample counts from the end of its window.
            let policy = state.policy(open.policy);
            open.deadline = open.deadline.min(self.state.now.plus_ms(policy.deadline_ms));
        } else {
            state.devices.window_closed(self.state.now, open.presence.answered());
        }
        let has_scores = open.presence.present_count() > 0;
        if network.config.configuration.pushes_maps() {
            // A device whose map came has a view, even if its summary was lost.
            for slot in open.delivered.iter() {
                open.presence.set(slot, SlotPresence::Present);
            }
        }
        self.state.counts.missing += u64::from(open.presence.missing_count());
        if open.presence.missing_count() > 0 {
            open.degrade(Degraded::DeviceMissing);
        }
        let present = open.presence.present_count();
        // The late view of one device alone must not decide a sample that other devices may have seen.
        open.is_alone = open.is_from_spool()
            && open.presence.answered().len() == 1
            && !((state.devices.up | open.given_up) - open.presence.answered()).is_empty();
        let first = network.config.configuration.exits()[0];
        if present == 0 {
            if !open.given_up.is_empty() && open.presence.answered().is_empty() {
                return self.drop_sample(sample, Dropped::SpoolFull);
            }
            open.degrade(Degraded::NoView);
            return self.end_without_answer(sample, Undecided::NoView, LeaveReason::NoView);
        }
        let logits = match first.word() {
            // The device sent its scores because it was not sure; the scores give the answer if no deeper exit does.
            ExitWord::Device => has_scores.then(|| &open.buffers.scores[..network.config.classes()]),
            ExitWord::Local => network.exits.local.as_mut().and_then(|exit| {
                let present = open.presence.present().sources();
                exit.scores(&open.buffers.scores, present, &mut network.logits)
                    .ok()
                    .map(|()| &network.logits[..])
            }),
            ExitWord::Edge | ExitWord::Cloud => None,
        };
        let policy = state.policy(open.policy).of(first);
        let input = logits.map(|logits| open.buffers.device_classes.input(logits, open.presence.present()));
        let scores = logits.map(|logits| open.probabilities(policy, logits)).unwrap_or_default();
        open.best = input.map(|input| ExitAnswer { exit: first, assessment: policy.assess(input) });
        if let Some(answer) = open.best {
            open.note_exit(answer, Some(policy.threshold_confidence(present)), scores);
        }
        match open.best {
            Some(answer) if answer.assessment.leaves && first == Exit::LOCAL && !open.is_alone => {
                self.decide(sample, answer, LeaveReason::Sure);
            }
            _ => self.escalate(sample),
        }
    }
}
