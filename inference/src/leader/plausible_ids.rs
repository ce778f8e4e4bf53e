//! Which ids of new samples are plausible.
//!
//! The newest id decides what devices free and what counts as too late. One faulty device or trigger must not move it.
//!
//! | numbering | ids of devices | ids of triggers |
//! | --- | --- | --- |
//! | clock, source | near the wall clock; late ones up to 21 days before it; see also [`clock_offsets`](super::clock_offsets) | near the wall clock |
//! | trigger | none before the first confirmed id; up to [`MAX_AHEAD`] after the newest one, further where a second device named it; see also [`early_answers`](super::early_answers) | within [`MAX_TRIGGER_STEP`] of the newest id |
//! | unknown | as by trigger; the only device that is up may name any id | as by trigger |
//!
//! Triggers, decisions and the journal confirm ids.

use std::fmt;

use headwater_protocol::{Numbering, SampleId, Slot, SlotSet, Trigger};

use super::clock_offsets::ClockOff;

/// Samples by which one device may be ahead of the newest confirmed id.
pub(super) const MAX_AHEAD: u64 = 256;

/// Largest distance of a triggered id from the newest id.
pub(super) const MAX_TRIGGER_STEP: u64 = Trigger::MAX_STEP;

/// Largest age of a late sample.
pub(super) const MAX_LATE_MS: u64 = 21 * DAY_MS;

/// Largest difference between a sample's time and the wall clock, unless a setting says otherwise.
pub(super) const DEFAULT_CLOCK_DIFFERENCE_MS: u32 = 600_000;

/// 1 January 2020. A wall clock before it has not been set.
pub(super) const EARLIEST_WALL_MS: u64 = 1_577_836_800_000;

/// Ten years. Ids further ahead are of another numbering, and say nothing about the wall clock.
const MAX_WALL_BEHIND_MS: u64 = 315_576_000_000;

const DAY_MS: u64 = 86_400_000;

/// Knowledge of the ids of a group.
pub(super) struct PlausibleIds {
    /// Numbering of samples by the devices; `None` while no birth has named it.
    pub(super) numbering: Option<Numbering>,
    /// Largest difference between a sample's time and the wall clock.
    pub(super) max_clock_difference_ms: u64,
    /// Newest id of a trigger, of a decision or of the journal; `None` before the first.
    pub(super) confirmed: Option<SampleId>,
    /// Whether a trigger came on the present connection.
    pub(super) has_trigger: bool,
    /// Newest id that each slot named.
    by_slot: [SampleId; Slot::MAX],
}

/// A device's claim that there is a sample of this id.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) slot: Slot,
    pub(super) sample: SampleId,
    /// Whether the message comes from a spool, after the sample's time.
    pub(super) late: bool,
}

/// Why the id of a sample was refused. The text names what was found and what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Implausible {
    /// The refused id.
    pub sample: SampleId,
    limit: Limit,
    /// Whether the id stays implausible: the sample is dropped.
    pub(super) is_final: bool,
}

/// The limit that an id exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    /// Distance of the sample's time from the wall clock.
    Clock { difference_ms: u64, is_behind: bool, max_ms: u64, numbering: Numbering },
    /// Distance of the device's clock from those of its group.
    Group(ClockOff),
    /// Distance from the newest id.
    Newest { newest: SampleId, max: u64 },
    /// Largest id of a trigger.
    LastId,
    /// No trigger has numbered a sample yet.
    NoTrigger,
}

impl Implausible {
    /// An id of a device whose clock is ahead of those of its group. It becomes plausible with time.
    pub(super) fn ahead_of_group(sample: SampleId, off: ClockOff) -> Self {
        Self { sample, limit: Limit::Group(off), is_final: false }
    }
}

impl PlausibleIds {
    pub(super) fn new(max_clock_difference_ms: u32) -> Self {
        Self {
            numbering: None,
            max_clock_difference_ms: max_clock_difference_ms.into(),
            confirmed: None,
            has_trigger: false,
            by_slot: [SampleId(0); Slot::MAX],
        }
    }

    /// Takes an id of a trigger, of a decision or of the journal.
    pub(super) fn confirm(&mut self, sample: SampleId) {
        self.confirmed = self.confirmed.max(Some(sample));
    }

    /// Takes an id that a slot named.
    pub(super) fn claim(&mut self, slot: Slot, sample: SampleId) {
        let newest = &mut self.by_slot[slot.index()];
        *newest = sample.max(*newest);
    }

    /// Checks the id that a device names. An implausible id is kept too, so that a second device can confirm it.
    pub(super) fn check(&mut self, claim: Claim, up: SlotSet, wall_ms: u64) -> Result<(), Implausible> {
        let Claim { slot, sample, late } = claim;
        if self.numbering == Some(Numbering::Trigger) && self.confirmed.is_none() {
            // Devices alone number no sample; their claims must not confirm each other either.
            return Err(Implausible { sample, limit: Limit::NoTrigger, is_final: false });
        }
        self.claim(slot, sample);
        match self.period_ms() {
            Some(period_ms) => self.check_time(sample, period_ms, wall_ms, late),
            None => self.check_count(claim, up),
        }
    }

    /// Whether a trigger numbers this sample that has not come yet.
    pub(super) fn is_before_trigger(&self, sample: SampleId) -> bool {
        self.numbering == Some(Numbering::Trigger) && self.confirmed.is_some_and(|newest| sample > newest)
    }

    /// Whether one of the slots named this sample or a later one.
    pub(super) fn is_named_by(&self, slots: SlotSet, sample: SampleId) -> bool {
        slots.iter().any(|slot| self.by_slot[slot.index()] >= sample)
    }

    /// Checks the id of a trigger. `newest` is the newest known id; 0 before the first.
    pub(super) fn check_trigger(
        &self,
        sample: SampleId,
        newest: SampleId,
        wall_ms: u64,
    ) -> Result<(), Implausible> {
        if let Some(period_ms) = self.period_ms() {
            return self
                .check_time(sample, period_ms, wall_ms, false)
                .map_err(|implausible| Implausible { is_final: true, ..implausible });
        }
        if sample > Trigger::MAX_ID {
            return Err(Implausible { sample, limit: Limit::LastId, is_final: true });
        }
        if newest == SampleId(0) || sample.0.abs_diff(newest.0) <= MAX_TRIGGER_STEP {
            return Ok(());
        }
        let limit = Limit::Newest { newest, max: MAX_TRIGGER_STEP };
        Err(Implausible { sample, limit, is_final: true })
    }

    /// Milliseconds from one id to the next; `None` where ids do not tell the time.
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
        // With less the id becomes plausible with time.
        let is_impossible = difference_ms > MAX_LATE_MS;
        let is_final = late && is_impossible && !doubts_wall;
        Err(Implausible { sample, limit, is_final })
    }

    /// Whether the wall clock itself is wrong: it was never set, or is behind a sample that was decided.
    fn doubts_wall(&self, period_ms: u64, wall_ms: u64) -> bool {
        let confirmed_ms = self.confirmed.map_or(0, |sample| sample.0.saturating_mul(period_ms));
        let behind_ms = confirmed_ms.saturating_sub(wall_ms);
        wall_ms < EARLIEST_WALL_MS
            || (self.max_clock_difference_ms < behind_ms && behind_ms <= MAX_WALL_BEHIND_MS)
    }

    fn check_count(&self, Claim { slot, sample, late }: Claim, up: SlotSet) -> Result<(), Implausible> {
        let confirmed = self.confirmed.unwrap_or_default();
        let ahead = sample.0.saturating_sub(confirmed.0);
        if ahead <= MAX_AHEAD {
            return Ok(());
        }
        let others = up - SlotSet::single(slot);
        let newest = others.iter().map(|other| self.by_slot[other.index()]).max();
        let is_named = newest.map(|newest| sample.0 <= newest.0.saturating_add(MAX_AHEAD));
        let knows_triggers = self.numbering == Some(Numbering::Trigger) && self.confirmed.is_some();
        let is_plausible = if knows_triggers {
            // Without a trigger on this connection the only device may know of triggers that the leader missed.
            ahead <= MAX_TRIGGER_STEP && is_named.unwrap_or(!self.has_trigger)
        } else {
            is_named.unwrap_or(true)
        };
        if is_plausible {
            return Ok(());
        }
        let limit = Limit::Newest { newest: confirmed, max: MAX_AHEAD };
        let is_final = late && knows_triggers && (self.has_trigger || ahead > MAX_TRIGGER_STEP);
        Err(Implausible { sample, limit, is_final })
    }
}

impl fmt::Display for Implausible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sample = self.sample;
        match self.limit {
            Limit::Clock { difference_ms, is_behind, max_ms, numbering } => {
                let side = if is_behind { "behind" } else { "ahead of" };
                let (found, max) = (in_words(difference_ms), in_words(max_ms));
                write!(
                    f,
                    "sample {sample}: its clock is {found} {side} the aggregator's, expected at most {max} (numbering: {numbering}): \
                     set the clock that is wrong"
                )
            }
            Limit::Group(ClockOff { ahead_ms, max_ms }) => write!(
                f,
                "sample {sample}: the clock of its device is {} ahead of those of the group, expected at most {} (a quarter of the \
                 period): set it; until then the device is left out",
                in_words(ahead_ms.unsigned_abs()),
                in_words(max_ms.unsigned_abs()),
            ),
            Limit::LastId => {
                write!(f, "sample {sample}: expected an id of at most {}: ids only grow", Trigger::MAX_ID)
            }
            Limit::NoTrigger => {
                write!(
                    f,
                    "sample {sample}: its answer came before the first trigger, which alone numbers samples"
                )
            }
            Limit::Newest { newest, max } => write!(
                f,
                "sample {sample}: expected at most {max} ids from {newest}, the newest known one: correct its ids, or start the \
                 aggregator once with --new-numbering and the group's name"
            ),
        }
    }
}

/// A time in its largest unit, rounded down.
fn in_words(ms: u64) -> String {
    const UNITS: [(u64, &str); 6] = [
        (31_557_600_000, "year"),
        (DAY_MS, "day"),
        (3_600_000, "hour"),
        (60_000, "minute"),
        (1000, "second"),
        (1, "millisecond"),
    ];
    let (unit_ms, name) = UNITS.into_iter().find(|(unit_ms, _)| ms >= *unit_ms).unwrap_or((1, "millisecond"));
    let count = ms / unit_ms;
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 July 2026.
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
    fn an_id_far_ahead_is_implausible_until_a_second_device_names_it() {
        for numbering in [None, Some(Numbering::Trigger)] {
            let mut ids = ids(numbering);
            ids.confirm(SampleId(0));
            assert!(ids.takes(0, MAX_AHEAD, ALL_UP));
            assert!(!ids.takes(0, MAX_AHEAD + 1, ALL_UP));
            assert!(!ids.takes(0, 1_000_000, ALL_UP));
            assert!(!ids.takes(0, 1_000_001, ALL_UP), "the same device does not confirm its own id");
            assert!(ids.takes(1, 1_000_001 + MAX_AHEAD, ALL_UP));
            assert!(!ids.takes(0, 1_000_002 + 2 * MAX_AHEAD, ALL_UP));
            assert!(ids.takes(0, 1_000_003, ALL_UP));
        }
    }

    #[test]
    fn ids_of_the_only_device_are_plausible_until_a_trigger_is_known() {
        let only = SlotSet::from_bits(1);
        for numbering in [None, Some(Numbering::Trigger)] {
            let mut ids = ids(numbering);
            assert_eq!(ids.takes(0, 1 << 40, only), numbering.is_none(), "whole ids are in triggers alone");
            ids.confirm(SampleId(1000));
            assert!(ids.takes(0, 1000 + MAX_TRIGGER_STEP, only), "triggers may have been missed");
            assert_eq!(ids.takes(0, 1001 + MAX_TRIGGER_STEP, only), numbering.is_none());
            ids.has_trigger = true;
            assert_eq!(ids.takes(0, 1001 + MAX_AHEAD, only), numbering.is_none());
            assert!(ids.takes(0, 1000 + MAX_AHEAD, only));
        }
    }

    #[test]
    fn before_the_first_trigger_two_guesses_of_an_id_confirm_nothing() {
        let mut ids = ids(Some(Numbering::Trigger));
        let guess = 3_000_000_000;
        for slot in [0, 1, 0, 1] {
            assert!(!ids.takes(slot, guess, ALL_UP) && !ids.takes(slot, 5, ALL_UP));
        }
        ids.confirm(SampleId((1 << 40) + 3_000_000_000));
        assert!(ids.takes(0, (1 << 40) + 3_000_000_000, ALL_UP));
        let mut first = super::tests::ids(Some(Numbering::Trigger));
        let text = first.check(claim(0, guess, false), ALL_UP, WALL_MS).unwrap_err().to_string();
        assert!(text.contains("before the first trigger") && text.contains("3000000000"), "{text}");
    }

    #[test]
    fn two_devices_cannot_move_triggered_ids_without_bound() {
        let mut ids = ids(Some(Numbering::Trigger));
        ids.confirm(SampleId(1000));
        let far = 1001 + MAX_TRIGGER_STEP;
        assert!(!ids.takes(0, far, ALL_UP) && !ids.takes(1, far, ALL_UP));
        assert!(ids.takes(1, far - 1, ALL_UP));
    }

    #[test]
    fn a_late_answer_is_dropped_only_where_its_id_stays_implausible() {
        let mut unknown = ids(None);
        assert_eq!(unknown.takes_late(1 << 40), Err(false), "a second device may name it");
        let mut triggered = ids(Some(Numbering::Trigger));
        triggered.confirm(SampleId(1000));
        assert_eq!(triggered.takes_late(1000 + MAX_AHEAD), Ok(()));
        assert_eq!(triggered.takes_late(1001 + MAX_AHEAD), Err(false), "its trigger may have been missed");
        assert_eq!(triggered.takes_late(1000 + MAX_TRIGGER_STEP), Err(false));
        assert_eq!(triggered.takes_late(1001 + MAX_TRIGGER_STEP), Err(true));
        triggered.has_trigger = true;
        assert_eq!(triggered.takes_late(1001 + MAX_AHEAD), Err(true));
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
                let trigger = ids.check_trigger(SampleId(at(ms)), SampleId(0), WALL_MS);
                assert_eq!(
                    trigger.map_err(|implausible| implausible.is_final),
                    if is_plausible { Ok(()) } else { Err(true) }
                );
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
        counted.confirm(SampleId(u64::MAX));
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
        ids.confirm(SampleId(behind + MAX_MS));
        assert_eq!(late(&mut ids, behind), Err(true));
        ids.confirm(SampleId(behind + MAX_MS + 1));
        assert_eq!(late(&mut ids, behind), Err(false), "it is behind its own journal");
        let old = ids.check(claim(0, behind - MAX_MS - 1, true), ALL_UP, behind);
        assert_eq!(old.map_err(|implausible| implausible.is_final), Err(false), "its whole id may be wrong");
        ids.confirm(SampleId(behind + MAX_WALL_BEHIND_MS));
        assert_eq!(late(&mut ids, behind), Err(false));
        ids.confirm(SampleId(behind + MAX_WALL_BEHIND_MS + 1));
        assert_eq!(late(&mut ids, behind), Err(true), "the journal is of another numbering");
    }

    #[test]
    fn a_trigger_is_plausible_within_a_step_of_the_newest_id_and_the_first_is_any_id() {
        for numbering in [None, Some(Numbering::Trigger)] {
            let ids = ids(numbering);
            let takes =
                |sample, newest| ids.check_trigger(SampleId(sample), SampleId(newest), WALL_MS).is_ok();
            assert!(takes(u64::MAX - MAX_TRIGGER_STEP, 0) && takes(1 << 40, 0));
            assert!(!takes(u64::MAX, 0) && !takes(u64::MAX - MAX_TRIGGER_STEP + 1, 0), "ids would run out");
            let newest = 1 << 40;
            let found = [
                newest - MAX_TRIGGER_STEP - 1,
                newest - MAX_TRIGGER_STEP,
                newest + MAX_TRIGGER_STEP,
                newest + MAX_TRIGGER_STEP + 1,
            ];
            assert_eq!(found.map(|sample| takes(sample, newest)), [false, true, true, false]);
            assert!(!takes(u64::MAX, u64::MAX) && !takes(0, u64::MAX));
        }
    }

    #[test]
    fn the_newest_confirmed_id_is_the_largest() {
        let mut ids = ids(None);
        assert_eq!(ids.confirmed, None);
        ids.confirm(SampleId(7));
        ids.confirm(SampleId(3));
        assert_eq!(ids.confirmed, Some(SampleId(7)));
    }

    #[test]
    fn the_difference_is_named_in_words() {
        let mut ids = ids(Some(Numbering::Clock { period_ms: 100 }));
        let text = ids.check(claim(0, 600, false), ALL_UP, WALL_MS).unwrap_err().to_string();
        let expected = "sample 600: its clock is 56 years behind the aggregator's, expected at most 10 minutes (numbering: clock with a \
                        period of 100 ms): set the clock that is wrong";
        assert_eq!(text, expected);
        let times = [0, 1, 999, 1000, 59_999, 60_000, 7_200_000, DAY_MS, 400 * DAY_MS];
        let words = [
            "0 milliseconds",
            "1 millisecond",
            "999 milliseconds",
            "1 second",
            "59 seconds",
            "1 minute",
            "2 hours",
            "1 day",
            "1 year",
        ];
        assert_eq!(times.map(in_words), words);
        let text =
            super::tests::ids(None).check(claim(0, 999, false), ALL_UP, WALL_MS).unwrap_err().to_string();
        assert!(
            text.starts_with("sample 999: expected at most 256 ids from 0, the newest known one: "),
            "{text}"
        );
    }
}
