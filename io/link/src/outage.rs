//! Times at which a missing broker is logged: at once for each new reason, then again at most once a minute.

use std::time::{Duration, Instant};

/// Shortest time between two warnings about one outage, unless the later warning names a new reason.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Most reasons that an outage remembers. A further new reason gets no warning of its own.
const MAX_REASONS: usize = 8;

/// An outage from its beginning to the next connection.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    since: Option<Instant>,
    warned: Option<Instant>,
    failed_attempts: u64,
    /// Reasons that a warning has named.
    named: Vec<String>,
}

/// Length of an outage so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutageLength {
    pub(crate) time: Duration,
    pub(crate) failed_attempts: u64,
}

impl Outage {
    /// Notes that an established connection was lost. The caller warns of that.
    pub(crate) fn lost(&mut self, now: Instant) {
        *self = Self { since: Some(now), ..Self::default() };
    }

    /// Notes a failed attempt to connect. Returns the length of the outage if it is time for a warning.
    pub(crate) fn failed(&mut self, reason: &str, now: Instant) -> Option<OutageLength> {
        self.since.get_or_insert(now);
        self.failed_attempts += 1;
        let is_new = self.names(reason);
        let is_due = self.warned.is_none_or(|warned| now.duration_since(warned) >= WARN_EVERY);
        if !is_new && !is_due {
            return None;
        }
        self.warned = Some(now);
        self.length(now)
    }

    /// Notes that the link is connected. Returns the length of the outage; `None` if there was none.
    pub(crate) fn ended(&mut self, now: Instant) -> Option<OutageLength> {
        let length = self.length(now);
        *self = Self::default();
        length
    }

    /// Remembers a reason. Returns true if the reason is new and the outage has room to remember it.
    pub(crate) fn names(&mut self, reason: &str) -> bool {
        let is_new = self.named.len() < MAX_REASONS && !self.named.iter().any(|named| named == reason);
        if is_new {
            self.named.push(reason.to_owned());
        }
        is_new
    }

    fn length(&self, now: Instant) -> Option<OutageLength> {
        let time = now.duration_since(self.since?);
        Some(OutageLength { time, failed_attempts: self.failed_attempts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn length(seconds: u32, failed_attempts: u64) -> Option<OutageLength> {
        Some(OutageLength { time: seconds * SECOND, failed_attempts })
    }

    #[test]
    fn a_missing_broker_is_warned_of_at_once_and_then_once_a_minute() {
        let (start, mut outage) = (Instant::now(), Outage::default());
        let warned: Vec<u32> =
            (0..=150).filter(|&at| outage.failed("away", start + at * SECOND).is_some()).collect();
        assert_eq!(warned, [0, 60, 120]);
        assert_eq!(outage.ended(start + 151 * SECOND), length(151, 151));
        assert_eq!(outage.ended(start + 152 * SECOND), None);
        assert_eq!(outage.failed("away", start + 153 * SECOND), length(0, 1), "a new outage");
    }

    #[test]
    fn after_a_lost_connection_each_new_reason_is_warned_of_at_once() {
        let (start, mut outage) = (Instant::now(), Outage::default());
        outage.lost(start);
        assert_eq!(outage.failed("away", start + SECOND), length(1, 1));
        assert_eq!(outage.failed("away", start + 2 * SECOND), None);
        assert_eq!(outage.failed("not authorized", start + 3 * SECOND), length(3, 3));
        assert_eq!(outage.failed("away", start + 4 * SECOND), None, "named before");
        assert_eq!(outage.failed("not authorized", start + 63 * SECOND), length(63, 5));
        assert_eq!(outage.ended(start + 64 * SECOND), length(64, 5));
        outage.lost(start + 65 * SECOND);
        assert_eq!(outage.failed("not authorized", start + 66 * SECOND), length(1, 1));
    }

    #[test]
    fn reasons_without_end_are_not_all_logged() {
        let (start, mut outage) = (Instant::now(), Outage::default());
        let warned = (0..100).filter(|at| outage.failed(&at.to_string(), start).is_some()).count();
        assert_eq!(warned, MAX_REASONS);
    }
}
