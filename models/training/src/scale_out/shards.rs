//! Shards of a part of the data, such as one for each rank. Samples that share a scene or an object stay in one shard.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Divides `samples` samples into `count` shards (one for 0), each the ascending indices of its samples. `groups` has the group of each
/// sample, and is empty if samples are independent. Each group, the largest first, goes to the shard with the fewest samples so far; a
/// shard may stay empty.
pub fn divide(groups: &[u32], samples: usize, count: usize) -> Vec<Vec<u32>> {
    let mut shards = vec![Vec::new(); count.max(1)];
    if groups.is_empty() {
        (0..samples as u32).for_each(|sample| shards[sample as usize % count.max(1)].push(sample));
        return shards;
    }
    let mut members: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    groups.iter().zip(0..).for_each(|(group, sample)| members.entry(*group).or_default().push(sample));
    let mut members: Vec<Vec<u32>> = members.into_values().collect();
    members.sort_by_key(|members| Reverse(members.len()));
    for group in members {
        let least = (0..shards.len()).min_by_key(|shard| shards[*shard].len()).unwrap_or_default();
        shards[least].extend(group);
    }
    shards.iter_mut().for_each(|shard| shard.sort_unstable());
    shards
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn independent_samples_are_dealt_out_in_turn() {
        assert_eq!(divide(&[], 5, 2), [vec![0, 2, 4], vec![1, 3]]);
        assert_eq!(divide(&[], 3, 1), [[0, 1, 2]]);
    }

    #[test]
    fn groups_stay_together_and_shards_are_nearly_equal() {
        // Groups of 1, 4, 2, 3 and 2 samples.
        let groups = [0, 1, 1, 1, 1, 2, 2, 3, 3, 3, 4, 4];
        let shards = divide(&groups, groups.len(), 2);
        assert_eq!(shards.iter().map(Vec::len).collect::<Vec<_>>(), [6, 6]);
        let of = |shard: usize| -> Vec<u32> {
            let mut of: Vec<u32> = shards[shard].iter().map(|sample| groups[*sample as usize]).collect();
            of.dedup();
            of
        };
        assert!(of(0).iter().all(|group| !of(1).contains(group)), "{shards:?}");
        let mut all: Vec<u32> = shards.concat();
        all.sort_unstable();
        assert_eq!(all, (0..12).collect::<Vec<u32>>());
    }

    #[test]
    fn more_shards_than_groups_leave_some_empty() {
        assert_eq!(divide(&[0, 0], 2, 3), [vec![0, 1], vec![], vec![]]);
    }
}
