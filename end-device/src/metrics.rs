//! Metrics of a device: the counts of its report, on the admin listener.

use std::collections::BTreeMap;

use headwater_settings::AdminSettings;
use headwater_telemetry::{AdminServer, Metrics, ReportMetric};

use crate::device::DeviceHandle;
use crate::error::DeviceError;
use crate::report::DeviceReport;

/// Metrics of the report.
const METRICS: [ReportMetric<DeviceReport>; 24] = [
    ReportMetric::counter("headwater_device_captures_total", "Samples captured.", |r| r.captured),
    ReportMetric::counter(
        "headwater_device_captures_missed_total",
        "Captures by the clock that the device was too late for.",
        |r| r.captures_missed,
    ),
    ReportMetric::counter(
        "headwater_device_triggers_repeated_total",
        "Triggers for a sample that was captured already.",
        |r| r.repeated,
    ),
    ReportMetric::counter(
        "headwater_device_triggers_backwards_total",
        "Refused triggers for a sample before the newest one.",
        |r| r.backwards,
    ),
    ReportMetric::counter(
        "headwater_device_source_frames_total",
        "Frames of a source other than an archive.",
        |r| r.source_frames,
    ),
    ReportMetric::counters(
        "headwater_device_frame_faults_total",
        "Missing frames, by kind of fault.",
        "fault",
        |r| labelled(&r.frame_faults, |count| *count),
    ),
    ReportMetric::counter(
        "headwater_device_broken_frames_total",
        "Samples without an answer because their frame of the archive cannot be read.",
        |r| r.broken_frames,
    ),
    ReportMetric::counter("headwater_device_views_shed_total", "Views shed by a full queue.", |r| r.shed),
    ReportMetric::counter(
        "headwater_device_section_failures_total",
        "Samples without an answer because the section failed.",
        |r| r.section_failures,
    ),
    ReportMetric::counters("headwater_device_messages_total", "Messages sent, by kind.", "kind", |r| {
        labelled(&r.sent, |sent| sent.messages)
    }),
    ReportMetric::counters(
        "headwater_device_body_bytes_total",
        "Bytes of message bodies, by kind.",
        "kind",
        |r| labelled(&r.sent, |sent| sent.body_bytes),
    ),
    ReportMetric::counters(
        "headwater_device_payload_bytes_total",
        "Bytes of message bodies and headers, by kind.",
        "kind",
        |r| labelled(&r.sent, |sent| sent.payload_bytes),
    ),
    ReportMetric::counters(
        "headwater_device_messages_dropped_total",
        "Messages not sent, by reason.",
        "reason",
        |r| labelled(&r.dropped, |count| *count),
    ),
    ReportMetric::counters(
        "headwater_device_messages_refused_total",
        "Refused messages from others, by fault.",
        "fault",
        |r| labelled(&r.faults, |count| *count),
    ),
    ReportMetric::gauge("headwater_device_memory_samples", "Unsettled samples in memory.", |r| {
        r.kept_samples
    }),
    ReportMetric::gauge("headwater_device_spool_samples", "Unsettled samples in the spool.", |r| r.spooled),
    ReportMetric::gauge("headwater_device_spool_bytes", "Bytes of the spool.", |r| r.spool_bytes),
    ReportMetric::counter("headwater_device_late_messages_total", "Messages sent late.", |r| r.late_sent),
    ReportMetric::counters(
        "headwater_device_samples_given_up_total",
        "Samples of which only the id is left, by reason.",
        "reason",
        |r| labelled(&r.given_up, |count| *count),
    ),
    ReportMetric::counter(
        "headwater_device_samples_lost_total",
        "Given-up samples of which not even the id is left.",
        |r| r.lost,
    ),
    ReportMetric::counter("headwater_device_sent_bytes_total", "Bytes written to the socket.", |r| {
        r.wire_sent
    }),
    ReportMetric::counter("headwater_device_received_bytes_total", "Bytes read from the socket.", |r| {
        r.wire_received
    }),
    ReportMetric::counter("headwater_device_connections_total", "Connections to the broker.", |r| {
        r.connected
    }),
    ReportMetric::gauge("headwater_device_boot_number", "Boot number of this start.", |r| r.boot.0.into()),
];

fn labelled<T>(counts: &BTreeMap<&'static str, T>, read: fn(&T) -> u64) -> Vec<(String, u64)> {
    counts.iter().map(|(label, count)| ((*label).to_owned(), read(count))).collect()
}

impl DeviceHandle {
    /// Starts the admin listener if the settings have one.
    ///
    /// # Errors
    /// [`DeviceError::Admin`] when the address cannot be listened on.
    pub async fn start_admin(&self, settings: &AdminSettings) -> Result<Option<AdminServer>, DeviceError> {
        let Some(listen) = settings.listen else { return Ok(None) };
        let metrics = Metrics::new();
        let device = self.report().device;
        let reporter = self.reporter();
        metrics.register_report(&METRICS, &[("device", device.as_str())], move || reporter.report());
        let server = AdminServer::start(listen, metrics, || true).await;
        server.map(Some).map_err(|source| DeviceError::Admin { listen, source })
    }
}

#[cfg(test)]
mod tests {
    use headwater_protocol::{Boot, DeviceId, Slot};

    use super::*;

    #[test]
    fn the_metrics_pass_promtool() {
        let metrics = Metrics::new();
        metrics.register_report(&METRICS, &[("device", "cam-0")], || {
            let slot = Slot::new(0).unwrap();
            let mut report = DeviceReport::new(DeviceId::new("cam-0").unwrap(), slot, Boot(7));
            report.captures_missed = 3;
            report.count_frame_fault("cut");
            report
        });
        let text = metrics.text();
        headwater_telemetry::testing::check_metrics(&text);
        for line in [
            "headwater_device_captures_missed_total{device=\"cam-0\"} 3",
            "headwater_device_frame_faults_total{device=\"cam-0\",fault=\"cut\"} 1",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
