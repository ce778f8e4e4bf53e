//! Messages of the device that the broker refuses: when to log them, and when to try birth and status again.
//!
//! A device without its birth at the broker is invisible to its leader. The usual cause is a broker whose access rules lack the device,
//! and which gets them later.
//!
//! ```text
//! birth refused -- 10 s --> birth and status again -- refused -- 10 s --> again -- taken
//! ```
//!
//! Times are microseconds since the device's start.

/// Time from a refused birth or status to the next try.
const RETRY_US: u64 = 10_000_000;

/// Shortest time between two warnings.
const WARN_EVERY_US: u64 = 60_000_000;

/// Refusals of the broker.
#[derive(Debug, Default)]
pub(crate) struct RefusedPublications {
    warned_us: Option<u64>,
    retry_us: Option<u64>,
    is_birth_refused: bool,
}

impl RefusedPublications {
    /// Notes a refused message; true where it is time for a warning.
    pub(crate) fn note(&mut self, now_us: u64) -> bool {
        let is_due = self.warned_us.is_none_or(|warned_us| warned_us.saturating_add(WARN_EVERY_US) <= now_us);
        if is_due {
            self.warned_us = Some(now_us);
        }
        is_due
    }

    /// Plans the next try after a refused status.
    pub(crate) fn status_refused(&mut self, now_us: u64) {
        self.retry_us.get_or_insert(now_us.saturating_add(RETRY_US));
    }

    /// Plans the next try after a refused birth.
    pub(crate) fn birth_refused(&mut self, now_us: u64) {
        self.is_birth_refused = true;
        self.status_refused(now_us);
    }

    /// Notes that the broker sent the device's own birth; true where the broker refused it before.
    pub(crate) fn birth_taken(&mut self) -> bool {
        std::mem::take(&mut self.is_birth_refused)
    }

    /// Forgets the planned try: birth and status are published after every connect.
    pub(crate) fn disconnected(&mut self) {
        self.retry_us = None;
    }

    /// Time of the next try.
    pub(crate) fn due_us(&self) -> Option<u64> {
        self.retry_us
    }

    /// Whether a try is due now; it is then no longer planned.
    pub(crate) fn take_due(&mut self, now_us: u64) -> bool {
        self.retry_us.take_if(|retry_us| *retry_us <= now_us).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_birth_is_tried_again_every_ten_seconds_until_it_is_taken() {
        let (mut refused, mut tries) = (RefusedPublications::default(), Vec::new());
        refused.birth_refused(0);
        for now_s in 0..100 {
            let now_us = now_s * 1_000_000;
            if refused.take_due(now_us) {
                tries.push(now_s);
                if now_s < 30 {
                    refused.birth_refused(now_us);
                    refused.status_refused(now_us + 1);
                } else {
                    assert!(refused.birth_taken());
                }
            }
        }
        assert_eq!(tries, [10, 20, 30]);
        assert!(!refused.birth_taken(), "said once");
    }

    #[test]
    fn refusals_are_warned_of_once_a_minute() {
        let mut refused = RefusedPublications::default();
        let warned: Vec<u64> = (0..150).filter(|at| refused.note(at * 1_000_000)).collect();
        assert_eq!(warned, [0, 60, 120]);
    }

    #[test]
    fn a_lost_connection_cancels_the_next_try() {
        let mut refused = RefusedPublications::default();
        refused.status_refused(0);
        assert_eq!(refused.due_us(), Some(RETRY_US));
        refused.disconnected();
        assert_eq!((refused.due_us(), refused.take_due(2 * RETRY_US)), (None, false));
    }
}
