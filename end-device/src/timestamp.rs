//! A point in time on both clocks of a device.

use std::time::{Duration, Instant, SystemTime};

use headwater_protocol::age_ms;

/// A point in time. The device's own clock never steps; the wall clock means the same after a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timestamp {
    /// Microseconds since the device's start.
    pub(crate) us: u64,
    /// The wall clock.
    pub(crate) since_1970: Duration,
}

impl Timestamp {
    /// The present, in a device that started at `start`.
    pub(crate) fn now(start: Instant) -> Self {
        Self { us: start.elapsed().as_micros() as u64, since_1970: since_1970() }
    }

    /// The wall clock, in ms since 1970, at a capture that is given in microseconds since the device's start.
    pub(crate) fn unix_ms_of(self, captured_us: u64) -> u64 {
        self.unix_ms().saturating_sub(self.us.saturating_sub(captured_us) / 1000)
    }

    /// The age, as a header carries it, of a sample captured at this time of the wall clock.
    pub(crate) fn age_ms(self, captured_unix_ms: u64) -> u16 {
        age_ms(self.unix_ms().saturating_sub(captured_unix_ms).saturating_mul(1000))
    }

    fn unix_ms(self) -> u64 {
        self.since_1970.as_millis() as u64
    }
}

/// The wall clock.
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_capture_converts_to_the_wall_clock_and_back() {
        let now = Timestamp { us: 5_000_000, since_1970: Duration::from_secs(90) };
        assert_eq!(now.unix_ms_of(2_000_000), 87_000);
        assert_eq!(now.age_ms(87_000), 3_000);
        assert_eq!(now.age_ms(0), u16::MAX, "it saturates");
        assert_eq!(now.age_ms(91_000), 0, "the wall clock was set back");
    }
}
