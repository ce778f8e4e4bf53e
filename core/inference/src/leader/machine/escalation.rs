//! Stages after an unsure first exit: features, edges, cloud.

use headwater_protocol::{Degraded, EdgeIndex, EdgeSet, Exit, LeaveReason, SampleId, SlotSet};

use super::Leader;
use super::device_answers::DeviceMessage;
use super::early_answers::EarlyContent;
use crate::cascade::ExitAnswer;
use crate::leader::network::Network;
use crate::leader::open_sample::{OpenSample, Stage};
use crate::leader::{Action, Generation};

/// The edge that sent a message, and the sample that the message is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct EdgeSender {
    /// The network that the edge runs.
    pub(super) generation: Generation,
    pub(super) edge: EdgeIndex,
    pub(super) sample: SampleId,
}

/// Output of an edge's section.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EdgeAnswer<'a> {
    /// Slots whose features the edge's section had.
    pub slots: SlotSet,
    /// One score per class.
    pub scores: &'a [f32],
    /// The edge's map for the cloud, [`LeaderConfig::cloud_map_bytes`](crate::leader::LeaderConfig) long.
    pub map: &'a [u8],
    /// Bytes of the message's body; 0 for an edge in the leader's process.
    pub body_bytes: u64,
}

impl Leader {
    /// Requests the features that the next exit still lacks. Without edges and with all features there, asks the cloud at once.
    pub(super) fn escalate(&mut self, sample: SampleId) {
        let Some(open) = self.state.open.get_mut(&sample) else { return };
        let generation = open.generation;
        let network = &self.networks[generation];
        let edges = &network.config.edges;
        let present = open.presence.present();
        let wanted = present - open.delivered;
        if wanted.is_empty() && edges.is_empty() {
            return self.ask_cloud(sample);
        }
        if !wanted.is_empty() {
            self.actions.push(Action::Request { generation, sample, slots: wanted });
        }
        let policy = self.state.networks[open.generation].policy(open.policy);
        open.due = self.state.now.plus_ms(policy.features_ms).min(open.deadline);
        self.state.timers.push(open.due, sample);
        if edges.is_empty() {
            (open.stage, open.owing_slots) = (Stage::Features, wanted);
            return;
        }
        open.stage = Stage::Edges;
        // From here on, `delivered` has the slots whose features are in an edge's answer.
        open.delivered = SlotSet::EMPTY;
        let with_view = EdgeIndex::first(edges.len()).zip(edges);
        let with_view = with_view.filter(|(_, slots)| !(**slots & present).is_empty());
        open.owing_edges =
            with_view.map(|(edge, _)| edge).collect::<EdgeSet>() & self.state.networks[generation].edges_up;
        let is_complete = open.owing_edges.is_empty();
        self.actions.push(Action::Collect { generation, sample, slots: present });
        if is_complete {
            self.apply_edge_exit(sample);
        }
    }

    /// Takes the map of a slot, with the number of bytes in which it was sent; `None` if the device has no map of the sample any more.
    pub(super) fn features(&mut self, message: DeviceMessage, map: Option<(&[u8], u64)>) {
        let DeviceMessage { generation, sample, .. } = message;
        let Some(network) = self.networks.get(generation) else { return };
        if !self.features_fit(message, map.map(|(bits, _)| bits)) {
            self.state.counts.misfits += 1;
            return;
        }
        let pushes = network.config.configuration.pushes_maps();
        if pushes
            && let Some((bits, body_bytes)) = map
            && self.is_early(message)
        {
            return self.hold(message, EarlyContent::Features(bits.to_vec(), body_bytes), None);
        }
        self.take_early(sample);
        self.take_features(message, map);
    }

    /// True when the network of a message has this slot and maps of this size.
    pub(super) fn features_fit(&self, message: DeviceMessage, bits: Option<&[u8]>) -> bool {
        self.networks.get(message.generation).is_some_and(|Network { config, .. }| {
            message.slot.index() < config.slots && bits.is_none_or(|bits| bits.len() == config.packed_bytes)
        })
    }

    /// Takes features that fit their network.
    pub(super) fn take_features(&mut self, message: DeviceMessage, map: Option<(&[u8], u64)>) {
        let DeviceMessage { generation, slot, sample, .. } = message;
        let config = &self.networks[generation].config;
        let (pushes, has_edges) = (config.configuration.pushes_maps(), !config.edges.is_empty());
        if pushes && map.is_some() && !self.state.open.contains_key(&sample) {
            // Features may overtake the summary, since they have another topic.
            self.open_for(message);
        }
        // If the network has edges, the edges take the features; the leader only notes their bytes, and that they came unasked.
        if let (true, Some((_, body_bytes)), Some(open)) = (has_edges, map, self.state.open.get_mut(&sample))
            && open.generation == generation
        {
            open.note_map_bytes(slot, body_bytes);
        }
        let takes = |open: &OpenSample| {
            let is_new = !open.delivered.contains(slot);
            let is_wanted = open.owes(slot) || pushes && is_new && open.stage == Stage::Window;
            is_wanted && open.generation == generation
        };
        let Some(open) = self.state.open.get_mut(&sample).filter(|open| takes(open)) else {
            self.state.counts.unawaited += u64::from(!has_edges);
            return;
        };
        open.owing_slots.remove(slot);
        match map {
            Some(_) if has_edges => open.delivered.insert(slot),
            Some((bits, body_bytes)) => {
                open.put_slot_map(slot, bits);
                open.bytes.device_edge += body_bytes;
            }
            None => {}
        }
        if open.stage == Stage::Window {
            self.close_window_if_complete(sample);
        } else if open.owing_slots.is_empty() {
            self.ask_cloud(sample);
        }
    }

    /// Takes the answer of an edge; `None` if the edge has no features.
    pub(super) fn edge_answer(&mut self, sender: EdgeSender, answer: Option<EdgeAnswer<'_>>) {
        let EdgeSender { generation, edge, sample } = sender;
        let Some(network) = self.networks.get(generation) else { return };
        let edge_slots = network.config.edges.get(edge.index()).copied().unwrap_or_default();
        let classes = network.config.classes();
        let fits = |answer: &EdgeAnswer<'_>| {
            answer.slots.is_subset(edge_slots)
                && !answer.slots.is_empty()
                && answer.scores.len() == classes
                && answer.map.len() == network.config.cloud_map_bytes
        };
        if edge_slots.is_empty() || answer.as_ref().is_some_and(|answer| !fits(answer)) {
            self.state.counts.misfits += 1;
            return;
        }
        let awaits = |open: &OpenSample| {
            open.generation == generation && open.stage == Stage::Edges && !open.edges.contains(edge)
        };
        let Some(open) = self.state.open.get_mut(&sample).filter(|open| awaits(open)) else {
            self.state.counts.unawaited += 1;
            return;
        };
        open.owing_edges.remove(edge);
        if let Some(EdgeAnswer { slots, scores, map, body_bytes }) = answer {
            open.put_edge_map(edge, map);
            open.buffers.edge_scores[edge.index() * classes..][..classes].copy_from_slice(scores);
            open.delivered |= slots & open.presence.present();
            open.bytes.device_edge += open.bytes_of_maps(slots, network.config.packed_bytes);
            open.bytes.edge_leader += body_bytes;
        }
        if open.owing_edges.is_empty() {
            self.apply_edge_exit(sample);
        }
    }

    pub(super) fn edge_down(&mut self, generation: Generation, edge: EdgeIndex) {
        let Some(network) = self.state.networks.get_mut(generation) else { return };
        network.edges_up.remove(edge);
        let owes = |open: &OpenSample| {
            open.generation == generation && open.stage == Stage::Edges && open.owing_edges.contains(edge)
        };
        let waiting: Vec<SampleId> =
            self.state.open.values().filter(|open| owes(open)).map(|open| open.sample).collect();
        for sample in waiting {
            self.edge_answer(EdgeSender { generation, edge, sample }, None);
        }
    }

    /// Applies the exit `edge`, when every edge has answered or the time for their answers is over.
    pub(super) fn apply_edge_exit(&mut self, sample: SampleId) {
        let Some(open) = self.state.open.get_mut(&sample) else { return };
        open.stages.edge_us = open.elapsed(self.state.now);
        let network = &mut self.networks[open.generation];
        let present = open.delivered.len() as u32;
        let policy = self.state.networks[open.generation].policy(open.policy).of(Exit::EDGE);
        let assessed = network.exits.edge.as_mut().and_then(|exit| {
            exit.scores(&open.buffers.edge_scores, open.edges.sources(), &mut network.logits).ok()?;
            Some(policy.assess(open.buffers.device_classes.input(&network.logits, open.delivered)))
        });
        let Some(assessment) = assessed else { return self.ask_cloud(sample) };
        let best = ExitAnswer { exit: Exit::EDGE, assessment };
        open.best = Some(best);
        let scores = open.probabilities(policy, &network.logits);
        open.note_exit(best, Some(policy.threshold_confidence(present)), scores);
        if !assessment.leaves {
            return self.ask_cloud(sample);
        }
        self.note_undelivered(sample);
        self.decide(sample, best, LeaveReason::Sure);
    }

    /// Asks the cloud with the maps that came; without maps or without time left, decides without the cloud. Slots whose map did not come
    /// are missing once the cloud has answered.
    pub(super) fn ask_cloud(&mut self, sample: SampleId) {
        self.note_undelivered(sample);
        let Some(open) = self.state.open.get_mut(&sample) else { return };
        let generation = open.generation;
        let config = &self.networks[generation].config;
        let present = if config.edges.is_empty() { open.delivered.sources() } else { open.edges.sources() };
        if open.stage == Stage::Features {
            open.stages.features_us = open.elapsed(self.state.now);
        }
        let left_ms = u32::try_from(open.deadline.since(self.state.now) / 1000).unwrap_or(u32::MAX);
        if present.is_empty() {
            return self.decide_without_cloud(sample, None);
        }
        if left_ms == 0 {
            return self.decide_without_cloud(sample, Some(Degraded::CloudTimeout));
        }
        open.stage = Stage::Cloud;
        open.due = open.deadline;
        let presence = present.row(config.cloud_sources());
        open.bytes.edge_cloud = (open.buffers.maps.len() + presence.len()) as u64;
        self.state.timers.push(open.due, sample);
        let features = open.buffers.maps.clone();
        self.actions.push(Action::AskCloud { generation, sample, features, presence, deadline_ms: left_ms });
    }

    pub(super) fn cloud_answer(&mut self, sample: SampleId, logits: &[f32]) {
        let Some(open) = self.state.open.get_mut(&sample).filter(|open| open.stage == Stage::Cloud) else {
            return self.revise(sample, logits);
        };
        let network = &self.networks[open.generation];
        if logits.len() != network.config.classes() {
            self.state.counts.misfits += 1;
            return self.cloud_failed(sample, Degraded::CloudRefused);
        }
        open.stages.cloud_us = open.elapsed(self.state.now);
        open.set_undelivered_missing();
        let policy = self.state.networks[open.generation].policy(open.policy).of(Exit::CLOUD);
        let assessment = policy.assess(open.buffers.device_classes.input(logits, open.delivered));
        let answer = ExitAnswer { exit: Exit::CLOUD, assessment };
        let scores = open.probabilities(policy, logits);
        open.note_exit(answer, None, scores);
        self.decide(sample, answer, LeaveReason::LastExit);
    }

    pub(super) fn cloud_failed(&mut self, sample: SampleId, reason: Degraded) {
        match self.state.open.get_mut(&sample).filter(|open| open.stage == Stage::Cloud) {
            Some(open) => {
                open.stages.cloud_us = open.elapsed(self.state.now);
                self.decide_without_cloud(sample, Some(reason));
            }
            None => self.state.counts.unawaited += 1,
        }
    }

    /// Marks the sample as degraded when the features of a present slot did not arrive.
    fn note_undelivered(&mut self, sample: SampleId) {
        if let Some(open) = self.state.open.get_mut(&sample)
            && open.delivered != open.presence.present()
        {
            open.degrade(Degraded::FeaturesMissing);
        }
    }
}
