//! Capture by the clock: which sample is due, when the next one is, and which ones the device missed.

use std::time::Duration;

use headwater_protocol::SampleId;

use crate::config::Capture;
use crate::timestamp::Timestamp;

/// Shortest time between two log lines about missed captures.
const LOG_EVERY_US: u64 = 10_000_000;

/// Captures at fixed distances on the wall clock.
///
/// Sample `k` is captured at `k * period`, the middle of the times that round to `k`:
///
/// ```text
/// time      k-1/2       k       k+1/2      k+1
/// capture     |         x         |         x
/// sample      |<------- k ------->|<------ k+1
/// ```
///
/// A clock may be off by almost half a period either way and still names the same sample. A device that is later than that
/// captures the next sample, and misses this one.
#[derive(Clone, Debug)]
pub(crate) struct CaptureClock {
    period_us: u64,
    /// The newest capture: its sample and the device's own clock.
    newest: Option<(SampleId, u64)>,
    unlogged: u64,
    log_from_us: u64,
}

/// A capture that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DueCapture {
    pub(crate) sample: SampleId,
    /// Captures missed between the one before and this one: the device was too late for them.
    pub(crate) missed: u64,
    /// Missed captures that no log line has named yet; 0 while the last line is too recent.
    pub(crate) missed_to_log: u64,
}

impl CaptureClock {
    /// The clock of a device, if it captures by the clock.
    pub(crate) fn of(capture: Capture) -> Option<Self> {
        capture.period_ms().map(Self::new)
    }

    /// Makes a clock with this period; a period of 0 counts as 1 ms.
    fn new(period_ms: u64) -> Self {
        Self { period_us: period_ms.max(1).saturating_mul(1000), newest: None, unlogged: 0, log_from_us: 0 }
    }

    /// Wait until the next capture, from `now`, the time since 1970; never zero.
    pub(crate) fn until_next(&self, now: Duration) -> Duration {
        let now_us = now.as_micros() as u64;
        Duration::from_micros(self.period_us - now_us % self.period_us)
    }

    /// The sample of a capture at `now`, the time since 1970.
    pub(crate) fn sample_at(&self, now: Duration) -> SampleId {
        SampleId((now.as_micros() as u64 + self.period_us / 2) / self.period_us)
    }

    /// The capture that is due at `now`; `None` when its sample was captured before or the wall clock was set back.
    pub(crate) fn capture(&mut self, now: Timestamp) -> Option<DueCapture> {
        let sample = self.sample_at(now.since_1970);
        let missed = match self.newest {
            Some((newest, _)) if sample <= newest => return None,
            // A wall clock that is set forward passes over ids that never were captures.
            Some((newest, captured_us)) => {
                let periods = now.us.saturating_sub(captured_us) / self.period_us;
                (sample.0 - newest.0 - 1).min(periods + 1)
            }
            None => 0,
        };
        self.newest = Some((sample, now.us));
        self.unlogged += missed;
        let mut missed_to_log = 0;
        if self.unlogged > 0 && now.us >= self.log_from_us {
            self.log_from_us = now.us.saturating_add(LOG_EVERY_US);
            missed_to_log = std::mem::take(&mut self.unlogged);
        }
        Some(DueCapture { sample, missed, missed_to_log })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Both clocks at this many milliseconds.
    fn at(ms: u64) -> Timestamp {
        Timestamp { us: ms * 1000, since_1970: Duration::from_millis(ms) }
    }

    /// Lets the clock capture at each of these milliseconds; returns each sample and the number missed before it.
    fn captures(clock: &mut CaptureClock, at_ms: &[u64]) -> Vec<(u64, u64)> {
        let due = at_ms.iter().filter_map(|ms| clock.capture(at(*ms)));
        due.map(|due| (due.sample.0, due.missed)).collect()
    }

    #[test]
    fn captures_come_at_multiples_of_the_period() {
        let clock = CaptureClock::new(100);
        assert_eq!(clock.until_next(1_000 * MS), 100 * MS);
        assert_eq!(clock.until_next(1_001 * MS), 99 * MS);
        assert_eq!(clock.until_next(1_099 * MS), MS);
    }

    #[test]
    fn a_capture_a_little_early_or_late_names_the_same_sample() {
        let clock = CaptureClock::new(100);
        for at_ms in [951, 999, 1_000, 1_001, 1_049] {
            assert_eq!(clock.sample_at(at_ms * MS), SampleId(10), "at {at_ms} ms");
        }
        assert_eq!(clock.sample_at(1_050 * MS), SampleId(11));
    }

    #[test]
    fn captures_that_the_device_was_too_late_for_are_counted_as_missed() {
        let mut clock = CaptureClock::new(100);
        assert_eq!(captures(&mut clock, &[1_000, 1_149, 1_449, 1_500]), [(10, 0), (11, 0), (14, 2), (15, 0)]);
        // Later than half a period: the next sample is captured, and is not due a second time.
        assert_eq!(captures(&mut clock, &[1_660, 1_700, 1_800]), [(17, 1), (18, 0)]);
    }

    #[test]
    fn every_id_is_captured_or_missed_however_late_the_device_is() {
        let mut clock = CaptureClock::new(40);
        let late_ms = [0, 3, 39, 80, 1, 0, 200, 41, 19, 21, 0, 1000];
        let mut at_ms = 4_000;
        let mut all = Vec::new();
        for late_ms in late_ms {
            at_ms += clock.until_next(at_ms as u32 * MS).as_millis() as u64 + late_ms;
            all.extend(captures(&mut clock, &[at_ms]));
        }
        let (first, last) = (all[0].0, all[all.len() - 1].0);
        let missed: u64 = all.iter().map(|(_, missed)| missed).sum();
        assert_eq!(all.len() as u64 + missed, last - first + 1, "{all:?}");
        assert!(missed > 25, "{all:?}");
    }

    #[test]
    fn a_wall_clock_that_is_set_is_no_missed_capture() {
        let mut clock = CaptureClock::new(100);
        captures(&mut clock, &[1_000]);
        let after = |us, ms| Timestamp { us, since_1970: Duration::from_millis(ms) };
        let due = clock.capture(after(1_100_000, 1_700_000_000_000)).unwrap();
        assert!(due.missed <= 2, "{due:?}");
        assert_eq!(clock.capture(after(1_200_000, 5_000)), None, "it was set back");
    }

    #[test]
    fn missed_captures_are_logged_at_once_and_then_summed_up_every_ten_seconds() {
        let mut clock = CaptureClock::new(100);
        let mut logged = Vec::new();
        for at_ms in (1_000..25_000).step_by(200) {
            let due = clock.capture(at(at_ms)).unwrap();
            if due.missed_to_log > 0 {
                logged.push((at_ms, due.missed_to_log));
            }
        }
        assert_eq!(logged, [(1_200, 1), (11_200, 50), (21_200, 50)]);
    }
}
