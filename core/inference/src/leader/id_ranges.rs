//! A set of sample ids as ranges. Neighbouring ids share one range.

use std::collections::BTreeMap;

use headwater_protocol::SampleId;
use serde::{Deserialize, Serialize};

use super::Micros;

/// Largest number of ranges that [`IdRanges::newest_since`] looks at, from the highest id down.
const MAX_SCANNED: usize = 4096;

/// Ids as ranges that neither overlap nor touch.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct IdRanges {
    /// Ranges by their first id.
    ranges: BTreeMap<SampleId, Range>,
}

/// End of a range, and when it last changed.
#[derive(Clone, Serialize, Deserialize)]
struct Range {
    last: SampleId,
    changed: Micros,
}

impl IdRanges {
    pub(super) fn contains(&self, sample: SampleId) -> bool {
        let below = self.ranges.range(..=sample).next_back();
        below.is_some_and(|(_, range)| sample <= range.last)
    }

    /// Adds the ids from `first` to `last`, and merges the ranges that they touch. Adding the next id of a range allocates nothing.
    pub(super) fn insert(&mut self, first: SampleId, mut last: SampleId, now: Micros) {
        let behind = SampleId(last.0.saturating_add(1));
        while let Some((&start, range)) = self.ranges.range_mut(..=behind).next_back() {
            if range.last.0.saturating_add(1) < first.0 {
                break;
            }
            last = last.max(range.last);
            if start <= first {
                *range = Range { last, changed: now };
                return;
            }
            self.ranges.remove(&start);
        }
        self.ranges.insert(first, Range { last, changed: now });
    }

    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Removes the lowest range and returns its last id.
    pub(super) fn pop_lowest(&mut self) -> Option<SampleId> {
        self.ranges.pop_first().map(|(_, range)| range.last)
    }

    /// The largest id below `end`.
    pub(super) fn largest_below(&self, end: SampleId) -> Option<SampleId> {
        let (_, range) = self.ranges.range(..end).next_back()?;
        Some(range.last.min(SampleId(end.0.saturating_sub(1))))
    }

    /// First and last id of every range, lowest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SampleId, SampleId)> + '_ {
        self.ranges.iter().map(|(first, range)| (*first, range.last))
    }

    /// The newest `max` ranges that changed at `since` or later, lowest first.
    pub(super) fn newest_since(&self, since: Micros, max: usize) -> Vec<(SampleId, SampleId)> {
        let newest = self.ranges.iter().rev().take(MAX_SCANNED);
        let changed = newest.filter(|(_, range)| range.changed >= since).take(max);
        let mut ranges: Vec<_> = changed.map(|(first, range)| (*first, range.last)).collect();
        ranges.reverse();
        ranges
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn ranges(inserted: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let mut ranges = IdRanges::default();
        for (first, last) in inserted {
            ranges.insert(SampleId(*first), SampleId(*last), Micros(0));
        }
        ranges.iter().map(|(first, last)| (first.0, last.0)).collect()
    }

    #[test]
    fn neighbouring_ids_share_a_range() {
        assert_eq!(ranges(&[(5, 5), (6, 6), (4, 4)]), [(4, 6)]);
        assert_eq!(ranges(&[(5, 5), (7, 7)]), [(5, 5), (7, 7)]);
        assert_eq!(ranges(&[(5, 5), (7, 7), (6, 6)]), [(5, 7)]);
        assert_eq!(ranges(&[(1, 2), (4, 5), (8, 9), (3, 8)]), [(1, 9)]);
        assert_eq!(ranges(&[(3, 9), (4, 5), (3, 3), (9, 9)]), [(3, 9)]);
    }

    #[test]
    fn the_smallest_and_the_largest_id_have_no_neighbour_beyond() {
        let max = u64::MAX;
        assert_eq!(ranges(&[(max, max), (0, 0), (max - 1, max - 1), (1, 1)]), [(0, 1), (max - 1, max)]);
        assert_eq!(ranges(&[(0, max), (7, 7)]), [(0, max)]);
        let mut all = IdRanges::default();
        all.insert(SampleId(0), SampleId(0), Micros(0));
        assert_eq!((all.largest_below(SampleId(0)), all.contains(SampleId(0))), (None, true));
    }

    #[test]
    fn the_newest_ranges_that_changed_lately_are_named_lowest_first() {
        let mut ranges = IdRanges::default();
        for (sample, at) in [(1, 0), (3, 10), (5, 20), (7, 9)] {
            ranges.insert(SampleId(sample), SampleId(sample), Micros(at));
        }
        let found = |since, max| -> Vec<u64> {
            ranges.newest_since(Micros(since), max).iter().map(|(first, _)| first.0).collect()
        };
        assert_eq!((found(10, 9), found(11, 9), found(0, 2)), (vec![3, 5], vec![5], vec![5, 7]));
    }

    proptest! {
        #[test]
        fn ranges_equal_a_set_of_ids(inserted in prop::collection::vec((0u64..40, 0u64..6), 0..40)) {
            let (mut ranges, mut set) = (IdRanges::default(), BTreeSet::new());
            for (first, more) in inserted {
                ranges.insert(SampleId(first), SampleId(first + more), Micros(0));
                set.extend(first..=first + more);
            }
            for sample in 0..50 {
                prop_assert_eq!(ranges.contains(SampleId(sample)), set.contains(&sample));
                let below = set.range(..sample).next_back().copied();
                prop_assert_eq!(ranges.largest_below(SampleId(sample)), below.map(SampleId));
            }
            let found: Vec<_> = ranges.iter().collect();
            prop_assert!(found.windows(2).all(|pair| pair[0].1.0 + 1 < pair[1].0.0), "{:?}", found);
        }
    }
}
