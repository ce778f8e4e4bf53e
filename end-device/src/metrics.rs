//! Metrics of a device: the counts of its report, on the admin listener.

use std::collections::BTreeMap;

use headwater_settings::AdminSettings;
use headwater_telemetry::{AdminServer, Metrics, Program, ReportMetric};
use headwater_transport::tls::CertificateState;

use crate::device::DeviceHandle;
use crate::error::DeviceError;
use crate::report::DeviceCounts;
use crate::spool::GiveUpReason;

type Metric = ReportMetric<DeviceCounts>;

/// Name and version in the status.
const PROGRAM: Program = Program { name: "headwater-device", version: env!("CARGO_PKG_VERSION") };

/// Metrics of the report, whose fields explain them.
const METRICS: [Metric; 31] = [
    Metric::counter("headwater_device_captures_total", "Samples captured.", |r| r.captured),
    Metric::counter(
        "headwater_device_captures_missed_total",
        "Captures by the clock that came too late or that a step of the clock passed over.",
        |r| r.captures_missed,
    ),
    Metric::counter("headwater_device_clock_steps_total", "Steps of the wall clock.", |r| r.clock_steps),
    Metric::counter("headwater_device_triggers_repeated_total", "Repeated triggers.", |r| r.repeated),
    Metric::counter(
        "headwater_device_triggers_backwards_total",
        "Triggers refused because their id is below the newest one.",
        |r| r.backwards,
    ),
    Metric::counter(
        "headwater_device_triggers_implausible_total",
        "Triggers refused because their id is too far from the newest one.",
        |r| r.implausible,
    ),
    Metric::counter("headwater_device_source_frames_total", "Frames from the source.", |r| r.source_frames),
    Metric::counter("headwater_device_broken_frames_total", "Samples of broken frames.", |r| r.broken_frames),
    Metric::counter("headwater_device_views_shed_total", "Views shed by a full queue.", |r| r.shed),
    Metric::counter("headwater_device_section_failures_total", "Failures of the section.", |r| {
        r.section_failures
    }),
    Metric::counter("headwater_device_births_restored_total", "Births published again.", |r| {
        r.births_restored
    }),
    Metric::counter(
        "headwater_device_publications_refused_total",
        "Messages that the broker refused.",
        |r| r.publications_refused,
    ),
    Metric::counter("headwater_device_late_messages_total", "Messages sent late.", |r| r.late_sent),
    Metric::counter("headwater_device_samples_lost_total", "Samples whose id is lost.", |r| r.lost),
    Metric::counter("headwater_device_state_damaged_total", "Damaged files of the state folder.", |r| {
        r.state_damaged
    }),
    Metric::counter(
        "headwater_device_segments_of_others_total",
        "Spooled segments of another device, set aside.",
        |r| r.segments_of_others,
    ),
    Metric::counter("headwater_device_sent_bytes_total", "Bytes written to the socket.", |r| r.wire_sent),
    Metric::counter("headwater_device_received_bytes_total", "Bytes read from the socket.", |r| {
        r.wire_received
    }),
    Metric::counter("headwater_device_connections_total", "Connections to the broker.", |r| r.connected),
    Metric::gauge("headwater_device_refused", "1 while the leader refuses the device.", |r| {
        r.is_refused.into()
    }),
    Metric::gauge("headwater_device_memory_samples", "Unsettled samples in memory.", |r| r.kept_samples),
    Metric::gauge("headwater_device_spool_samples", "Unsettled samples in the spool.", |r| r.spooled),
    Metric::gauge("headwater_device_spool_bytes", "Bytes of the spool.", |r| r.spool_bytes),
    Metric::counters("headwater_device_messages_total", "Messages sent.", "kind", |r| {
        values(&r.sent, |sent| sent.messages)
    }),
    Metric::counters("headwater_device_body_bytes_total", "Bytes of bodies.", "kind", |r| {
        values(&r.sent, |sent| sent.body_bytes)
    }),
    Metric::counters("headwater_device_payload_bytes_total", "Bytes of payloads.", "kind", |r| {
        values(&r.sent, |sent| sent.payload_bytes)
    }),
    Metric::counters("headwater_device_batched_answers_total", "Answers sent in batches.", "kind", |r| {
        values(&r.batched, |n| *n)
    }),
    Metric::counters("headwater_device_messages_dropped_total", "Messages not sent.", "reason", |r| {
        values(&r.dropped, |n| *n)
    }),
    Metric::counters("headwater_device_messages_refused_total", "Messages refused.", "fault", |r| {
        values(&r.faults, |n| *n)
    }),
    Metric::counters("headwater_device_frame_faults_total", "Missing frames.", "fault", |r| {
        values(&r.frame_faults, |n| *n)
    }),
    Metric::counters("headwater_device_samples_given_up_total", "Samples given up.", "reason", |r| {
        values(&r.given_up, |n| *n)
    })
    .from_zero(&GiveUpReason::LABELS),
];

fn values<T>(counts: &BTreeMap<&'static str, T>, read: fn(&T) -> u64) -> Vec<(String, u64)> {
    counts.iter().map(|(label, count)| ((*label).to_owned(), read(count))).collect()
}

/// State of the own certificate.
const CERTIFICATE: [ReportMetric<CertificateState>; 2] = [
    ReportMetric::gauge(
        "headwater_device_certificate_expiry_timestamp_seconds",
        "When the own certificate in use expires, in seconds since 1970.",
        |state| state.expires_unix_s,
    ),
    ReportMetric::gauge(
        "headwater_device_certificate_reload_failed",
        "1 while newer files of the identity cannot be used, and the earlier ones stay in use.",
        |state| state.has_failed_reload.into(),
    ),
];

impl DeviceHandle {
    /// Starts the admin listener if the settings have one.
    ///
    /// # Errors
    /// [`DeviceError::Unusable`] when the address cannot be listened on.
    pub async fn start_admin(&self, settings: &AdminSettings) -> Result<Option<AdminServer>, DeviceError> {
        let metrics = Metrics::new();
        let (report, link) = (self.report.clone(), self.link.clone());
        metrics
            .register_report(&METRICS, &[("device", self.device.as_str())], move || report.with_link(&link));
        if let Some(identity) =
            self.status.identity.clone().filter(|identity| identity.certificate_state().is_some())
        {
            metrics.register_report(&CERTIFICATE, &[("device", self.device.as_str())], move || {
                identity.certificate_state().unwrap_or_default()
            });
        }
        let server = AdminServer::start(settings.listen, PROGRAM, metrics, self.health()).await;
        server.map_err(DeviceError::Admin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metrics_pass_promtool() {
        let metrics = Metrics::new();
        metrics.register_report(&METRICS, &[("device", "cam-0")], || {
            let frame_faults = [("cut", 1)].into();
            DeviceCounts { captures_missed: 3, frame_faults, ..DeviceCounts::default() }
        });
        let text = metrics.text();
        headwater_telemetry::testing::check_metrics(&text);
        for line in [
            "headwater_device_captures_missed_total{device=\"cam-0\"} 3",
            "headwater_device_triggers_implausible_total{device=\"cam-0\"} 0",
            "headwater_device_frame_faults_total{device=\"cam-0\",fault=\"cut\"} 1",
            // An alert on the increase sees the first one only after a 0.
            "headwater_device_samples_given_up_total{device=\"cam-0\",reason=\"disk_full\"} 0",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
