//! Publishes answers: encodes them, sends them to their topic, and counts them.

use std::sync::MutexGuard;

use bytes::Bytes;
use headwater_link::{Link, LinkError, QoS};
use headwater_protocol::{
    Body, Boot, EncodeError, HEADER_BYTES, Header, Kind, Limits, Message, NetworkTag, SampleId, encode,
};
use tracing::error;

use crate::link_setup::DeviceTopics;
use crate::report::{DeviceReport, SharedReport};

/// Publisher of the device's messages.
#[derive(Debug)]
pub(crate) struct Publisher {
    pub(crate) link: Link,
    pub(crate) limits: Limits,
    pub(crate) network: NetworkTag,
    pub(crate) boot: Boot,
    pub(crate) qos: QoS,
    pub(crate) topics: DeviceTopics,
    pub(crate) report: SharedReport,
}

/// Age of a sample when a message of it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Age {
    /// Time since the capture, as the header carries it.
    pub(crate) ms: u16,
    /// Sent from the spool, after the sample's time.
    pub(crate) is_late: bool,
}

/// An encoded message.
#[derive(Clone, Debug)]
pub(crate) struct Encoded {
    pub(crate) payload: Bytes,
    kind: Kind,
    is_late: bool,
}

impl Publisher {
    /// Encodes and publishes a message; one that cannot be sent is counted and dropped.
    pub(crate) fn send(&self, sample: SampleId, age: Age, body: Body<'_>) {
        match self.encode(sample, age, body) {
            Ok(message) => {
                if let Err(error) = self.publish(&message) {
                    self.report().count_dropped(&error);
                }
            }
            Err(error) => self.count_encode_error(sample, &error),
        }
    }

    /// Encodes a message.
    ///
    /// # Errors
    /// When the body does not have the network's shapes.
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

    /// Publishes a message, and counts it once the link has taken it.
    ///
    /// # Errors
    /// When the link refuses it.
    pub(crate) fn publish(&self, message: &Encoded) -> Result<(), LinkError> {
        let Encoded { payload, kind, is_late } = message;
        let topic = match kind {
            // The leader never requests features of a sample that is given up as a whole.
            Kind::Gone if *is_late => &self.topics.summary,
            Kind::Features | Kind::Gone => &self.topics.features,
            Kind::Decided => &self.topics.decision,
            _ => &self.topics.summary,
        };
        self.link.publish(topic.as_str(), payload.clone(), self.qos, false)?;
        let mut report = self.report();
        report.count_sent(*kind, payload.len() - HEADER_BYTES, payload.len());
        report.late_sent += u64::from(*is_late);
        Ok(())
    }

    /// Counts an answer that cannot be encoded. Outputs are checked against the manifest at load, so this is our own fault.
    pub(crate) fn count_encode_error(&self, sample: SampleId, error: &EncodeError) {
        error!(%error, sample = %sample, "answer not sent");
        self.report().section_failures += 1;
    }

    pub(crate) fn report(&self) -> MutexGuard<'_, DeviceReport> {
        self.report.lock()
    }
}
