//! Metrics of leaders and edges, read from their reports.

use std::collections::BTreeMap;

use headwater_protocol::{Degraded, Dropped, EdgeSet, Exit, SlotSet};
use headwater_telemetry::ReportMetric;

use crate::aggregator::GroupReport;
use crate::broker_answers::TOPICS;
use crate::device_watch::ReportedState;
use crate::member::MemberReport;
use crate::report::{BrokerLink, EdgeReport, LeaderReport};

type Metric<R> = ReportMetric<R>;

/// Metrics of a group's leader.
const LEADER_METRICS: [Metric<LeaderReport>; 41] = [
    Metric::gauge(
        "headwater_aggregator_leader_state",
        "1 leads, 2 waits for another leader, 3 waits for another leader that is silent, 0 starts.",
        |r| r.lead as u64,
    ),
    Metric::gauge(
        "headwater_aggregator_leader_term",
        "Term of the claim under which this process leads.",
        |r| r.term,
    ),
    Metric::counter("headwater_aggregator_decisions_total", "Decisions.", |r| r.decided),
    Metric::counters("headwater_aggregator_exit_samples_total", "Decisions by exit.", "exit", |r| {
        named(&r.exits, Exit::name)
    }),
    Metric::counters(
        "headwater_aggregator_degraded_samples_total",
        "Degraded decisions by reason.",
        "reason",
        |r| named(&r.degraded, Degraded::name),
    ),
    Metric::counters(
        "headwater_aggregator_dropped_samples_total",
        "Dropped samples by reason.",
        "reason",
        |r: &LeaderReport| named(&r.dropped, Dropped::name),
    )
    .from_zero(&Dropped::NAMES),
    Metric::counter("headwater_aggregator_missing_views_total", "Missing views in decisions.", |r| r.missing),
    Metric::counter(
        "headwater_aggregator_revisions_total",
        "Cloud answers after the decision of their sample.",
        |r| r.revisions,
    ),
    Metric::counter(
        "headwater_aggregator_republished_decisions_total",
        "Decisions that were published again, marked as republished.",
        |r| r.republished,
    ),
    Metric::gauge("headwater_aggregator_open_samples", "Samples open now.", |r| r.open),
    Metric::gauge(
        "headwater_aggregator_awaited_samples",
        "Samples that were triggered, or open at a restart, and that no device has answered.",
        |r| r.awaited,
    ),
    Metric::counter(
        "headwater_aggregator_implausible_messages_total",
        "Messages and triggers whose sample ids are too far from the clock or from the newest id.",
        |r| r.leader.implausible,
    ),
    Metric::gauge("headwater_aggregator_filled_slots", "Slots that a device fills now.", |r| {
        r.filled_slots.len() as u64
    }),
    Metric::gauges(
        "headwater_aggregator_device_clock_off",
        "1 for a device whose clock is off by more than a quarter of the period.",
        "device",
        |r| {
            let off = r.devices.iter().filter(|(_, device)| device.state == ReportedState::ClockOff);
            off.map(|(id, _)| (id.to_string(), 1)).collect()
        },
    ),
    Metric::gauges_by_two(
        "headwater_aggregator_device_state",
        "1 for the state of each device: up, late, silent, flapping, wrong_network, refused, clock_off, down.",
        ["device", "state"],
        |r| {
            let states = r.devices.iter();
            states.map(|(id, device)| ([id.to_string(), device.state.name().into()], 1)).collect()
        },
    ),
    Metric::gauge("headwater_aggregator_empty_slots", "Slots of the network that no device fills.", |r| {
        (r.slots - r.filled_slots).len() as u64
    }),
    Metric::durations(
        "headwater_aggregator_decision_duration_seconds",
        "Time from capture to decision, without samples that devices sent late.",
        |r| r.decision_durations,
    ),
    Metric::gauge("headwater_aggregator_edges_up", "Edges that are up now.", |r| r.edges_up.len() as u64),
    Metric::counters(
        "headwater_aggregator_refused_messages_total",
        "Refused messages of devices by error code.",
        "code",
        refused_by_code,
    ),
    Metric::counter(
        "headwater_aggregator_forgotten_devices_total",
        "Names of devices that were forgotten to make room for others.",
        |r| r.forgotten_devices,
    ),
    Metric::counter(
        "headwater_aggregator_replaced_devices_total",
        "Silent devices that lost their slot to another one.",
        |r| r.replaced_devices,
    ),
    Metric::counter(
        "headwater_aggregator_unroutable_messages_total",
        "Messages on foreign topics or of unknown names.",
        |r| r.unroutable,
    ),
    Metric::gauge("headwater_aggregator_waiting_results", "Results that wait for the broker.", |r| {
        r.results_waiting
    }),
    Metric::gauge(
        "headwater_aggregator_unacknowledged_results",
        "Published results that the broker has not acknowledged.",
        |r| r.results_unacknowledged,
    ),
    Metric::counter("headwater_aggregator_unsent_results_total", "Results that were given up.", |r| {
        r.results_unsent
    }),
    Metric::counters(
        "headwater_aggregator_broker_refused_messages_total",
        "Claims and results that the broker refused, by topic.",
        "topic",
        |r: &LeaderReport| {
            r.refused_by_broker.iter().map(|(topic, count)| ((*topic).into(), *count)).collect()
        },
    )
    .from_zero(&TOPICS),
    Metric::counter("headwater_aggregator_window_timeouts_total", "Windows that ended by time.", |r| {
        r.leader.windows_timed_out
    }),
    Metric::counter("headwater_aggregator_cloud_requests_total", "Requests to the cloud.", |r| r.cloud.asked),
    Metric::counters(
        "headwater_aggregator_cloud_failures_total",
        "Requests to the cloud without an answer in time, by reason.",
        "reason",
        |r: &LeaderReport| named(&r.cloud.failed, Degraded::name),
    )
    .from_zero(&Degraded::OF_CLOUD),
    Metric::counters(
        "headwater_aggregator_cloud_refused_requests_total",
        "Requests that the cloud refused, by error code.",
        "code",
        |r| r.cloud.refused.iter().map(|(code, count)| ((*code).into(), *count)).collect(),
    ),
    Metric::durations(
        "headwater_aggregator_cloud_request_duration_seconds",
        "Time of the requests to the cloud that were answered before their deadline.",
        |r| r.cloud.durations,
    ),
    Metric::gauge(
        "headwater_aggregator_broker_connected",
        "1 while the connection to the broker stands.",
        |r| r.broker.is_connected.into(),
    ),
    Metric::gauge(
        "headwater_aggregator_cloud_serves_other_network",
        "1 while the cloud serves other networks than the group's, or has no model of the group's name.",
        |r| r.cloud.serves_other_network.into(),
    ),
    Metric::counter(
        "headwater_aggregator_cloud_sent_bytes_total",
        "Bytes of request bodies to the cloud.",
        |r| r.cloud.body_sent_bytes,
    ),
    Metric::counter(
        "headwater_aggregator_journal_written_bytes_total",
        "Bytes written to the journal.",
        |r| r.journal.written_bytes,
    ),
    Metric::counter(
        "headwater_aggregator_journal_unreadable_bytes_total",
        "Bytes of the journal that the start could not read and set aside.",
        |r| r.journal.unreadable_bytes,
    ),
    Metric::counter(
        "headwater_aggregator_journal_failed_writes_total",
        "Writes to the journal that failed and were tried again.",
        |r| r.journal.failed_writes,
    ),
    Metric::counter(
        "headwater_aggregator_journal_failed_compactions_total",
        "Compactions of the journal that failed and are tried again.",
        |r| r.journal.failed_compactions,
    ),
    Metric::gauge(
        "headwater_aggregator_journal_full",
        "1 while the group takes no new samples, because there is no room for the journal.",
        |r| u64::from(r.journal.is_full),
    ),
    Metric::counter(
        "headwater_aggregator_broker_sent_bytes_total",
        "Bytes written to the broker's socket.",
        |r| r.broker.wire.sent,
    ),
    Metric::counter(
        "headwater_aggregator_broker_received_bytes_total",
        "Bytes read from the broker's socket.",
        |r| r.broker.wire.received,
    ),
];

/// Metrics of an edge beside the leader.
const EDGE_METRICS: [Metric<EdgeReport>; 4] = [
    Metric::counter("headwater_aggregator_edge_answers_total", "Answers with scores and features.", |r| {
        r.answered
    }),
    Metric::counter("headwater_aggregator_edge_gone_samples_total", "Samples without features.", |r| r.gone),
    Metric::counter("headwater_aggregator_edge_section_failures_total", "Failed runs of the section.", |r| {
        r.section_failures
    }),
    Metric::counter(
        "headwater_aggregator_edge_unsent_answers_total",
        "Answers that could not be sent.",
        |r| r.unsent,
    ),
];

impl MemberReport for LeaderReport {
    const METRICS: &'static [Metric<Self>] = &LEADER_METRICS;

    fn set_broker(&mut self, broker: BrokerLink) {
        self.broker = broker;
    }

    fn clear_present(&mut self) {
        (self.open, self.results_waiting, self.results_unacknowledged) = (0, 0, 0);
        self.journal.is_full = false;
        (self.slots, self.filled_slots) = (SlotSet::EMPTY, SlotSet::EMPTY);
        self.edges_up = EdgeSet::EMPTY;
        self.devices.clear();
    }

    fn into_group_report(self) -> GroupReport {
        GroupReport::Leader(Box::new(self))
    }
}

impl MemberReport for EdgeReport {
    const METRICS: &'static [Metric<Self>] = &EDGE_METRICS;

    fn set_broker(&mut self, broker: BrokerLink) {
        self.broker = broker;
    }

    fn clear_present(&mut self) {
        self.filled_slots = SlotSet::EMPTY;
    }

    fn into_group_report(self) -> GroupReport {
        GroupReport::Edge(Box::new(self))
    }
}

/// Refusals of all devices by error code.
fn refused_by_code(report: &LeaderReport) -> Vec<(String, u64)> {
    let mut codes = BTreeMap::<String, u64>::new();
    for (code, count) in report.refused.values().chain([&report.refused_forgotten]).flatten() {
        *codes.entry((*code).into()).or_default() += count;
    }
    codes.into_iter().collect()
}

/// Counts with the names of their keys.
fn named<K: Copy>(counts: &BTreeMap<K, u64>, name: fn(K) -> &'static str) -> Vec<(String, u64)> {
    counts.iter().map(|(key, count)| (name(*key).into(), *count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_that_does_not_lead_reports_no_empty_slots() {
        let slots = SlotSet::from_bits(0b11);
        let mut report =
            LeaderReport { slots, filled_slots: SlotSet::from_bits(1), ..LeaderReport::default() };
        report.clear_present();
        assert_eq!((report.slots - report.filled_slots).len(), 0);
    }
}
