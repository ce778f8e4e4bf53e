//! From an answer to bytes on a topic, counted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headwater_link::{Link, QoS};
use headwater_protocol::{
    Body, Boot, HEADER_BYTES, Header, Kind, Limits, Message, NetworkTag, SampleId, age_ms, encode,
};
use tracing::error;

use crate::report::DeviceReport;

/// What the agent and the handle share.
pub(crate) type SharedReport = Arc<Mutex<DeviceReport>>;

/// Sends the device's messages.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) link: Link,
    pub(crate) limits: Limits,
    pub(crate) network: NetworkTag,
    pub(crate) boot: Boot,
    pub(crate) qos: QoS,
    pub(crate) summary_topic: String,
    pub(crate) features_topic: String,
    pub(crate) decision_topic: String,
    pub(crate) report: SharedReport,
}

impl Outbox {
    /// Encodes and publishes; what cannot be sent is counted and given up. `age_us` is the time since capture.
    pub(crate) fn send(&self, sample: SampleId, age_us: u64, body: Body<'_>) {
        let topic = match body.kind() {
            Kind::Features | Kind::Gone => &self.features_topic,
            Kind::Decided => &self.decision_topic,
            _ => &self.summary_topic,
        };
        let header = Header {
            late: false,
            network: self.network,
            sample_low: sample.low(),
            boot: self.boot,
            age_ms: age_ms(age_us),
        };
        let mut payload = Vec::with_capacity(HEADER_BYTES + body.len());
        if let Err(error) = encode(&Message { header, body }, &self.limits, &mut payload) {
            // The section's outputs are checked against the manifest at load, so this is a fault of ours.
            error!(%error, sample = %sample, "answer not sent");
            self.report().section_failures += 1;
            return;
        }
        let payload_bytes = payload.len();
        let sent = self.link.publish(topic.as_str(), payload, self.qos, false);
        let mut report = self.report();
        match sent {
            Ok(()) => report.count_sent(body.kind(), body.len(), payload_bytes),
            Err(error) => report.count_dropped(&error),
        }
    }

    pub(crate) fn report(&self) -> MutexGuard<'_, DeviceReport> {
        lock(&self.report)
    }
}

/// The report, for a moment; never across an await.
pub(crate) fn lock(report: &SharedReport) -> MutexGuard<'_, DeviceReport> {
    // Counting cannot panic half-way.
    report.lock().unwrap_or_else(PoisonError::into_inner)
}
