//! Waits between attempts to connect: doubled each time, capped, and random so that clients do not all connect at once.

use std::time::Duration;

/// Longest wait before the second attempt.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// Longest wait.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Shortest lifetime of a connection that resets the waits. A broker that accepts connections and drops them at once resets nothing.
const HEALTHY: Duration = Duration::from_secs(1);

/// Waits of one series of failures.
#[derive(Debug)]
pub(crate) struct Backoff {
    wait: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { wait: FIRST_WAIT }
    }

    /// Notes that a connection ended after `lived`.
    pub(crate) fn connection_ended(&mut self, lived: Duration) {
        if lived >= HEALTHY {
            self.wait = FIRST_WAIT;
        }
    }

    /// Returns a wait between half of the current step and the whole step, chosen by `random`. The step then doubles, up to `MAX_WAIT`.
    pub(crate) fn next_wait(&mut self, random: u64) -> Duration {
        let step = self.wait;
        self.wait = (step * 2).min(MAX_WAIT);
        step / 2 + (step / 2).mul_f64(random as f64 / u64::MAX as f64)
    }
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
    fn a_random_wait_is_at_least_half_the_step() {
        assert_eq!(Backoff::new().next_wait(0), FIRST_WAIT / 2);
    }

    #[test]
    fn only_a_healthy_connection_resets_the_waits() {
        let mut backoff = Backoff::new();
        (0..9).for_each(|_| _ = backoff.next_wait(0));
        backoff.connection_ended(Duration::from_millis(10));
        assert_eq!(backoff.next_wait(u64::MAX), MAX_WAIT);
        backoff.connection_ended(Duration::from_secs(60));
        assert_eq!(backoff.next_wait(u64::MAX), FIRST_WAIT);
    }
}
