//! Behind the first exit: features, edges, cloud.

use headwater_protocol::{Degraded, Exit, SampleId};

use super::open::{Answer, Stage};
use super::opening::{From, Said};
use super::{Action, Generation, Leader, Micros};

/// What an edge gave: the slots that had a part, scores, map, bytes on the hop.
type EdgeAnswer<'a> = (u64, &'a [f32], &'a [u8], u64);

impl Leader {
    /// Asks for what the next exit needs and is not there yet.
    pub(super) fn go_deeper(&mut self, now: Micros, sample: SampleId, actions: &mut Vec<Action>) {
        let Some(open) = self.open.get_mut(&sample) else { return };
        let generation = open.generation;
        let held = &self.held[generation as usize];
        let present = open.presence.present_mask();
        let wanted = present & !open.delivered;
        if wanted == 0 && held.config.edges.is_empty() {
            return self.ask_cloud(now, sample, actions);
        }
        if wanted != 0 {
            actions.push(Action::Request { generation, sample, slots: wanted });
        }
        open.due = now.plus_ms(held.config.policy.features_ms).min(open.deadline);
        self.wakes.push(open.due, sample);
        if held.config.edges.is_empty() {
            (open.stage, open.owing) = (Stage::Features, wanted);
            return;
        }
        open.stage = Stage::Edges;
        // From here on a slot has delivered when it has a part in the answer of its edge.
        open.delivered = 0;
        let edges = held.config.edges.iter().enumerate();
        let seeing =
            edges.filter(|(_, slots)| *slots & present != 0).fold(0, |mask, (edge, _)| mask | 1 << edge);
        open.owing = seeing & held.edges_up;
        let nobody = open.owing == 0;
        actions.push(Action::Collect { generation, sample, slots: present });
        if nobody {
            self.edges_done(now, sample, actions);
        }
    }

    /// Features of a slot, or that it has none any more.
    pub(super) fn features(
        &mut self,
        now: Micros,
        from: From,
        sample: SampleId,
        (bits, late): (Option<&[u8]>, bool),
        actions: &mut Vec<Action>,
    ) {
        let From { generation, slot } = from;
        let Some(held) = self.held.get(generation as usize) else { return };
        let packed = held.config.packed_bytes;
        if bits.is_some_and(|bits| bits.len() != packed) || slot.index() >= held.sizes.slots {
            self.counts.misfits += 1;
            return;
        }
        let pushes = held.config.configuration.pushes_maps();
        // Where there are edges they take the features; the leader only wants to know that a device sent them unasked.
        let has_edges = !held.config.edges.is_empty();
        if pushes && bits.is_some() && !self.open.contains_key(&sample) {
            // Messages on two topics may overtake each other: features can be the first that is heard of a sample.
            self.answering(now, from, sample, Said { age_ms: 0, late }, actions);
        }
        let takes_part = |open: &super::open::Open| {
            let is_new = open.delivered >> slot.index() & 1 == 0;
            let takes = open.owes(slot) || pushes && is_new && open.stage == Stage::Window;
            takes && open.generation == generation
        };
        let Some(open) = self.open.get_mut(&sample).filter(|open| takes_part(open)) else {
            self.counts.unasked += u64::from(!has_edges);
            return;
        };
        open.owing &= !(1 << slot.index());
        if let Some(bits) = bits {
            open.delivered |= 1 << slot.index();
            if !has_edges {
                open.put_map(slot.index(), bits);
                open.bytes.device_edge += packed as u64;
            }
        }
        match open.stage {
            Stage::Window => self.close_window_if_complete(now, sample, actions),
            _ if open.owing == 0 => self.ask_cloud(now, sample, actions),
            _ => {}
        }
    }

    /// The answer of an edge, or that it has none.
    pub(super) fn edge_answer(
        &mut self,
        now: Micros,
        generation: Generation,
        (edge, sample): (usize, SampleId),
        answer: Option<EdgeAnswer<'_>>,
        actions: &mut Vec<Action>,
    ) {
        let Some(held) = self.held.get(generation as usize) else { return };
        let own = held.config.edges.get(edge).copied().unwrap_or(0);
        let classes = held.sizes.classes;
        let fits = |(slots, scores, map, _): &EdgeAnswer<'_>| {
            slots & !own == 0
                && *slots != 0
                && scores.len() == classes
                && map.len() == held.config.cloud_map_bytes
        };
        if own == 0 || answer.as_ref().is_some_and(|answer| !fits(answer)) {
            self.counts.misfits += 1;
            return;
        }
        let awaits = |open: &super::open::Open| {
            open.generation == generation && open.stage == Stage::Edges && open.arrived >> edge & 1 == 0
        };
        let Some(open) = self.open.get_mut(&sample).filter(|open| awaits(open)) else {
            self.counts.unasked += 1;
            return;
        };
        open.owing &= !(1 << edge);
        if let Some((slots, scores, map, body_bytes)) = answer {
            open.put_map(edge, map);
            open.edge_scores[edge * classes..][..classes].copy_from_slice(scores);
            open.delivered |= slots & open.presence.present_mask();
            open.bytes.device_edge += u64::from(slots.count_ones()) * held.config.packed_bytes as u64;
            open.bytes.edge_leader += body_bytes;
        }
        if open.owing == 0 {
            self.edges_done(now, sample, actions);
        }
    }

    pub(super) fn edge_down(
        &mut self,
        now: Micros,
        generation: Generation,
        edge: usize,
        actions: &mut Vec<Action>,
    ) {
        let Some(held) = self.held.get_mut(generation as usize) else { return };
        held.edges_up &= !1u64.checked_shl(edge as u32).unwrap_or(0);
        let owes = |open: &super::open::Open| {
            let owing = open.owing.checked_shr(edge as u32).unwrap_or(0) & 1 == 1;
            open.generation == generation && open.stage == Stage::Edges && owing
        };
        let waiting: Vec<SampleId> =
            self.open.values().filter(|open| owes(open)).map(|open| open.sample).collect();
        for sample in waiting {
            self.edge_answer(now, generation, (edge, sample), None, actions);
        }
    }

    /// Every edge has answered, or their time is over: applies the exit `edge`.
    pub(super) fn edges_done(&mut self, now: Micros, sample: SampleId, actions: &mut Vec<Action>) {
        let Some(open) = self.open.get_mut(&sample) else { return };
        open.stages.edge_us = open.elapsed(now);
        let held = &mut self.held[open.generation as usize];
        let assessed = held.exits.edge.as_mut().and_then(|exit| {
            exit.scores(&open.edge_scores, open.arrived, &mut held.logits).ok()?;
            Some(held.config.policy.edge.assess(&held.logits, open.delivered.count_ones()))
        });
        let Some(assessment) = assessed else { return self.ask_cloud(now, sample, actions) };
        let best = (Exit::Edge, Answer::from(&assessment));
        open.best = Some(best);
        if !assessment.leaves {
            return self.ask_cloud(now, sample, actions);
        }
        self.mark_undelivered(sample);
        self.decide(now, sample, best, actions);
    }

    /// Sends what came to the cloud; a slot that had a view and did not deliver counts as missing from here on.
    pub(super) fn ask_cloud(&mut self, now: Micros, sample: SampleId, actions: &mut Vec<Action>) {
        self.mark_undelivered(sample);
        let Some(open) = self.open.get_mut(&sample) else { return };
        let generation = open.generation;
        let sources = self.held[generation as usize].config.cloud_sources();
        if open.stage == Stage::Features {
            open.stages.features_us = open.elapsed(now);
        }
        let left_ms = u32::try_from(open.deadline.since(now) / 1000).unwrap_or(u32::MAX);
        if open.arrived == 0 {
            return self.decide_without_cloud(now, sample, None, actions);
        }
        if left_ms == 0 {
            return self.decide_without_cloud(now, sample, Some(Degraded::CloudTimeout), actions);
        }
        open.stage = Stage::Cloud;
        open.due = open.deadline;
        open.bytes.edge_cloud = (open.maps.len() + sources) as u64;
        self.wakes.push(open.due, sample);
        actions.push(Action::AskCloud {
            generation,
            sample,
            features: open.maps.clone(),
            presence: (0..sources).map(|source| open.arrived >> source & 1 == 1).collect(),
            deadline_ms: left_ms,
        });
    }

    pub(super) fn cloud_answer(
        &mut self,
        now: Micros,
        sample: SampleId,
        logits: &[f32],
        actions: &mut Vec<Action>,
    ) {
        if let Some(open) = self.open.get_mut(&sample).filter(|open| open.stage == Stage::Cloud) {
            let held = &self.held[open.generation as usize];
            if logits.len() != held.sizes.classes {
                self.counts.misfits += 1;
                return self.cloud_failed(now, sample, Degraded::CloudRefused, actions);
            }
            open.stages.cloud_us = open.elapsed(now);
            open.withhold_undelivered();
            let assessment = held.config.policy.cloud.assess(logits, open.delivered.count_ones());
            return self.decide(now, sample, (Exit::Cloud, Answer::from(&assessment)), actions);
        }
        self.revise(sample, logits, actions);
    }

    pub(super) fn cloud_failed(
        &mut self,
        now: Micros,
        sample: SampleId,
        reason: Degraded,
        actions: &mut Vec<Action>,
    ) {
        match self.open.get_mut(&sample).filter(|open| open.stage == Stage::Cloud) {
            Some(open) => {
                open.stages.cloud_us = open.elapsed(now);
                self.decide_without_cloud(now, sample, Some(reason), actions);
            }
            None => self.counts.unasked += 1,
        }
    }

    /// Says so when a slot that had a view has no part in what goes on.
    fn mark_undelivered(&mut self, sample: SampleId) {
        if let Some(open) = self.open.get_mut(&sample)
            && open.delivered != open.presence.present_mask()
        {
            open.degrade(Degraded::FeaturesMissing);
        }
    }
}
