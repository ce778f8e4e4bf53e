//! One sample on its way to a decision.

use headwater_protocol::{Degraded, Presence, SampleId, Slot, Stages};

use super::Micros;

/// State of one open sample. Buffers are reused from sample to sample.
pub(super) struct Open {
    pub(super) sample: SampleId,
    pub(super) stage: Stage,
    /// Capture, on the leader's clock.
    pub(super) captured: Micros,
    /// When the stage ends by itself.
    pub(super) due: Micros,
    /// When an answer must stand.
    pub(super) deadline: Micros,
    pub(super) late: bool,
    pub(super) presence: Presence,
    /// `[slots, classes]`.
    pub(super) scores: Vec<f32>,
    /// `[slots, packed_bytes]`, zero where nothing came.
    pub(super) features: Vec<u8>,
    /// Slots whose features came.
    pub(super) delivered: u64,
    /// Slots that were asked and have not answered.
    pub(super) owing: u64,
    pub(super) stages: Stages,
    pub(super) device_edge_bytes: u64,
    pub(super) edge_cloud_bytes: u64,
    /// Answer of the local exit, for when the cloud gives none.
    pub(super) local: Option<Answer>,
    pub(super) degraded: Vec<Degraded>,
}

/// Where an open sample stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Collecting summaries.
    Window,
    /// Collecting features.
    Features,
    /// The cloud was asked.
    Cloud,
}

/// A class and how sure of it the exit is.
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
    pub(super) packed_bytes: usize,
}

impl Open {
    pub(super) fn new(sizes: Sizes) -> Self {
        Self {
            sample: SampleId(0),
            stage: Stage::Window,
            captured: Micros(0),
            due: Micros(0),
            deadline: Micros(0),
            late: false,
            presence: Presence::missing(sizes.slots),
            scores: vec![0.0; sizes.slots * sizes.classes],
            features: vec![0; sizes.slots * sizes.packed_bytes],
            delivered: 0,
            owing: 0,
            stages: Stages::default(),
            device_edge_bytes: 0,
            edge_cloud_bytes: 0,
            local: None,
            degraded: Vec::new(),
        }
    }

    /// Makes it a fresh sample; the score buffer needs no clearing, since only slots that are present are read.
    pub(super) fn reset(&mut self, sample: SampleId, captured: Micros) {
        self.sample = sample;
        self.stage = Stage::Window;
        self.captured = captured;
        self.late = false;
        self.presence = Presence::missing(self.presence.slots());
        if self.delivered != 0 {
            self.features.fill(0);
        }
        (self.delivered, self.owing) = (0, 0);
        self.stages = Stages::default();
        (self.device_edge_bytes, self.edge_cloud_bytes) = (0, 0);
        self.local = None;
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
        self.presence.answered_mask() >> slot.index() & 1 == 1
    }

    pub(super) fn owes(&self, slot: Slot) -> bool {
        self.stage == Stage::Features && self.owing >> slot.index() & 1 == 1
    }
}
