//! The open connections of a server: their number in all and by address, and the choice of a connection that is closed for a new one.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, Id};
use tokio::time::Instant;
use tracing::warn;

use super::ServerLimits;
use super::activity::Activity;
use super::closed::{CloseReason, ClosedConnections};
use crate::log_limit::LogLimit;

/// Time for which a connection may keep the server waiting before a newer connection from the same address takes its place.
const PATIENCE: Duration = Duration::from_secs(1);

/// Open connections.
#[derive(Debug)]
pub(super) struct Connections {
    pub(super) limits: ServerLimits,
    closed: Arc<ClosedConnections>,
    open: HashMap<Id, Open>,
    by_address: HashMap<IpAddr, usize>,
    limit_log: LogLimit,
    handshake_log: LogLimit,
}

/// End of a connection that the server counts.
#[derive(Debug)]
pub(super) enum End {
    /// A time limit was exceeded.
    Overdue(CloseReason),
    /// The TLS handshake failed; the reason for people.
    Handshake(String),
}

/// One open connection.
#[derive(Debug)]
struct Open {
    peer: SocketAddr,
    address: IpAddr,
    activity: Arc<Activity>,
    task: AbortHandle,
}

impl Connections {
    pub(super) fn new(limits: ServerLimits, closed: Arc<ClosedConnections>) -> Self {
        let (open, by_address) = (HashMap::new(), HashMap::new());
        let (limit_log, handshake_log) = (LogLimit::new(1), LogLimit::new(1));
        Self { limits, closed, open, by_address, limit_log, handshake_log }
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Makes room for a new connection if a limit is reached. Returns true if the new connection may stay.
    ///
    /// Connections with a running request are never closed. A connection that owes a request is closed first, then a connection with an
    /// unread answer, then an idle connection; of several of one kind, the connection that waits longest.
    pub(super) fn admits(&mut self, peer: SocketAddr, now: Instant) -> bool {
        let address = peer.ip().to_canonical();
        let of_address = self.by_address.get(&address).copied().unwrap_or(0);
        if of_address >= self.limits.max_connections_per_address {
            self.note(CloseReason::AddressLimit, peer, now);
            let is_of_address = |open: &Open| open.address == address;
            // A burst of connections must not push out its own first connections.
            let patient = |since| now.saturating_duration_since(since) >= PATIENCE;
            return self.close_longest_wait(is_of_address, patient);
        }
        if self.open.len() >= self.limits.max_connections {
            self.note(CloseReason::ConnectionLimit, peer, now);
            return self.close_longest_wait(|_| true, |_| true);
        }
        true
    }

    pub(super) fn add(&mut self, peer: SocketAddr, activity: Arc<Activity>, task: AbortHandle) {
        let address = peer.ip().to_canonical();
        *self.by_address.entry(address).or_default() += 1;
        self.open.insert(task.id(), Open { peer, address, activity, task });
    }

    /// Closes every connection that still waits for the head of a request, for a stop.
    pub(super) fn close_awaiting_heads(&self) {
        let waiting = self.open.values().filter(|open| open.activity.awaits_head());
        waiting.for_each(|open| open.task.abort());
    }

    /// Forgets a connection whose task has ended. `end` is the reason if a limit or a failed handshake ended the connection. Failed
    /// handshakes are logged at most once a minute.
    pub(super) fn ended(&mut self, task: Id, end: Option<End>, now: Instant) {
        let open = self.remove(task);
        match end {
            Some(End::Overdue(reason)) => self.closed.note(reason),
            Some(End::Handshake(reason)) => {
                self.closed.note(CloseReason::Handshake);
                if let (Some(not_logged), Some(Open { peer, .. })) = (self.handshake_log.take(now), open) {
                    warn!(%peer, reason, not_logged, "no TLS with a client");
                }
            }
            None => {}
        }
    }

    fn close_longest_wait(
        &mut self,
        may_close: impl Fn(&Open) -> bool,
        waits: impl Fn(Instant) -> bool,
    ) -> bool {
        let waiting = self.open.iter().filter(|(_, open)| may_close(open));
        let waiting = waiting.filter_map(|(id, open)| Some((open.activity.wait()?, *id)));
        let longest = waiting.filter(|((_, since), _)| waits(*since)).min_by_key(|(wait, _)| *wait);
        let Some((_, id)) = longest else { return false };
        if let Some(open) = self.remove(id) {
            open.task.abort();
        }
        true
    }

    fn remove(&mut self, task: Id) -> Option<Open> {
        let open = self.open.remove(&task)?;
        if let Some(count) = self.by_address.get_mut(&open.address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&open.address);
            }
        }
        Some(open)
    }

    /// Counts a connection that a limit closes. Such connections are logged at most once a minute.
    fn note(&mut self, reason: CloseReason, peer: SocketAddr, now: Instant) {
        self.closed.note(reason);
        if let Some(not_logged) = self.limit_log.take(now) {
            let (connections, reason) = (not_logged + 1, reason.name());
            warn!(connections, reason, last = %peer.ip(), "connections over a limit are closed");
        }
    }
}
