//! Counts of an aggregator.

use std::collections::BTreeMap;

use headwater_inference::leader::Counts;
use headwater_protocol::{Decision, Degraded, DeviceId, Dropped, EdgeId, EdgeSet, Exit, SlotSet};
use serde::Serialize;

/// Counts of a group's leader since its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LeaderReport {
    /// Decisions.
    pub decided: u64,
    /// Decisions by exit.
    pub exits: BTreeMap<Exit, u64>,
    /// Degraded decisions by reason; one decision may have several reasons.
    pub degraded: BTreeMap<Degraded, u64>,
    /// Dropped samples by reason.
    pub dropped: BTreeMap<Dropped, u64>,
    /// Missing views in decisions, one for each sample and slot.
    pub missing: u64,
    /// Cloud answers that came after a decision and were published as revisions.
    pub revisions: u64,
    /// Decisions of an earlier process that were published again.
    pub republished: u64,
    /// Samples open now.
    pub open: u64,
    /// Slots that a device fills now.
    pub filled_slots: SlotSet,
    /// Devices with refused messages or births.
    pub refused: Vec<DeviceRefusals>,
    /// Edges with refused messages.
    pub refused_edges: Vec<EdgeRefusals>,
    /// Edges that are up now, in this process or another.
    pub edges_up: EdgeSet,
    /// Messages on foreign topics or of unknown names, and unreadable triggers.
    pub unroutable: u64,
    /// Results that wait for the broker.
    pub results_waiting: u64,
    /// Results given up because too many waited. They stay in the journal.
    pub results_unsent: u64,
    /// Messages that the decision state machine ignored.
    pub leader: LeaderCounts,
    /// Requests to the cloud.
    pub cloud: CloudCounts,
    /// The journal.
    pub journal: JournalCounts,
    /// Bytes written to the broker's socket, with all protocol headers above TCP.
    pub wire_sent_bytes: u64,
    /// Bytes read from the broker's socket, with all protocol headers above TCP.
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

/// Counts of an edge beside the leader since its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EdgeReport {
    /// Answers with scores and a feature map.
    pub answered: u64,
    /// Samples without features.
    pub gone: u64,
    /// Failed runs of the section.
    pub section_failures: u64,
    /// Answers that could not be sent.
    pub unsent: u64,
    /// Slots that a device fills now.
    pub filled_slots: SlotSet,
    /// Devices with refused messages or births.
    pub refused: Vec<DeviceRefusals>,
    /// Messages on foreign topics or of unknown names, and unreadable triggers.
    pub unroutable: u64,
    /// Bytes written to the broker's socket, with all protocol headers above TCP.
    pub wire_sent_bytes: u64,
    /// Bytes read from the broker's socket, with all protocol headers above TCP.
    pub wire_received_bytes: u64,
}

/// Messages that changed nothing; see [`Counts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeaderCounts {
    /// Second answers of a slot.
    pub duplicates: u64,
    /// Messages for closed samples.
    pub after_close: u64,
    /// Vectors of the wrong length.
    pub misfits: u64,
    /// New samples too far ahead of any sample that a trigger or a second device named.
    pub implausible: u64,
    /// Slots that named such a sample.
    pub implausible_slots: SlotSet,
    /// Features, edge answers and cloud answers that were not requested.
    pub unasked: u64,
    /// Answers under one network for samples of the other network.
    pub other_network: u64,
    /// Windows that ended by time.
    pub windows_timed_out: u64,
}

/// Requests to the cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CloudCounts {
    /// Requests started.
    pub asked: u64,
    /// Answers with logits, late ones included.
    pub answered: u64,
    /// Requests without an answer in time, by reason.
    pub failed: BTreeMap<Degraded, u64>,
    /// Bytes of request bodies.
    pub body_sent_bytes: u64,
    /// Bytes of answer bodies.
    pub body_received_bytes: u64,
    /// Number of times that the breaker opened, for the requests of all groups.
    pub breaker_opened: u64,
}

/// Counts of the journal since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JournalCounts {
    /// Entries written.
    pub entries: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Compactions at the bound.
    pub compactions: u64,
    /// Bytes of a torn last line that the start cut off.
    pub torn_bytes: u64,
}

impl EdgeReport {
    /// Sum of two reports: an edge under two networks in one process.
    pub(crate) fn plus(mut self, other: Self) -> Self {
        self.answered += other.answered;
        self.gone += other.gone;
        self.section_failures += other.section_failures;
        self.unsent += other.unsent;
        self.filled_slots |= other.filled_slots;
        self.refused.extend(other.refused);
        self.unroutable += other.unroutable;
        self.wire_sent_bytes += other.wire_sent_bytes;
        self.wire_received_bytes += other.wire_received_bytes;
        self
    }
}

impl LeaderReport {
    pub(crate) fn count(&mut self, decision: &Decision) {
        self.decided += 1;
        self.missing += u64::from(decision.presence.missing_count());
        *self.exits.entry(decision.exit).or_default() += 1;
        for reason in &decision.degraded {
            *self.degraded.entry(*reason).or_default() += 1;
        }
    }
}

impl From<&Counts> for LeaderCounts {
    fn from(counts: &Counts) -> Self {
        Self {
            duplicates: counts.duplicates,
            after_close: counts.after_close,
            misfits: counts.misfits,
            implausible: counts.implausible,
            implausible_slots: counts.implausible_slots,
            unasked: counts.unasked,
            other_network: counts.other_network,
            windows_timed_out: counts.windows_timed_out,
        }
    }
}
