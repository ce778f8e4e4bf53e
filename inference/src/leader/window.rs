//! The window and the exit at its end.

use headwater_protocol::{Degraded, Dropped, Exit, SampleId, View};

use super::open::{Answer, Stage};
use super::{Action, Leader, Micros};
use crate::exit::Assessment;

impl Leader {
    pub(super) fn close_window_if_complete(
        &mut self,
        now: Micros,
        sample: SampleId,
        actions: &mut Vec<Action>,
    ) {
        let complete = self.open.get(&sample).is_some_and(|open| {
            let held = &self.held[open.generation];
            // Devices come back from an outage one after the other: what they kept waits for all of them.
            let awaited = if open.is_from_spool { held.every_slot() } else { held.devices.awaited() };
            let pushes = held.config.configuration.pushes_maps();
            let has_maps = !pushes || open.presence.present().is_subset(open.delivered);
            open.stage == Stage::Window && !awaited.is_empty() && awaited.is_subset(open.heard()) && has_maps
        });
        if complete {
            self.close_window(now, sample, actions);
        }
    }

    /// Joins what came and applies the first exit.
    pub(super) fn close_window(&mut self, now: Micros, sample: SampleId, actions: &mut Vec<Action>) {
        let Some(open) = self.open.get_mut(&sample) else { return };
        let held = &mut self.held[open.generation];
        open.stages.window_us = open.elapsed(now);
        self.counts.missing += u64::from(open.presence.missing_count());
        if open.is_from_spool {
            // Its own time begins when everybody has said what they have.
            open.deadline = open.deadline.min(now.plus_ms(held.config.policy.deadline_ms));
        } else {
            held.devices.window_closed(open.presence.answered());
        }
        let has_scores = open.presence.present_count() > 0;
        if held.config.configuration.pushes_maps() {
            // A device whose summary was lost has a view all the same: its map came.
            for slot in open.delivered.iter() {
                open.presence.set(slot, View::Present);
            }
        }
        let present = open.presence.present_count();
        let first = held.config.configuration.exits()[0];
        if present == 0 {
            if !open.given_up.is_empty() && open.presence.answered().is_empty() {
                return self.drop_sample(sample, Dropped::SpoolFull, actions);
            }
            open.degrade(Degraded::NoView);
            let answer = Answer::from(&Assessment::of_prior(&held.config.class_prior));
            return self.decide(now, sample, (first, answer), actions);
        }
        let logits = match first {
            // The device sent its scores because it was not sure; they answer if nothing deeper does.
            Exit::Device => has_scores.then(|| &open.scores[..held.sizes.classes]),
            Exit::Local => held.exits.local.as_mut().and_then(|exit| {
                let present = open.presence.present();
                exit.scores(&open.scores, present, &mut held.logits).ok().map(|()| &held.logits[..])
            }),
            Exit::Edge | Exit::Cloud => None,
        };
        let assessed = logits.map(|logits| held.config.policy.of(first).assess(logits, present));
        open.best = assessed.as_ref().map(|assessment| (first, Answer::from(assessment)));
        match (assessed, open.best) {
            (Some(assessment), Some(best)) if assessment.leaves && first == Exit::Local => {
                self.decide(now, sample, best, actions);
            }
            _ => self.go_deeper(now, sample, actions),
        }
    }
}
