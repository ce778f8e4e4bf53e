//! Log lines about refused clients: one for each client and reason, repeated at most once a minute.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use headwater_protocol::NetworkId;
use parking_lot::Mutex;
use tracing::warn;

/// Time between two lines in the log about the same client and reason.
const PAUSE: Duration = Duration::from_secs(60);

/// Most pairs of client and reason that are remembered. If all of these had a line in the last minute, a further pair gets no line.
const MAX_CLIENTS: usize = 256;

/// Time of the last line in the log about each client and reason.
#[derive(Debug, Default)]
pub(crate) struct RefusedClients {
    /// A reason is the network that a client asks for, or the holder of its certificate. Locked for single updates, never across an await.
    logged: Mutex<HashMap<(IpAddr, String), Instant>>,
}

impl RefusedClients {
    /// Logs a request for a network that the service does not serve.
    pub(crate) fn log_network(&self, client: IpAddr, asked: NetworkId, served: &str) {
        let asked = asked.short();
        if self.is_time(client, &asked, Instant::now()) {
            warn!(
                %client, asked, served,
                "a client asks for a network that this service does not have: give all tiers the same bundle"
            );
        }
    }

    /// Logs a request of a client that is not admitted. `holder` is the holder of the client's certificate; empty if the client showed none.
    pub(crate) fn log_unauthorized(&self, client: IpAddr, holder: &str, reason: &str) {
        if self.is_time(client, holder, Instant::now()) {
            warn!(%client, holder, reason, "a client is not admitted");
        }
    }

    fn is_time(&self, client: IpAddr, reason: &str, now: Instant) -> bool {
        let (client, mut logged) = ((client, reason.to_owned()), self.logged.lock());
        if logged.len() >= MAX_CLIENTS {
            logged.retain(|_, at| now.saturating_duration_since(*at) < PAUSE);
        }
        let last = logged.get(&client);
        let is_time = match last {
            Some(last) => now.saturating_duration_since(*last) >= PAUSE,
            None => logged.len() < MAX_CLIENTS,
        };
        if is_time {
            logged.insert(client, now);
        }
        is_time
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn client(number: usize) -> IpAddr {
        Ipv4Addr::from_bits(number as u32).into()
    }

    #[test]
    fn each_client_and_reason_has_a_line_a_minute() {
        let (networks, now) = (RefusedClients::default(), Instant::now());
        assert!(networks.is_time(client(1), "first", now));
        assert!(!networks.is_time(client(1), "first", now + PAUSE - Duration::from_millis(1)));
        assert!(networks.is_time(client(1), "second", now) && networks.is_time(client(2), "first", now));
        assert!(networks.is_time(client(1), "first", now + PAUSE));
    }

    #[test]
    fn a_flood_of_clients_takes_bounded_memory_and_log() {
        let (networks, now) = (RefusedClients::default(), Instant::now());
        let lines =
            |from: usize, at| (from..from + 1000).filter(|&n| networks.is_time(client(n), "", at)).count();
        assert_eq!((lines(0, now), lines(1000, now)), (MAX_CLIENTS, 0));
        assert_eq!(lines(2000, now + PAUSE), MAX_CLIENTS);
        assert_eq!(networks.logged.lock().len(), MAX_CLIENTS);
    }
}
