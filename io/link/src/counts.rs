//! Counts of a link.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Messages and connections since the link's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts<N = u64> {
    /// Messages that the link took for sending.
    pub accepted: N,
    /// Messages written to the socket, including the retained messages that the link publishes after every connect.
    pub written: N,
    /// Messages refused because the queue was full.
    pub refused_queue_full: N,
    /// Messages refused because there was no connection.
    pub refused_not_connected: N,
    /// Messages refused because their payload was too long.
    pub refused_oversize: N,
    /// Messages at `QoS` 1 that the broker refused, without the messages of [`Link::publish_acknowledged`](crate::Link::publish_acknowledged).
    pub refused_by_broker: N,
    /// Messages that arrived with too long a payload and were dropped.
    pub dropped_oversize: N,
    /// Connections on which the broker has accepted the subscriptions.
    pub connected: N,
    /// Connections that broke, and attempts to connect that failed. The end of the link itself does not count.
    pub disconnected: N,
}

/// Counts that the handle and the driver increment.
pub(crate) type Counters = LinkCounts<AtomicU64>;

impl Counters {
    pub(crate) fn read(&self) -> LinkCounts {
        LinkCounts {
            accepted: self.accepted.load(Relaxed),
            written: self.written.load(Relaxed),
            refused_queue_full: self.refused_queue_full.load(Relaxed),
            refused_not_connected: self.refused_not_connected.load(Relaxed),
            refused_oversize: self.refused_oversize.load(Relaxed),
            refused_by_broker: self.refused_by_broker.load(Relaxed),
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
