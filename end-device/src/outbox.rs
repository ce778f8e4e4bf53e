//! From an answer to bytes on a topic, counted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use headwater_link::{Link, LinkError, QoS};
use headwater_protocol::{
    Body, Boot, EncodeError, HEADER_BYTES, Header, Kind, Limits, Message, NetworkTag, SampleId, encode,
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

/// How old a sample is when a message of it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Age {
    /// Time since capture, as the header carries it.
    pub(crate) ms: u16,
    /// Sent from the spool, after the sample's time.
    pub(crate) is_late: bool,
}

/// A message in its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Encoded {
    pub(crate) payload: Bytes,
    kind: Kind,
    is_late: bool,
}

impl Outbox {
    /// Encodes and publishes; what cannot be sent is counted and given up.
    pub(crate) fn send(&self, sample: SampleId, age: Age, body: Body<'_>) {
        match self.encode(sample, age, body) {
            Ok(message) => {
                if let Err(error) = self.publish(&message) {
                    self.report().count_dropped(&error);
                }
            }
            Err(error) => self.count_misfit(sample, &error),
        }
    }

    /// The bytes of a message.
    ///
    /// # Errors
    /// When the body is not of the network's shapes.
    pub(crate) fn encode(&self, sample: SampleId, age: Age, body: Body<'_>) -> Result<Encoded, EncodeError> {
        let header = Header {
            late: age.is_late,
            network: self.network,
            sample_low: sample.low(),
            boot: self.boot,
            age_ms: age.ms,
        };
        let mut payload = Vec::with_capacity(HEADER_BYTES + body.len());
        encode(&Message { header, body }, &self.limits, &mut payload)?;
        Ok(Encoded { payload: payload.into(), kind: body.kind(), is_late: age.is_late })
    }

    /// Publishes a message, and counts it when it is taken.
    ///
    /// # Errors
    /// When the link does not take it.
    pub(crate) fn publish(&self, message: &Encoded) -> Result<(), LinkError> {
        let Encoded { payload, kind, is_late } = message;
        let topic = match kind {
            // One that is given up whole never has features to be asked for.
            Kind::Gone if *is_late => &self.summary_topic,
            Kind::Features | Kind::Gone => &self.features_topic,
            Kind::Decided => &self.decision_topic,
            _ => &self.summary_topic,
        };
        self.link.publish(topic.as_str(), payload.clone(), self.qos, false)?;
        let mut report = self.report();
        report.count_sent(*kind, payload.len() - HEADER_BYTES, payload.len());
        report.late_sent += u64::from(*is_late);
        Ok(())
    }

    /// The section's outputs are checked against the manifest at load, so this is a fault of ours.
    pub(crate) fn count_misfit(&self, sample: SampleId, error: &EncodeError) {
        error!(%error, sample = %sample, "answer not sent");
        self.report().section_failures += 1;
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
