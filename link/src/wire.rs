//! Bytes on the socket, counted where they are read and written.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Everything that went over the link's sockets since its start, MQTT headers and all; TCP and IP headers not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireBytes {
    /// Bytes written.
    pub sent: u64,
    /// Bytes read.
    pub received: u64,
}

/// The counters behind [`WireBytes`]; they live as long as the link, across connections.
#[derive(Debug, Default)]
pub(crate) struct WireCounters {
    sent: AtomicU64,
    received: AtomicU64,
}

impl WireCounters {
    pub(crate) fn add_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn add_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn read(&self) -> WireBytes {
        WireBytes { sent: self.sent.load(Relaxed), received: self.received.load(Relaxed) }
    }
}
