//! The end of a sample: a decision, which may be revised, or a drop.

use headwater_protocol::{
    AppliedExit, Decision, Degraded, Dropped, Exit, LeaveReason, PolicyId, Presence, SampleId, Schema,
    SlotView, Smoothed, Stages, Undecided,
};

use super::Leader;
use crate::cascade::ExitAnswer;
use crate::exit::Assessment;
use crate::leader::Action;
use crate::leader::closed::Revisable;
use crate::leader::open_sample::OpenSample;
use crate::leader::smoothing::majority;
use crate::policy::NoAnswer;

impl Leader {
    /// Decides a sample by the deepest exit so far. `reason` says why the cloud did not answer; `None` if no features came for the cloud.
    pub(super) fn decide_without_cloud(&mut self, sample: SampleId, reason: Option<Degraded>) {
        let Some(open) = self.state.open.get_mut(&sample) else { return };
        let left = match reason {
            None => LeaveReason::NoFeatures,
            Some(reason) => {
                open.degrade(reason);
                if reason == Degraded::CloudTimeout {
                    LeaveReason::Deadline
                } else {
                    LeaveReason::CloudFailed
                }
            }
        };
        match open.best {
            // Nobody else has seen the sample, and no deeper exit has answered.
            Some(best) if open.is_alone && best.exit == Exit::LOCAL => {
                self.end(sample, (best, Some(Undecided::Unsure)), left, None);
            }
            Some(best) => self.decide(sample, best, left),
            // The network has no exit before the cloud, or that exit's section failed.
            None => self.end_without_answer(sample, Undecided::NoExit, left),
        }
    }

    /// Ends a sample that no exit answers, with the class prior or undecided, as [`Policy::no_answer`](crate::policy::Policy) says.
    pub(super) fn end_without_answer(&mut self, sample: SampleId, reason: Undecided, left: LeaveReason) {
        let Some(open) = self.state.open.get(&sample) else { return };
        let network = &self.networks[open.generation];
        let policy = self.state.networks[open.generation].policy(open.policy);
        let undecided = (policy.no_answer == NoAnswer::Undecided).then_some(reason);
        let answer = ExitAnswer {
            exit: network.config.configuration.exits()[0],
            assessment: Assessment::of_prior(&network.config.class_prior),
        };
        self.end(sample, (answer, undecided), left, None);
    }

    /// Decides a sample under the leader's own policy. If no exit was sure, the policy may leave the sample undecided.
    pub(super) fn decide(&mut self, sample: SampleId, answer: ExitAnswer, left: LeaveReason) {
        let Some(open) = self.state.open.get(&sample) else { return };
        let policy = self.state.networks[open.generation].policy(open.policy);
        let is_claimed =
            left == LeaveReason::Sure || policy.claims(answer.exit, answer.assessment.confidence);
        self.end(sample, (answer, (!is_claimed).then_some(Undecided::Unsure)), left, None);
    }

    /// Ends a sample with an answer, or undecided. `policy` is the policy of a device that decided by itself; `None` if the leader decides.
    pub(super) fn end(
        &mut self,
        sample: SampleId,
        (answer, undecided): (ExitAnswer, Option<Undecided>),
        left: LeaveReason,
        policy: Option<PolicyId>,
    ) {
        let Some(mut open) = self.state.open.remove(&sample) else { return };
        if open.is_past_deadline {
            open.degrade(Degraded::Late);
        }
        let ExitAnswer { exit, assessment } = answer;
        if exit == Exit::EDGE {
            open.set_undelivered_missing();
        }
        let network = &self.networks[open.generation];
        let (captured_at, captured_by) = self.capture_time(&open);
        let decision = Decision {
            schema: Schema,
            sample,
            captured_at,
            captured_by,
            class: undecided.is_none().then_some(assessment.class),
            label: undecided.is_none().then(|| network.label(assessment.class)),
            undecided,
            confidence: assessment.confidence,
            exit,
            left,
            exits: std::mem::take(&mut open.exits),
            presence: open.presence,
            missing: self.missing_names(&open.presence),
            degraded: std::mem::take(&mut open.degraded),
            network: network.config.network,
            policy: policy.unwrap_or(open.policy),
            stages: Stages { decided_us: open.elapsed(self.state.now), ..open.stages },
            bytes: open.bytes,
            views: self.named_views(std::mem::take(&mut open.views), &open.presence),
            scores: std::mem::take(&mut open.scores),
            smoothed: None,
        };
        let decision = self.smoothed(decision, &open);
        if decision.degraded.contains(&Degraded::CloudTimeout) {
            // The cloud answers from the slots whose features came, so in a revision the other slots are missing.
            open.set_undelivered_missing();
            let missing = self.missing_names(&open.presence);
            let views = self.named_views(decision.views.clone(), &open.presence);
            let decision = Decision { presence: open.presence, missing, views, ..decision.clone() };
            let device_classes = open.buffers.device_classes.clone();
            self.state.closed.keep_revisable(Revisable { decision, device_classes });
        }
        self.state.closed.decided(sample, self.state.now);
        // In a group without triggers, such as one that numbers by clock, only decisions show that an id is right.
        self.state.plausible_ids.believed.believe(sample);
        self.actions.push(Action::Decide(decision));
        self.close(open);
    }

    /// The decision with its smoothed answer, if the group smooths its answers. The journal has the smoothed answer but not the votes, so
    /// after a restart only later decisions vote.
    fn smoothed(&mut self, decision: Decision, open: &OpenSample) -> Decision {
        let Some(smoothing) = self.smoothing else { return decision };
        let network = &self.networks[open.generation];
        // An answer by the class prior, without any exit applied, does not vote.
        let class = decision.class.filter(|_| !decision.exits.is_empty());
        let votes = self.state.votes.with(smoothing, &decision, class);
        let answer = majority(&votes);
        let smoothed = answer.map(|(class, confidence)| Smoothed {
            class,
            label: network.label(class),
            confidence,
            of: votes.len() as u32,
        });
        Decision { smoothed, ..decision }
    }

    /// Present names of the devices in missing slots. An unknown device is named `slot N`, which cannot be the name of a device.
    fn missing_names(&self, presence: &Presence) -> Vec<String> {
        let name = |slot| self.state.device_names.get(&slot).map(ToString::to_string);
        let slots = presence.missing_slots();
        slots.map(|slot| name(slot).unwrap_or_else(|| format!("slot {slot}"))).collect()
    }

    /// The views of present slots in the order of the slots, with the present names of their devices.
    fn named_views(&self, mut views: Vec<SlotView>, presence: &Presence) -> Vec<SlotView> {
        views.retain(|view| presence.present().contains(view.slot));
        views.sort_by_key(|view| view.slot);
        for view in &mut views {
            view.device = self.state.device_names.get(&view.slot).map(ToString::to_string);
        }
        views
    }

    /// Publishes the cloud's answer, once, if the sample was decided without the cloud at its deadline.
    pub(super) fn revise(&mut self, sample: SampleId, logits: &[f32]) {
        let Some(Revisable { mut decision, device_classes }) = self.state.closed.take_revisable(sample)
        else {
            self.state.counts.unawaited += 1;
            return;
        };
        let decided_by = self.networks.iter().find(|(_, network)| network.config.network == decision.network);
        let Some((generation, network)) = decided_by else { return };
        if logits.len() != network.config.classes() {
            self.state.counts.misfits += 1;
            return;
        }
        let policy = self.state.networks[generation].policy(decision.policy);
        let input = device_classes.input(logits, decision.presence.present());
        let assessment = policy.of(Exit::CLOUD).assess(input);
        let confidence = assessment.confidence;
        decision.exits.push(AppliedExit { exit: Exit::CLOUD, confidence, threshold_confidence: None });
        (decision.exit, decision.left) = (Exit::CLOUD, LeaveReason::LastExit);
        let is_claimed = policy.claims(Exit::CLOUD, confidence);
        decision.class = is_claimed.then_some(assessment.class);
        decision.label = is_claimed.then(|| network.label(assessment.class));
        decision.undecided = (!is_claimed).then_some(Undecided::Unsure);
        decision.confidence = confidence;
        decision.smoothed = None;
        if !decision.views.is_empty() {
            decision.scores = policy.of(Exit::CLOUD).probabilities(logits);
        }
        decision.degraded.retain(|reason| *reason != Degraded::CloudTimeout);
        self.actions.push(Action::Revise(decision));
    }

    pub(super) fn drop_sample(&mut self, sample: SampleId, reason: Dropped) {
        let Some(open) = self.state.open.remove(&sample) else { return };
        self.state.closed.dropped(sample, reason, self.state.now);
        self.actions.push(Action::Drop { sample, reason });
        self.close(open);
    }

    /// Drops a sample that cannot be opened, unless the sample is known to be closed.
    pub(super) fn drop_refused(&mut self, sample: SampleId, reason: Dropped) {
        if !self.state.closed.contains(sample) {
            self.state.closed.refused(sample, reason);
            self.actions.push(Action::Drop { sample, reason });
        }
    }

    /// Brings the account up to date after a sample was decided or dropped.
    fn close(&mut self, open: Box<OpenSample>) {
        if open.is_awaited_late {
            self.state.closed.add_late(open.sample);
        }
        self.settle(self.state.newest);
        self.networks[open.generation].recycle(open);
    }

    /// Raises the highest settled sample, up to `newest` if none is open.
    pub(super) fn settle(&mut self, newest: SampleId) {
        // Late samples are settled one by one, so an open late sample does not delay `highest`.
        let oldest = self.state.open.values().find(|open| !open.is_from_spool()).map(|open| open.sample);
        self.state.closed.settle(oldest, newest);
    }
}
