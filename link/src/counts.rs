//! Counts of a link.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Messages and connections since the link's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Messages accepted by `publish`.
    pub accepted: u64,
    /// Messages written to the socket, with retained ones and repetitions.
    pub written: u64,
    /// Messages refused because the queue was full.
    pub refused_queue_full: u64,
    /// Messages refused because there was no connection.
    pub refused_not_connected: u64,
    /// Messages refused because their payload was too long.
    pub refused_oversize: u64,
    /// Messages that arrived with too long a payload and were dropped.
    pub dropped_oversize: u64,
    /// Connections established, with their subscriptions.
    pub connected: u64,
    /// Connections that ended, and attempts that failed.
    pub disconnected: u64,
}

/// Counters of [`LinkCounts`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) accepted: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) refused_queue_full: AtomicU64,
    pub(crate) refused_not_connected: AtomicU64,
    pub(crate) refused_oversize: AtomicU64,
    pub(crate) dropped_oversize: AtomicU64,
    pub(crate) connected: AtomicU64,
    pub(crate) disconnected: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self) -> LinkCounts {
        LinkCounts {
            accepted: self.accepted.load(Relaxed),
            written: self.written.load(Relaxed),
            refused_queue_full: self.refused_queue_full.load(Relaxed),
            refused_not_connected: self.refused_not_connected.load(Relaxed),
            refused_oversize: self.refused_oversize.load(Relaxed),
            dropped_oversize: self.dropped_oversize.load(Relaxed),
            connected: self.connected.load(Relaxed),
            disconnected: self.disconnected.load(Relaxed),
        }
    }
}

/// Increments a counter.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
