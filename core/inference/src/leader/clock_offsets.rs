//! Offsets of the devices' clocks, and the devices whose clocks are ahead of their group.
//!
//! A message tells when its sample was captured (the sample's id times the period) and the sample's age at sending. Their sum is the
//! time of sending by the device's clock:
//!
//! ```text
//! time of sending - leader's wall clock at arrival = offset of the device's clock - time on the way
//! ```
//!
//! The offset of a slot is the median of its last differences, because a device that captures late sends the id of the next sample. A time
//! on the way looks like a clock that is behind, so a device is left out only if no delay within the window explains its lead:
//!
//! | the device's offset | offsets of the others | left out |
//! | --- | --- | --- |
//! | from the window and a quarter of the period behind the leader's clock to a quarter of the period ahead of it | any | no |
//! | further ahead | all from 10 ms behind to 5 ms ahead | yes |
//! | any other | any other | if the device leads the median by more than the window and a quarter of the period |
//!
//! The median is over the devices that are up and the leader's clock; of an even number, the lower of the two middle values counts. A
//! device is never left out while no other device was measured.

use headwater_protocol::{Slot, SlotSet};
use serde::{Deserialize, Serialize};

/// Number of differences remembered for each slot.
const MESSAGES: usize = 8;

/// Smallest limit in place of a quarter of the period, ms, because timers of a busy machine are late by some milliseconds.
const LEAST_LIMIT_MS: i64 = 10;

/// Offsets, ms, that a device has if its link is fast and its clock agrees with the leader's.
const NEAR_MS: std::ops::RangeInclusive<i64> = -10..=5;

/// Offsets of the devices' clocks from the leader's wall clock.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct ClockOffsets {
    #[serde(with = "super::by_slot")]
    by_slot: [Differences; Slot::MAX],
    /// Leader's wall clock, ms since 1970, less the leader's time since start, ms.
    wall_ahead_ms: i64,
}

/// The last differences of a slot, ms, between time of sending and the leader's time since start, which no step of a wall clock changes.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct Differences {
    ms: [i64; MESSAGES],
    count: u64,
}

/// Distance of a device's clock from the clocks of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOff {
    /// Milliseconds by which the device's clock is ahead; negative if the clock is behind or the device's link is slow.
    pub ahead_ms: i64,
    /// Largest distance that is allowed, ms: a quarter of the period, at least 10.
    pub max_ms: i64,
}

/// Limits within which a device's clock may differ from its group's, ms.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed {
    /// A quarter of the period, at least [`LEAST_LIMIT_MS`].
    quarter_ms: i64,
    /// Largest time on the way of an answer that is in time, ms: the window.
    way_ms: i64,
}

impl Allowed {
    pub(super) fn new(period_ms: u64, window_ms: u32) -> Self {
        let quarter_ms = i64::try_from(period_ms / 4).unwrap_or(i64::MAX).max(LEAST_LIMIT_MS);
        Self { quarter_ms, way_ms: window_ms.into() }
    }

    fn both_ms(self) -> i64 {
        self.quarter_ms.saturating_add(self.way_ms)
    }
}

impl ClockOffsets {
    pub(super) fn new() -> Self {
        Self { by_slot: [Differences::default(); Slot::MAX], wall_ahead_ms: 0 }
    }

    /// Sets the leader's clocks at an event.
    pub(super) fn set_now(&mut self, wall_ms: u64, since_start_ms: u64) {
        self.wall_ahead_ms = difference(wall_ms, since_start_ms);
    }

    /// Adds the difference of a message that was sent at `sent_ms` by the clock of its device.
    pub(super) fn measure(&mut self, slot: Slot, sent_ms: u64, since_start_ms: u64) {
        let Differences { ms, count } = &mut self.by_slot[slot.index()];
        ms[(*count % MESSAGES as u64) as usize] = difference(sent_ms, since_start_ms);
        *count += 1;
    }

    /// The offset of a slot's clock, ms, less the time on the way; `None` before its first message.
    fn offset_ms(&self, slot: Slot) -> Option<i64> {
        let Differences { mut ms, count } = self.by_slot[slot.index()];
        let ms = &mut ms[..MESSAGES.min(usize::try_from(count).unwrap_or(MESSAGES))];
        ms.sort_unstable();
        let middle = ms.get(ms.len().checked_sub(1)? / 2)?;
        Some(middle.saturating_sub(self.wall_ahead_ms))
    }

    /// Lead of the device of a message in time over its group; `None` if the device is not ahead. `up` are the slots that are up.
    pub(super) fn ahead(&self, slot: Slot, allowed: Allowed, up: SlotSet) -> Option<ClockOff> {
        self.ahead_by(slot, self.offset_ms(slot)?, allowed, up)
    }

    /// Lead of the device of a late message whose sample is `least_ms` ahead of the leader's clock. `None` if the message is believed:
    /// `least_ms` is at most a quarter of the period, or the device's offset explains it and the device is not ahead of its group.
    pub(super) fn names_future(
        &self,
        slot: Slot,
        least_ms: u64,
        allowed: Allowed,
        up: SlotSet,
    ) -> Option<ClockOff> {
        let least_ms = i64::try_from(least_ms).unwrap_or(i64::MAX);
        if least_ms <= allowed.quarter_ms {
            return None;
        }
        let own_ms = self.offset_ms(slot).unwrap_or(0);
        let unexplained_ms = least_ms.saturating_sub(own_ms);
        if unexplained_ms > allowed.quarter_ms {
            return Some(ClockOff { ahead_ms: unexplained_ms, max_ms: allowed.quarter_ms });
        }
        self.ahead(slot, allowed, up)
    }

    /// Slots that are up, have sent [`MESSAGES`] messages, and are ahead of their group, or behind by more than a quarter of the period.
    pub(super) fn off(&self, allowed: Allowed, up: SlotSet) -> Vec<(Slot, ClockOff)> {
        let measured = up.iter().filter(|slot| self.by_slot[slot.index()].count >= MESSAGES as u64);
        let max_ms = allowed.quarter_ms;
        let off = measured.filter_map(|slot| {
            let offset_ms = self.offset_ms(slot)?;
            let behind = || {
                let ahead_ms = offset_ms.saturating_sub(self.medians_ms(slot, offset_ms, up)?.1);
                (ahead_ms < -max_ms).then_some(ClockOff { ahead_ms, max_ms })
            };
            Some((slot, self.ahead_by(slot, offset_ms, allowed, up).or_else(behind)?))
        });
        off.collect()
    }

    fn ahead_by(&self, slot: Slot, offset_ms: i64, allowed: Allowed, up: SlotSet) -> Option<ClockOff> {
        let max_ms = allowed.quarter_ms;
        // The usual case, decided without the other devices.
        if (-allowed.both_ms()..=max_ms).contains(&offset_ms) {
            return None;
        }
        let lead_ms = offset_ms.saturating_sub(self.medians_ms(slot, offset_ms, up)?.0);
        let mut others = self.others_ms(slot, up);
        let is_clear = offset_ms > max_ms && others.all(|other_ms| NEAR_MS.contains(&other_ms));
        let is_ahead = is_clear || lead_ms > allowed.both_ms();
        let ahead_ms = if is_clear { offset_ms } else { lead_ms };
        is_ahead.then_some(ClockOff { ahead_ms, max_ms })
    }

    fn others_ms(&self, slot: Slot, up: SlotSet) -> impl Iterator<Item = i64> {
        (up - SlotSet::single(slot)).iter().filter_map(|other| self.offset_ms(other))
    }

    /// The lower and the upper median of the offsets of the devices that are up and of the leader's own clock, 0. `None` if no other
    /// device was measured.
    fn medians_ms(&self, slot: Slot, offset_ms: i64, up: SlotSet) -> Option<(i64, i64)> {
        let mut offsets: Vec<i64> = self.others_ms(slot, up).collect();
        if offsets.is_empty() {
            return None;
        }
        offsets.extend([offset_ms, 0]);
        offsets.sort_unstable();
        let count = offsets.len();
        Some((offsets[(count - 1) / 2], offsets[count / 2]))
    }
}

fn difference(ms: u64, from_ms: u64) -> i64 {
    i64::try_from(i128::from(ms) - i128::from(from_ms)).unwrap_or(if ms > from_ms {
        i64::MAX
    } else {
        i64::MIN
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL_MS: u64 = 1_782_864_000_000;
    const START_MS: u64 = 1_000_000;

    fn slot(index: u8) -> Slot {
        Slot::new(index).expect("below 64")
    }

    fn allowed() -> Allowed {
        Allowed::new(100, 50)
    }

    /// Clock offset and time on the way of the slots 0, 1 and so on, ms.
    fn measured(offsets_ms: &[(i64, i64)]) -> ClockOffsets {
        let mut offsets = ClockOffsets::new();
        offsets.set_now(WALL_MS, START_MS);
        for (index, (offset_ms, way_ms)) in offsets_ms.iter().enumerate() {
            // The device captures late now and then, and names the next sample.
            let late_ms = [0, 1, 0, 48, 2, 0, 50, 1];
            for late_ms in late_ms {
                let sent_ms = WALL_MS.saturating_add_signed(offset_ms - way_ms + late_ms);
                offsets.measure(slot(index as u8), sent_ms, START_MS);
            }
        }
        offsets
    }

    fn up(count: usize) -> SlotSet {
        Slot::first(count).collect()
    }

    #[track_caller]
    fn check(offsets_ms: &[(i64, i64)], expected: &[u8]) {
        let offsets = measured(offsets_ms);
        let ahead = |slot: &Slot| offsets.ahead(*slot, allowed(), up(offsets_ms.len())).is_some();
        let found: Vec<u8> =
            Slot::first(offsets_ms.len()).filter(ahead).map(|slot| slot.index() as u8).collect();
        assert_eq!(found, expected, "{offsets_ms:?}");
    }

    #[test]
    fn a_device_ahead_of_the_leader_and_the_others_by_more_than_a_quarter_period_is_left_out() {
        check(&[(0, 1), (0, 1), (24, 0)], &[]);
        check(&[(0, 1), (0, 1), (27, 0)], &[2]);
        check(&[(0, 1), (60_000, 1)], &[1]);
        check(&[(0, 1), (60_000, 1), (3000, 1), (0, 1)], &[1, 2]);
        check(&[(-60_000, 1), (0, 1), (0, 1)], &[]);
    }

    #[test]
    fn two_wrong_clocks_of_three_are_left_out_where_the_third_agrees_with_the_leader() {
        check(&[(60_000, 1), (3000, 1), (0, 1)], &[0, 1]);
        check(&[(60_000, 1), (60_000, 1), (0, 1)], &[0, 1]);
        check(&[(-60_000, 1), (-60_000, 1), (0, 1)], &[]);
        let off = measured(&[(-60_000, 1), (-60_000, 1), (0, 1)]).off(allowed(), up(3));
        assert_eq!(off.iter().map(|(slot, _)| slot.index()).collect::<Vec<_>>(), [0, 1], "they are named");
    }

    #[test]
    fn a_wrong_clock_of_the_leader_leaves_no_device_out() {
        for leader_ms in [-400_000, -60, -30, 0, 15, 60, 300_000] {
            // The second device has a slow link.
            check(&[(leader_ms, 1), (leader_ms, 40)], &[]);
            check(&[(leader_ms, 1), (leader_ms, 1), (leader_ms, 1)], &[]);
            check(&[(leader_ms, 1), (leader_ms, 1), (leader_ms, 45), (leader_ms, 45)], &[]);
        }
        check(&[(300_000, 1), (300_000, 1), (360_000, 1)], &[2]);
        check(&[(-120_000, 1), (-120_000, 1), (-60_000, 1)], &[2]);
    }

    #[test]
    fn the_only_device_is_believed_and_one_near_the_leader_is_not_ahead_of_others_with_slow_links() {
        check(&[(60_000, 1)], &[]);
        check(&[(0, 1), (0, 200), (0, 200)], &[]);
        let offsets = measured(&[(0, 1), (0, 1), (0, 200)]);
        let [(two, off)] = offsets.off(allowed(), up(3))[..] else { panic!("slot 2 is named") };
        assert!(two == slot(2) && (-200..=-150).contains(&off.ahead_ms), "{off:?}");
        let ahead = measured(&[(0, 1), (0, 1), (60_000, 1)]);
        assert!(ahead.ahead(slot(2), allowed(), SlotSet::from_bits(0b111)).is_some());
        assert_eq!(ahead.ahead(slot(2), allowed(), SlotSet::from_bits(0b100)), None, "the others are down");
    }

    #[test]
    fn a_step_of_the_leader_s_clock_moves_every_offset_at_once() {
        let mut offsets = measured(&[(0, 1), (0, 1), (0, 1)]);
        for step_ms in [-90, 90, 250, -60_000] {
            offsets.set_now(WALL_MS.saturating_add_signed(step_ms), START_MS);
            for slot in Slot::first(3) {
                assert_eq!(offsets.ahead(slot, allowed(), up(3)), None, "{step_ms}");
            }
        }
    }

    #[test]
    fn a_late_message_of_the_future_is_refused_unless_the_group_s_clocks_explain_it() {
        let names = |offsets: &ClockOffsets, slot, least_ms| {
            offsets.names_future(slot, least_ms, allowed(), up(2)).is_some()
        };
        let right = measured(&[(0, 1), (0, 1)]);
        assert!(!names(&right, slot(0), 0) && !names(&right, slot(0), 25) && names(&right, slot(0), 60_000));
        assert!(names(&ClockOffsets::new(), slot(0), 60_000), "nothing is known after a restart");
        let leader_behind = measured(&[(60_000, 1), (60_000, 1)]);
        assert!(!names(&leader_behind, slot(0), 59_000) && names(&leader_behind, slot(0), 3_600_000));
        let one_ahead = measured(&[(0, 1), (60_000, 1)]);
        assert!(names(&one_ahead, slot(1), 59_000));
    }

    #[test]
    fn the_largest_times_are_no_overflow() {
        let mut offsets = ClockOffsets::new();
        offsets.set_now(u64::MAX, 0);
        offsets.set_now(0, u64::MAX);
        (0..MESSAGES).for_each(|_| offsets.measure(slot(0), u64::MAX, 0));
        (0..MESSAGES).for_each(|_| offsets.measure(slot(1), 0, u64::MAX));
        for period_ms in [0, 1, u64::MAX] {
            let allowed = Allowed::new(period_ms, u32::MAX);
            offsets.off(allowed, up(2));
            offsets.names_future(slot(0), u64::MAX, allowed, up(2));
        }
    }
}
