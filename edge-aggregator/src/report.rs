//! What the aggregator counts.

use std::collections::BTreeMap;

use headwater_inference::leader::Counts;
use headwater_protocol::{Decision, Degraded, DeviceId, Dropped, EdgeId, Exit};
use serde::Serialize;

/// What an aggregator did since it started.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AggregatorReport {
    /// Decisions made in this life.
    pub decided: u64,
    /// Decisions by exit.
    pub exits: BTreeMap<Exit, u64>,
    /// Decisions by reason for being degraded; one may have several.
    pub degraded: BTreeMap<Degraded, u64>,
    /// Samples given up, by reason.
    pub dropped: BTreeMap<Dropped, u64>,
    /// Sample-slot pairs missing in decisions.
    pub missing: u64,
    /// Deeper answers that came after a decision.
    pub revisions: u64,
    /// Decisions of an earlier life published again.
    pub republished: u64,
    /// Samples open now.
    pub open: u64,
    /// Slots that a device fills now: bit i set for slot i.
    pub filled_slots: u64,
    /// Devices with refused messages or births.
    pub refused: Vec<DeviceRefusals>,
    /// Edges with refused messages.
    pub refused_edges: Vec<EdgeRefusals>,
    /// Edges that are there now, in this process or elsewhere: bit i set for edge i.
    pub edges_up: u64,
    /// Messages that belong to no device.
    pub strays: u64,
    /// Results that wait for the broker.
    pub results_waiting: u64,
    /// Results given up because too many waited; they stay in the journal.
    pub results_unsent: u64,
    /// What the state machine ignored.
    pub leader: LeaderAccount,
    /// The hop to the cloud.
    pub cloud: CloudAccount,
    /// The journal.
    pub journal: JournalAccount,
    /// Bytes written to the broker's socket, all of them.
    pub wire_sent_bytes: u64,
    /// Bytes read from the broker's socket, all of them.
    pub wire_received_bytes: u64,
}

/// Refusals of one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceRefusals {
    /// The device.
    pub device: DeviceId,
    /// Messages and births refused, by code of the error table.
    pub refused: BTreeMap<&'static str, u64>,
}

/// Refusals of one edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EdgeRefusals {
    /// The edge.
    pub edge: EdgeId,
    /// Messages refused, by code of the error table.
    pub refused: BTreeMap<&'static str, u64>,
}

/// What an edge that is a process of its own did since it started.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EdgeReport {
    /// Answers with scores and a map.
    pub answered: u64,
    /// Samples of which no features came.
    pub gone: u64,
    /// Runs of the section that failed.
    pub section_failures: u64,
    /// Answers that could not be sent.
    pub unsent: u64,
    /// Slots that a device fills now: bit i set for slot i.
    pub filled_slots: u64,
    /// Devices with refused messages or births.
    pub refused: Vec<DeviceRefusals>,
    /// Messages that belong to no device.
    pub strays: u64,
    /// Bytes written to the broker's socket, all of them.
    pub wire_sent_bytes: u64,
    /// Bytes read from the broker's socket, all of them.
    pub wire_received_bytes: u64,
}

/// Messages that changed nothing; see [`Counts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeaderAccount {
    /// A slot answered twice.
    pub duplicates: u64,
    /// The sample was closed before the message came.
    pub after_close: u64,
    /// Vectors of the wrong length.
    pub misfits: u64,
    /// New samples too far ahead of what a trigger or a second device named.
    pub implausible: u64,
    /// Bit `i` set where slot `i` named one.
    pub implausible_slots: u64,
    /// Features or cloud answers that nobody waited for.
    pub unasked: u64,
    /// Answers under one network for samples that were decided under the other.
    pub other_network: u64,
    /// Windows that ended by time.
    pub windows_timed_out: u64,
}

/// Requests to the cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CloudAccount {
    /// Requests begun.
    pub asked: u64,
    /// Answers with logits, late ones included.
    pub answered: u64,
    /// Requests without an answer in time, by reason.
    pub failed: BTreeMap<Degraded, u64>,
    /// Bytes of request bodies.
    pub body_sent_bytes: u64,
    /// Bytes of answer bodies.
    pub body_received_bytes: u64,
    /// How often the breaker opened.
    pub breaker_opened: u64,
}

/// The journal since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JournalAccount {
    /// Entries written.
    pub entries: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Times it was rewritten because it had reached its bound.
    pub compactions: u64,
    /// Bytes of a torn last line found at the start and cut off.
    pub torn_bytes: u64,
}

impl EdgeReport {
    /// What both did, under two networks in one process.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.answered += other.answered;
        self.gone += other.gone;
        self.section_failures += other.section_failures;
        self.unsent += other.unsent;
        self.filled_slots |= other.filled_slots;
        self.refused.extend(other.refused);
        self.strays += other.strays;
        self.wire_sent_bytes += other.wire_sent_bytes;
        self.wire_received_bytes += other.wire_received_bytes;
        self
    }
}

impl AggregatorReport {
    pub(crate) fn count(&mut self, decision: &Decision) {
        self.decided += 1;
        self.missing += u64::from(decision.presence.missing_count());
        *self.exits.entry(decision.exit).or_default() += 1;
        for reason in &decision.degraded {
            *self.degraded.entry(*reason).or_default() += 1;
        }
    }
}

impl From<&Counts> for LeaderAccount {
    fn from(counts: &Counts) -> Self {
        Self {
            duplicates: counts.duplicates,
            after_close: counts.after_close,
            misfits: counts.misfits,
            implausible: counts.implausible,
            implausible_slots: counts.implausible_slots.bits(),
            unasked: counts.unasked,
            other_network: counts.other_network,
            windows_timed_out: counts.windows_timed_out,
        }
    }
}
