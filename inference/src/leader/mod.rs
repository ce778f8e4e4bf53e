//! The decision state machine: what the leader of a group does, without sockets, threads or a clock.
//!
//! Events and `now` go in, actions come out. A sample passes
//!
//! ```text
//! first summary ──> window ──(all that are up answered, or its end)──> local exit ──sure──> decided
//!                                                                        │ unsure
//!                                                      features asked <──┘
//!                                       (all came, or the end of the wait) ──> cloud asked ──answer──> decided
//!                                                                                   │ failure, deadline
//!                                                                                   └──> best exit so far, degraded
//! ```
//!
//! Every wait has an end ([`Leader::next_wake`]), every sample that was opened is decided or dropped with a reason, and none
//! is decided twice.

mod closed;
mod devices;
mod horizon;
pub mod journal;
mod machine;
mod open;
mod wakes;

use headwater_protocol::{Decision, Degraded, Dropped, NetworkId, PolicyId, SampleId, Slot};

use crate::policy::Policy;

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
    /// Device slots of the network.
    pub slots: usize,
    /// Bytes of one packed feature map.
    pub packed_bytes: usize,
    /// Bytes of the scores in one summary, as sent.
    pub score_bytes: usize,
    /// Most samples open at once; beyond it the oldest is shed.
    pub most_open: usize,
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
    /// Features that were asked for.
    Features {
        /// Who.
        slot: Slot,
        /// Which sample.
        sample: SampleId,
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
    /// Nothing; time passed.
    Tick,
}

/// What to do about it, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Journal that the sample was opened.
    Open(SampleId),
    /// Ask these slots (bit i = slot i) for the sample's features.
    Request {
        /// Which sample.
        sample: SampleId,
        /// Slots asked.
        slots: u64,
    },
    /// Ask the cloud.
    AskCloud {
        /// Which sample.
        sample: SampleId,
        /// `[slots, packed_bytes]`, zero where absent.
        features: Vec<u8>,
        /// `[slots]`.
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
