//! Samples that are decided or dropped. A message that comes afterwards does not open its sample again.

use std::collections::{BTreeSet, VecDeque};

use headwater_protocol::{Decision, Dropped, SampleId, Settled, SettledNotice};
use serde::{Deserialize, Serialize};

use super::Micros;
use super::id_ranges::IdRanges;
use super::journal::{Entry, Recovered};
use super::open_sample::DeviceClasses;

/// Largest number of ranges of closed samples; beyond it the lowest range is forgotten. Devices send their spools from the lowest id up,
/// so the low ids are done first.
const MAX_RANGES: usize = 65_536;

/// Largest number of closed late samples that wait for a notice.
const MAX_LATE: usize = 65_536;

/// Largest number of refused ids that are remembered, so that each is dropped once.
const MAX_REFUSED: usize = 4096;

/// Largest number of decisions that a cloud answer after the deadline may still revise.
const MAX_REVISABLE: usize = 256;

/// Time for which complete notices name a range after its last change. A device that missed the range sends its samples again, late.
const NAMED_FOR: Micros = Micros::from_ms(30_000);

/// Number of notices in a row that name a changed range: notices are not acknowledged, so a device may miss one.
const NAMED_TIMES: usize = 3;

/// Number of notices from one complete notice to the next. A notice that is not complete names only ranges that changed since the third
/// notice before it.
const COMPLETE_EVERY: u32 = 10;

/// Closed samples, and the account of all of them.
///
/// ```text
///      floor        ranges
/// ──────┤────────────■──■■────■■■──────> id
///  forgotten         only these closed
/// ```
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct ClosedSamples {
    /// Closed samples above the floor.
    ranges: IdRanges,
    /// The leader has forgotten which samples up to this id are closed; `None` if no range was forgotten.
    floor: Option<SampleId>,
    /// Closed samples of late messages that no published notice has named, lowest first.
    pub(super) late: BTreeSet<SampleId>,
    /// Dropped samples that are not among the ranges: implausible or below the floor. Oldest first.
    refused: VecDeque<SampleId>,
    revisable: VecDeque<Revisable>,
    pub(super) settled: Settled,
    published: PublishedNotices,
}

/// A decision that the cloud's answer may still revise.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Revisable {
    /// The decision; its present slots are the slots whose features the cloud has.
    pub(super) decision: Decision,
    pub(super) device_classes: DeviceClasses,
}

/// Times of the latest published notices.
#[derive(Clone, Default, Serialize, Deserialize)]
struct PublishedNotices {
    /// Times of the latest [`NAMED_TIMES`] notices, oldest first.
    times: VecDeque<Micros>,
    /// Number of notices since the latest complete notice, which counts too; 0 before the first notice.
    since_complete: u32,
}

impl PublishedNotices {
    /// Earliest time of change of the ranges that a notice at `now` names.
    fn names_since(&self, now: Micros) -> Micros {
        let longest = Micros(now.0.saturating_sub(NAMED_FOR.0));
        let is_complete = self.since_complete == 0 || self.since_complete == COMPLETE_EVERY;
        let oldest = self.times.front().filter(|_| !is_complete && self.times.len() == NAMED_TIMES);
        oldest.copied().map_or(longest, |oldest| oldest.max(longest))
    }

    fn add(&mut self, now: Micros) {
        self.since_complete = self.since_complete % COMPLETE_EVERY + 1;
        if self.times.len() == NAMED_TIMES {
            self.times.pop_front();
        }
        self.times.push_back(now);
    }
}

impl ClosedSamples {
    /// True when the sample was open or awaited, and is decided or dropped.
    pub(super) fn has_ended(&self, sample: SampleId) -> bool {
        self.ranges.contains(sample)
    }

    /// True when the sample is known to be decided or dropped. A refused id counts, though devices with right clocks may still come to it.
    pub(super) fn contains(&self, sample: SampleId) -> bool {
        self.ranges.contains(sample) || self.refused.contains(&sample)
    }

    /// True when the sample is at or below the floor. Call this only for a sample that is not known to be closed.
    pub(super) fn is_too_old(&self, sample: SampleId) -> bool {
        self.floor.is_some_and(|floor| sample <= floor)
    }

    pub(super) fn decided(&mut self, sample: SampleId, now: Micros) {
        // The sum saturates, because a damaged journal may have restored any count.
        self.settled.decided = self.settled.decided.saturating_add(1);
        self.remember(sample, sample, now);
    }

    pub(super) fn dropped(&mut self, sample: SampleId, reason: Dropped, now: Micros) {
        self.count_drop(reason);
        self.remember(sample, sample, now);
    }

    /// Turns the decision of a sample, whose result the broker refused, into a drop.
    pub(super) fn result_refused(&mut self) {
        self.settled.decided = self.settled.decided.saturating_sub(1);
        self.count_drop(Dropped::ResultRefused);
    }

    /// Counts the drop of a sample that was never opened, without adding its id to the ranges. The sample must not be known to be closed.
    pub(super) fn refused(&mut self, sample: SampleId, reason: Dropped) {
        self.count_drop(reason);
        self.remember_refused(sample);
    }

    /// Raises `highest` to the largest closed sample below the oldest open one; to `newest` if none is open.
    pub(super) fn settle(&mut self, oldest_open: Option<SampleId>, newest: SampleId) {
        let highest = match oldest_open {
            None => newest,
            Some(open) => self.ranges.largest_below(open).unwrap_or(self.settled.highest),
        };
        self.settled.highest = self.settled.highest.max(highest);
    }

    /// Takes the account of a journal, and the samples that the journal knows to be closed.
    pub(super) fn restore(&mut self, journal: &mut Recovered) {
        self.settled = std::mem::take(&mut journal.settled);
        self.floor = journal.floor;
        for (first, last) in journal.closed.drain(..) {
            self.remember(first, last, Micros(0));
        }
        journal.refused.drain(..).for_each(|sample| self.remember_refused(sample));
    }

    /// Forgets every id; the counts stay.
    pub(super) fn forget_ids(&mut self) {
        let settled = Settled { highest: SampleId(0), ..std::mem::take(&mut self.settled) };
        *self = Self { settled, ..Self::default() };
    }

    pub(super) fn entry(&self) -> Entry {
        Entry::ClosedRanges { floor: self.floor, ranges: self.ranges.iter().collect() }
    }

    /// Ranges that a notice at `now` names: the newest of the changed ranges, at most [`SettledNotice::MAX_RANGES`].
    pub(super) fn named_ranges(&self, now: Micros) -> Vec<(SampleId, SampleId)> {
        self.ranges.newest_since(self.published.names_since(now), SettledNotice::MAX_RANGES)
    }

    /// Notes a published notice, and takes out its late samples.
    pub(super) fn notice_published(&mut self, late: &[SampleId], now: Micros) {
        self.published.add(now);
        late.iter().for_each(|sample| _ = self.late.remove(sample));
    }

    /// Makes the next notice complete: the broker may have lost the retained notice.
    pub(super) fn begin_notices(&mut self) {
        self.published = PublishedNotices::default();
    }

    /// Notes that a device waits for a notice that this late sample is closed.
    pub(super) fn add_late(&mut self, sample: SampleId) {
        // A device resends a sample that no notice names, so a full set loses nothing.
        if self.late.len() < MAX_LATE {
            self.late.insert(sample);
        }
    }

    pub(super) fn keep_revisable(&mut self, revisable: Revisable) {
        if self.revisable.len() == MAX_REVISABLE {
            self.revisable.pop_front();
        }
        self.revisable.push_back(revisable);
    }

    /// Decisions that may still be revised, each with the classes of its devices.
    pub(super) fn revisable(&self) -> impl Iterator<Item = &Revisable> {
        self.revisable.iter()
    }

    pub(super) fn take_revisable(&mut self, sample: SampleId) -> Option<Revisable> {
        let at = self.revisable().position(|revisable| revisable.decision.sample == sample)?;
        self.revisable.remove(at)
    }

    /// Remembers closed samples; samples at or below the floor stay forgotten.
    fn remember(&mut self, first: SampleId, last: SampleId, now: Micros) {
        let first = match self.floor {
            Some(floor) if last <= floor => return,
            Some(floor) => first.max(SampleId(floor.0.saturating_add(1))),
            None => first,
        };
        self.ranges.insert(first, last, now);
        if self.ranges.len() > MAX_RANGES {
            self.floor = self.floor.max(self.ranges.pop_lowest());
        }
    }

    fn count_drop(&mut self, reason: Dropped) {
        let count = self.settled.dropped.entry(reason).or_default();
        *count = count.saturating_add(1);
    }

    fn remember_refused(&mut self, sample: SampleId) {
        if self.refused.len() == MAX_REFUSED {
            self.refused.pop_front();
        }
        self.refused.push_back(sample);
    }
}

#[cfg(test)]
mod tests {
    use headwater_protocol::testing::decision;

    use super::*;

    const LAST: u64 = MAX_RANGES as u64;

    fn closed(samples: impl IntoIterator<Item = u64>) -> ClosedSamples {
        let mut closed = ClosedSamples::default();
        samples.into_iter().for_each(|sample| closed.decided(SampleId(sample), Micros(0)));
        closed
    }

    #[test]
    fn the_lowest_range_is_forgotten_first_and_nobody_is_told_that_its_gap_is_closed() {
        // Every tenth id, so each is a range of its own.
        let mut closed = closed((1..=LAST).map(|range| 10 * range));
        assert_eq!((closed.floor, closed.ranges.len()), (None, MAX_RANGES));
        assert!(closed.contains(SampleId(10)) && !closed.is_too_old(SampleId(5)));
        closed.decided(SampleId(10 * LAST + 1), Micros(0));
        assert_eq!((closed.floor, closed.ranges.len()), (None, MAX_RANGES), "one range grew");
        closed.decided(SampleId(10 * LAST + 10), Micros(0));
        assert_eq!((closed.floor, closed.ranges.len()), (Some(SampleId(10)), MAX_RANGES));
        let found =
            [5, 10, 11, 20].map(|id| (closed.contains(SampleId(id)), closed.is_too_old(SampleId(id))));
        assert_eq!(found, [(false, true), (false, true), (false, false), (true, false)]);
        closed.decided(SampleId(10), Micros(0));
        assert_eq!((closed.floor, closed.ranges.len()), (Some(SampleId(10)), MAX_RANGES), "stays forgotten");
    }

    #[test]
    fn consecutive_samples_need_one_range() {
        let closed = closed(1..=3 * LAST);
        assert_eq!((closed.floor, closed.ranges.len()), (None, 1));
        assert!(closed.contains(SampleId(1)) && !closed.contains(SampleId(3 * LAST + 1)));
    }

    #[test]
    fn a_restored_account_knows_its_ranges_and_not_what_lies_below_its_floor() {
        for (floor, is_too_old) in [(None, false), (Some(SampleId(5)), true)] {
            let mut closed = ClosedSamples::default();
            let settled = Settled { highest: SampleId(9), decided: 4, ..Settled::default() };
            let ids = vec![(SampleId(4), SampleId(7)), (SampleId(9), SampleId(9))];
            let refused = vec![SampleId(77)];
            let mut journal =
                Recovered { settled: settled.clone(), floor, closed: ids, refused, ..Recovered::default() };
            closed.restore(&mut journal);
            assert_eq!(closed.settled, settled, "what is restored is counted already");
            assert_eq!(closed.is_too_old(SampleId(5)), is_too_old);
            let found = [5, 6, 7, 8, 9, 10, 77].map(|sample| closed.contains(SampleId(sample)));
            assert_eq!(found, [!is_too_old, true, true, false, true, false, true]);
            let first = if is_too_old { 6 } else { 4 };
            let ranges = vec![(SampleId(first), SampleId(7)), (SampleId(9), SampleId(9))];
            assert_eq!(closed.entry(), Entry::ClosedRanges { floor, ranges });
        }
    }

    #[test]
    fn counts_of_a_restored_account_end_at_the_largest_number() {
        let mut closed = ClosedSamples::default();
        let dropped = [(Dropped::Shed, u64::MAX), (Dropped::Implausible, u64::MAX)];
        let settled = Settled { highest: SampleId(9), decided: u64::MAX, dropped: dropped.into() };
        closed.restore(&mut Recovered { settled: settled.clone(), ..Recovered::default() });
        closed.decided(SampleId(10), Micros(0));
        closed.dropped(SampleId(11), Dropped::Shed, Micros(0));
        closed.refused(SampleId(12), Dropped::Implausible);
        assert_eq!(closed.settled, settled);
    }

    #[test]
    fn a_bounded_number_of_refused_ids_is_remembered() {
        let mut closed = ClosedSamples::default();
        let last = MAX_REFUSED as u64;
        (0..last).for_each(|sample| closed.refused(SampleId(sample), Dropped::Implausible));
        assert!(closed.contains(SampleId(0)) && closed.contains(SampleId(last - 1)));
        closed.refused(SampleId(last), Dropped::TooOld);
        assert!(
            !closed.contains(SampleId(0)) && closed.contains(SampleId(1)) && closed.contains(SampleId(last))
        );
        let dropped = [(Dropped::Implausible, last), (Dropped::TooOld, 1)];
        assert_eq!((closed.settled.dropped, closed.settled.highest), (dropped.into(), SampleId(0)));
    }

    #[test]
    fn notices_name_a_range_for_a_time_after_its_last_change() {
        let mut closed = closed([1]);
        closed.decided(SampleId(5), Micros(1));
        assert_eq!(closed.named_ranges(NAMED_FOR).len(), 2);
        assert_eq!(closed.named_ranges(Micros(NAMED_FOR.0 + 1)), [(SampleId(5), SampleId(5))]);
        closed.decided(SampleId(2), Micros(NAMED_FOR.0 + 1));
        assert_eq!(closed.named_ranges(Micros(NAMED_FOR.0 + 2)), [(SampleId(1), SampleId(2))]);
    }

    #[test]
    fn three_notices_name_a_change_and_every_tenth_one_is_complete() {
        let mut closed = closed([1]);
        closed.decided(SampleId(5), Micros(0));
        let mut named = Vec::new();
        for at in 1..=20 {
            // A third range closes before the sixth notice.
            if at == 6 {
                closed.decided(SampleId(9), Micros(5_500));
            }
            let now = Micros(1000 * at);
            named.push(closed.named_ranges(now).len());
            closed.notice_published(&[], now);
        }
        assert_eq!(named, [2, 2, 2, 0, 0, 1, 1, 1, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(closed.named_ranges(Micros(21_000)).len(), 3);
        closed.notice_published(&[], Micros(21_000));
        closed.begin_notices();
        assert_eq!(closed.named_ranges(Micros(22_000)).len(), 3, "a new connection");
    }

    #[test]
    fn a_notice_names_a_bounded_number_of_ranges() {
        let many = SettledNotice::MAX_RANGES as u64 + 1;
        let named = closed((0..many).map(|range| 2 * range)).named_ranges(Micros(0));
        assert_eq!((named.len() as u64, named[0].0), (many - 1, SampleId(2)));
    }

    #[test]
    fn a_new_numbering_forgets_ids_and_keeps_counts() {
        let mut closed = closed([1, 2]);
        closed.refused(SampleId(9), Dropped::Implausible);
        closed.add_late(SampleId(1));
        closed.settle(None, SampleId(2));
        closed.forget_ids();
        assert!([1, 2, 9].into_iter().all(|id| !closed.contains(SampleId(id))) && closed.late.is_empty());
        let expected =
            Settled { highest: SampleId(0), decided: 2, dropped: [(Dropped::Implausible, 1)].into() };
        assert_eq!(closed.settled, expected);
    }

    #[test]
    fn a_bounded_number_of_late_samples_waits_for_the_notice() {
        let mut closed = ClosedSamples::default();
        (1..=MAX_LATE as u64 + 5).for_each(|sample| closed.add_late(SampleId(sample)));
        assert_eq!((closed.late.len(), closed.late.last()), (MAX_LATE, Some(&SampleId(LAST))));
        closed.notice_published(&[SampleId(1), SampleId(3)], Micros(0));
        assert_eq!(closed.late.len(), MAX_LATE - 2);
        closed.add_late(SampleId(LAST + 7));
        assert_eq!(closed.late.last(), Some(&SampleId(LAST + 7)));
    }

    #[test]
    fn a_bounded_number_of_decisions_can_be_revised_each_once() {
        let mut closed = ClosedSamples::default();
        let revisable =
            |sample| Revisable { decision: decision(sample), device_classes: DeviceClasses::default() };
        (0..=MAX_REVISABLE as u64).for_each(|sample| closed.keep_revisable(revisable(sample)));
        let mut take = |sample| closed.take_revisable(SampleId(sample)).map(|revisable| revisable.decision);
        assert_eq!(take(0), None);
        for sample in [1, 2, MAX_REVISABLE as u64] {
            assert_eq!(take(sample), Some(decision(sample)));
            assert_eq!(take(sample), None);
        }
    }

    #[test]
    fn highest_is_the_largest_closed_sample_below_the_oldest_open_one_and_never_falls() {
        let mut closed = closed([2, 5, 8]);
        closed.dropped(SampleId(3), Dropped::Shed, Micros(0));
        closed.settle(Some(SampleId(2)), SampleId(8));
        assert_eq!(closed.settled.highest, SampleId(0), "nothing is closed below the open sample");
        closed.settle(Some(SampleId(5)), SampleId(8));
        assert_eq!(closed.settled.highest, SampleId(3));
        closed.settle(None, SampleId(9));
        assert_eq!(closed.settled.highest, SampleId(9));
        closed.settle(Some(SampleId(4)), SampleId(9));
        assert_eq!(closed.settled.highest, SampleId(9));
        assert_eq!((closed.settled.decided, closed.settled.dropped[&Dropped::Shed]), (3, 1));
    }
}
