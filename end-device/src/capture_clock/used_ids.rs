//! Ids that a device has used, so that no id is used twice when the clock goes back.

use headwater_protocol::SampleId;

/// Largest number of ranges. Beyond this number the two nearest ranges become one, and the ids between them count as used.
const MAX_RANGES: usize = 64;

/// Used ids as ranges. There are few ranges, since only a step of the clock begins a new one.
#[derive(Clone, Debug)]
pub(super) struct UsedIds {
    /// First and last id of each range, ascending; no two ranges touch.
    ranges: Vec<(u64, u64)>,
}

impl UsedIds {
    pub(super) fn new(first: SampleId, last: SampleId) -> Self {
        Self { ranges: vec![(first.0, last.0)] }
    }

    /// The last id of the range that holds this id; `None` for an unused id.
    pub(super) fn range_end(&self, id: SampleId) -> Option<SampleId> {
        let from_id_on = self.ranges.partition_point(|(_, last)| *last < id.0);
        let (first, last) = self.ranges.get(from_id_on)?;
        (*first <= id.0).then_some(SampleId(*last))
    }

    /// Number of unused ids from `first` on and below `end`; 0 if `end` is not above `first`.
    pub(super) fn count_unused(&self, first: SampleId, end: SampleId) -> u64 {
        if end <= first {
            return 0;
        }
        let from_first_on = self.ranges.partition_point(|(_, last)| *last < first.0);
        let below_end = self.ranges[from_first_on..].iter().take_while(|(first, _)| *first < end.0);
        let used = below_end.map(|range| range.1.min(end.0 - 1) - range.0.max(first.0) + 1);
        end.0 - first.0 - used.sum::<u64>()
    }

    /// Adds the ids from `first` to `last`, both included.
    pub(super) fn insert(&mut self, first: SampleId, last: SampleId) {
        let joined_from = self.ranges.partition_point(|range| range.1.saturating_add(1) < first.0);
        let joined_to = self.ranges.partition_point(|range| range.0 <= last.0.saturating_add(1));
        let joined = &self.ranges[joined_from..joined_to];
        let joined_first = joined.first().map_or(first.0, |range| range.0.min(first.0));
        let joined_last = joined.last().map_or(last.0, |range| range.1.max(last.0));
        self.ranges.splice(joined_from..joined_to, [(joined_first, joined_last)]);
        if self.ranges.len() > MAX_RANGES {
            self.join_nearest();
        }
    }

    fn join_nearest(&mut self) {
        let gap = |at: &usize| self.ranges[*at].0 - self.ranges[*at - 1].1;
        let Some(at) = (1..self.ranges.len()).min_by_key(gap) else { return };
        let (_, last) = self.ranges.remove(at);
        self.ranges[at - 1].1 = last;
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn insert(used: &mut UsedIds, first: u64, last: u64) {
        used.insert(SampleId(first), SampleId(last));
    }

    #[test]
    fn ids_that_touch_become_one_range() {
        let mut used = UsedIds::new(SampleId(0), SampleId(10));
        insert(&mut used, 11, 11);
        insert(&mut used, 20, 30);
        insert(&mut used, 40, 40);
        insert(&mut used, 39, 39);
        assert_eq!(used.ranges, [(0, 11), (20, 30), (39, 40)]);
        insert(&mut used, 12, 19);
        assert_eq!(used.ranges, [(0, 30), (39, 40)]);
        let unused = |first, end| used.count_unused(SampleId(first), SampleId(end));
        assert_eq!(
            [unused(0, 50), unused(31, 39), unused(35, 40), unused(5, 5), unused(6, 5)],
            [17, 8, 4, 0, 0]
        );
        let ends = [0, 30, 31, 39, 41].map(|id| used.range_end(SampleId(id)).map(|end| end.0));
        assert_eq!(ends, [Some(30), Some(30), None, Some(40), None]);
    }

    #[test]
    fn the_largest_id_is_no_overflow() {
        let mut used = UsedIds::new(SampleId(u64::MAX), SampleId(u64::MAX));
        insert(&mut used, 0, 0);
        assert_eq!(used.ranges, [(0, 0), (u64::MAX, u64::MAX)]);
        insert(&mut used, 0, u64::MAX);
        assert_eq!(used.ranges, [(0, u64::MAX)]);
    }

    proptest! {
        #[test]
        fn a_used_id_stays_used_and_ranges_are_bounded(ids in vec(0..10_000_u64, 1..400)) {
            let mut used = UsedIds::new(SampleId(5000), SampleId(5000));
            for (at, id) in ids.iter().enumerate() {
                insert(&mut used, *id, *id);
                prop_assert!(used.ranges.len() <= MAX_RANGES);
                prop_assert!(ids[..=at].iter().all(|id| used.range_end(SampleId(*id)).is_some()));
                prop_assert!(used.ranges.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
            }
        }
    }
}
