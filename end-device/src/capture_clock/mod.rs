//! Capture by the clock: the sample that is due, the time of the next capture, and the number of missed captures.

mod used_ids;

use std::time::Duration;

use headwater_protocol::SampleId;

use self::used_ids::UsedIds;
use crate::config::Capture;
use crate::timestamp::Timestamp;

/// Shortest time between two log lines about missed captures.
const LOG_EVERY_US: u64 = 10_000_000;

/// Largest move of the schedule towards the wall clock at one capture, as the divisor of the period: a twentieth of a period. It holds while
/// the wall clock is less than half a period away.
const LARGEST_MOVE: u64 = 20;

/// Microseconds before the start whose ids count as used, a day: an earlier process of the device may have used them.
const EARLIER_PROCESS_US: u64 = 86_400_000_000;

/// Schedule of captures, one in each period.
///
/// Sample `k` is captured at `k * period`, the middle of the times that round to `k`:
///
/// ```text
/// time      k-1/2       k       k+1/2      k+1
/// capture     |         x         |         x
/// sample      |<------- k ------->|<------ k+1
/// ```
///
/// A device whose clock is off by almost half a period either way still names the same sample. A device that is later than that
/// captures the next sample, and misses this one.
///
/// The times are times of the schedule: the device's own clock plus an offset. At each capture the offset follows the wall clock:
///
/// ```text
/// wall - schedule         what happens
/// >= half a period        the schedule jumps to the wall clock; the ids between are missed
/// less, either way        periods are up to 5 % shorter or longer until both agree
/// <= minus half a period  the schedule jumps back if the wall clock's id is unused; else ids run ahead of the wall clock, and
///                         periods are twice as long, until the wall clock's id is unused or both agree
/// ```
///
/// So no id is used twice, and captures never stop, whatever the wall clock does.
#[derive(Clone, Debug)]
pub(crate) struct CaptureClock {
    period_us: u64,
    /// Microseconds by which the schedule is ahead of the device's own clock.
    offset_us: i64,
    /// Microseconds by which the wall clock was ahead of the device's own clock at the last capture.
    wall_ahead_us: i64,
    /// True while ids run ahead of the wall clock, because the wall clock was set back or came to ids that are used.
    runs_ahead: bool,
    /// The id that was captured last.
    last: SampleId,
    used: UsedIds,
    unlogged: u64,
    log_from_us: u64,
}

/// A capture that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DueCapture {
    pub(crate) sample: SampleId,
    /// Number of unused ids between the previous capture and this one: the device was late, or the wall clock was set forward. Ids that a
    /// step forward passed over may still be captured after a step back.
    pub(crate) missed: u64,
    /// Number of captures missed by a late device that no log line has named yet; 0 while the last line is too recent.
    pub(crate) missed_to_log: u64,
    /// Step of the wall clock since the previous capture.
    pub(crate) step: Option<ClockStep>,
}

/// Step of the wall clock by at least half a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClockStep {
    /// The wall clock was set forward, and the schedule jumped to it.
    Forward {
        /// Microseconds by which the wall clock was ahead of the schedule.
        by_us: u64,
    },
    /// The wall clock was set back to a time whose ids are unused, and the schedule jumped back to it.
    BackToUnused {
        /// Microseconds by which the schedule was ahead of the wall clock.
        by_us: u64,
    },
    /// The wall clock was set back to a time whose ids are used: ids run ahead of the wall clock.
    Back {
        /// Microseconds of the clock's step, or of the schedule's lead over the wall clock if that is more.
        by_us: u64,
    },
}

impl CaptureClock {
    /// The clock of a device that starts at `now`, if the device captures by the clock.
    pub(crate) fn of(capture: Capture, now: Timestamp) -> Option<Self> {
        capture.period_ms().map(|period_ms| Self::new(period_ms, now))
    }

    /// Makes a clock with this period; a period of 0 counts as 1 ms.
    fn new(period_ms: u64, now: Timestamp) -> Self {
        let (period_us, wall_ahead_us) = (period_ms.max(1).saturating_mul(1000), now.wall_ahead_us());
        let last = SampleId(time_us(now, wall_ahead_us) / period_us);
        let earlier = SampleId(last.0.saturating_sub(EARLIER_PROCESS_US / period_us));
        Self {
            period_us,
            offset_us: wall_ahead_us,
            wall_ahead_us,
            runs_ahead: false,
            last,
            used: UsedIds::new(earlier, last),
            unlogged: 0,
            log_from_us: 0,
        }
    }

    /// Wait from `now` until the next capture; zero if it is due.
    pub(crate) fn until_next(&self, now: Timestamp) -> Duration {
        let due_us = self.last.0.saturating_add(1).saturating_mul(self.period_us);
        Duration::from_micros(due_us.saturating_sub(time_us(now, self.offset_us)))
    }

    /// The capture that is due at `now`; `None` if the id nearest to `now` is not above the last captured id.
    pub(crate) fn capture(&mut self, now: Timestamp) -> Option<DueCapture> {
        let wall_ahead_us = now.wall_ahead_us();
        let apart_us = wall_ahead_us.saturating_sub(self.offset_us);
        let jump = self.jump(now, apart_us);
        let offset_us = if jump.is_some() { wall_ahead_us } else { self.offset_us };
        let scheduled = nearest(time_us(now, offset_us), self.period_us);
        if scheduled <= self.last && !matches!(jump, Some(ClockStep::BackToUnused { .. })) {
            return None;
        }
        let sample = match self.used.range_end(scheduled) {
            Some(end) => SampleId(end.0.checked_add(1)?),
            None => scheduled,
        };
        let skipped_us = (sample.0 - scheduled.0).saturating_mul(self.period_us);
        let is_far_back = jump.is_none() && apart_us <= -self.half_us();
        let wall_change_us = wall_ahead_us.saturating_sub(self.wall_ahead_us);
        // A step back is reported once, however long ids run ahead of the wall clock.
        let is_set_back = is_far_back && (wall_change_us <= -self.half_us() || !self.runs_ahead);
        let back = ClockStep::Back { by_us: wall_change_us.min(apart_us).unsigned_abs() };
        let largest_us = match jump {
            Some(_) => 0,
            None if is_far_back => self.period_us as i64,
            None => (self.period_us / LARGEST_MOVE) as i64,
        };
        self.runs_ahead =
            skipped_us > 0 || jump.is_none() && (is_far_back || self.runs_ahead && apart_us < 0);
        self.wall_ahead_us = wall_ahead_us;
        self.offset_us = offset_us
            .saturating_add_unsigned(skipped_us)
            .saturating_add(apart_us.clamp(-largest_us, largest_us));
        let missed = self.use_ids(sample, jump.is_some());
        let is_late = !matches!(jump, Some(ClockStep::Forward { .. }));
        let missed_to_log = if is_late { self.count_unlogged(missed, now.us) } else { 0 };
        Some(DueCapture { sample, missed, missed_to_log, step: jump.or(is_set_back.then_some(back)) })
    }

    /// The jump of the schedule to a wall clock that is `apart_us` ahead of it; `None` if the schedule goes on without a jump.
    fn jump(&self, now: Timestamp, apart_us: i64) -> Option<ClockStep> {
        let by_us = apart_us.unsigned_abs();
        if apart_us >= self.half_us() {
            return Some(ClockStep::Forward { by_us });
        }
        let wall_id = nearest(time_us(now, now.wall_ahead_us()), self.period_us);
        let is_back = apart_us <= -self.half_us() && self.used.range_end(wall_id).is_none();
        is_back.then_some(ClockStep::BackToUnused { by_us })
    }

    fn half_us(&self) -> i64 {
        (self.period_us / 2) as i64
    }

    /// Marks a sample and, unless the schedule jumped, the missed ids before it as used; returns the number of missed ids.
    fn use_ids(&mut self, sample: SampleId, is_jump: bool) -> u64 {
        let next = SampleId(self.last.0.saturating_add(1));
        self.last = sample;
        let missed = self.used.count_unused(next, sample);
        // After a jump the ids that were passed over stay unused, since the wall clock may be set back to them.
        self.used.insert(if is_jump { sample } else { next }, sample);
        missed
    }

    /// Counts missed captures for the log; returns the number that a line should name now.
    fn count_unlogged(&mut self, missed: u64, now_us: u64) -> u64 {
        self.unlogged = self.unlogged.saturating_add(missed);
        if self.unlogged == 0 || now_us < self.log_from_us {
            return 0;
        }
        self.log_from_us = now_us.saturating_add(LOG_EVERY_US);
        std::mem::take(&mut self.unlogged)
    }
}

/// The id whose capture is nearest to this time.
fn nearest(time_us: u64, period_us: u64) -> SampleId {
    SampleId(time_us.saturating_add(period_us / 2) / period_us)
}

/// Microseconds since 1970 of a clock that is ahead of the device's own by `ahead_us`.
fn time_us(now: Timestamp, ahead_us: i64) -> u64 {
    now.us.saturating_add_signed(ahead_us)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Both clocks at `ms` milliseconds.
    fn at(ms: u64) -> Timestamp {
        at_wall(ms, ms)
    }

    /// The device's own clock at `ms` milliseconds, and the wall clock at `wall_ms`.
    fn at_wall(ms: u64, wall_ms: u64) -> Timestamp {
        Timestamp { us: ms * 1000, since_1970: Duration::from_millis(wall_ms) }
    }

    /// A clock with a period of 100 ms, on a device that starts when both clocks are at 950 ms.
    fn clock() -> CaptureClock {
        CaptureClock::new(100, at(950))
    }

    /// Lets the clock capture at each of these milliseconds; returns each sample and the number missed before it.
    fn captures(clock: &mut CaptureClock, at_ms: &[u64]) -> Vec<(u64, u64)> {
        let due = at_ms.iter().filter_map(|ms| clock.capture(at(*ms)));
        due.map(|due| (due.sample.0, due.missed)).collect()
    }

    /// A device that captures as soon as a sample is due.
    struct Punctual {
        clock: CaptureClock,
        us: u64,
        wall_us: u64,
    }

    impl Punctual {
        fn new(period_ms: u64, wall_us: u64) -> Self {
            let now = Timestamp { us: 0, since_1970: Duration::from_micros(wall_us) };
            Self { clock: CaptureClock::new(period_ms, now), us: 0, wall_us }
        }

        fn now(&self) -> Timestamp {
            Timestamp { us: self.us, since_1970: Duration::from_micros(self.wall_us) }
        }

        /// Waits until the next capture is due, moves the wall clock by this step, and captures. Returns the wait in us and the capture.
        fn next(&mut self, step_us: i64) -> (u64, DueCapture) {
            let waited_us = self.clock.until_next(self.now()).as_micros() as u64;
            self.us += waited_us;
            self.wall_us = (self.wall_us + waited_us).saturating_add_signed(step_us);
            (waited_us, self.clock.capture(self.now()).expect("a due capture"))
        }

        /// Distance of the wall clock from the schedule, in microseconds.
        fn off_us(&self) -> u64 {
            self.now().wall_ahead_us().abs_diff(self.clock.offset_us)
        }
    }

    #[test]
    fn captures_come_at_multiples_of_the_period() {
        let mut clock = clock();
        assert_eq!(clock.until_next(at(950)), 50 * MS);
        assert_eq!(clock.until_next(at(999)), MS);
        assert_eq!(clock.until_next(at(1_000)), Duration::ZERO);
        assert_eq!(captures(&mut clock, &[1_001]), [(10, 0)]);
        assert_eq!(clock.until_next(at(1_001)), 99 * MS);
        assert_eq!(CaptureClock::new(100, at(1_000)).until_next(at(1_000)), 100 * MS);
    }

    #[test]
    fn a_capture_a_little_early_or_late_names_the_same_sample() {
        for at_ms in [951, 999, 1_000, 1_001, 1_049] {
            assert_eq!(nearest(at_ms * 1000, 100_000), SampleId(10), "at {at_ms} ms");
        }
        assert_eq!(nearest(1_050_000, 100_000), SampleId(11));
    }

    #[test]
    fn captures_that_the_device_was_too_late_for_are_counted_as_missed() {
        let mut clock = clock();
        assert_eq!(captures(&mut clock, &[1_000, 1_149, 1_449, 1_500]), [(10, 0), (11, 0), (14, 2), (15, 0)]);
        // At 1,660 the device is later than half a period: it captures sample 17, which is not due a second time.
        assert_eq!(captures(&mut clock, &[1_660, 1_700, 1_800]), [(17, 1), (18, 0)]);
    }

    #[test]
    fn every_id_is_captured_or_missed_however_late_the_device_is() {
        let mut clock = CaptureClock::new(40, at(3_990));
        let late_ms = [0, 3, 39, 80, 1, 0, 200, 41, 19, 21, 0, 1000];
        let mut at_ms = 3_990;
        let mut all = Vec::new();
        for late_ms in late_ms {
            at_ms += clock.until_next(at(at_ms)).as_millis() as u64 + late_ms;
            all.extend(captures(&mut clock, &[at_ms]));
        }
        let (first, last) = (all[0].0, all[all.len() - 1].0);
        let missed: u64 = all.iter().map(|(_, missed)| missed).sum();
        assert_eq!(all.len() as u64 + missed, last - first + 1, "{all:?}");
        assert!(missed > 25, "{all:?}");
    }

    #[test]
    fn a_wall_clock_that_is_set_forward_is_followed_at_once_and_the_ids_between_are_missed() {
        let mut clock = clock();
        captures(&mut clock, &[1_000]);
        let due = clock.capture(at_wall(1_100, 61_120)).unwrap();
        assert_eq!((due.sample, due.missed, due.missed_to_log), (SampleId(611), 600, 0));
        assert_eq!(due.step, Some(ClockStep::Forward { by_us: 60_020_000 }));
        assert_eq!(clock.until_next(at_wall(1_100, 61_120)), 80 * MS);
        assert_eq!(clock.capture(at_wall(1_180, 61_200)).unwrap().step, None);
    }

    #[test]
    fn a_wall_clock_that_is_set_back_stops_no_capture() {
        let mut device = Punctual::new(100, 1_700_000_000_000_000);
        let first = device.next(0).1.sample.0;
        let (_, due) = device.next(-3_600_000_000);
        assert_eq!((due.sample.0, due.missed), (first + 1, 0));
        assert_eq!(due.step, Some(ClockStep::Back { by_us: 3_600_000_000 }));
        for next in 2..1_000 {
            let (waited_us, due) = device.next(0);
            assert_eq!((due.sample.0, due.missed, due.step), (first + next, 0, None), "said once");
            assert_eq!(waited_us, 200_000, "ids run ahead, half as fast");
        }
    }

    #[test]
    fn a_second_step_back_is_named_too() {
        let mut device = Punctual::new(100, 1_700_000_000_000_000);
        device.next(-10_000_000);
        device.next(0);
        assert_eq!(device.next(-2_000_000).1.step, Some(ClockStep::Back { by_us: 12_000_000 - 200_000 }));
        let (_, due) = device.next(11_700_000);
        assert_eq!((due.step, due.missed), (None, 0), "set forward to where the ids are");
    }

    #[test]
    fn a_device_that_ran_ahead_meets_the_wall_clock_again_after_twice_the_step() {
        let mut device = Punctual::new(100, 1_700_000_000_000_000);
        device.next(-1_000_000);
        let started_us = device.us;
        while device.off_us() > 0 {
            device.next(0);
        }
        assert_eq!(device.us - started_us, 2_000_000 - 200_000);
        assert_eq!(device.next(0).0, 200_000);
        assert_eq!(device.next(0).0, 100_000);
        assert!(!device.clock.runs_ahead);
    }

    #[test]
    fn a_clock_that_jumps_an_hour_forward_and_back_returns_to_the_ids_between() {
        let mut device = Punctual::new(100, 1_700_000_000_000_000);
        let first = device.next(0).1.sample.0;
        assert_eq!(device.next(3_600_000_000).1.sample.0, first + 36_001);
        (0..99).for_each(|_| assert_eq!(device.next(0).1.step, None));
        let (_, due) = device.next(-3_600_000_000);
        assert_eq!((due.sample.0, due.missed), (first + 101, 0), "101 periods after the first");
        assert_eq!(due.step, Some(ClockStep::BackToUnused { by_us: 3_600_000_000 }));
        for next in 102..36_001 {
            let (waited_us, due) = device.next(0);
            assert_eq!((waited_us, due.sample.0, due.missed, due.step), (100_000, first + next, 0, None));
        }
        // The next 100 ids were used during the wrong hour: the schedule skips them.
        assert_eq!(device.next(0).1.sample.0, first + 36_101);
        let mut samples = 0;
        while device.off_us() > 0 {
            let (_, due) = device.next(0);
            assert_eq!((due.sample.0, due.step), (first + 36_102 + samples, None), "the clock was not set");
            samples += 1;
        }
        assert_eq!(samples, 100, "half as fast until the wall clock caught up");
    }

    #[test]
    fn a_device_that_runs_ahead_goes_back_as_soon_as_the_clock_is_at_unused_ids() {
        let mut device = Punctual::new(100, 1_700_000_000_000_000);
        let first = device.next(0).1.sample.0;
        device.next(60_000_000);
        // The first step back is by one second, to unused ids. The second step back leads to a time before the jump forward, whose ids count as used.
        assert!(matches!(device.next(-1_000_000).1.step, Some(ClockStep::BackToUnused { .. })));
        let (_, due) = device.next(-59_500_000);
        assert!(matches!(due.step, Some(ClockStep::Back { .. })), "{due:?}");
        let mut steps = Vec::new();
        while device.off_us() > 0 {
            steps.extend(device.next(0).1.step);
        }
        let [ClockStep::BackToUnused { .. }] = steps[..] else { panic!("{steps:?}") };
        assert!(device.clock.last.0 < first + 10, "at the wall clock again, not a minute ahead");
    }

    #[test]
    fn half_a_period_is_a_step_and_less_is_followed_gradually() {
        for (by_us, is_step) in [(50_000, true), (49_999, false), (-50_000, true), (-49_999, false)] {
            let mut device = Punctual::new(100, 1_700_000_000_000_000);
            device.next(0);
            let (_, due) = device.next(by_us);
            assert_eq!((due.step.is_some(), due.missed), (is_step, u64::from(by_us == 50_000)), "{by_us}");
            (0..10).for_each(|_| assert_eq!(device.next(0).1.step, None));
            assert_eq!(device.off_us(), 0, "{by_us}");
        }
    }

    #[test]
    fn a_board_that_starts_in_1970_follows_the_clock_once_it_is_set() {
        let mut device = Punctual::new(100, 5_000_000);
        assert_eq!(device.next(0).1.sample, SampleId(51));
        let (_, due) = device.next(1_700_000_000_000_000);
        assert_eq!(due.sample.0, 17_000_000_052);
        let (_, due) = device.next(-1_700_000_000_000_000);
        assert_eq!(due.sample.0, 53, "set to 1970 again");
    }

    #[test]
    fn a_board_that_starts_years_ahead_follows_the_clock_and_one_that_starts_an_hour_ahead_repeats_no_id() {
        let mut years = Punctual::new(100, 2_000_000_000_000_000);
        years.next(0);
        assert_eq!(years.next(-300_000_000_000_000).1.sample.0, 17_000_000_002);
        let mut hour = Punctual::new(100, 2_000_000_000_000_000);
        hour.next(0);
        let (_, due) = hour.next(-3_600_000_000);
        assert_eq!(
            due.sample.0, 20_000_000_002,
            "the process before it may have used the ids of the last day"
        );
    }

    #[test]
    fn missed_captures_are_logged_at_once_and_then_summed_up_every_ten_seconds() {
        let mut clock = clock();
        let mut logged = Vec::new();
        for at_ms in (1_000..25_000).step_by(200) {
            let due = clock.capture(at(at_ms)).unwrap();
            if due.missed_to_log > 0 {
                logged.push((at_ms, due.missed_to_log));
            }
        }
        assert_eq!(logged, [(1_200, 1), (11_200, 50), (21_200, 50)]);
    }

    /// Change of the wall clock before a capture, in microseconds.
    fn wall_step() -> impl Strategy<Value = i64> {
        prop_oneof![
            6 => Just(0_i64),
            2 => -60_000..60_000_i64,
            1 => -100_000_000_000..100_000_000_000_i64,
            1 => Just(i64::MIN / 4),
        ]
    }

    proptest! {
        #[test]
        fn no_id_is_used_twice_and_captures_never_stop_whatever_the_clock_does(
            period_ms in 1..2_000_u64,
            steps in vec(wall_step(), 1..200),
        ) {
            let mut device = Punctual::new(period_ms, 1_700_000_000_000_000);
            let period_us = period_ms * 1000;
            let mut samples = BTreeSet::from([device.clock.last]);
            for step_us in steps {
                let before = device.clock.last;
                let (waited_us, due) = device.next(step_us);
                prop_assert!(samples.insert(due.sample), "{due:?} again");
                prop_assert!(waited_us <= 2 * period_us, "{waited_us}");
                if !matches!(due.step, Some(ClockStep::BackToUnused { .. })) {
                    prop_assert!(due.sample > before && due.missed < due.sample.0 - before.0, "{due:?}");
                }
            }
            // Each capture brings the schedule nearer to the wall clock: all the way, by a period, or by 5 % of a period. Only a skip over used ids
            // moves the schedule away from the wall clock.
            for _ in 0..100 {
                let (before_us, next) = (device.off_us(), device.clock.last.0 + 1);
                let (waited_us, due) = device.next(0);
                prop_assert!(samples.insert(due.sample), "{due:?} again");
                prop_assert!(waited_us <= 2 * period_us, "{waited_us}");
                let skips_used = due.sample.0 > next && due.missed == 0;
                prop_assert!(skips_used || device.off_us() <= before_us - before_us.min(period_us / 20));
            }
        }
    }
}
