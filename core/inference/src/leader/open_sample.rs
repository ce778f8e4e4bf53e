//! State of one open sample.

use headwater_protocol::{
    AppliedExit, Degraded, EdgeIndex, EdgeSet, HopBytes, PolicyId, Presence, SampleId, Slot, SlotPresence,
    SlotSet, SlotView, Stages,
};
use serde::{Deserialize, Serialize};

use super::{Generation, LeaderConfig, Micros};
use crate::cascade::ExitAnswer;
use crate::exit::{ExitInput, argmax};
use crate::policy::ExitPolicy;

#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct OpenSample {
    pub(super) buffers: Buffers,
    /// The network that decides the sample.
    pub(super) generation: Generation,
    /// The policy that decides the sample.
    pub(super) policy: PolicyId,
    pub(super) sample: SampleId,
    pub(super) stage: Stage,
    /// Time of capture, on the leader's clock.
    pub(super) captured: Micros,
    /// Time of capture by the leader's wall clock, ms since 1970; `None` until an answer came in time.
    pub(super) captured_wall_ms: Option<u64>,
    /// Time at which the present stage ends by itself.
    pub(super) due: Micros,
    /// Time at which the sample must be decided.
    pub(super) deadline: Micros,
    /// True when the sample was opened by a late message, or after its deadline.
    pub(super) is_past_deadline: bool,
    /// True when one device alone saw the sample, late, while others were up: its view must not decide at the exit `local`.
    #[serde(default)]
    pub(super) is_alone: bool,
    /// The device whose late message opened the sample; `None` once an answer in time has come.
    pub(super) spooled_by: Option<Slot>,
    /// True when a device sent a late message. The device waits until a notice names this sample.
    pub(super) is_awaited_late: bool,
    /// Slots that saw the sample and gave it up.
    pub(super) given_up: SlotSet,
    pub(super) presence: Presence,
    /// Slots whose features came, or had a part in the answer of their edge.
    pub(super) delivered: SlotSet,
    /// Edges whose scores and map came.
    pub(super) edges: EdgeSet,
    /// Slots that were asked for features and have not answered.
    pub(super) owing_slots: SlotSet,
    /// Edges whose answers are awaited.
    pub(super) owing_edges: EdgeSet,
    pub(super) stages: Stages,
    pub(super) bytes: HopBytes,
    /// Answer of the deepest exit so far.
    pub(super) best: Option<ExitAnswer>,
    /// Every exit that was applied, shallowest first.
    pub(super) exits: Vec<AppliedExit>,
    /// Views that the result lists. The names of their devices are filled in when the sample is decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) views: Vec<SlotView>,
    /// Class probabilities at the deepest exit so far; empty unless the result has views.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) scores: Vec<f32>,
    pub(super) degraded: Vec<Degraded>,
}

/// Scores and maps of one sample, in the sizes of its network. Later samples of the network reuse these buffers.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Buffers {
    /// Scores of the devices, `[slots, classes]`; only scores of present slots are read.
    #[serde(with = "super::float_bits")]
    pub(super) scores: Vec<f32>,
    pub(super) device_classes: DeviceClasses,
    /// Maps for the cloud, `[sources, cloud_map_bytes]`, zero if none came. Sources are the slots, or the edges if the network has edges.
    pub(super) maps: Vec<u8>,
    /// Bytes of each device's map as sent to its edge, by slot; 0 if the leader did not see the map.
    map_body_bytes: Vec<u64>,
    /// Scores of the edges, `[edges, classes]`.
    #[serde(with = "super::float_bits")]
    pub(super) edge_scores: Vec<f32>,
}

/// The most likely class of each device that sent scores.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct DeviceClasses {
    /// By slot; only the classes of slots in `known` are of this sample.
    classes: Vec<u16>,
    known: SlotSet,
}

impl DeviceClasses {
    fn put(&mut self, slot: Slot, scores: &[f32]) {
        self.classes[slot.index()] = argmax(scores);
        self.known.insert(slot);
    }

    /// True when the classes fit a network with that many slots.
    pub(super) fn fits(&self, slots: usize) -> bool {
        self.classes.len() == slots && self.known.is_subset(SlotSet::first(slots))
    }

    /// The input of an exit over `slots`, whose views reached the exit.
    pub(super) fn input<'a>(&self, logits: &'a [f32], slots: SlotSet) -> ExitInput<'a> {
        let classes = (slots & self.known).iter().map(|slot| self.classes[slot.index()]);
        ExitInput::new(logits, slots.len() as u32, classes)
    }
}

/// Stage of an open sample, by the messages that the sample waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stage {
    /// Summaries.
    #[default]
    Window,
    /// Features.
    Features,
    /// Answers of edges.
    Edges,
    /// The cloud's answer.
    Cloud,
}

impl OpenSample {
    /// A sample with buffers of the network's sizes.
    pub(super) fn new(config: &LeaderConfig, generation: Generation) -> Self {
        let buffers = Buffers {
            scores: vec![0.0; config.slots * config.classes()],
            device_classes: DeviceClasses { classes: vec![0; config.slots], known: SlotSet::EMPTY },
            maps: vec![0; config.cloud_sources() * config.cloud_map_bytes],
            map_body_bytes: vec![0; if config.edges.is_empty() { 0 } else { config.slots }],
            edge_scores: vec![0.0; config.edges.len() * config.classes()],
        };
        Self { buffers, generation, presence: Presence::missing(config.slots), ..Self::default() }
    }

    /// True when buffers, slots and edges fit the network.
    pub(super) fn fits(&self, config: &LeaderConfig) -> bool {
        let sizes = |Self { buffers, presence, .. }: &Self| {
            let Buffers { scores, maps, map_body_bytes, edge_scores, .. } = buffers;
            [scores.len(), maps.len(), map_body_bytes.len(), edge_scores.len(), presence.slots()]
        };
        let slots = self.given_up | self.delivered | self.owing_slots;
        let edges = self.edges | self.owing_edges;
        sizes(self) == sizes(&Self::new(config, self.generation))
            && self.buffers.device_classes.fits(config.slots)
            && slots.is_subset(SlotSet::first(config.slots))
            && self.views.iter().all(|view| view.slot.index() < config.slots)
            && edges.is_subset(EdgeSet::first(config.edges.len()))
    }

    /// Begins another sample of the same network.
    pub(super) fn reset(&mut self, sample: SampleId, captured: Micros) {
        let mut buffers = std::mem::take(&mut self.buffers);
        buffers.device_classes.known = SlotSet::EMPTY;
        buffers.map_body_bytes.fill(0);
        if !(self.delivered.is_empty() && self.edges.is_empty()) {
            buffers.maps.fill(0);
        }
        let presence = Presence::missing(self.presence.slots());
        *self = Self { buffers, generation: self.generation, sample, captured, presence, ..Self::default() };
    }

    /// Takes over an open sample of the other network that no device has answered; keeps its own network, buffers, presence and policy.
    pub(super) fn take_over(&mut self, other: &mut Self) {
        std::mem::swap(self, other);
        std::mem::swap(&mut self.buffers, &mut other.buffers);
        std::mem::swap(&mut self.generation, &mut other.generation);
        std::mem::swap(&mut self.policy, &mut other.policy);
        std::mem::swap(&mut self.presence, &mut other.presence);
    }

    /// Adds a reason for a lesser answer, once.
    pub(super) fn degrade(&mut self, reason: Degraded) {
        if !self.degraded.contains(&reason) {
            self.degraded.push(reason);
        }
    }

    /// Class probabilities at an exit with these logits, if the result has views; otherwise empty.
    pub(super) fn probabilities(&self, policy: &ExitPolicy, logits: &[f32]) -> Vec<f32> {
        if self.views.is_empty() { Vec::new() } else { policy.probabilities(logits) }
    }

    /// Notes an exit that was applied. `scores` are its class probabilities, empty unless the result has views; `threshold_confidence` is
    /// `None` if every sample leaves there, or the threshold is not known.
    pub(super) fn note_exit(
        &mut self,
        answer: ExitAnswer,
        threshold_confidence: Option<f32>,
        scores: Vec<f32>,
    ) {
        let ExitAnswer { exit, assessment } = answer;
        self.scores = scores;
        self.exits.push(AppliedExit { exit, confidence: assessment.confidence, threshold_confidence });
    }

    /// True when a late message opened the sample and no answer in time has come.
    pub(super) fn is_from_spool(&self) -> bool {
        self.spooled_by.is_some()
    }

    /// Microseconds since capture, for the end of a stage: at least 1, since 0 says that the stage did not end. The caller reads the clock
    /// once for many messages, so the time may stand still.
    pub(super) fn elapsed(&self, now: Micros) -> u64 {
        now.since(self.captured).max(1)
    }

    /// True when a device answered the sample or sent features; a report of giving the sample up does not count.
    pub(super) fn has_device_answer(&self) -> bool {
        !(self.presence.answered() | self.delivered).is_empty() || self.stage != Stage::Window
    }

    pub(super) fn put_scores(&mut self, slot: Slot, scores: &[f32]) {
        self.buffers.scores[slot.index() * scores.len()..][..scores.len()].copy_from_slice(scores);
        self.buffers.device_classes.put(slot, scores);
    }

    pub(super) fn put_slot_map(&mut self, slot: Slot, map: &[u8]) {
        self.put_map(slot.index(), map);
        self.delivered.insert(slot);
    }

    pub(super) fn put_edge_map(&mut self, edge: EdgeIndex, map: &[u8]) {
        self.put_map(edge.index(), map);
        self.edges.insert(edge);
    }

    /// Notes the bytes of a map that a device sent to its edge.
    pub(super) fn note_map_bytes(&mut self, slot: Slot, bytes: u64) {
        if let Some(noted) = self.buffers.map_body_bytes.get_mut(slot.index()) {
            *noted = bytes;
        }
    }

    /// Bytes of the maps of some slots as sent to their edge; a map that the leader did not see counts as `packed_bytes`.
    pub(super) fn bytes_of_maps(&self, slots: SlotSet, packed_bytes: usize) -> u64 {
        let noted =
            |slot: Slot| self.buffers.map_body_bytes.get(slot.index()).copied().filter(|bytes| *bytes > 0);
        slots.iter().map(|slot| noted(slot).unwrap_or(packed_bytes as u64)).sum()
    }

    fn put_map(&mut self, source: usize, map: &[u8]) {
        self.buffers.maps[source * map.len()..][..map.len()].copy_from_slice(map);
    }

    /// Marks slots as missing if they have a view but their features did not reach the exit.
    pub(super) fn set_undelivered_missing(&mut self) {
        for slot in (self.presence.present() - self.delivered).iter() {
            self.presence.set(slot, SlotPresence::Missing);
        }
    }

    /// True when the leader waits for features of the slot.
    pub(super) fn owes(&self, slot: Slot) -> bool {
        self.stage == Stage::Features && self.owing_slots.contains(slot)
    }
}
