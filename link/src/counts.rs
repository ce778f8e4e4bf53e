//! What a link has done so far, in numbers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts since the link's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Messages taken by `publish`.
    pub accepted: u64,
    /// Messages handed to the socket, with retained ones and repetitions.
    pub written: u64,
    /// Messages refused because none of the queue was free.
    pub busy: u64,
    /// Messages refused because there was no connection.
    pub away: u64,
    /// Payloads refused because they were too long.
    pub oversize_sent: u64,
    /// Payloads that arrived too long and were left out.
    pub oversize_received: u64,
    /// Connections that came up, subscriptions and all.
    pub connected: u64,
    /// Connections that ended, and attempts that failed.
    pub disconnected: u64,
}

/// The counters behind [`LinkCounts`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) accepted: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) busy: AtomicU64,
    pub(crate) away: AtomicU64,
    pub(crate) oversize_sent: AtomicU64,
    pub(crate) oversize_received: AtomicU64,
    pub(crate) connected: AtomicU64,
    pub(crate) disconnected: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self) -> LinkCounts {
        LinkCounts {
            accepted: self.accepted.load(Relaxed),
            written: self.written.load(Relaxed),
            busy: self.busy.load(Relaxed),
            away: self.away.load(Relaxed),
            oversize_sent: self.oversize_sent.load(Relaxed),
            oversize_received: self.oversize_received.load(Relaxed),
            connected: self.connected.load(Relaxed),
            disconnected: self.disconnected.load(Relaxed),
        }
    }
}

/// One more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
