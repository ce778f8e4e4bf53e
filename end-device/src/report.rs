//! What a device has done so far.

use std::collections::BTreeMap;

use headwater_link::{LinkCounts, LinkError, WireBytes};
use headwater_protocol::{Boot, DeviceId, Fault, Kind, Slot};
use serde::Serialize;

use crate::unsettled::Unsettled;

/// Counts since the device's start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceReport {
    /// The device.
    pub device: DeviceId,
    /// Its slot.
    pub slot: Slot,
    /// Its life.
    pub boot: Boot,
    /// Samples it was asked for, once each: with a view, not in view, or broken.
    pub captured: u64,
    /// Triggers for a sample it had already captured.
    pub repeated: u64,
    /// Triggers for a sample before the newest one; refused.
    pub backwards: u64,
    /// Frames that a source other than an archive gave.
    pub source_frames: u64,
    /// Frames that it did not give, by kind: `broken`, `cut`, `stale`, ... The device was silent.
    pub frame_faults: BTreeMap<&'static str, u64>,
    /// Messages sent, by kind: `summary`, `not_in_view`, `features`, `gone`, `input`, `decided`.
    pub sent: BTreeMap<&'static str, Sent>,
    /// Messages not sent, by reason: `away` (no broker), `busy` (queue full), `refused`.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Frames of the archive that could not be read when they were due; the device stayed silent.
    pub broken_frames: u64,
    /// Captured views given up because the section was behind.
    pub shed: u64,
    /// Views that the section failed on; the device stayed silent.
    pub section_failures: u64,
    /// Messages from others that were not taken, by code of the error table.
    pub faults: BTreeMap<&'static str, u64>,
    /// Unsettled samples in memory at this moment.
    pub kept_samples: u64,
    /// Unsettled samples in the spool at this moment.
    pub spooled: u64,
    /// Bytes of the spool at this moment.
    pub spool_bytes: u64,
    /// Messages sent late, from the spool.
    pub late_sent: u64,
    /// Samples of which only the id is left, for the leader to be told, by reason: `spool_full`, `other_network`, `unreadable`, `disk`,
    /// `refused` (larger than the broker takes). `unreadable` counts the end of a segment that cannot be read as one.
    pub given_up: BTreeMap<&'static str, u64>,
    /// Samples of which not even that is left.
    pub lost: u64,
    /// Bytes written to the socket, over all connections, MQTT headers and all.
    pub wire_sent: u64,
    /// Bytes read from the socket.
    pub wire_received: u64,
    /// Connections that came up.
    pub connected: u64,
}

/// Messages of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// Messages.
    pub messages: u64,
    /// Bytes of their bodies: scores, features, views, decisions.
    pub body_bytes: u64,
    /// Bytes of their bodies and headers.
    pub payload_bytes: u64,
}

impl DeviceReport {
    pub(crate) fn new(device: DeviceId, slot: Slot, boot: Boot) -> Self {
        Self {
            device,
            slot,
            boot,
            captured: 0,
            repeated: 0,
            backwards: 0,
            source_frames: 0,
            frame_faults: BTreeMap::new(),
            sent: BTreeMap::new(),
            dropped: BTreeMap::new(),
            broken_frames: 0,
            shed: 0,
            section_failures: 0,
            faults: BTreeMap::new(),
            kept_samples: 0,
            spooled: 0,
            spool_bytes: 0,
            late_sent: 0,
            given_up: BTreeMap::new(),
            lost: 0,
            wire_sent: 0,
            wire_received: 0,
            connected: 0,
        }
    }

    /// Messages of a kind.
    pub fn sent_of(&self, kind: Kind) -> Sent {
        self.sent.get(kind.name()).copied().unwrap_or_default()
    }

    /// Bytes of all bodies: DDNN's `4|C| + (1 - l) f o / 8`, summed over the samples.
    pub fn body_bytes(&self) -> u64 {
        self.sent.values().map(|sent| sent.body_bytes).sum()
    }

    /// Bytes of all payloads.
    pub fn payload_bytes(&self) -> u64 {
        self.sent.values().map(|sent| sent.payload_bytes).sum()
    }

    pub(crate) fn count_sent(&mut self, kind: Kind, body_bytes: usize, payload_bytes: usize) {
        let sent = self.sent.entry(kind.name()).or_default();
        sent.messages += 1;
        sent.body_bytes += body_bytes as u64;
        sent.payload_bytes += payload_bytes as u64;
    }

    pub(crate) fn count_dropped(&mut self, error: &LinkError) {
        let reason = match error {
            LinkError::NotConnected | LinkError::Closed => "away",
            LinkError::QueueFull { .. } => "busy",
            _ => "refused",
        };
        *self.dropped.entry(reason).or_default() += 1;
    }

    /// Counts a fault; true the first time, when it should be named.
    pub(crate) fn count_fault(&mut self, fault: Fault) -> bool {
        let count = self.faults.entry(fault.code()).or_default();
        *count += 1;
        *count == 1
    }

    /// Counts a frame that was not given; true the first time, when it should be named.
    pub(crate) fn count_frame_fault(&mut self, code: &'static str) -> bool {
        let count = self.frame_faults.entry(code).or_default();
        *count += 1;
        *count == 1
    }

    pub(crate) fn note_unsettled(&mut self, unsettled: &Unsettled) {
        self.kept_samples = unsettled.in_memory() as u64;
        let Some(spool) = unsettled.spool() else { return };
        (self.spooled, self.spool_bytes) = (spool.len() as u64, spool.bytes());
        let counts = spool.counts();
        self.lost = counts.lost;
        if self.given_up != counts.by_reason {
            self.given_up.clone_from(&counts.by_reason);
        }
    }

    pub(crate) fn add_link(&mut self, wire: WireBytes, counts: LinkCounts) {
        self.wire_sent = wire.sent;
        self.wire_received = wire.received;
        self.connected = counts.connected;
    }
}
