//! One sample on its way to a decision.

use headwater_protocol::{
    Degraded, EdgeIndex, EdgeSet, Exit, HopBytes, Presence, SampleId, Slot, SlotSet, Stages, View,
};

use super::{Generation, Micros};
use crate::exit::Assessment;

/// State of one open sample. Buffers are reused from sample to sample.
pub(super) struct Open {
    /// The network it is decided under; the buffers have its sizes.
    pub(super) generation: Generation,
    pub(super) sample: SampleId,
    pub(super) stage: Stage,
    /// Capture, on the leader's clock.
    pub(super) captured: Micros,
    /// When the stage ends by itself.
    pub(super) due: Micros,
    /// When an answer must stand.
    pub(super) deadline: Micros,
    /// Its time was over when it was opened.
    pub(super) late: bool,
    /// A late message opened it.
    pub(super) is_from_spool: bool,
    /// A device sent it late, and waits to read that it is settled.
    pub(super) is_awaited_late: bool,
    /// Slots that saw it and had to give it up.
    pub(super) given_up: SlotSet,
    pub(super) presence: Presence,
    /// `[slots, classes]`.
    pub(super) scores: Vec<f32>,
    /// Maps for the cloud, `[sources, cloud_map_bytes]`, zero where nothing came; a source is a slot, or an edge.
    pub(super) maps: Vec<u8>,
    /// Slots whose features came, or which had a part in the answer of their edge.
    pub(super) delivered: SlotSet,
    /// Edges whose scores and map came.
    pub(super) edges: EdgeSet,
    /// Slots that were asked and have not answered.
    pub(super) owing_slots: SlotSet,
    /// Edges whose answers are awaited.
    pub(super) owing_edges: EdgeSet,
    /// `[edges, classes]`.
    pub(super) edge_scores: Vec<f32>,
    pub(super) stages: Stages,
    pub(super) bytes: HopBytes,
    /// Answer of the deepest exit so far, for when nothing deeper answers.
    pub(super) best: Option<(Exit, Answer)>,
    pub(super) degraded: Vec<Degraded>,
}

/// Where an open sample stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Collecting summaries.
    Window,
    /// Collecting features.
    Features,
    /// Collecting answers of edges.
    Edges,
    /// The cloud was asked.
    Cloud,
}

/// A class and how sure of it the exit is; see [`Assessment`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) class: u16,
    pub(super) confidence: f32,
}

/// Sizes that follow from the network.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) slots: usize,
    pub(super) classes: usize,
    pub(super) edges: usize,
    /// Bytes of the maps of all sources.
    pub(super) maps_bytes: usize,
}

impl Open {
    pub(super) fn new(sizes: Sizes, generation: Generation) -> Self {
        Self {
            generation,
            sample: SampleId(0),
            stage: Stage::Window,
            captured: Micros(0),
            due: Micros(0),
            deadline: Micros(0),
            late: false,
            is_from_spool: false,
            is_awaited_late: false,
            given_up: SlotSet::EMPTY,
            presence: Presence::missing(sizes.slots),
            scores: vec![0.0; sizes.slots * sizes.classes],
            maps: vec![0; sizes.maps_bytes],
            delivered: SlotSet::EMPTY,
            edges: EdgeSet::EMPTY,
            owing_slots: SlotSet::EMPTY,
            owing_edges: EdgeSet::EMPTY,
            edge_scores: vec![0.0; sizes.edges * sizes.classes],
            stages: Stages::default(),
            bytes: HopBytes::default(),
            best: None,
            degraded: Vec::new(),
        }
    }

    /// Makes it a fresh sample; the score buffers need no clearing, since only those present are read.
    pub(super) fn reset(&mut self, sample: SampleId, captured: Micros) {
        self.sample = sample;
        self.stage = Stage::Window;
        self.captured = captured;
        (self.late, self.is_from_spool, self.is_awaited_late) = (false, false, false);
        self.given_up = SlotSet::EMPTY;
        self.presence = Presence::missing(self.presence.slots());
        if !(self.delivered.is_empty() && self.edges.is_empty()) {
            self.maps.fill(0);
        }
        (self.delivered, self.owing_slots) = (SlotSet::EMPTY, SlotSet::EMPTY);
        (self.edges, self.owing_edges) = (EdgeSet::EMPTY, EdgeSet::EMPTY);
        self.stages = Stages::default();
        self.bytes = HopBytes::default();
        self.best = None;
        self.degraded.clear();
    }

    pub(super) fn degrade(&mut self, reason: Degraded) {
        if !self.degraded.contains(&reason) {
            self.degraded.push(reason);
        }
    }

    /// Microseconds since capture.
    pub(super) fn elapsed(&self, now: Micros) -> u64 {
        now.since(self.captured)
    }

    pub(super) fn has_answered(&self, slot: Slot) -> bool {
        self.presence.answered().contains(slot)
    }

    /// Whether a device said anything of it but that it gave it up.
    pub(super) fn has_begun(&self) -> bool {
        !(self.presence.answered() | self.delivered).is_empty() || self.stage != Stage::Window
    }

    /// Slots of which nothing more is to come in its window.
    pub(super) fn heard(&self) -> SlotSet {
        self.presence.answered() | self.given_up
    }

    /// Takes the map of a slot.
    pub(super) fn put_slot_map(&mut self, slot: Slot, map: &[u8]) {
        self.put_map(slot.index(), map);
        self.delivered.insert(slot);
    }

    /// Takes the map of an edge.
    pub(super) fn put_edge_map(&mut self, edge: EdgeIndex, map: &[u8]) {
        self.put_map(edge.index(), map);
        self.edges.insert(edge);
    }

    fn put_map(&mut self, source: usize, map: &[u8]) {
        self.maps[source * map.len()..][..map.len()].copy_from_slice(map);
    }

    /// Slots that had a view and whose features did not reach the exit are missing at it.
    pub(super) fn withhold_undelivered(&mut self) {
        for slot in Slot::first(self.presence.slots()) {
            if self.presence.is_present(slot) && !self.delivered.contains(slot) {
                self.presence.set(slot, View::Missing);
            }
        }
    }

    pub(super) fn owes(&self, slot: Slot) -> bool {
        self.stage == Stage::Features && self.owing_slots.contains(slot)
    }
}

impl From<&Assessment> for Answer {
    fn from(assessment: &Assessment) -> Self {
        Self { class: assessment.class, confidence: assessment.confidence }
    }
}
