//! The decision state machine of a group's leader, without sockets, threads or a clock.
//!
//! Events and `now` go in, actions come out. The stages of a sample are:
//!
//! ```text
//! first message
//!     v
//! window           ──a device with an exit is sure──> decided
//!     │ every device that is up answered, or time is over
//!     v
//! exit `local`     ──sure──> decided
//!     │ unsure
//!     v
//! features asked, unless they came unasked
//!     │ all came, or time is over
//!     v
//! exit `edge`      ──sure──> decided
//!     │ unsure
//!     v
//! cloud asked      ──answer──> decided
//!     │ failure, deadline
//!     v
//! decided by the deepest exit so far, degraded ──answer after the deadline──> revision
//! ```
//! A stage ends when every message that it waits for came, or its time is over. The network's [`Configuration`] decides which stages
//! there are. A device with an exit of its own may decide in place of the window.
//!
//! Messages that a device could not send in time come later from its spool, marked late. Samples of late messages wait longer for the
//! other devices ([`Policy::late_ms`]) and are named one by one in [`Leader::notice`].
//!
//! While devices switch from one network to the next, the leader runs both ([`Generation`]). A sample is decided under the network of its
//! first answer; a device's report that it gave the sample up does not count as an answer.
//!
//! Ids of new samples must be plausible: near the wall clock and not ahead of the group's devices, or near the newest id. Triggered
//! samples, and samples that were open at a restart, are awaited: an answer opens the sample, and without an answer it is dropped.
//!
//! Every wait has an end ([`Leader::next_timer`]). Every sample that was opened or triggered is decided or dropped with a reason, once.

mod by_slot;
mod clock_offsets;
mod closed;
mod devices;
mod float_bits;
mod id_ranges;
mod implausible;
pub mod journal;
mod machine;
mod network;
mod network_state;
mod open_sample;
mod plausible_ids;
pub mod smoothing;
pub(crate) mod timers;

use std::ops::Add;
use std::sync::Arc;
use std::time::Duration;

use headwater_protocol::{
    Decision, Degraded, Dropped, EdgeIndex, Exit, NetworkId, Numbering, PolicyId, SampleId, Slot, SlotSet,
};
use serde::{Deserialize, Serialize};

use crate::bundle::{Bundle, BundleError};
use crate::engine::Engine;
use crate::manifest::Configuration;
use crate::policy::Policy;
use crate::sections::{ScoresExit, SectionError};

pub use crate::bundle::Generation;
pub use clock_offsets::ClockOff;
pub use implausible::Implausible;
pub use machine::{Counts, DeviceAnswer, EdgeAnswer, Leader, LeaderState, NamedFrame, StateError};

/// Microseconds since the leader started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Micros(pub u64);

impl Micros {
    /// A time in milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms.saturating_mul(1000))
    }

    /// The time `ms` milliseconds later.
    pub const fn plus_ms(self, ms: u32) -> Self {
        Self(self.0.saturating_add(ms as u64 * 1000))
    }

    /// Microseconds since `earlier`; 0 when `earlier` is later.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Micros {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)))
    }
}

/// The time of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Time since the leader started; it must not go backwards.
    pub since_start: Micros,
    /// Wall clock in milliseconds since 1970. It may be set forwards and backwards.
    pub wall_ms: u64,
}

/// Configuration of a leader for one network.
#[derive(Clone, Debug)]
pub struct LeaderConfig {
    /// Id of the network.
    pub network: NetworkId,
    /// Id of the policy, named in decisions.
    pub policy_id: PolicyId,
    /// Thresholds and timing.
    pub policy: Policy,
    /// Class names.
    pub labels: Vec<String>,
    /// Share of each class in training; the most frequent class may answer samples that no device saw ([`Policy::no_answer`]).
    pub class_prior: Vec<f32>,
    /// DDNN configuration: it decides which exits there are, and what devices send unasked.
    pub configuration: Configuration,
    /// Device slots of the network.
    pub slots: usize,
    /// Slots of each edge; empty in a network without edges.
    pub edges: Vec<SlotSet>,
    /// Bytes of a summary's scores as sent.
    pub score_bytes: usize,
    /// Bytes of a device's map.
    pub packed_bytes: usize,
    /// Bytes of a map for the cloud: a device's, or an edge's if the network has edges.
    pub cloud_map_bytes: usize,
    /// Largest number of open samples; beyond it the sample with the lowest id is dropped.
    pub max_open_samples: usize,
}

impl LeaderConfig {
    /// Configuration for the network of a bundle, under the bundle's policy.
    pub fn of(bundle: &Bundle, max_open_samples: usize) -> Self {
        let manifest = bundle.manifest();
        let groups = manifest.edge.iter().flat_map(|edge| &edge.groups);
        Self {
            network: bundle.network_id(),
            policy_id: bundle.policy_id(),
            policy: bundle.policy().clone(),
            labels: manifest.labels.clone(),
            class_prior: manifest.class_prior.clone(),
            configuration: manifest.configuration,
            slots: usize::from(manifest.slots),
            edges: groups.map(|slots| slots.iter().copied().collect()).collect(),
            score_bytes: manifest.score_bytes(),
            packed_bytes: manifest.features.packed_bytes(),
            cloud_map_bytes: manifest.cloud_map().packed_bytes(),
            max_open_samples,
        }
    }

    /// The same configuration under another policy.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy, policy_id: PolicyId) -> Self {
        (self.policy, self.policy_id) = (policy, policy_id);
        self
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.labels.len()
    }

    /// Number of maps that the cloud joins: one for each slot, or one for each edge.
    pub fn cloud_sources(&self) -> usize {
        if self.edges.is_empty() { self.slots } else { self.edges.len() }
    }
}

/// The exits that a leader applies itself; `None` for an exit that the network does not have.
pub struct Exits {
    /// The exit `local`, over the scores of the devices.
    pub local: Option<ScoresExit>,
    /// The exit `edge`, over the scores of the edges.
    pub edge: Option<ScoresExit>,
}

impl Exits {
    /// Exits of the network in a bundle.
    ///
    /// # Errors
    /// When the bundle lacks a section that an exit needs, or the engine refuses the section.
    pub fn load(bundle: &Bundle, engine: &dyn Engine) -> Result<Self, SectionError> {
        bundle.manifest().check_runs().map_err(BundleError::from)?;
        Ok(Self {
            local: ScoresExit::load(bundle, Exit::LOCAL, engine)?,
            edge: ScoresExit::load(bundle, Exit::EDGE, engine)?,
        })
    }
}

/// An event that the leader reacts to.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'a> {
    /// The device of a slot has this name in decisions from now on.
    DeviceNamed {
        /// Slot of the device.
        slot: Slot,
        /// Name of the device.
        name: Arc<str>,
    },
    /// A device introduced itself, or came back.
    DeviceUp {
        /// Slot of the device.
        slot: Slot,
    },
    /// A device left, or its last will came.
    DeviceDown {
        /// Slot of the device.
        slot: Slot,
    },
    /// A device's answer to a sample.
    DeviceAnswer {
        /// Slot of the device.
        slot: Slot,
        /// The sample.
        sample: SampleId,
        /// Time from capture to sending, ms; without meaning for a sample that was given up.
        age_ms: u16,
        /// True when the message comes from the spool, after the sample's time.
        late: bool,
        /// The answer.
        answer: DeviceAnswer<'a>,
        /// The frame behind the answer; `None` unless the device names its frames.
        frame: Option<&'a NamedFrame>,
    },
    /// Features, sent on request or unasked (configurations b and d).
    Features {
        /// Slot of the device.
        slot: Slot,
        /// The sample.
        sample: SampleId,
        /// True when the message comes from the spool, after the sample's time.
        late: bool,
        /// Packed map, [`LeaderConfig::packed_bytes`] long.
        bits: &'a [u8],
        /// Bytes of the map as sent.
        body_bytes: u64,
    },
    /// The device has no features of the sample any more.
    Gone {
        /// Slot of the device.
        slot: Slot,
        /// The sample.
        sample: SampleId,
    },
    /// An edge is up, or came back.
    EdgeUp {
        /// Position of the edge.
        edge: EdgeIndex,
    },
    /// An edge is down.
    EdgeDown {
        /// Position of the edge.
        edge: EdgeIndex,
    },
    /// An edge's answer to a sample.
    EdgeAnswer {
        /// Position of the edge.
        edge: EdgeIndex,
        /// The sample.
        sample: SampleId,
        /// The answer; `None` when the edge got no features.
        answer: Option<EdgeAnswer<'a>>,
    },
    /// The cloud's logits.
    CloudAnswer {
        /// The sample.
        sample: SampleId,
        /// One logit per class.
        logits: &'a [f32],
    },
    /// The cloud gave no answer.
    CloudFailed {
        /// The sample.
        sample: SampleId,
        /// Reason that the decision then states.
        reason: Degraded,
    },
    /// The broker refused the result of a decided sample, which is not published again.
    ResultRefused {
        /// The sample.
        sample: SampleId,
    },
    /// A trigger asked every device to capture this sample.
    Trigger {
        /// The sample.
        sample: SampleId,
    },
    /// An accepted device told how it numbers its samples. The first numbering becomes the group's.
    Numbering(Numbering),
    /// The connection to the broker is new; messages before it may be lost.
    Connected,
    /// The connection to the broker was lost.
    Disconnected,
    /// Nothing came but time passed: every wait whose time is over ends.
    Tick,
}

/// An action that the leader asks for; actions are carried out in their order.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Journal the group's numbering; `None` begins a new numbering, and earlier ids mean nothing any more.
    Numbering(Option<Numbering>),
    /// Journal that the sample was triggered.
    Await(SampleId),
    /// Journal that the sample was opened.
    Open(SampleId),
    /// Ask devices for the sample's features.
    Request {
        /// The network of the devices.
        generation: Generation,
        /// The sample.
        sample: SampleId,
        /// Slots that are asked.
        slots: SlotSet,
    },
    /// Let the edges in the leader's process collect features. Edges in other processes read the request.
    Collect {
        /// The network of the edges.
        generation: Generation,
        /// The sample.
        sample: SampleId,
        /// Slots that have a view.
        slots: SlotSet,
    },
    /// Ask the cloud.
    AskCloud {
        /// The network of the maps.
        generation: Generation,
        /// The sample.
        sample: SampleId,
        /// Maps, `[sources, cloud_map_bytes]`, zero for absent sources; sources are the slots, or the edges if the network has edges.
        features: Vec<u8>,
        /// True for each source whose map is there, `[sources]`.
        presence: Vec<bool>,
        /// Milliseconds left until the deadline; at least 1.
        deadline_ms: u32,
    },
    /// Journal the decision, then publish it.
    Decide(Decision),
    /// Publish the cloud's answer to a sample that was decided without the cloud at its deadline.
    Revise(Decision),
    /// Journal that the sample was dropped.
    Drop {
        /// The sample.
        sample: SampleId,
        /// Reason of the drop.
        reason: Dropped,
    },
    /// Publish a journalled decision again, unchanged.
    Republish(Decision),
}

#[cfg(test)]
mod tests;
