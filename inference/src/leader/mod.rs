//! The decision state machine: what the leader of a group does, without sockets, threads or a clock.
//!
//! Events and `now` go in, actions come out. A sample passes
//!
//! ```text
//! first message ──> window ──(all that are up answered, or its end)──> exit `local` ──sure──> decided
//!                     │ a device that is alone and sure ──> decided         │ unsure
//!                     │                                                     v
//!                     │ maps came unasked ──> features asked ──(all came, or the end of the wait)
//!                     │                                                     │ with edges: their answers, exit `edge` ──sure──> decided
//!                     v                                                     v
//!                    cloud asked ──answer──> decided; ──failure, deadline──> best exit so far, degraded
//! ```
//! Which of these a network has is its configuration; see [`Configuration`].
//!
//! Messages that a device could not send in time come marked late, from its spool. Their samples wait longer for the other devices, which
//! come back one after the other ([`Policy::late_ms`]), and are told of one by one ([`Leader::notice`]).
//!
//! While devices switch from one network to the next, the leader holds both ([`Generation`]); a sample is decided under the network of its
//! first message.
//!
//! Every wait has an end ([`Leader::next_wake`]), every sample that was opened is decided or dropped with a reason, and none
//! is decided twice.

mod closed;
mod decide;
mod deeper;
mod devices;
mod held;
mod horizon;
pub mod journal;
mod machine;
mod open;
mod opening;
pub(crate) mod wakes;
mod window;

use headwater_protocol::{
    Decision, Degraded, DeviceDecision, Dropped, EdgeIndex, NetworkId, PolicyId, SampleId, Slot, SlotSet,
};

use crate::bundle::Bundle;
use crate::engine::Engine;
use crate::manifest::{Configuration, EdgeTier, NetworkManifest};
use crate::policy::Policy;
use crate::sections::{ScoresExit, SectionError};

pub use crate::bundle::Generation;
pub use machine::{Counts, Leader};

/// Microseconds since the leader started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Micros(pub u64);

impl Micros {
    /// A time in milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms.saturating_mul(1000))
    }

    /// This time and so many milliseconds.
    pub const fn plus_ms(self, ms: u32) -> Self {
        Self(self.0.saturating_add(ms as u64 * 1000))
    }

    /// Microseconds from `earlier` to this; 0 when it is not earlier.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// What the leader must know of its group.
#[derive(Clone, Debug)]
pub struct LeaderConfig {
    /// The network decisions are made under.
    pub network: NetworkId,
    /// The policy decisions are made under.
    pub policy_id: PolicyId,
    /// Thresholds and timing.
    pub policy: Policy,
    /// Class names.
    pub labels: Vec<String>,
    /// Share of each class in training; the answer where no device had a view.
    pub class_prior: Vec<f32>,
    /// Which exits there are, and who sends what unasked.
    pub configuration: Configuration,
    /// Device slots of the network.
    pub slots: usize,
    /// Slots of each edge; empty in a network without edges.
    pub edges: Vec<SlotSet>,
    /// Bytes of the map that a device sends.
    pub packed_bytes: usize,
    /// Bytes of the map that each source of the cloud sends: a device, or an edge where there are some.
    pub cloud_map_bytes: usize,
    /// Most samples open at once; beyond it the oldest is shed.
    pub most_open: usize,
}

impl LeaderConfig {
    /// What a bundle says, under a policy.
    pub fn of(
        manifest: &NetworkManifest,
        network: NetworkId,
        (policy, policy_id): (Policy, PolicyId),
        most_open: usize,
    ) -> Self {
        Self {
            network,
            policy_id,
            policy,
            labels: manifest.labels.clone(),
            class_prior: manifest.class_prior.clone(),
            configuration: manifest.configuration,
            slots: usize::from(manifest.slots),
            edges: manifest.edge.iter().flat_map(EdgeTier::slots_by_edge).collect(),
            packed_bytes: manifest.features.packed_bytes(),
            cloud_map_bytes: manifest.cloud_map().packed_bytes(),
            most_open,
        }
    }

    /// Maps that the cloud joins: one a slot, or one an edge.
    pub fn cloud_sources(&self) -> usize {
        if self.edges.is_empty() { self.slots } else { self.edges.len() }
    }
}

/// The exits that a leader applies itself; `None` where the network does not have one.
pub struct Exits {
    /// Over the scores of the devices.
    pub local: Option<ScoresExit>,
    /// Over the scores of the edges.
    pub edge: Option<ScoresExit>,
}

impl Exits {
    /// Those of a network.
    ///
    /// # Errors
    /// When the bundle does not hold a section they need or the engine refuses it.
    pub fn load(bundle: &Bundle, engine: &dyn Engine) -> Result<Self, SectionError> {
        Ok(Self { local: ScoresExit::local(bundle, engine)?, edge: ScoresExit::edge(bundle, engine)? })
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// A device introduced itself, or came back.
    DeviceUp {
        /// Its slot.
        slot: Slot,
    },
    /// A device said goodbye or its last will came.
    DeviceDown {
        /// Its slot.
        slot: Slot,
    },
    /// Scores of one view.
    Summary {
        /// Who.
        slot: Slot,
        /// Which sample.
        sample: SampleId,
        /// Time from capture to sending, ms.
        age_ms: u16,
        /// From the spool, after the sample's time.
        late: bool,
        /// One score a class.
        scores: &'a [f32],
    },
    /// The device is up and sees nothing.
    NotInView {
        /// Who.
        slot: Slot,
        /// Which sample.
        sample: SampleId,
        /// Time from capture to sending, ms.
        age_ms: u16,
        /// From the spool, after the sample's time.
        late: bool,
    },
    /// The view of a device that has no section (configuration a).
    Input {
        /// Who.
        slot: Slot,
        /// Which sample.
        sample: SampleId,
        /// Time from capture to sending, ms.
        age_ms: u16,
        /// From the spool, after the sample's time.
        late: bool,
        /// The view, [`LeaderConfig::packed_bytes`] long.
        pixels: &'a [u8],
    },
    /// A device that is alone was sure (configurations b and d).
    DeviceDecided {
        /// Who.
        slot: Slot,
        /// Which sample.
        sample: SampleId,
        /// Time from capture to sending, ms.
        age_ms: u16,
        /// From the spool, after the sample's time.
        late: bool,
        /// Its answer.
        decision: DeviceDecision,
    },
    /// Features that were asked for, or that come unasked in configurations b and d.
    Features {
        /// Who.
        slot: Slot,
        /// Which sample.
        sample: SampleId,
        /// From the spool, after the sample's time.
        late: bool,
        /// Packed map, [`LeaderConfig::packed_bytes`] long.
        bits: &'a [u8],
    },
    /// Features that were asked for and are no longer kept.
    Gone {
        /// Who.
        slot: Slot,
        /// Which sample.
        sample: SampleId,
    },
    /// A device saw the sample and had to give it up: its spool was full.
    GivenUp {
        /// Who.
        slot: Slot,
        /// Which sample.
        sample: SampleId,
    },
    /// An edge is there, or came back.
    EdgeUp {
        /// Which.
        edge: EdgeIndex,
    },
    /// An edge is gone.
    EdgeDown {
        /// Which.
        edge: EdgeIndex,
    },
    /// What an edge made of its devices' features.
    EdgeAnswer {
        /// Which edge.
        edge: EdgeIndex,
        /// Which sample.
        sample: SampleId,
        /// Slots whose features it had.
        slots: SlotSet,
        /// One score a class.
        scores: &'a [f32],
        /// Its map for the cloud, [`LeaderConfig::cloud_map_bytes`] long.
        map: &'a [u8],
        /// Bytes of the message's body; 0 where the edge is in the leader's own process.
        body_bytes: u64,
    },
    /// An edge got no features of the sample.
    EdgeGone {
        /// Which edge.
        edge: EdgeIndex,
        /// Which sample.
        sample: SampleId,
    },
    /// The cloud's logits.
    CloudAnswer {
        /// Which sample.
        sample: SampleId,
        /// One logit a class.
        logits: &'a [f32],
    },
    /// The cloud gave none.
    CloudFailed {
        /// Which sample.
        sample: SampleId,
        /// Why.
        reason: Degraded,
    },
    /// Every device was told to capture this sample.
    Trigger {
        /// Which sample.
        sample: SampleId,
    },
    /// The leader is connected anew: it does not know what was said before.
    Connected,
    /// Nothing; time passed.
    Tick,
}

/// What to do about it, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Journal that the sample was opened.
    Open(SampleId),
    /// Ask these slots for the sample's features.
    Request {
        /// The network whose devices are asked.
        generation: Generation,
        /// Which sample.
        sample: SampleId,
        /// Slots asked.
        slots: SlotSet,
    },
    /// Have the edges of the leader's own process run on these slots' features; edges elsewhere hear the request.
    Collect {
        /// The network whose edges are meant.
        generation: Generation,
        /// Which sample.
        sample: SampleId,
        /// Slots that have a view.
        slots: SlotSet,
    },
    /// Ask the cloud.
    AskCloud {
        /// The network whose tail is asked.
        generation: Generation,
        /// Which sample.
        sample: SampleId,
        /// `[sources, cloud_map_bytes]`, zero where absent; sources are slots, or edges where there are some.
        features: Vec<u8>,
        /// `[sources]`.
        presence: Vec<bool>,
        /// Milliseconds left; at least 1.
        deadline_ms: u32,
    },
    /// Journal, then publish.
    Decide(Decision),
    /// Publish as a revision of a decision that was made without the cloud.
    Revise(Decision),
    /// Journal that the sample was given up.
    Drop {
        /// Which sample.
        sample: SampleId,
        /// Why.
        reason: Dropped,
    },
    /// Publish again, unchanged; it is in the journal already.
    Republish(Decision),
}

#[cfg(test)]
mod tests;
