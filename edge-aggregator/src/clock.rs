//! The leader's time: microseconds since the aggregator started.

use std::time::Duration;

use headwater_inference::leader::Micros;
use tokio::time::Instant;

/// Turns instants into the state machine's time and back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn starting_at(start: Instant) -> Self {
        Self { start }
    }

    pub(crate) fn micros(&self, at: Instant) -> Micros {
        Micros(u64::try_from(at.saturating_duration_since(self.start).as_micros()).unwrap_or(u64::MAX))
    }

    pub(crate) fn instant(&self, at: Micros) -> Instant {
        self.start + Duration::from_micros(at.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_there_and_back() {
        let clock = Clock::starting_at(Instant::now());
        assert_eq!(clock.micros(clock.instant(Micros(1_234_567))), Micros(1_234_567));
    }
}
