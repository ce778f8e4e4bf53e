//! Time of a leader or an edge: microseconds since it began to lead or to run, and the wall clock.

use std::time::{Duration, SystemTime};

use headwater_inference::leader::{Micros, Now};
use tokio::time::Instant;

/// Turns instants into the state machine's time and back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

/// One reading of the clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Time for waits on disk, broker and cloud.
    pub(crate) instant: Instant,
    /// The same time for the state machine.
    pub(crate) now: Now,
}

impl Moment {
    /// Microseconds since the start of the clock.
    pub(crate) fn micros(self) -> Micros {
        self.now.since_start
    }
}

impl Clock {
    pub(crate) fn starting_at(start: Instant) -> Self {
        Self { start }
    }

    pub(crate) fn micros(&self, at: Instant) -> Micros {
        Micros(u64::try_from(at.saturating_duration_since(self.start).as_micros()).unwrap_or(u64::MAX))
    }

    /// Reads both clocks.
    pub(crate) fn read(&self) -> Moment {
        let instant = Instant::now();
        Moment { instant, now: Now { since_start: self.micros(instant), wall_ms: wall_ms() } }
    }

    pub(crate) fn instant(&self, at: Micros) -> Instant {
        self.start + Duration::from_micros(at.0)
    }
}

/// Wall clock in milliseconds since 1970; 0 if the clock shows an earlier time.
pub(crate) fn wall_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
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
