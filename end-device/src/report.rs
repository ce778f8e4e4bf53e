//! Counts of a device since its start.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use headwater_link::{Link, LinkError};
use headwater_protocol::{Boot, DeviceId, Kind, Slot};
use serde::Serialize;

use crate::unsettled_answers::UnsettledAnswers;

/// Report of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceReport {
    /// The device.
    pub device: DeviceId,
    /// Its slot.
    pub slot: Slot,
    /// Its boot number.
    pub boot: Boot,
    /// Its counts.
    #[serde(flatten)]
    pub counts: DeviceCounts,
}

/// Counts since the device's start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceCounts {
    /// Captured samples, once each: in view, not in view, or broken.
    pub captured: u64,
    /// Captures by the clock that the device was too late for, or that a wall clock set forward passed over.
    pub captures_missed: u64,
    /// Steps of the wall clock by at least half a period, either way.
    pub clock_steps: u64,
    /// Triggers for a sample that was captured already.
    pub repeated: u64,
    /// Refused triggers for a sample before the newest one.
    pub backwards: u64,
    /// Refused triggers for a sample too far from the newest one, either way.
    pub implausible: u64,
    /// Frames of a source other than an archive.
    pub source_frames: u64,
    /// Missing frames of such a source, by kind: `broken`, `cut`, `stale`, ...
    pub frame_faults: BTreeMap<&'static str, u64>,
    /// Messages sent, by kind: `summary`, `not_in_view`, `features`, `gone`, `input`, `decided`, `batch`.
    pub sent: BTreeMap<&'static str, Sent>,
    /// Time, ms, for which an answer waits for others now; 0 where each is sent at once.
    pub batch_wait_ms: u64,
    /// Answers sent in messages of the kind `batch`, by their own kind: `summary`, `not_in_view`.
    pub batched: BTreeMap<&'static str, u64>,
    /// Messages not sent, by reason: `away` (no broker), `busy` (queue full), `refused`.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Samples without an answer because their frame of the archive cannot be read.
    pub broken_frames: u64,
    /// Captured views that were shed because the section was behind.
    pub shed: u64,
    /// Samples without an answer because the section failed.
    pub section_failures: u64,
    /// Received messages that the device refused, by error code.
    pub faults: BTreeMap<&'static str, u64>,
    /// Times that the device published its birth and status again because the broker had others.
    pub births_restored: u64,
    /// Messages at `QoS` 1 that the broker refused, birth and status among them.
    pub publications_refused: u64,
    /// Unsettled samples in memory now, with those that wait for a common message.
    pub kept_samples: u64,
    /// Unsettled samples in the spool now.
    pub spooled: u64,
    /// Bytes of the spool now.
    pub spool_bytes: u64,
    /// Messages sent late: from the spool, or again from memory.
    pub late_sent: u64,
    /// Given-up samples, of which only the id is reported to the leader, by reason: `spool_full`, `other_network`, `unreadable`,
    /// `disk`, `disk_full`, `refused` (larger than the broker takes). An unreadable part of a segment counts as one sample.
    pub given_up: BTreeMap<&'static str, u64>,
    /// Given-up samples of which not even the id is left.
    pub lost: u64,
    /// Files of the state folder that were damaged, most of which were set aside.
    pub state_damaged: u64,
    /// Segments of the spool that were set aside because they hold the answers of another device.
    pub segments_of_others: u64,
    /// Bytes written to the socket, over all connections, with MQTT headers.
    pub wire_sent: u64,
    /// Bytes read from the socket.
    pub wire_received: u64,
    /// Successful connections.
    pub connected: u64,
    /// Whether the leader refuses the device now, by its latest notice.
    pub is_refused: bool,
}

/// Messages of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// Number of messages.
    pub messages: u64,
    /// Bytes of the bodies: scores, features, views, decisions. Of a batch, the scores alone.
    pub body_bytes: u64,
    /// Bytes of bodies and headers.
    pub payload_bytes: u64,
}

impl DeviceCounts {
    pub(crate) fn count_sent(&mut self, kind: Kind, body_bytes: usize, payload_bytes: usize) {
        let sent = self.sent.entry(kind.name()).or_default();
        sent.messages += 1;
        sent.body_bytes += body_bytes as u64;
        sent.payload_bytes += payload_bytes as u64;
    }

    /// Counts an answer that was sent in a batch.
    pub(crate) fn count_batched(&mut self, kind: Kind) {
        *self.batched.entry(kind.name()).or_default() += 1;
    }

    pub(crate) fn count_dropped(&mut self, error: &LinkError) {
        let reason = match error {
            LinkError::NotConnected | LinkError::Closed => "away",
            LinkError::QueueFull { .. } => "busy",
            _ => "refused",
        };
        *self.dropped.entry(reason).or_default() += 1;
    }

    /// Notes the unsettled answers; `waiting` is the number of those that wait for a common message.
    pub(crate) fn set_unsettled(&mut self, unsettled: &UnsettledAnswers, waiting: usize) {
        self.kept_samples = (unsettled.memory.answers.len() + waiting) as u64;
        let spool = &unsettled.spool;
        (self.spooled, self.spool_bytes) = (spool.len() as u64, spool.bytes());
        let counts = &spool.counts;
        self.lost = counts.lost;
        if self.given_up != counts.by_reason {
            self.given_up.clone_from(&counts.by_reason);
        }
    }
}

/// The counts of the report, shared by the agent, the source and the handle.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedReport {
    counts: Arc<Mutex<DeviceCounts>>,
    latest: Arc<Mutex<Latest>>,
}

/// The latest of what is told by its newest value: times are `None` before the first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latest {
    /// A sample was captured.
    pub(crate) capture: Option<Instant>,
    /// A notice of the leader was read.
    pub(crate) notice: Option<Instant>,
    /// Why the leader refuses the device, by its latest notice; `None` where it does not.
    pub(crate) refusal: Option<String>,
}

impl SharedReport {
    /// Locks the report, briefly; never across an await.
    pub(crate) fn lock(&self) -> MutexGuard<'_, DeviceCounts> {
        // Counting cannot panic half-way.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the times, as briefly as the counts.
    pub(crate) fn latest(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts with those of the link.
    pub(crate) fn with_link(&self, link: &Link) -> DeviceCounts {
        let mut counts = self.lock().clone();
        (counts.wire_sent, counts.wire_received) = (link.wire().sent, link.wire().received);
        counts.connected = link.counts().connected;
        counts
    }
}

/// Counts an event by its label; true for the first with this label, which should be logged.
pub(crate) fn count_first(counts: &mut BTreeMap<&'static str, u64>, label: &'static str) -> bool {
    let count = counts.entry(label).or_default();
    *count += 1;
    *count == 1
}
