//! Connections that a server closed because of a limit or a failed TLS handshake, by reason.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Reason why a server closed a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// Too many connections from one address.
    AddressLimit,
    /// Too many connections.
    ConnectionLimit,
    /// The head of a request did not arrive in time.
    HeadTimeout,
    /// The peer did not read an answer in time.
    AnswerTimeout,
    /// A kept-alive connection had no request for too long.
    IdleTimeout,
    /// The TLS handshake failed, for example because the client showed no certificate, or one that is not accepted.
    Handshake,
}

impl CloseReason {
    /// Every reason with its label in metrics, which never changes, in the order of the enum.
    const TABLE: [(Self, &'static str); 6] = [
        (Self::AddressLimit, "address_limit"),
        (Self::ConnectionLimit, "connection_limit"),
        (Self::HeadTimeout, "head_timeout"),
        (Self::AnswerTimeout, "answer_timeout"),
        (Self::IdleTimeout, "idle_timeout"),
        (Self::Handshake, "handshake"),
    ];

    /// Label in metrics; it never changes.
    pub const fn name(self) -> &'static str {
        Self::TABLE[self as usize].1
    }
}

/// Counts of closed connections by reason.
#[derive(Debug, Default)]
pub struct ClosedConnections {
    counts: [AtomicU64; CloseReason::TABLE.len()],
}

impl ClosedConnections {
    /// Connections closed for a reason.
    pub fn count(&self, reason: CloseReason) -> u64 {
        self.counts[reason as usize].load(Relaxed)
    }

    /// Connections closed, by the name of the reason.
    pub fn by_name(&self) -> [(&'static str, u64); CloseReason::TABLE.len()] {
        CloseReason::TABLE.map(|(reason, name)| (name, self.count(reason)))
    }

    pub(super) fn note(&self, reason: CloseReason) {
        self.counts[reason as usize].fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::array;

    use super::*;

    #[test]
    fn each_reason_is_counted_under_its_name() {
        let closed = ClosedConnections::default();
        for (times, (reason, _)) in CloseReason::TABLE.into_iter().enumerate() {
            (0..times).for_each(|_| closed.note(reason));
        }
        let expected = [
            "address_limit",
            "connection_limit",
            "head_timeout",
            "answer_timeout",
            "idle_timeout",
            "handshake",
        ];
        assert_eq!(closed.by_name(), array::from_fn(|index| (expected[index], index as u64)));
    }
}
