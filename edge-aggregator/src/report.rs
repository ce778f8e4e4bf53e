//! Counts of an aggregator.

use std::collections::BTreeMap;

use headwater_inference::leader::Counts;
use headwater_link::WireBytes;
use headwater_protocol::{
    Decision, Degraded, DeviceId, Dropped, EdgeId, EdgeSet, Exit, InstanceId, Numbering, PolicyId, SlotSet,
};
use headwater_telemetry::DurationCounts;

use crate::device_watch::ReportedDevice;

/// Refused messages and births of one sender, by code of the error table.
pub type Refusals = BTreeMap<&'static str, u64>;

/// Counts of a group's leader since its start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeaderReport {
    /// Whether this process leads the group.
    pub lead: LeadState,
    /// Name of this process as a leader.
    pub instance: Option<InstanceId>,
    /// The leader for which this process waits.
    pub waits_for: Option<InstanceId>,
    /// Term of the claim under which this process leads, or led last; 0 before the first.
    pub term: u64,
    /// Policy under which samples of the current network are opened now.
    pub policy: PolicyId,
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
    /// Decisions that were published again, marked: of an earlier process, or without the broker's acknowledgement on a lost connection.
    pub republished: u64,
    /// Samples open now.
    pub open: u64,
    /// Samples that were triggered, or open at a restart, and that no device has answered.
    pub awaited: u64,
    /// Slots that a device fills now.
    pub filled_slots: SlotSet,
    /// Every device with a birth, and its state.
    pub devices: BTreeMap<DeviceId, ReportedDevice>,
    /// Slots of the current network.
    pub slots: SlotSet,
    /// How the devices number their samples, once a device has said it.
    pub numbering: Option<Numbering>,
    /// Time from capture to decision, of the samples that were not late.
    pub decision_durations: DurationCounts,
    /// Devices with refused messages or births.
    pub refused: BTreeMap<DeviceId, Refusals>,
    /// Refusals of names that were forgotten to make room.
    pub refused_forgotten: Refusals,
    /// Names of devices that were forgotten to make room.
    pub forgotten_devices: u64,
    /// Devices that lost their slot to another one because they were silent.
    pub replaced_devices: u64,
    /// Edges with refused messages.
    pub refused_edges: BTreeMap<EdgeId, Refusals>,
    /// Edges that are up now, in this process or another.
    pub edges_up: EdgeSet,
    /// Messages on foreign topics or of unknown names, and unreadable triggers.
    pub unroutable: u64,
    /// Results that wait for the broker.
    pub results_waiting: u64,
    /// Results that are published, and that the broker has not acknowledged.
    pub results_unacknowledged: u64,
    /// Results given up because too many waited. They stay in the journal.
    pub results_unsent: u64,
    /// Messages of this leader that the broker refused, by the last level of their topic.
    pub refused_by_broker: BTreeMap<&'static str, u64>,
    /// Why the broker refuses the claim of this process; `None` once it took the newest claim.
    pub claim_refused: Option<String>,
    /// Messages that the decision state machine ignored.
    pub leader: Counts,
    /// Requests to the cloud.
    pub cloud: CloudCounts,
    /// The journal.
    pub journal: JournalCounts,
    /// The connection to the broker.
    pub broker: BrokerLink,
}

/// A connection to the broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrokerLink {
    /// Whether it stands, with all subscriptions.
    pub is_connected: bool,
    /// Why the latest attempt to connect failed; empty while the connection stands.
    pub failure: String,
    /// Bytes on the socket, over all connections.
    pub wire: WireBytes,
}

/// Whether a process leads its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeadState {
    /// The process connects, or asks who leads.
    #[default]
    Starting,
    /// The process leads: it decides samples.
    Leading,
    /// Another process leads; this one waits until it ends.
    Waiting,
    /// Another process leads and is silent; an operator may replace it.
    WaitingForSilent,
}

/// Counts of an edge beside the leader since its start.
#[derive(Clone, Debug, Default, PartialEq)]
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
    pub refused: BTreeMap<DeviceId, Refusals>,
    /// Messages on foreign topics or of unknown names, and unreadable triggers.
    pub unroutable: u64,
    /// The connection to the broker.
    pub broker: BrokerLink,
}

/// Requests to the cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudCounts {
    /// Requests started.
    pub asked: u64,
    /// Answers with logits, those after the deadline included.
    pub answered: u64,
    /// Requests without an answer in time, by reason.
    pub failed: BTreeMap<Degraded, u64>,
    /// Refused requests, by code of the error table; "other" for a refusal without a known code.
    pub refused: BTreeMap<&'static str, u64>,
    /// Whether the cloud serves other networks than the group's, or has no model of the group's name.
    pub serves_other_network: bool,
    /// Bytes of request bodies.
    pub body_sent_bytes: u64,
    /// Bytes of answer bodies.
    pub body_received_bytes: u64,
    /// Number of times that the breaker opened, for the requests of all groups.
    pub breaker_opened: u64,
    /// Time of the requests that were answered before the deadline.
    pub durations: DurationCounts,
}

/// Counts of the journal since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalCounts {
    /// Entries written.
    pub entries: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Compactions at the bound.
    pub compactions: u64,
    /// Bytes of a torn last line that the start cut off.
    pub torn_bytes: u64,
    /// Bytes that the start could not read and set aside.
    pub unreadable_bytes: u64,
    /// Writes that failed and were tried again.
    pub failed_writes: u64,
    /// Compactions that failed and are tried again.
    pub failed_compactions: u64,
    /// Whether the group takes no new samples now, because there is no room for their decisions.
    pub is_full: bool,
}

impl LeaderReport {
    pub(crate) fn count(&mut self, decision: &Decision) {
        self.decided += 1;
        self.missing += u64::from(decision.presence.missing_count());
        *self.exits.entry(decision.exit).or_default() += 1;
        if !decision.degraded.contains(&Degraded::Late) {
            self.decision_durations.add_us(decision.stages.decided_us);
        }
        for reason in &decision.degraded {
            *self.degraded.entry(*reason).or_default() += 1;
        }
    }
}
