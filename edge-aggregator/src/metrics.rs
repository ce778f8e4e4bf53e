//! Metrics of leaders and edges, read from their reports.

use headwater_telemetry::ReportMetric;

use crate::report::{DeviceRefusals, EdgeReport, LeaderReport};

/// Metrics of a group's leader.
pub(crate) const LEADER_METRICS: [ReportMetric<LeaderReport>; 21] = [
    ReportMetric::counter("headwater_aggregator_decisions_total", "Decisions.", |r| r.decided),
    ReportMetric::counters("headwater_aggregator_exit_samples_total", "Decisions by exit.", "exit", |r| {
        r.exits.iter().map(|(exit, count)| (exit.name().into(), *count)).collect()
    }),
    ReportMetric::counters(
        "headwater_aggregator_degraded_samples_total",
        "Degraded decisions by reason.",
        "reason",
        |r| r.degraded.iter().map(|(reason, count)| (reason.name().into(), *count)).collect(),
    ),
    ReportMetric::counters(
        "headwater_aggregator_dropped_samples_total",
        "Dropped samples by reason.",
        "reason",
        |r| r.dropped.iter().map(|(reason, count)| (reason.name().into(), *count)).collect(),
    ),
    ReportMetric::counter("headwater_aggregator_missing_views_total", "Missing views in decisions.", |r| {
        r.missing
    }),
    ReportMetric::counter("headwater_aggregator_revisions_total", "Cloud answers after a decision.", |r| {
        r.revisions
    }),
    ReportMetric::counter(
        "headwater_aggregator_republished_decisions_total",
        "Decisions of an earlier process that were published again.",
        |r| r.republished,
    ),
    ReportMetric::gauge("headwater_aggregator_open_samples", "Samples open now.", |r| r.open),
    ReportMetric::gauge("headwater_aggregator_filled_slots", "Slots that a device fills now.", |r| {
        r.filled_slots.len() as u64
    }),
    ReportMetric::gauge("headwater_aggregator_edges_up", "Edges that are up now.", |r| {
        r.edges_up.len() as u64
    }),
    ReportMetric::counters(
        "headwater_aggregator_refused_messages_total",
        "Refused messages of devices by error code.",
        "code",
        |r| by_code(&r.refused),
    ),
    ReportMetric::counter(
        "headwater_aggregator_unroutable_messages_total",
        "Messages on foreign topics or of unknown names.",
        |r| r.unroutable,
    ),
    ReportMetric::gauge("headwater_aggregator_waiting_results", "Results that wait for the broker.", |r| {
        r.results_waiting
    }),
    ReportMetric::counter("headwater_aggregator_unsent_results_total", "Results that were given up.", |r| {
        r.results_unsent
    }),
    ReportMetric::counter("headwater_aggregator_window_timeouts_total", "Windows that ended by time.", |r| {
        r.leader.windows_timed_out
    }),
    ReportMetric::counter("headwater_aggregator_cloud_requests_total", "Requests to the cloud.", |r| {
        r.cloud.asked
    }),
    ReportMetric::counters(
        "headwater_aggregator_cloud_failures_total",
        "Requests to the cloud without an answer in time, by reason.",
        "reason",
        |r| r.cloud.failed.iter().map(|(reason, count)| (reason.name().into(), *count)).collect(),
    ),
    ReportMetric::counter(
        "headwater_aggregator_cloud_sent_bytes_total",
        "Bytes of request bodies to the cloud.",
        |r| r.cloud.body_sent_bytes,
    ),
    ReportMetric::counter(
        "headwater_aggregator_journal_written_bytes_total",
        "Bytes written to the journal.",
        |r| r.journal.written_bytes,
    ),
    ReportMetric::counter(
        "headwater_aggregator_broker_sent_bytes_total",
        "Bytes written to the broker's socket.",
        |r| r.wire_sent_bytes,
    ),
    ReportMetric::counter(
        "headwater_aggregator_broker_received_bytes_total",
        "Bytes read from the broker's socket.",
        |r| r.wire_received_bytes,
    ),
];

/// Metrics of an edge beside the leader.
pub(crate) const EDGE_METRICS: [ReportMetric<EdgeReport>; 4] = [
    ReportMetric::counter(
        "headwater_aggregator_edge_answers_total",
        "Answers with scores and features.",
        |r| r.answered,
    ),
    ReportMetric::counter("headwater_aggregator_edge_gone_samples_total", "Samples without features.", |r| {
        r.gone
    }),
    ReportMetric::counter(
        "headwater_aggregator_edge_section_failures_total",
        "Failed runs of the section.",
        |r| r.section_failures,
    ),
    ReportMetric::counter(
        "headwater_aggregator_edge_unsent_answers_total",
        "Answers that could not be sent.",
        |r| r.unsent,
    ),
];

/// Refusals of all devices by error code.
fn by_code(refused: &[DeviceRefusals]) -> Vec<(String, u64)> {
    let mut codes = std::collections::BTreeMap::<String, u64>::new();
    for (code, count) in refused.iter().flat_map(|device| &device.refused) {
        *codes.entry((*code).into()).or_default() += count;
    }
    codes.into_iter().collect()
}
