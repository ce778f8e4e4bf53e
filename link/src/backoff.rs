//! Waits between attempts to connect: doubled each time, capped, jittered so that devices do not come back in step.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Wait before the second attempt.
const FIRST: Duration = Duration::from_millis(50);
/// Longest wait.
const CAP: Duration = Duration::from_secs(5);
/// A connection that lived this long ends a row of failures. A shorter one does not: a broker that accepts and drops at once
/// must not be hammered.
const HEALTHY: Duration = Duration::from_secs(1);

/// The waits of one row of failures.
#[derive(Debug)]
pub(crate) struct Backoff {
    wait: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { wait: FIRST }
    }

    /// A connection ended after it was up for `lived`.
    pub(crate) fn connection_ended(&mut self, lived: Duration) {
        if lived >= HEALTHY {
            self.wait = FIRST;
        }
    }

    /// The next wait, between half and the whole of the current step; `random` picks where.
    pub(crate) fn next_wait(&mut self, random: u64) -> Duration {
        let step = self.wait;
        self.wait = (step * 2).min(CAP);
        step / 2 + (step / 2).mul_f64(random as f64 / u64::MAX as f64)
    }
}

/// A number that differs between processes and calls: the seed of a fresh hasher. Jitter needs no better.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap() {
        let mut backoff = Backoff::new();
        let waits: Vec<u128> = (0..9).map(|_| backoff.next_wait(u64::MAX).as_millis()).collect();
        assert_eq!(waits, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    }

    #[test]
    fn jitter_takes_away_at_most_half() {
        assert_eq!(Backoff::new().next_wait(0), FIRST / 2);
    }

    #[test]
    fn only_a_connection_that_lived_starts_the_row_again() {
        let mut backoff = Backoff::new();
        (0..9).for_each(|_| _ = backoff.next_wait(0));
        backoff.connection_ended(Duration::from_millis(10));
        assert_eq!(backoff.next_wait(u64::MAX), CAP);
        backoff.connection_ended(Duration::from_secs(60));
        assert_eq!(backoff.next_wait(u64::MAX), FIRST);
    }
}
