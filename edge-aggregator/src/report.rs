//! Counts of an aggregator, each with its metric.

use std::collections::BTreeMap;

use headwater_inference::leader::Counts;
use headwater_link::WireBytes;
use headwater_protocol::status::{BrokerStatus, GroupState, LeadStatus, ReportedState};
use headwater_protocol::{
    Decision, Degraded, DeviceId, Dropped, EdgeSet, Exit, Numbering, PolicyId, SampleId, SlotSet, Undecided,
};
use headwater_telemetry::{DurationCounts, MetricValue, report};

use crate::devices::device_watch::ReportedDevice;
use crate::devices::message_format::InboxCounts;

/// Last levels of the topics whose refusals are counted: claims and results.
pub(crate) const REFUSED_TOPICS: [&str; 2] = ["leader", "result"];

/// Counts of a group's leader or edge in this process.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupReport {
    /// Counts of the leader.
    Leader(Box<LeaderReport>),
    /// Counts of an edge.
    Edge(Box<EdgeReport>),
}

report! {
    /// Counts of a group's leader since its start.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct LeaderReport {
        lead: GroupState = gauge(
            "headwater_aggregator_leader_state",
            "1 leads, 2 waits for another leader, 3 waits for another leader that is silent, 0 starts."
        ) => |lead| *lead as u64;
        /// While the process does not lead, the term is the term of its latest lead; 0 before the first lead.
        claim: LeadStatus =
            gauge("headwater_aggregator_leader_term", "Term of the claim under which this process leads.")
                => |claim| claim.term;
        /// Policy under which samples of the current network are opened now.
        policy: PolicyId;
        decided: u64 = counter("headwater_aggregator_decisions_total", "Decisions.");
        exits: BTreeMap<Exit, u64> =
            counters("headwater_aggregator_exit_samples_total", "Decisions by exit.", "exit")
                => |exits| named(exits, Exit::name);
        /// One decision may have several reasons.
        degraded: BTreeMap<Degraded, u64> = counters(
            "headwater_aggregator_degraded_samples_total",
            "Degraded decisions by reason.",
            "reason"
        ) => |reasons| named(reasons, Degraded::name);
        /// No device had a view, or the cloud failed before any exit had answered. These results count as decisions too.
        undecided: BTreeMap<Undecided, u64> =
            counters("headwater_aggregator_undecided_samples_total", "Results without a class by reason.", "reason")
                .from_zero(&Undecided::NAMES) => |reasons| named(reasons, Undecided::name);
        dropped: BTreeMap<Dropped, u64> =
            counters("headwater_aggregator_dropped_samples_total", "Dropped samples by reason.", "reason")
                .from_zero(&Dropped::NAMES) => |reasons| named(reasons, Dropped::name);
        /// Each missing slot of a sample counts.
        missing: u64 =
            counter("headwater_aggregator_missing_views_total", "Missing views in decisions.");
        /// Cloud answers that were published as revisions.
        revisions: u64 = counter(
            "headwater_aggregator_revisions_total",
            "Cloud answers after the decision of their sample."
        );
        /// Decisions of an earlier process, or decisions that a lost connection left without the broker's acknowledgement.
        republished: u64 = counter(
            "headwater_aggregator_republished_decisions_total",
            "Decisions that were published again, marked as republished."
        );
        open: u64 = gauge("headwater_aggregator_open_samples", "Samples open now.");
        awaited: u64 = gauge(
            "headwater_aggregator_awaited_samples",
            "Samples that were triggered, or open at a restart, and that no device has answered."
        );
        /// A trigger too far ahead, which waits for a second one near it.
        unconfirmed_trigger: Option<SampleId> = gauge(
            "headwater_aggregator_unconfirmed_trigger",
            "1 while the latest trigger is too far ahead of the newest sample and waits for a second one near it."
        ) => |trigger| trigger.is_some().into();
        filled_slots: SlotSet =
            gauge("headwater_aggregator_filled_slots", "Slots that a device fills now.")
                => |slots| slots.len() as u64;
        /// Every device with a birth.
        devices: BTreeMap<DeviceId, ReportedDevice> =
            gauges(
                "headwater_aggregator_device_clock_off",
                "1 for a device whose clock is off by more than a quarter of the period.",
                "device"
            ) => |devices| {
                let off = devices.iter().filter(|(_, device)| device.state == ReportedState::ClockOff);
                off.map(|(id, _)| (id.to_string(), 1)).collect()
            },
            gauges_by_two(
                "headwater_aggregator_device_state",
                "1 for the state of each device: up, late, silent, frozen, flapping, wrong_network, refused, clock_off, down.",
                ["device", "state"]
            ) => |devices| {
                let states = devices.iter();
                states.map(|(id, device)| ([id.to_string(), device.state.name().into()], 1)).collect()
            };
        /// Slots of the current network.
        slots: SlotSet;
        /// Numbering of the devices' samples; `None` until a device names it.
        numbering: Option<Numbering>;
        decision_durations: DurationCounts = durations(
            "headwater_aggregator_decision_duration_seconds",
            "Time from capture to decision, without samples that devices sent late."
        ) => |durations| *durations;
        inbox: InboxCounts =
            counter(
                "headwater_aggregator_forgotten_devices_total",
                "Names of devices that were forgotten to make room for others."
            ) => |inbox| inbox.forgotten_devices,
            counter(
                "headwater_aggregator_replaced_devices_total",
                "Silent devices that lost their slot to another one."
            ) => |inbox| inbox.replaced_devices,
            counter(
                "headwater_aggregator_unroutable_messages_total",
                "Messages on foreign topics or of unknown names, and unreadable triggers."
            ) => |inbox| inbox.unroutable,
            counters(
                "headwater_aggregator_refused_messages_total",
                "Refused messages of devices by error code.",
                "code"
            ) => |inbox| inbox.by_code();
        /// Edges in this process and in other processes.
        edges_up: EdgeSet = gauge("headwater_aggregator_edges_up", "Edges that are up now.")
            => |edges| edges.len() as u64;
        results_waiting: u64 =
            gauge("headwater_aggregator_waiting_results", "Results that wait for the broker.");
        results_unacknowledged: u64 = gauge(
            "headwater_aggregator_unacknowledged_results",
            "Published results that the broker has not acknowledged."
        );
        /// Results are given up when too many wait (their decisions stay in the journal), or when the broker refuses them (their samples are
        /// dropped).
        results_unsent: u64 =
            counter("headwater_aggregator_unsent_results_total", "Results that were given up.");
        /// The label is the last level of the message's topic.
        refused_by_broker: BTreeMap<&'static str, u64> = counters(
            "headwater_aggregator_broker_refused_messages_total",
            "Claims and results that the broker refused, by topic.",
            "topic"
        ).from_zero(&REFUSED_TOPICS);
        /// Counts of the decision state machine.
        leader: Counts =
            counter(
                "headwater_aggregator_implausible_messages_total",
                "Messages and triggers whose sample ids are too far from the clock or from the newest id."
            ) => |counts| counts.implausible,
            counter("headwater_aggregator_window_timeouts_total", "Windows that ended by time.")
                => |counts| counts.windows_timed_out;
        cloud: CloudCounts =
            counter("headwater_aggregator_cloud_requests_total", "Requests to the cloud.")
                => |cloud| cloud.asked,
            counters(
                "headwater_aggregator_cloud_failures_total",
                "Requests to the cloud without an answer in time, by reason.",
                "reason"
            ).from_zero(&Degraded::OF_CLOUD) => |cloud| named(&cloud.failed, Degraded::name),
            counters(
                "headwater_aggregator_cloud_refused_requests_total",
                "Requests that the cloud refused, by error code.",
                "code"
            ) => |cloud| cloud.refused.value(),
            durations(
                "headwater_aggregator_cloud_request_duration_seconds",
                "Time of the requests to the cloud that were answered before their deadline."
            ) => |cloud| cloud.durations,
            gauge(
                "headwater_aggregator_cloud_serves_other_network",
                "1 while the cloud serves other networks than the group's, or has no model of the group's name."
            ) => |cloud| cloud.serves_other_network.into(),
            counter("headwater_aggregator_cloud_sent_bytes_total", "Bytes of request bodies to the cloud.")
                => |cloud| cloud.body_sent_bytes;
        journal: JournalCounts =
            counter("headwater_aggregator_journal_written_bytes_total", "Bytes written to the journal.")
                => |journal| journal.written_bytes,
            counter(
                "headwater_aggregator_journal_unreadable_bytes_total",
                "Bytes of the journal that the start could not read and set aside."
            ) => |journal| journal.unreadable_bytes,
            counter(
                "headwater_aggregator_journal_failed_writes_total",
                "Writes to the journal that failed and were tried again."
            ) => |journal| journal.failed_writes,
            counter(
                "headwater_aggregator_journal_failed_compactions_total",
                "Compactions of the journal that failed and are tried again."
            ) => |journal| journal.failed_compactions,
            gauge(
                "headwater_aggregator_journal_full",
                "1 while the group takes no new samples, because there is no room for the journal."
            ) => |journal| journal.is_full.into();
        broker: BrokerLink =
            gauge(
                "headwater_aggregator_broker_connected",
                "1 while the connection to the broker stands."
            ) => |broker| broker.status.connected.into(),
            counter("headwater_aggregator_broker_sent_bytes_total", "Bytes written to the broker's socket.")
                => |broker| broker.wire.sent,
            counter("headwater_aggregator_broker_received_bytes_total", "Bytes read from the broker's socket.")
                => |broker| broker.wire.received;
    }

    gauge("headwater_aggregator_empty_slots", "Slots of the network that no device fills.")
        => |report| (report.slots - report.filled_slots).len() as u64;
}

/// A connection to the broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrokerLink {
    /// State of the connection: connected with all subscriptions, or the reason why the latest attempt to connect failed.
    pub status: BrokerStatus,
    /// True if the failure lasts until somebody changes something.
    pub is_refused: bool,
    /// Bytes on the socket, over all connections.
    pub wire: WireBytes,
}

report! {
    /// Counts of an edge in a process of its own, since its start.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct EdgeReport {
        answered: u64 =
            counter("headwater_aggregator_edge_answers_total", "Answers with scores and features.");
        gone: u64 = counter("headwater_aggregator_edge_gone_samples_total", "Samples without features.");
        section_failures: u64 =
            counter("headwater_aggregator_edge_section_failures_total", "Failed runs of the section.");
        unsent: u64 =
            counter("headwater_aggregator_edge_unsent_answers_total", "Answers that could not be sent.");
        /// Slots that a device fills now.
        filled_slots: SlotSet;
        /// Counts of messages that were not taken, and of devices that were forgotten or lost their slot.
        inbox: InboxCounts;
        /// The connection to the broker.
        broker: BrokerLink;
    }
}

/// Counts of requests to the cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudCounts {
    /// Requests started.
    pub asked: u64,
    /// Answers with logits, those after the deadline included.
    pub answered: u64,
    /// Requests without an answer in time, by reason. Requests that were not sent, such as those while the breaker is open, count here and
    /// not in `asked`.
    pub failed: BTreeMap<Degraded, u64>,
    /// Refused requests, by code of the error table; "other" for a refusal without a known code, `of_another_request` for an answer that
    /// names another sample or model.
    pub refused: BTreeMap<&'static str, u64>,
    /// True if the cloud serves other networks than the group's, or has no model of the group's name.
    pub serves_other_network: bool,
    /// Bytes of request bodies.
    pub body_sent_bytes: u64,
    /// Time of the requests that were answered before the deadline.
    pub durations: DurationCounts,
}

/// Counts of the journal since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalCounts {
    /// Bytes written.
    pub written_bytes: u64,
    /// Number of times that the journal reached its bound and was written anew, with most of the settled samples as ids alone.
    pub compactions: u64,
    /// Bytes of a torn last line that the start cut off.
    pub torn_bytes: u64,
    /// Bytes that the start could not read and set aside.
    pub unreadable_bytes: u64,
    /// Writes that failed and were tried again.
    pub failed_writes: u64,
    /// Compactions that failed and are tried again.
    pub failed_compactions: u64,
    /// True if the group takes no new samples now, because there is no room for their decisions.
    pub is_full: bool,
}

impl JournalCounts {
    /// Adds `earlier`, the counts of the journal that this process had open before, to these counts of a journal that was just opened.
    pub(crate) fn after(self, earlier: Self) -> Self {
        Self {
            torn_bytes: earlier.torn_bytes + self.torn_bytes,
            unreadable_bytes: earlier.unreadable_bytes + self.unreadable_bytes,
            is_full: self.is_full,
            ..earlier
        }
    }
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
        if let Some(reason) = decision.undecided {
            *self.undecided.entry(reason).or_default() += 1;
        }
    }
}

/// The counts, each with the name of its key.
fn named<K: Copy>(counts: &BTreeMap<K, u64>, name: fn(K) -> &'static str) -> Vec<(String, u64)> {
    counts.iter().map(|(key, count)| (name(*key).into(), *count)).collect()
}
