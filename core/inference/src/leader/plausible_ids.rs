//! Plausibility of the ids of new samples.
//!
//! The newest id decides which answers devices free and which samples are too late, so one faulty device or trigger must not move it.
//!
//! | numbering | a trigger | a device |
//! | --- | --- | --- |
//! | clock, source | near the wall clock | near the wall clock; late up to 21 days before it; see also [`clock_offsets`](super::clock_offsets) |
//! | trigger | by [`TriggeredIds`] | none before the first believed id; then up to 1,000 above the newest; see also [`early_answers`](super::early_answers) |
//! | not told yet | as by trigger | up to 1,000 after the newest believed id |
//!
//! The leader may have missed triggers before the first trigger of a connection. Until that trigger a device may name any id that a second
//! device confirms by a different id near it. If only one device is up, its next id confirms the id.

use headwater_protocol::{JudgedTrigger, Numbering, SampleId, Slot, SlotSet, Trigger, TriggeredIds, is_near};
use serde::{Deserialize, Serialize};

use super::implausible::{DAY_MS, Implausible, Limit};

/// Largest age of a late sample, ms.
pub(super) const MAX_LATE_MS: u64 = 21 * DAY_MS;

/// Largest difference between a sample's time and the wall clock, ms, unless a setting says otherwise.
pub(super) const DEFAULT_CLOCK_DIFFERENCE_MS: u32 = 600_000;

/// 1 January 2020, ms since 1970. A wall clock before this time has not been set.
pub(super) const EARLIEST_WALL_MS: u64 = 1_577_836_800_000;

/// Ten years in ms. Ids that are further ahead of the wall clock are of another numbering, and say nothing about that clock.
const MAX_WALL_BEHIND_MS: u64 = 315_576_000_000;

/// Knowledge of the ids of a group.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct PlausibleIds {
    /// Numbering of samples by the devices; `None` until a device's birth message or the journal has named it.
    pub(super) numbering: Option<Numbering>,
    /// Largest difference between a sample's time and the wall clock, ms.
    pub(super) max_clock_difference_ms: u64,
    /// Ids known from triggers, decisions and the journal.
    pub(super) believed: TriggeredIds,
    /// Newest id that each slot named.
    #[serde(with = "super::by_slot")]
    by_slot: [SampleId; Slot::MAX],
}

/// A device's claim that there is a sample of this id.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) slot: Slot,
    pub(super) sample: SampleId,
    /// True when the message comes from a spool, after the sample's time.
    pub(super) late: bool,
}

impl PlausibleIds {
    pub(super) fn new(max_clock_difference_ms: u32) -> Self {
        Self {
            numbering: None,
            max_clock_difference_ms: max_clock_difference_ms.into(),
            believed: TriggeredIds::default(),
            by_slot: [SampleId(0); Slot::MAX],
        }
    }

    /// Takes an id that a slot named; returns the newest id that the slot named before.
    pub(super) fn claim(&mut self, slot: Slot, sample: SampleId) -> SampleId {
        let newest = &mut self.by_slot[slot.index()];
        std::mem::replace(newest, sample.max(*newest))
    }

    /// Checks the id that a device names. An implausible id is kept too, so that a second device can confirm it, but not while triggers
    /// number the samples and no id is believed.
    pub(super) fn check(&mut self, claim: Claim, up: SlotSet, wall_ms: u64) -> Result<(), Implausible> {
        let Claim { slot, sample, late } = claim;
        if let Some(period_ms) = self.period_ms() {
            self.claim(slot, sample);
            return self.check_time(sample, period_ms, wall_ms, late);
        }
        let newest = match self.believed.newest() {
            // Triggers number the samples, and none is known yet: the claims of devices must not confirm each other.
            None if self.numbering.is_some() => {
                return Err(Implausible { sample, limit: Limit::NoTrigger, is_final: false });
            }
            newest => newest.unwrap_or_default(),
        };
        let before = self.claim(slot, sample);
        let others = up - SlotSet::single(slot);
        let confirms = |named: SampleId| named != sample && is_near(named, sample);
        let is_confirmed = if others.is_empty() {
            confirms(before)
        } else {
            others.iter().any(|other| confirms(self.by_slot[other.index()]))
        };
        let has_trigger = self.believed.has_trigger();
        let may_be_far = is_confirmed && !has_trigger && sample <= Trigger::MAX_ID;
        if sample <= newest || is_near(sample, newest) || may_be_far {
            return Ok(());
        }
        Err(Implausible { sample, limit: Limit::Ahead(newest), is_final: late && has_trigger })
    }

    /// True when the group numbers by trigger and the sample is above the newest believed id; false while no id is believed.
    pub(super) fn is_before_trigger(&self, sample: SampleId) -> bool {
        self.numbering == Some(Numbering::Trigger)
            && self.believed.newest().is_some_and(|newest| sample > newest)
    }

    /// True when one of the slots named this sample or a later one.
    pub(super) fn is_named_by(&self, slots: SlotSet, sample: SampleId) -> bool {
        slots.iter().any(|slot| self.by_slot[slot.index()] >= sample)
    }

    /// Judges a trigger. A believed trigger gives `Ok` with the earlier trigger that it confirms, or `Ok(None)` if it confirms none.
    pub(super) fn check_trigger(
        &mut self,
        sample: SampleId,
        wall_ms: u64,
    ) -> Result<Option<SampleId>, Implausible> {
        if let Some(period_ms) = self.period_ms() {
            let checked = self.check_time(sample, period_ms, wall_ms, false);
            return checked
                .map(|()| None)
                .map_err(|implausible| Implausible { is_final: true, ..implausible });
        }
        let newest = self.believed.newest().unwrap_or_default();
        let limit = match self.believed.judge(sample) {
            JudgedTrigger::Believed => return Ok(None),
            JudgedTrigger::Confirms(first) => return Ok(Some(first)),
            JudgedTrigger::Unconfirmed => Limit::Unconfirmed(newest),
            JudgedTrigger::Below => Limit::Below(newest),
            JudgedTrigger::TooHigh => Limit::LastId,
        };
        Err(Implausible { sample, limit, is_final: limit != Limit::Unconfirmed(newest) })
    }

    /// Milliseconds from one id to the next; `None` if ids do not tell the time.
    pub(super) fn period_ms(&self) -> Option<u64> {
        match self.numbering? {
            Numbering::Clock { period_ms } => Some(period_ms.into()),
            Numbering::Source => Some(1),
            Numbering::Trigger => None,
        }
    }

    fn check_time(
        &self,
        sample: SampleId,
        period_ms: u64,
        wall_ms: u64,
        late: bool,
    ) -> Result<(), Implausible> {
        let captured_ms = sample.0.saturating_mul(period_ms);
        let (difference_ms, is_behind) = (captured_ms.abs_diff(wall_ms), captured_ms < wall_ms);
        let doubts_wall = self.doubts_wall(period_ms, wall_ms);
        // A wrong wall clock says nothing about the age of a sample.
        let may_be_old = late && is_behind && !doubts_wall;
        let max_ms = if may_be_old { MAX_LATE_MS } else { self.max_clock_difference_ms };
        if difference_ms <= max_ms {
            return Ok(());
        }
        let numbering = self.numbering.unwrap_or(Numbering::Source);
        let limit = Limit::Clock { difference_ms, is_behind, max_ms, numbering };
        // An id that is ahead by less becomes plausible with time.
        let is_impossible = difference_ms > MAX_LATE_MS;
        let is_final = late && is_impossible && !doubts_wall;
        Err(Implausible { sample, limit, is_final })
    }

    /// True when the wall clock itself seems wrong: it is before 2020, or so far behind the newest believed id that the difference is more
    /// than allowed but at most ten years.
    fn doubts_wall(&self, period_ms: u64, wall_ms: u64) -> bool {
        let confirmed_ms = self.believed.newest().map_or(0, |sample| sample.0.saturating_mul(period_ms));
        let behind_ms = confirmed_ms.saturating_sub(wall_ms);
        wall_ms < EARLIEST_WALL_MS
            || (self.max_clock_difference_ms < behind_ms && behind_ms <= MAX_WALL_BEHIND_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wall clock of these tests, ms since 1970: 1 July 2026.
    const WALL_MS: u64 = 1_782_864_000_000;
    const MAX_MS: u64 = DEFAULT_CLOCK_DIFFERENCE_MS as u64;
    const ALL_UP: SlotSet = SlotSet::from_bits(0b11);

    fn ids(numbering: Option<Numbering>) -> PlausibleIds {
        PlausibleIds { numbering, ..PlausibleIds::new(DEFAULT_CLOCK_DIFFERENCE_MS) }
    }

    fn claim(slot: u8, sample: u64, late: bool) -> Claim {
        Claim { slot: Slot::new(slot).expect("below 64"), sample: SampleId(sample), late }
    }

    impl PlausibleIds {
        fn takes(&mut self, slot: u8, sample: u64, up: SlotSet) -> bool {
            self.check(claim(slot, sample, false), up, WALL_MS).is_ok()
        }

        fn takes_late(&mut self, sample: u64) -> Result<(), bool> {
            let found = self.check(claim(0, sample, true), ALL_UP, WALL_MS);
            found.map_err(|implausible| implausible.is_final)
        }
    }

    #[test]
    fn an_id_far_ahead_is_implausible_until_a_second_device_names_another_one_near_it() {
        for numbering in [None, Some(Numbering::Trigger)] {
            let mut ids = ids(numbering);
            ids.believed.believe(SampleId(0));
            assert!(ids.takes(0, 1000, ALL_UP));
            assert!(!ids.takes(0, 1001, ALL_UP));
            assert!(!ids.takes(0, 1_000_000, ALL_UP));
            assert!(!ids.takes(0, 1_000_001, ALL_UP), "the same device does not confirm its own id");
            assert!(!ids.takes(1, 1_000_001, ALL_UP), "both may have followed one wrong trigger");
            assert!(!ids.takes(1, 1_001_002, ALL_UP));
            assert!(ids.takes(0, 1_001_003, ALL_UP));
            let trigger = ids.believed.judge(SampleId(1));
            assert_eq!(trigger, JudgedTrigger::Believed);
            assert!(!ids.takes(1, 1_001_004, ALL_UP), "no trigger was missed");
        }
    }

    #[test]
    fn ids_far_ahead_of_the_only_device_are_plausible_until_a_trigger_is_known() {
        let only = SlotSet::from_bits(1);
        let mut ids = ids(Some(Numbering::Trigger));
        assert!(!ids.takes(0, 1 << 40, only), "triggers alone number samples");
        ids.believed.believe(SampleId(1000));
        assert!(ids.takes(0, 2000, only));
        assert!(
            !ids.takes(0, 1 << 40, only) && ids.takes(0, (1 << 40) + 1, only),
            "triggers may have been missed"
        );
        assert!(!ids.takes(0, u64::MAX - 1, only) && !ids.takes(0, u64::MAX, only), "ids would run out");
        ids.believed.judge(SampleId(1001));
        assert!(ids.takes(0, 2001, only) && !ids.takes(0, 2002, only) && !ids.takes(0, 2003, only));
    }

    #[test]
    fn before_the_first_trigger_two_guesses_of_an_id_confirm_nothing() {
        let mut ids = ids(Some(Numbering::Trigger));
        let guess = 3_000_000_000;
        for slot in [0, 1, 0, 1] {
            assert!(!ids.takes(slot, guess, ALL_UP) && !ids.takes(slot, 5, ALL_UP));
        }
        let text = ids.check(claim(0, guess, false), ALL_UP, WALL_MS).unwrap_err().to_string();
        assert!(text.contains("before the first trigger") && text.contains("3000000000"), "{text}");
        ids.believed.judge(SampleId(1 << 40));
        assert!(ids.takes(0, 1 << 40, ALL_UP));
    }

    #[test]
    fn a_late_answer_is_dropped_only_where_its_id_stays_implausible() {
        let mut triggered = ids(Some(Numbering::Trigger));
        triggered.believed.believe(SampleId(1000));
        assert_eq!(triggered.takes_late(2000), Ok(()));
        assert_eq!(triggered.takes_late(2001), Err(false), "its trigger may have been missed");
        triggered.believed.judge(SampleId(1001));
        assert_eq!((triggered.takes_late(2001), triggered.takes_late(2002)), (Ok(()), Err(true)));
    }

    #[test]
    fn ids_of_clocks_are_plausible_near_the_wall_clock() {
        for (numbering, period_ms) in [(Numbering::Clock { period_ms: 200 }, 200), (Numbering::Source, 1)] {
            let mut ids = ids(Some(numbering));
            let at = |ms: u64| ms / period_ms;
            for (ms, is_plausible) in [
                (WALL_MS, true),
                (WALL_MS - MAX_MS, true),
                (WALL_MS - MAX_MS - period_ms, false),
                (WALL_MS + MAX_MS, true),
                (WALL_MS + MAX_MS + period_ms, false),
                (0, false),
                (u64::MAX, false),
            ] {
                assert_eq!(ids.takes(0, at(ms), SlotSet::from_bits(1)), is_plausible, "{numbering}, {ms} ms");
                let trigger = ids.check_trigger(SampleId(at(ms)), WALL_MS);
                let expected = if is_plausible { Ok(None) } else { Err(true) };
                assert_eq!(trigger.map_err(|implausible| implausible.is_final), expected);
            }
            for (ms, expected) in [
                (WALL_MS - MAX_LATE_MS, Ok(())),
                (WALL_MS - MAX_LATE_MS - period_ms, Err(true)),
                (WALL_MS + MAX_MS, Ok(())),
                (WALL_MS + MAX_MS + period_ms, Err(false)),
                (WALL_MS + MAX_LATE_MS, Err(false)),
                (WALL_MS + MAX_LATE_MS + period_ms, Err(true)),
            ] {
                assert_eq!(ids.takes_late(at(ms)), expected, "{numbering}, {ms} ms late");
            }
        }
    }

    #[test]
    fn an_id_of_the_largest_number_is_no_overflow() {
        let mut ids = ids(Some(Numbering::Clock { period_ms: u32::MAX }));
        assert!(!ids.takes(0, u64::MAX, ALL_UP));
        let mut counted = super::tests::ids(None);
        counted.believed.believe(SampleId(u64::MAX));
        assert!(counted.takes(0, u64::MAX, ALL_UP) && counted.takes(0, 0, ALL_UP));
    }

    #[test]
    fn an_aggregator_whose_own_clock_is_wrong_drops_nothing() {
        let mut ids = ids(Some(Numbering::Source));
        let late = |ids: &mut PlausibleIds, wall_ms| {
            ids.check(claim(0, WALL_MS, true), ALL_UP, wall_ms).map_err(|implausible| implausible.is_final)
        };
        assert_eq!(late(&mut ids, 60_000), Err(false), "it woke up in 1970");
        assert_eq!(late(&mut ids, EARLIEST_WALL_MS - 1), Err(false));
        assert_eq!(late(&mut ids, EARLIEST_WALL_MS), Err(true));
        let behind = WALL_MS - MAX_LATE_MS - 1;
        assert_eq!(late(&mut ids, behind), Err(true));
        ids.believed.believe(SampleId(behind + MAX_MS));
        assert_eq!(late(&mut ids, behind), Err(true));
        ids.believed.believe(SampleId(behind + MAX_MS + 1));
        assert_eq!(late(&mut ids, behind), Err(false), "it is behind its own journal");
        let old = ids.check(claim(0, behind - MAX_MS - 1, true), ALL_UP, behind);
        assert_eq!(old.map_err(|implausible| implausible.is_final), Err(false), "its whole id may be wrong");
        ids.believed.believe(SampleId(behind + MAX_WALL_BEHIND_MS));
        assert_eq!(late(&mut ids, behind), Err(false));
        ids.believed.believe(SampleId(behind + MAX_WALL_BEHIND_MS + 1));
        assert_eq!(late(&mut ids, behind), Err(true), "the journal is of another numbering");
    }

    #[test]
    fn a_trigger_is_refused_for_good_but_for_one_far_ahead_that_a_second_may_confirm() {
        for numbering in [None, Some(Numbering::Trigger)] {
            let mut ids = ids(numbering);
            let mut judge = |sample| {
                let judged = ids.check_trigger(SampleId(sample), WALL_MS);
                judged.map_err(|implausible| (implausible.to_string(), implausible.is_final))
            };
            assert_eq!(judge(5000), Ok(None));
            let (text, is_final) = judge(6001).unwrap_err();
            assert!(!is_final && text.contains("more than 1000 ids after 5000"), "{text}");
            assert_eq!(judge(6002), Ok(Some(SampleId(6001))));
            for (wrong, sentence) in [(6002, "above 6002"), (3, "above 6002"), (u64::MAX, "ids only grow")] {
                let (text, is_final) = judge(wrong).unwrap_err();
                assert!(is_final && text.contains(sentence), "{text}");
            }
        }
    }

    #[test]
    fn the_difference_is_named_in_words() {
        let mut ids = ids(Some(Numbering::Clock { period_ms: 100 }));
        let text = ids.check(claim(0, 600, false), ALL_UP, WALL_MS).unwrap_err().to_string();
        let expected = "sample 600: its clock is 56 years behind the aggregator's, expected at most 10 minutes (numbering: clock with a \
                        period of 100 ms): set the clock that is wrong";
        assert_eq!(text, expected);
        let text =
            super::tests::ids(None).check(claim(0, 1001, false), ALL_UP, WALL_MS).unwrap_err().to_string();
        assert!(
            text.starts_with("sample 1001: expected at most 1000 ids from 0, the newest known one: "),
            "{text}"
        );
    }
}
