//! The end of a sample: a decision, a revision of one, or none.

use headwater_protocol::{Decision, Degraded, Dropped, Exit, PolicyId, SampleId, Stages};

use super::machine::SPARE;
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
        let prior = || {
            let answer = Answer::from(&Assessment::of_prior(&self.config.class_prior));
            (self.config.configuration.exits()[0], answer)
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
        self.decide_under(now, sample, by, self.config.policy_id, actions);
    }

    /// Decides a sample; `policy` is the one whose exit answered.
    pub(super) fn decide_under(
        &mut self,
        now: Micros,
        sample: SampleId,
        (exit, answer): (Exit, Answer),
        policy: PolicyId,
        actions: &mut Vec<Action>,
    ) {
        let Some(mut open) = self.open.remove(&sample) else { return };
        if open.late {
            open.degrade(Degraded::Late);
        }
        if exit == Exit::Edge {
            open.withhold_undelivered();
        }
        let decision = Decision {
            sample,
            class: answer.class,
            label: self.label(answer.class),
            confidence: answer.confidence,
            exit,
            presence: open.presence,
            degraded: std::mem::take(&mut open.degraded),
            network: self.config.network,
            policy,
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
        let assessment = self.config.policy.cloud.assess(logits, decision.presence.present_count());
        decision.exit = Exit::Cloud;
        decision.class = assessment.class;
        decision.label = self.label(assessment.class);
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
        let oldest = self.open.first_key_value().map(|(&sample, _)| sample);
        self.closed.settle(oldest, self.newest);
        if self.spare.len() < SPARE {
            self.spare.push(open);
        }
    }

    fn label(&self, class: u16) -> String {
        self.config.labels.get(usize::from(class)).cloned().unwrap_or_default()
    }
}
