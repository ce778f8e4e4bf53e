//! The end of a sample: a decision, a revision of one, or none.

use headwater_protocol::{Decision, Degraded, Dropped, Exit, PolicyId, SampleId, Stages};

use super::open::{Answer, Open};
use super::{Action, Leader, Micros};
use crate::exit::Assessment;

impl Leader {
    /// The deepest exit so far answers, marked.
    pub(super) fn decide_without_cloud(
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
        // Where no exit answered (there is none in front of the cloud, or its section failed) the prior is all there is.
        let config = &self.held[open.generation].config;
        let prior = || {
            let answer = Answer::from(&Assessment::of_prior(&config.class_prior));
            (config.configuration.exits()[0], answer)
        };
        let best = open.best.unwrap_or_else(prior);
        self.decide(now, sample, best, actions);
    }

    /// Decides a sample by the leader's own policy.
    pub(super) fn decide(
        &mut self,
        now: Micros,
        sample: SampleId,
        by: (Exit, Answer),
        actions: &mut Vec<Action>,
    ) {
        self.decide_by_device(now, sample, by, None, actions);
    }

    /// Decides a sample; `policy` is that of a device which decided by itself.
    pub(super) fn decide_by_device(
        &mut self,
        now: Micros,
        sample: SampleId,
        (exit, answer): (Exit, Answer),
        policy: Option<PolicyId>,
        actions: &mut Vec<Action>,
    ) {
        let Some(mut open) = self.open.remove(&sample) else { return };
        if open.late {
            open.degrade(Degraded::Late);
        }
        if exit == Exit::Edge {
            open.withhold_undelivered();
        }
        let held = &self.held[open.generation];
        let decision = Decision {
            sample,
            class: answer.class,
            label: held.label(answer.class),
            confidence: answer.confidence,
            exit,
            presence: open.presence,
            degraded: std::mem::take(&mut open.degraded),
            network: held.config.network,
            policy: policy.unwrap_or(held.config.policy_id),
            stages: Stages { decided_us: open.elapsed(now), ..open.stages },
            bytes: open.bytes,
        };
        if decision.degraded.contains(&Degraded::CloudTimeout) {
            self.closed.keep_revisable(decision.clone());
        }
        self.closed.decided(sample);
        actions.push(Action::Decide(decision));
        self.retire(open);
    }

    /// A deeper answer after a decision that was made without it.
    pub(super) fn revise(&mut self, sample: SampleId, logits: &[f32], actions: &mut Vec<Action>) {
        let Some(mut decision) = self.closed.take_revisable(sample) else {
            self.counts.unasked += 1;
            return;
        };
        let Some((_, held)) = self.held.iter().find(|(_, held)| held.config.network == decision.network)
        else {
            return;
        };
        let assessment = held.config.policy.cloud.assess(logits, decision.presence.present_count());
        decision.exit = Exit::Cloud;
        decision.class = assessment.class;
        decision.label = held.label(assessment.class);
        decision.confidence = assessment.confidence;
        decision.degraded.retain(|reason| *reason != Degraded::CloudTimeout);
        actions.push(Action::Revise(decision));
    }

    pub(super) fn drop_sample(&mut self, sample: SampleId, reason: Dropped, actions: &mut Vec<Action>) {
        let Some(open) = self.open.remove(&sample) else { return };
        self.closed.dropped(sample, reason);
        actions.push(Action::Drop { sample, reason });
        self.retire(open);
    }

    fn retire(&mut self, open: Box<Open>) {
        if open.is_awaited_late {
            self.closed.tell_late(open.sample);
        }
        // Samples from a spool are told one by one, so that they hold up nobody else's.
        let oldest = self.open.values().find(|open| !open.is_from_spool).map(|open| open.sample);
        self.closed.settle(oldest, self.newest);
        self.held[open.generation].retire(open);
    }
}
