//! Counts of a device since its start, each with its metric.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use headwater_link::{Link, LinkError};
use headwater_protocol::{BatchEntry, Boot, DeviceId, Kind, Slot};
use headwater_telemetry::{DurationCounts, report};
use parking_lot::{Mutex, MutexGuard};
use serde::{Serialize, Serializer};
use tokio::sync::watch;
use tracing::field::{DisplayValue, display};
use tracing::warn;

use crate::give_up_reason::GiveUpReason;

/// Report of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceReport {
    /// Id of the device.
    pub device: DeviceId,
    /// Slot of the device.
    pub slot: Slot,
    /// Boot number of this start.
    pub boot: Boot,
    /// Counts since this start.
    #[serde(flatten)]
    pub counts: DeviceCounts,
}

report! {
    /// Counts since the device's start.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
    pub struct DeviceCounts {
        /// Each captured sample counts once, also a sample without a usable frame.
        captured: u64 = counter("headwater_device_captures_total", "Samples captured.");
        captures_missed: u64 = counter(
            "headwater_device_captures_missed_total",
            "Captures by the clock that came too late or that a step of the clock passed over."
        );
        /// Only steps by at least half a period, either way.
        clock_steps: u64 = counter("headwater_device_clock_steps_total", "Steps of the wall clock.");
        /// A repeated trigger names a sample that was captured already.
        repeated: u64 = counter("headwater_device_triggers_repeated_total", "Repeated triggers.");
        backwards: u64 = counter(
            "headwater_device_triggers_backwards_total",
            "Triggers refused because their id is below the newest one."
        );
        implausible: u64 = counter(
            "headwater_device_triggers_implausible_total",
            "Triggers whose id is too far ahead of the newest one to be answered at once, or too high."
        );
        trigger_waits: bool = gauge(
            "headwater_device_trigger_waits",
            "1 while a trigger far above the newest id waits for a second one near it."
        );
        /// Frames of an archive are prepared before the start and do not count.
        #[serde(serialize_with = "count_and_sum")]
        preparation: DurationCounts =
            durations("headwater_device_preparation_seconds", "Time to decode, cut out and resize a frame.")
                => |durations| *durations;
        /// Frames of an archive are not counted.
        source_frames: u64 = counter("headwater_device_source_frames_total", "Frames from the source.");
        /// By kind: `broken`, `cut`, `stale`, ... Faults of an archive count in `broken_frames`.
        frame_faults: BTreeMap<&'static str, u64> =
            counters("headwater_device_frame_faults_total", "Missing frames.", "fault");
        frozen: bool = gauge("headwater_device_frozen", "1 while the camera is frozen, dark or covered.");
        /// Entries in the latest scan of the folder; reasons are `other_name`, `too_deep`, ...
        passed_over: BTreeMap<&'static str, u64> =
            gauges("headwater_device_passed_over_entries", "Entries of the folder passed over.", "reason");
        /// Kinds are `summary`, `not_in_view`, `features`, `gone`, `input`, `decided` and `batch`.
        sent: BTreeMap<&'static str, Sent> =
            counters("headwater_device_messages_total", "Messages sent.", "kind")
                => |sent| by_kind(sent, |sent| sent.messages),
            counters("headwater_device_body_bytes_total", "Bytes of bodies.", "kind")
                => |sent| by_kind(sent, |sent| sent.body_bytes),
            counters("headwater_device_payload_bytes_total", "Bytes of payloads.", "kind")
                => |sent| by_kind(sent, |sent| sent.payload_bytes);
        /// Milliseconds for which an answer waits at most for a common message now; 0 if each answer is sent at once.
        batch_wait_ms: u64;
        /// By the kind of the answer: `summary`, `not_in_view`.
        batched: BTreeMap<&'static str, u64> =
            counters("headwater_device_batched_answers_total", "Answers sent in batches.", "kind");
        /// Reasons are `away` (no broker), `busy` (queue full) and `refused`.
        dropped: BTreeMap<&'static str, u64> =
            counters("headwater_device_messages_dropped_total", "Messages not sent.", "reason");
        /// Samples that have no answer because their frame in the archive cannot be read.
        broken_frames: u64 = counter("headwater_device_broken_frames_total", "Samples of broken frames.");
        shed: u64 = counter("headwater_device_views_shed_total", "Views shed by a full queue.");
        section_failures: u64 =
            counter("headwater_device_section_failures_total", "Failures of the section.");
        /// Received messages that the device refused, by error code.
        faults: BTreeMap<&'static str, u64> =
            counters("headwater_device_messages_refused_total", "Messages refused.", "fault");
        /// Times that the broker had another birth or status than the device's, and both were published again.
        births_restored: u64 = counter("headwater_device_births_restored_total", "Births published again.");
        /// Only messages at `QoS` 1 count, birth and status included: the broker acknowledges no message at `QoS` 0.
        publications_refused: u64 =
            counter("headwater_device_publications_refused_total", "Messages that the broker refused.");
        /// Samples whose answers wait for a common message count too.
        kept_samples: u64 = gauge("headwater_device_memory_samples", "Unsettled samples in memory.");
        spooled: u64 = gauge("headwater_device_spool_samples", "Unsettled samples in the spool.");
        spool_bytes: u64 = gauge("headwater_device_spool_bytes", "Bytes of the spool.");
        /// Messages marked late: spooled answers, answers sent again from memory, their features, and `gone` for given-up samples.
        late_sent: u64 = counter("headwater_device_late_messages_total", "Messages sent late.");
        /// Only the id of such a sample is reported to the leader. An unreadable segment, or an unreadable part of one, counts as one sample.
        given_up: BTreeMap<&'static str, u64> =
            counters("headwater_device_samples_given_up_total", "Samples given up.", "reason")
                .from_zero(&GiveUpReason::LABELS);
        /// Given-up samples whose ids are forgotten too, so that the leader never learns of them.
        lost: u64 = counter("headwater_device_samples_lost_total", "Samples whose id is lost.");
        /// Files that are set aside because they cannot be read, and damaged parts of segments.
        state_damaged: u64 =
            counter("headwater_device_state_damaged_total", "Damaged files of the state folder.");
        segments_of_others: u64 = counter(
            "headwater_device_segments_of_others_total",
            "Spooled segments of another device, set aside."
        );
        /// Over all connections, with MQTT headers.
        wire_sent: u64 = counter("headwater_device_sent_bytes_total", "Bytes written to the socket.");
        wire_received: u64 = counter("headwater_device_received_bytes_total", "Bytes read from the socket.");
        connected: u64 = counter("headwater_device_connections_total", "Connections to the broker.");
        /// As the leader's latest notice says.
        is_refused: bool = gauge("headwater_device_refused", "1 while the leader refuses the device.");
    }
}

/// Messages of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// Number of messages.
    pub messages: u64,
    /// Bytes of the bodies: scores, features, views, decisions. For a batch, of the scores alone.
    pub body_bytes: u64,
    /// Bytes of whole payloads: headers, bodies and names of frames.
    pub payload_bytes: u64,
}

impl DeviceCounts {
    pub(crate) fn count_sent(&mut self, kind: Kind, body_bytes: usize, payload_bytes: usize) {
        let sent = self.sent.entry(kind.name()).or_default();
        sent.messages += 1;
        sent.body_bytes += body_bytes as u64;
        sent.payload_bytes += payload_bytes as u64;
    }

    /// Counts the answers of a batch that was sent.
    pub(crate) fn count_batched(&mut self, entries: &[BatchEntry<'_>]) {
        for entry in entries {
            *self.batched.entry(entry.answer.kind().name()).or_default() += 1;
        }
    }

    pub(crate) fn count_dropped(&mut self, error: &LinkError) {
        let reason = match error {
            LinkError::NotConnected | LinkError::Closed => "away",
            LinkError::QueueFull { .. } => "busy",
            _ => "refused",
        };
        *self.dropped.entry(reason).or_default() += 1;
    }
}

/// The counts of the report and the latest values, shared by the agent, the source and the handle.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedReport {
    counts: Arc<Mutex<DeviceCounts>>,
    latest: Arc<Mutex<Latest>>,
    /// Reason for which no sample is answered with the camera's frames; `None` while samples are answered.
    pub(crate) frozen: watch::Sender<Option<String>>,
    /// Name of the device in log lines; unset before the start.
    device: Arc<OnceLock<DeviceId>>,
}

/// The latest values for the status page, and the faults in a row; times are `None` before the first event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latest {
    /// Time of the latest capture.
    pub(crate) capture: Option<Instant>,
    /// Time of the leader's latest notice.
    pub(crate) notice: Option<Instant>,
    /// Reason of the leader's latest notice for refusing the device; `None` if the leader does not refuse the device.
    pub(crate) refusal: Option<String>,
    /// Reason for which the latest trigger is not answered; `None` once a later trigger is answered, or once the leader's account has set
    /// the newest id back.
    pub(crate) refused_trigger: Option<String>,
    /// Faults in a row, without a frame between them, of a camera that gives no frames.
    pub(crate) away_faults: u64,
    /// Size and format of the first frame.
    pub(crate) format: Option<String>,
    /// Reason for which no frames come now, such as a command that has ended; `None` while frames come.
    pub(crate) waits: Option<String>,
}

impl SharedReport {
    /// Names the device in later log lines.
    pub(crate) fn set_device(&self, id: &DeviceId) {
        self.device.get_or_init(|| id.clone());
    }

    /// Name of the device for a log line, since a process may have several devices; `None` before the start.
    pub(crate) fn device(&self) -> Option<DisplayValue<&DeviceId>> {
        self.device.get().map(display)
    }

    /// Locks the counts. The lock must be short and must not be held across an await.
    pub(crate) fn lock(&self) -> MutexGuard<'_, DeviceCounts> {
        self.counts.lock()
    }

    /// Reason for which no sample is answered with the camera's frames; `None` while samples are answered.
    pub(crate) fn frozen(&self) -> Option<String> {
        self.frozen.borrow().clone()
    }

    /// Locks the latest values. The lock must be short and must not be held across an await.
    pub(crate) fn latest(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock()
    }

    /// Counts a sample that is given up, and logs the first sample of each reason.
    pub(crate) fn count_given_up(&self, reason: GiveUpReason, detail: &str) {
        if count_first(&mut self.lock().given_up, reason.label()) {
            let reason = reason.label();
            warn!(reason, detail, "a spooled sample is given up; later ones are only counted");
        }
    }

    /// Counts a given-up sample whose id is forgotten too.
    pub(crate) fn count_lost(&self) {
        let mut counts = self.lock();
        counts.lost += 1;
        if counts.lost == 1 {
            warn!(
                "too many samples were given up: the oldest ids are forgotten and never reported to the leader"
            );
        }
    }

    /// The counts, with bytes and connections from `link`, and with `frozen` and `is_refused` from the latest values.
    pub(crate) fn with_link(&self, link: &Link) -> DeviceCounts {
        let mut counts = self.lock().clone();
        (counts.wire_sent, counts.wire_received) = (link.wire().sent, link.wire().received);
        counts.connected = link.counts().connected;
        (counts.frozen, counts.is_refused) = (self.frozen().is_some(), self.latest().refusal.is_some());
        counts
    }
}

/// Durations as their number and their sum in microseconds.
fn count_and_sum<S: Serializer>(durations: &DurationCounts, serializer: S) -> Result<S::Ok, S::Error> {
    BTreeMap::from([("count", durations.count()), ("sum_us", durations.sum_us())]).serialize(serializer)
}

fn by_kind(sent: &BTreeMap<&'static str, Sent>, read: fn(&Sent) -> u64) -> Vec<(String, u64)> {
    sent.iter().map(|(kind, sent)| ((*kind).to_owned(), read(sent))).collect()
}

/// Counts an event by its label; returns true for the first event with this label, which should be logged.
pub(crate) fn count_first(counts: &mut BTreeMap<&'static str, u64>, label: &'static str) -> bool {
    let count = counts.entry(label).or_default();
    *count += 1;
    *count == 1
}
