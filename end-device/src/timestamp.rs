//! A point in time on both clocks of a device.

use std::time::{Duration, SystemTime};

use headwater_protocol::age_ms;

/// The device's own clock: it begins at the device's start, never steps, and (on Linux) counts the time in which the machine is suspended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceClock {
    /// Time of the machine's clock at the device's start.
    start: Duration,
}

/// A point in time on two clocks: the device's own clock never steps, and the wall clock keeps its meaning over a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timestamp {
    /// Microseconds since the device's start.
    pub(crate) us: u64,
    /// The wall clock, as the time since 1970.
    pub(crate) since_1970: Duration,
}

/// Longest time that a reading of both clocks should take. After a longer reading, of an interrupted thread, the clocks are read again.
const CLOSE_READINGS: Duration = Duration::from_micros(100);

/// Largest number of readings; if none was short enough, the shortest one is taken.
const MAX_READINGS: usize = 4;

impl DeviceClock {
    /// A clock that begins now.
    pub(crate) fn start() -> Self {
        Self { start: since_machine_start() }
    }

    /// The present on both clocks, read at nearly the same moment.
    pub(crate) fn now(self) -> Timestamp {
        let mut closest = self.read();
        for _ in 1..MAX_READINGS {
            if closest.1 <= CLOSE_READINGS {
                break;
            }
            let (timestamp, apart) = self.read();
            if apart < closest.1 {
                closest = (timestamp, apart);
            }
        }
        closest.0
    }

    /// Reads both clocks; returns also the time that the reading took.
    fn read(self) -> (Timestamp, Duration) {
        let before = since_machine_start();
        let since_1970 = since_1970();
        let apart = since_machine_start().saturating_sub(before);
        let us = before.saturating_sub(self.start).as_micros() as u64;
        (Timestamp { us, since_1970 }, apart)
    }
}

impl Timestamp {
    /// The wall clock, in ms since 1970, at a past time in microseconds since the device's start.
    pub(crate) fn unix_ms_of(self, past_us: i64) -> u64 {
        self.unix_ms().saturating_sub(self.since(past_us) / 1000)
    }

    /// The time, in microseconds since the device's start, at which the wall clock showed `unix_ms`; the present for a future time.
    pub(crate) fn us_of(self, unix_ms: u64) -> i64 {
        let ago_us = self.unix_ms().saturating_sub(unix_ms).saturating_mul(1000);
        self.own_us().saturating_sub_unsigned(ago_us)
    }

    /// As [`Self::us_of`] for a past `unix_ms`. If `unix_ms` is in the future, since the clock was set back, the result is the time of the
    /// year 1970: the age is unknown, and a header shows the largest age.
    pub(crate) fn us_of_past(self, unix_ms: u64) -> i64 {
        self.us_of(if unix_ms > self.unix_ms() { 0 } else { unix_ms })
    }

    /// The age, as a header carries it, of a sample captured at this time in microseconds since the device's start.
    pub(crate) fn age_ms(self, captured_us: i64) -> u16 {
        age_ms(self.since(captured_us))
    }

    /// Microseconds by which the wall clock is ahead of the device's own clock.
    pub(crate) fn wall_ahead_us(self) -> i64 {
        let wall_us = i64::try_from(self.since_1970.as_micros()).unwrap_or(i64::MAX);
        wall_us.saturating_sub(self.own_us())
    }

    /// Microseconds since a past time; 0 for a future one.
    fn since(self, past_us: i64) -> u64 {
        self.own_us().saturating_sub(past_us).max(0).unsigned_abs()
    }

    fn own_us(self) -> i64 {
        i64::try_from(self.us).unwrap_or(i64::MAX)
    }

    fn unix_ms(self) -> u64 {
        self.since_1970.as_millis() as u64
    }
}

/// The wall clock, as the time since 1970; 0 if it is set to an earlier time.
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Time since the machine's start, suspended time included.
#[cfg(target_os = "linux")]
fn since_machine_start() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or_default());
    seconds + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or_default())
}

/// Time since the first call, without suspended time, which no clock of the standard library counts outside Linux.
#[cfg(not(target_os = "linux"))]
fn since_machine_start() -> Duration {
    static FIRST: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    FIRST.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_capture_converts_to_the_wall_clock_and_back() {
        let now = Timestamp { us: 5_000_000, since_1970: Duration::from_secs(90) };
        assert_eq!(now.unix_ms_of(2_000_000), 87_000);
        assert_eq!((now.us_of(87_000), now.age_ms(2_000_000)), (2_000_000, 3_000));
        assert_eq!(now.unix_ms_of(now.us_of(1_000)), 1_000, "before the device's start");
        assert_eq!(now.age_ms(now.us_of(0)), u16::MAX, "it saturates");
        assert_eq!(now.age_ms(now.us_of(91_000)), 0, "the wall clock was set back");
        assert_eq!(now.age_ms(now.us_of_past(91_000)), u16::MAX, "the age is not known");
        assert_eq!(now.us_of_past(87_000), now.us_of(87_000));
    }

    #[test]
    fn the_wall_clock_may_be_behind_the_device_s_own() {
        assert_eq!(Timestamp { us: 7, since_1970: Duration::from_micros(5) }.wall_ahead_us(), -2);
        assert_eq!(Timestamp { us: 0, since_1970: Duration::MAX }.wall_ahead_us(), i64::MAX);
    }

    #[test]
    fn the_device_s_own_clock_begins_at_zero_and_grows() {
        let clock = DeviceClock::start();
        let first = clock.now();
        let mut later = clock.now();
        while later.us == first.us {
            later = clock.now();
        }
        assert!(first.us < 60_000_000 && first.us < later.us, "{first:?} {later:?}");
    }
}
