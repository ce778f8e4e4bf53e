//! Now, on both clocks of a device.

use std::time::{Duration, Instant, SystemTime};

use headwater_protocol::age_ms;

/// A point in time: the device's own clock never steps, the wall clock is told from life to life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Microseconds since the device's start.
    pub(crate) us: u64,
    /// Milliseconds since 1970.
    pub(crate) unix_ms: u64,
}

impl Moment {
    /// This moment, in a device that started at `start`.
    pub(crate) fn now(start: Instant) -> Self {
        Self { us: start.elapsed().as_micros() as u64, unix_ms: since_1970().as_millis() as u64 }
    }

    /// The wall clock at a capture, given in microseconds since the device's start.
    pub(crate) fn unix_ms_of(self, captured_us: u64) -> u64 {
        self.unix_ms.saturating_sub(self.us.saturating_sub(captured_us) / 1000)
    }

    /// The age, as a header carries it, of what was captured at this time of the wall clock.
    pub(crate) fn age_ms(self, captured_unix_ms: u64) -> u16 {
        age_ms(self.unix_ms.saturating_sub(captured_unix_ms).saturating_mul(1000))
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
    fn a_capture_is_told_on_the_wall_clock_and_back() {
        let now = Moment { us: 5_000_000, unix_ms: 90_000 };
        assert_eq!(now.unix_ms_of(2_000_000), 87_000);
        assert_eq!(now.age_ms(87_000), 3_000);
        assert_eq!(now.age_ms(0), u16::MAX, "it saturates");
        assert_eq!(now.age_ms(91_000), 0, "the wall clock was set back");
    }
}
