//! When to log that the broker is away: at once, then again at most once a minute.

use std::time::{Duration, Instant};

/// Shortest time between two warnings of one outage.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// An outage from its beginning to the next connection.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    since: Option<Instant>,
    warned: Option<Instant>,
}

impl Outage {
    /// Notes that an established connection was lost, which is a warning of its own.
    pub(crate) fn lost(&mut self, now: Instant) {
        (self.since, self.warned) = (Some(now), Some(now));
    }

    /// Notes a failed attempt to connect. Returns how long the outage lasts where it is time for a warning.
    pub(crate) fn failed(&mut self, now: Instant) -> Option<Duration> {
        let since = *self.since.get_or_insert(now);
        let is_due = self.warned.is_none_or(|warned| now.duration_since(warned) >= WARN_EVERY);
        is_due.then(|| {
            self.warned = Some(now);
            now.duration_since(since)
        })
    }

    /// Notes a connection. Returns how long the outage lasted; `None` where there was none.
    pub(crate) fn ended(&mut self, now: Instant) -> Option<Duration> {
        self.warned = None;
        self.since.take().map(|since| now.duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_broker_is_warned_of_at_once_and_then_once_a_minute() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut outage = Outage::default();
        let warned: Vec<u32> =
            (0..=150).filter(|&at| outage.failed(start + at * second) == Some(at * second)).collect();
        assert_eq!(warned, [0, 60, 120]);
        assert_eq!(outage.ended(start + 151 * second), Some(151 * second));
        assert_eq!(outage.ended(start + 152 * second), None);
        assert_eq!(outage.failed(start + 153 * second), Some(Duration::ZERO), "a new outage");
    }

    #[test]
    fn a_lost_connection_is_the_first_warning() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut outage = Outage::default();
        outage.lost(start);
        assert_eq!(outage.failed(start + second), None);
        assert_eq!(outage.failed(start + 60 * second), Some(60 * second));
        assert_eq!(outage.ended(start + 61 * second), Some(61 * second));
    }
}
