//! Capture by clock: which sample is next, and when.

use std::time::Duration;

use headwater_protocol::SampleId;

/// Samples at fixed distances on the wall clock.
///
/// Sample `k` stands for the times that round to `k * period`, and is captured at `k * period`, in their middle: a clock may
/// be off by almost half a period either way and still names the same sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    period_us: u64,
}

impl Schedule {
    /// `period_ms` of at least 1.
    pub(crate) fn new(period_ms: u64) -> Self {
        Self { period_us: period_ms.max(1).saturating_mul(1000) }
    }

    /// Wait until the next capture, from `now`, the time since 1970; never nothing.
    pub(crate) fn until_next(self, now: Duration) -> Duration {
        let now_us = now.as_micros() as u64;
        Duration::from_micros(self.period_us - now_us % self.period_us)
    }

    /// The sample that a capture at `now` belongs to.
    pub(crate) fn sample_at(self, now: Duration) -> SampleId {
        SampleId((now.as_micros() as u64 + self.period_us / 2) / self.period_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn captures_come_at_multiples_of_the_period() {
        let schedule = Schedule::new(100);
        assert_eq!(schedule.until_next(1_000 * MS), 100 * MS);
        assert_eq!(schedule.until_next(1_001 * MS), 99 * MS);
        assert_eq!(schedule.until_next(1_099 * MS), MS);
    }

    #[test]
    fn a_capture_a_little_early_or_late_names_the_same_sample() {
        let schedule = Schedule::new(100);
        for at_ms in [951, 999, 1_000, 1_001, 1_049] {
            assert_eq!(schedule.sample_at(at_ms * MS), SampleId(10), "at {at_ms} ms");
        }
        assert_eq!(schedule.sample_at(1_050 * MS), SampleId(11));
    }
}
