//! Draws parts for data that has none, so that shares and classes come out as requested.
//!
//! Samples that belong together form a group: frames of one scene, views of one object, copies of one image. A group goes to one part.
//! The rarest class is divided first, and within a class the largest group. A group goes to the part that lacks the most samples of the
//! class. A hash of seed and name orders equal groups.
//!
//! This is stratification by groups after Sechidis, Tsoumakas and Vlahavas, "On the Stratification of Multi-Label Data", ECML PKDD 2011,
//! section 3.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::Part;
use crate::error::Mismatch;

/// Most attempts, each with another order of equal groups, to bring every class into every part.
const ATTEMPTS: u64 = 16;

/// Rule that divides data without train, validation and test parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Share of each part.
    pub shares: Shares,
    /// Seed of the order of equal groups.
    pub seed: u64,
}

/// Positive weights of train, validation and test: `80,10,10` is eight tenths, a tenth and a tenth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares([u16; 3]);

impl Default for Shares {
    fn default() -> Self {
        Self([80, 10, 10])
    }
}

impl FromStr for Shares {
    type Err = Mismatch;

    fn from_str(text: &str) -> Result<Self, Mismatch> {
        let share = |share: &str| share.trim().parse().ok().filter(|&share: &u16| share > 0);
        let shares: Option<Vec<u16>> = text.split(',').map(share).collect();
        let shares = shares.and_then(|shares| shares.try_into().ok()).map(Self);
        let expected = "three whole numbers above 0 for train, validation and test, such as 80,10,10";
        shares.ok_or_else(|| Mismatch::new(expected, format!("`{text}`")))
    }
}

impl std::fmt::Display for Shares {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [train, validation, test] = self.0;
        write!(f, "{train},{validation},{test}")
    }
}

/// Groups of samples (disjoint sets). The first sample identifies a group.
#[derive(Clone, Debug)]
pub struct Groups {
    /// An earlier sample of the same group, or the sample itself.
    earlier: Vec<usize>,
}

impl Groups {
    /// One group per sample.
    #[must_use]
    pub fn new(samples: usize) -> Self {
        Self { earlier: (0..samples).collect() }
    }

    /// Joins the groups of two samples.
    pub fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.first(one), self.first(other));
        self.earlier[one.max(other)] = one.min(other);
    }

    /// First sample of a sample's group.
    pub fn first(&mut self, sample: usize) -> usize {
        let mut at = sample;
        while self.earlier[at] != at {
            self.earlier[at] = self.earlier[self.earlier[at]];
            at = self.earlier[at];
        }
        at
    }
}

/// Error of a class that cannot be in every part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MissingClass {
    pub(crate) class: usize,
    /// Groups with samples of the class.
    pub(crate) groups: usize,
}

/// Samples that stay in one part.
#[derive(Default)]
struct Group {
    members: Vec<usize>,
    /// Number of samples of each class.
    classes: BTreeMap<usize, usize>,
}

/// A division in progress: the part of each group that has one, and counts of the samples.
struct Division<'a> {
    shares: Shares,
    groups: &'a [Group],
    part_of: Vec<Option<usize>>,
    /// Samples in each part, by class.
    of_class: BTreeMap<usize, [usize; 3]>,
    /// Samples in each part.
    of_all: [usize; 3],
}

impl Split {
    /// The part of each sample. `classes` and `names` have one entry per sample. The name makes the draw of a group independent of the
    /// other groups.
    pub(crate) fn parts(
        &self,
        classes: &[usize],
        names: &[&str],
        groups: &mut Groups,
    ) -> Result<Vec<Part>, MissingClass> {
        let groups = grouped(classes, groups);
        let mut missing = None;
        for attempt in 0..ATTEMPTS {
            let rank = |group: &Group| self.rank(attempt, names[group.members[0]]);
            let ranks: Vec<u64> = groups.iter().map(rank).collect();
            match Division::new(self.shares, &groups).divide(&ranks) {
                Ok(part_of) => {
                    let parts = part_of.into_iter().map(|part| Part::REQUIRED[part]);
                    return Ok(of_samples(&groups, classes.len(), parts));
                }
                Err(error) => missing = missing.or(Some(error)),
            }
        }
        Err(missing.expect("every failed attempt names a class"))
    }

    /// The part of each sample in one of several folds: the groups of each class are dealt to the folds in turn. Fold `fold` is the test
    /// part, the next fold the validation part, and the other folds are the train part. Shares have no influence.
    pub(crate) fn parts_of_fold(
        &self,
        classes: &[usize],
        names: &[&str],
        groups: &mut Groups,
        [fold, folds]: [usize; 2],
    ) -> Result<Vec<Part>, MissingClass> {
        let groups = grouped(classes, groups);
        let ranks: Vec<u64> = groups.iter().map(|group| self.rank(0, names[group.members[0]])).collect();
        let part = |dealt: usize| match (dealt + folds - fold) % folds {
            0 => Part::Test,
            1 => Part::Validation,
            _ => Part::Train,
        };
        let parts = dealt(&groups, &ranks, folds)?.into_iter().map(part);
        Ok(of_samples(&groups, classes.len(), parts))
    }

    /// Number that orders equal groups: a hash of the seed, the attempt and the name of the group's first sample.
    fn rank(&self, attempt: u64, name: &str) -> u64 {
        let mut hash = Sha256::new();
        hash.update(self.seed.to_le_bytes());
        hash.update(attempt.to_le_bytes());
        hash.update(name);
        u64::from_be_bytes(*hash.finalize().first_chunk().expect("a hash of 32 bytes"))
    }
}

/// The groups with their members and classes.
fn grouped(classes: &[usize], groups: &mut Groups) -> Vec<Group> {
    let mut by_first: BTreeMap<usize, Group> = BTreeMap::new();
    for (sample, class) in classes.iter().enumerate() {
        let group = by_first.entry(groups.first(sample)).or_default();
        group.members.push(sample);
        *group.classes.entry(*class).or_default() += 1;
    }
    by_first.into_values().collect()
}

/// The part of each sample, from the parts of the groups.
fn of_samples(groups: &[Group], samples: usize, parts: impl Iterator<Item = Part>) -> Vec<Part> {
    let mut of_samples = vec![Part::Train; samples];
    for (group, part) in groups.iter().zip(parts) {
        group.members.iter().for_each(|&sample| of_samples[sample] = part);
    }
    of_samples
}

/// Classes with the indices of their groups; the class with the fewest groups first.
fn rarest_first(groups: &[Group]) -> Vec<(usize, Vec<usize>)> {
    let mut groups_of: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (index, group) in groups.iter().enumerate() {
        group.classes.keys().for_each(|&class| groups_of.entry(class).or_default().push(index));
    }
    let mut rarest_first: Vec<(usize, Vec<usize>)> = groups_of.into_iter().collect();
    rarest_first.sort_by_key(|(class, groups)| (groups.len(), *class));
    rarest_first
}

/// The fold of each group. A group goes to the fold with the fewest groups of the class, and of equal folds to the one with the fewest samples. Every
/// fold has every class.
fn dealt(groups: &[Group], ranks: &[u64], folds: usize) -> Result<Vec<usize>, MissingClass> {
    let mut fold_of: Vec<Option<usize>> = vec![None; groups.len()];
    let mut samples = vec![0_usize; folds];
    for (class, mut of_class) in rarest_first(groups) {
        let mut counts = vec![0_usize; folds];
        of_class.iter().filter_map(|&group| fold_of[group]).for_each(|fold| counts[fold] += 1);
        of_class.sort_by_key(|&group| ranks[group]);
        for &group in &of_class {
            if fold_of[group].is_none() {
                let fold = (0..folds).min_by_key(|&fold| (counts[fold], samples[fold])).unwrap_or(0);
                fold_of[group] = Some(fold);
                counts[fold] += 1;
                samples[fold] += groups[group].members.len();
            }
        }
        if counts.contains(&0) {
            return Err(MissingClass { class, groups: of_class.len() });
        }
    }
    Ok(fold_of.into_iter().map(|fold| fold.expect("every group has a class")).collect())
}

impl<'a> Division<'a> {
    fn new(shares: Shares, groups: &'a [Group]) -> Self {
        Self { shares, groups, part_of: vec![None; groups.len()], of_class: BTreeMap::new(), of_all: [0; 3] }
    }

    /// The part of each group.
    fn divide(mut self, ranks: &[u64]) -> Result<Vec<usize>, MissingClass> {
        let samples: usize = self.groups.iter().map(|group| group.members.len()).sum();
        for (class, groups) in rarest_first(self.groups) {
            let count = |group: usize| self.groups[group].classes[&class];
            let of_class: usize = groups.iter().map(|&group| count(group)).sum();
            let mut open: Vec<usize> =
                groups.iter().copied().filter(|&group| self.part_of[group].is_none()).collect();
            open.sort_by_key(|&group| (Reverse(count(group)), ranks[group]));
            for (at, &group) in open.iter().enumerate() {
                let part = self.next_part(class, open.len() - at, of_class, samples);
                self.assign(group, part);
            }
            if self.of_class[&class].contains(&0) {
                return Err(MissingClass { class, groups: groups.len() });
            }
        }
        Ok(self.part_of.into_iter().map(|part| part.expect("every group has a class")).collect())
    }

    /// The part that lacks the most samples of the class, and of equal parts the one that lacks the most samples of all classes. If only
    /// as many groups are `left` as parts have no sample of the class, or fewer, the choice is among these parts.
    ///
    /// `of_class` is the number of samples of the class in all groups, `samples` the number of samples of all classes.
    fn next_part(&self, class: usize, left: usize, of_class: usize, samples: usize) -> usize {
        let counts = self.of_class.get(&class).copied().unwrap_or_default();
        let only_empty = left <= counts.iter().filter(|&&count| count == 0).count();
        let lack = |part: usize| {
            (self.lack(part, of_class, counts[part]), self.lack(part, samples, self.of_all[part]))
        };
        // Of equal parts the first wins, so that train comes before validation and test.
        (0..3)
            .filter(|&part| !only_empty || counts[part] == 0)
            .reduce(|best, part| if lack(part) > lack(best) { part } else { best })
            .unwrap_or(0)
    }

    fn assign(&mut self, group: usize, part: usize) {
        self.part_of[group] = Some(part);
        for (class, count) in &self.groups[group].classes {
            self.of_class.entry(*class).or_default()[part] += count;
        }
        self.of_all[part] += self.groups[group].members.len();
    }

    /// Samples of `total` that a part lacks, times the sum of the shares. Whole numbers avoid rounding.
    fn lack(&self, part: usize, total: usize, count: usize) -> i64 {
        let Shares(shares) = self.shares;
        let sum: i64 = shares.iter().copied().map(i64::from).sum();
        i64::from(shares[part]) * total as i64 - sum * count as i64
    }
}
