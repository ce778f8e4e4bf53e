//! Behind the first exit: features, edges, cloud.

use headwater_protocol::{Degraded, EdgeIndex, EdgeSet, Exit, SampleId, SlotSet, SourceSet};

use super::open::{Answer, Stage};
use super::opening::{From, Said};
use super::{Action, Generation, Leader, Micros};

/// What an edge gave: the slots that had a part, scores, map, bytes on the hop.
type EdgeAnswer<'a> = (SlotSet, &'a [f32], &'a [u8], u64);

impl Leader {
    /// Asks for what the next exit needs and is not there yet.
    pub(super) fn go_deeper(&mut self, now: Micros, sample: SampleId, actions: &mut Vec<Action>) {
        let Some(open) = self.open.get_mut(&sample) else { return };
        let generation = open.generation;
        let held = &self.held[generation];
        let present = open.presence.present();
        let wanted = present - open.delivered;
        if wanted.is_empty() && held.config.edges.is_empty() {
            return self.ask_cloud(now, sample, actions);
        }
        if !wanted.is_empty() {
            actions.push(Action::Request { generation, sample, slots: wanted });
        }
        open.due = now.plus_ms(held.config.policy.features_ms).min(open.deadline);
        self.wakes.push(open.due, sample);
        if held.config.edges.is_empty() {
            (open.stage, open.owing_slots) = (Stage::Features, wanted);
            return;
        }
        open.stage = Stage::Edges;
        // From here on a slot has delivered when it has a part in the answer of its edge.
        open.delivered = SlotSet::EMPTY;
        let edges = EdgeIndex::first(held.config.edges.len()).zip(&held.config.edges);
        let seeing: EdgeSet =
            edges.filter(|(_, slots)| !(**slots & present).is_empty()).map(|(edge, _)| edge).collect();
        open.owing_edges = seeing & held.edges_up;
        let nobody = open.owing_edges.is_empty();
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
        let Some(held) = self.held.get(generation) else { return };
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
            let is_new = !open.delivered.contains(slot);
            let takes = open.owes(slot) || pushes && is_new && open.stage == Stage::Window;
            takes && open.generation == generation
        };
        let Some(open) = self.open.get_mut(&sample).filter(|open| takes_part(open)) else {
            self.counts.unasked += u64::from(!has_edges);
            return;
        };
        open.owing_slots.remove(slot);
        match bits {
            Some(_) if has_edges => open.delivered.insert(slot),
            Some(bits) => {
                open.put_slot_map(slot, bits);
                open.bytes.device_edge += packed as u64;
            }
            None => {}
        }
        match open.stage {
            Stage::Window => self.close_window_if_complete(now, sample, actions),
            _ if open.owing_slots.is_empty() => self.ask_cloud(now, sample, actions),
            _ => {}
        }
    }

    /// The answer of an edge, or that it has none.
    pub(super) fn edge_answer(
        &mut self,
        now: Micros,
        generation: Generation,
        (edge, sample): (EdgeIndex, SampleId),
        answer: Option<EdgeAnswer<'_>>,
        actions: &mut Vec<Action>,
    ) {
        let Some(held) = self.held.get(generation) else { return };
        let own = held.config.edges.get(edge.index()).copied().unwrap_or_default();
        let classes = held.sizes.classes;
        let fits = |(slots, scores, map, _): &EdgeAnswer<'_>| {
            slots.is_subset(own)
                && !slots.is_empty()
                && scores.len() == classes
                && map.len() == held.config.cloud_map_bytes
        };
        if own.is_empty() || answer.as_ref().is_some_and(|answer| !fits(answer)) {
            self.counts.misfits += 1;
            return;
        }
        let awaits = |open: &super::open::Open| {
            open.generation == generation && open.stage == Stage::Edges && !open.edges.contains(edge)
        };
        let Some(open) = self.open.get_mut(&sample).filter(|open| awaits(open)) else {
            self.counts.unasked += 1;
            return;
        };
        open.owing_edges.remove(edge);
        if let Some((slots, scores, map, body_bytes)) = answer {
            open.put_edge_map(edge, map);
            open.edge_scores[edge.index() * classes..][..classes].copy_from_slice(scores);
            open.delivered |= slots & open.presence.present();
            open.bytes.device_edge += slots.len() as u64 * held.config.packed_bytes as u64;
            open.bytes.edge_leader += body_bytes;
        }
        if open.owing_edges.is_empty() {
            self.edges_done(now, sample, actions);
        }
    }

    pub(super) fn edge_down(
        &mut self,
        now: Micros,
        generation: Generation,
        edge: EdgeIndex,
        actions: &mut Vec<Action>,
    ) {
        let Some(held) = self.held.get_mut(generation) else { return };
        held.edges_up.remove(edge);
        let owes = |open: &super::open::Open| {
            open.generation == generation && open.stage == Stage::Edges && open.owing_edges.contains(edge)
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
        let held = &mut self.held[open.generation];
        let assessed = held.exits.edge.as_mut().and_then(|exit| {
            exit.scores(&open.edge_scores, open.edges, &mut held.logits).ok()?;
            Some(held.config.policy.edge.assess(&held.logits, open.delivered.len() as u32))
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
        let config = &self.held[generation].config;
        let sources = config.cloud_sources();
        let present =
            if config.edges.is_empty() { open.delivered.into() } else { SourceSet::from(open.edges) };
        if open.stage == Stage::Features {
            open.stages.features_us = open.elapsed(now);
        }
        let left_ms = u32::try_from(open.deadline.since(now) / 1000).unwrap_or(u32::MAX);
        if present.is_empty() {
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
            presence: present.row(sources),
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
            let held = &self.held[open.generation];
            if logits.len() != held.sizes.classes {
                self.counts.misfits += 1;
                return self.cloud_failed(now, sample, Degraded::CloudRefused, actions);
            }
            open.stages.cloud_us = open.elapsed(now);
            open.withhold_undelivered();
            let assessment = held.config.policy.cloud.assess(logits, open.delivered.len() as u32);
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
            && open.delivered != open.presence.present()
        {
            open.degrade(Degraded::FeaturesMissing);
        }
    }
}
