//! The publisher codes maps if the network has a code for maps, encodes messages, sends each message to its topic, and counts the message.

use bytes::Bytes;
use headwater_inference::sections::{MapCoder, ScoreCoder};
use headwater_link::{Link, LinkError, QoS};
use headwater_protocol::bits::packed_len;
use headwater_protocol::{
    BatchEntry, BatchedAnswer, Body, DeviceTopic, EncodeError, FrameDetails, HEADER_BYTES, Header, Kind,
    Limits, Message, SampleId, Session, encode, encode_batch, put_frame_details,
};
use parking_lot::MutexGuard;
use tracing::error;

use crate::answer::Age;
use crate::link_setup::DeviceTopics;
use crate::report::{DeviceCounts, SharedReport};

#[derive(Debug)]
pub(crate) struct Publisher {
    pub(crate) link: Link,
    pub(crate) limits: Limits,
    /// Encoding of this slot's scores.
    pub(crate) scores: ScoreCoder,
    /// Coder of this slot's maps; `None` if messages carry maps as they are.
    pub(crate) maps: Option<MapCoder>,
    /// Session in the header of requests that the leader sends for this network.
    pub(crate) requests: Session,
    /// Session in the header of this device's messages.
    pub(crate) session: Session,
    pub(crate) qos: QoS,
    pub(crate) topics: DeviceTopics,
    pub(crate) report: SharedReport,
}

#[derive(Clone, Debug)]
pub(crate) struct Encoded {
    pub(crate) payload: Bytes,
    kind: Kind,
    is_late: bool,
    /// Bytes of the body; for a batch, the sum over the bodies of its answers.
    body_bytes: usize,
}

impl Publisher {
    /// Encodes and publishes a message; a message that cannot be sent is counted and dropped.
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

    /// Encodes a message. [`Body::Features`] takes the packed map, which is coded here if the network has a code for maps.
    ///
    /// # Errors
    /// When the body does not have the network's shapes.
    pub(crate) fn encode(&self, sample: SampleId, age: Age, body: Body<'_>) -> Result<Encoded, EncodeError> {
        self.encode_named(sample, age, body, None)
    }

    /// Encodes a message as [`Publisher::encode`] does, and appends `frame`: the name of the frame and, for a decision, the scores.
    ///
    /// # Errors
    /// When the body does not have the network's shapes.
    pub(crate) fn encode_named(
        &self,
        sample: SampleId,
        age: Age,
        body: Body<'_>,
        frame: Option<FrameDetails<'_>>,
    ) -> Result<Encoded, EncodeError> {
        let coded;
        let body = match (body, &self.maps) {
            (Body::Features(map), Some(coder)) => {
                let expected = packed_len(self.limits.feature_bits);
                let wrong = |_| EncodeError { kind: body.kind().name(), expected, found: map.len() };
                coded = coder.encode(map).map_err(wrong)?;
                Body::Features(&coded)
            }
            (body, _) => body,
        };
        let header = Header { late: age.is_late, session: self.session, sample, age_ms: age.ms };
        let mut payload = Vec::with_capacity(HEADER_BYTES + body.len());
        encode(&Message { header, body }, &self.limits, &mut payload)?;
        if let Some(frame) = &frame {
            put_frame_details(frame, &mut payload);
        }
        Ok(Encoded {
            payload: payload.into(),
            kind: body.kind(),
            is_late: age.is_late,
            body_bytes: body.len(),
        })
    }

    /// Encodes as many of the first `entries` as one message takes, and returns the message and their number. No entry is late, and the
    /// ids ascend. A single answer becomes a message of its own kind, not a batch.
    ///
    /// # Errors
    /// When a body does not have the network's shapes.
    pub(crate) fn encode_answers(&self, entries: &[BatchEntry<'_>]) -> Result<(Encoded, usize), EncodeError> {
        let mut payload = Vec::new();
        let taken = encode_batch(self.session, entries, &self.limits, &mut payload)?;
        if let [BatchEntry { sample, age_ms, answer }] = entries[..taken] {
            let body = match answer {
                BatchedAnswer::Summary(scores) => Body::Summary(scores),
                BatchedAnswer::NotInView => Body::NotInView,
            };
            return Ok((self.encode(sample, Age { ms: age_ms, is_late: false }, body)?, taken));
        }
        let body_bytes = entries[..taken].iter().map(|entry| entry.answer.body_bytes()).sum();
        Ok((Encoded { payload: payload.into(), kind: Kind::Batch, is_late: false, body_bytes }, taken))
    }

    /// Publishes a message, and counts it once the link has taken it.
    ///
    /// # Errors
    /// When the link refuses the message.
    pub(crate) fn publish(&self, message: &Encoded) -> Result<(), LinkError> {
        let Encoded { payload, kind, is_late, body_bytes } = message;
        let leaf = match kind {
            // A late `gone` gives up the whole sample and stands in place of its summary, so the topic is that of summaries.
            Kind::Gone if *is_late => DeviceTopic::Summary,
            Kind::Features | Kind::Gone => DeviceTopic::Features,
            Kind::Decided => DeviceTopic::Decision,
            _ => DeviceTopic::Summary,
        };
        self.link.publish(self.topics.own(leaf), payload.clone(), self.qos, false)?;
        let mut report = self.report();
        report.count_sent(*kind, *body_bytes, payload.len());
        report.late_sent += u64::from(*is_late);
        Ok(())
    }

    /// Counts an answer that cannot be encoded as a failure of the section. Such an answer shows a defect of this program.
    pub(crate) fn count_encode_error(&self, sample: SampleId, error: &EncodeError) {
        error!(%error, sample = %sample, "answer not sent");
        self.report().section_failures += 1;
    }

    pub(crate) fn report(&self) -> MutexGuard<'_, DeviceCounts> {
        self.report.lock()
    }
}
