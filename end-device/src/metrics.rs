//! Metrics of a device: the counts of its report, on the admin listener.

use std::sync::Arc;

use headwater_settings::AdminSettings;
use headwater_telemetry::{AdminServer, Metrics, Program, ReportMetric, certificate_metrics};
use headwater_transport::tls::CertificateState;

use crate::device::DeviceHandle;
use crate::error::DeviceError;
use crate::report::DeviceCounts;

/// Name and version in the status.
const PROGRAM: Program = Program { name: "headwater-device", version: env!("CARGO_PKG_VERSION") };

/// Metrics of the device's own certificate: when it expires, and whether its reload failed.
const CERTIFICATE: [ReportMetric<CertificateState>; 2] = certificate_metrics!(
    "headwater_device_certificate_expiry_timestamp_seconds",
    "headwater_device_certificate_reload_failed"
);

impl DeviceHandle {
    /// Starts the admin listener if the settings have one.
    ///
    /// # Errors
    /// [`DeviceError::Admin`] if the address cannot be listened on.
    pub async fn start_admin(&self, settings: &AdminSettings) -> Result<Option<AdminServer>, DeviceError> {
        let metrics = Metrics::new();
        let labels = [("device", self.status.device.settings.id.as_str())];
        let status = Arc::clone(&self.status);
        metrics
            .register_report(DeviceCounts::METRICS, &labels, move || status.report.with_link(&status.link));
        if self.status.certificate_state().is_some() {
            let status = Arc::clone(&self.status);
            metrics.register_report(&CERTIFICATE, &labels, move || {
                status.certificate_state().unwrap_or_default()
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
        metrics.register_report(DeviceCounts::METRICS, &[("device", "cam-0")], || {
            let frame_faults = [("cut", 1)].into();
            DeviceCounts { captures_missed: 3, frame_faults, ..DeviceCounts::default() }
        });
        let text = metrics.text();
        headwater_telemetry::testing::check_metrics(&text);
        for line in [
            "headwater_device_captures_missed_total{device=\"cam-0\"} 3",
            "headwater_device_triggers_implausible_total{device=\"cam-0\"} 0",
            "headwater_device_frame_faults_total{device=\"cam-0\",fault=\"cut\"} 1",
            // An alert on the increase sees the first given-up sample only if the counter was reported as 0 before.
            "headwater_device_samples_given_up_total{device=\"cam-0\",reason=\"disk_full\"} 0",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
