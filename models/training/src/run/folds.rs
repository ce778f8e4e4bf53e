//! Folds of a train part. A fold has whole groups, so that no network is evaluated on an object on which it was trained. Successive groups
//! form a fold, so that a network is evaluated on neighbours of its train frames only at the borders of a fold.
//!
//! ```text
//! groups of scenes, in the order of time    | fold 1 | fold 2 | fold 3 | fold 4 |     neighbours resemble each other
//! groups of one class each, such as objects   divided so within each class: each fold has objects of every class
//! ```

use std::collections::BTreeMap;

use crate::recipe::ExitTarget;
use headwater_calibration::promise::{Target, binomial};

/// Number of folds of small grouped data if the recipe names no number.
const AUTOMATIC_FOLDS: u32 = 4;

/// Sizes of the validation and the calibration part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherParts {
    /// Number of samples of the validation part, or of its groups if samples form groups.
    pub validation: usize,
    /// Number of samples of the calibration part.
    pub calibration: usize,
}

/// Division of a train part into folds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folds {
    /// Fold of each sample, from 0.
    of: Vec<u32>,
    count: u32,
}

impl Folds {
    /// Number of folds that a recipe asks for; 0 for none. If the recipe names no number: 4, if train samples form groups, there is no
    /// calibration part, and the validation part is too small to show the target; otherwise 0.
    pub fn asked(exit: ExitTarget, is_grouped: bool, others: OtherParts) -> u32 {
        let target = Target::from(exit);
        let is_small = others.calibration == 0
            && (others.validation as u64) < binomial::least_samples(target.loss, target.delta());
        exit.folds.unwrap_or(if is_small && is_grouped { AUTOMATIC_FOLDS } else { 0 })
    }

    /// Divides samples with these labels and groups into `count` folds of whole groups, or into one fold per group if there are fewer
    /// groups. Without groups each sample is a group. `None` for fewer than two folds, or if a fold would be empty.
    pub fn divide(labels: &[u16], groups: &[u32], count: u32) -> Option<Self> {
        let alone: Vec<u32> = (0..labels.len() as u32).collect();
        let groups = if groups.is_empty() { &alone } else { groups };
        let mut classes: BTreeMap<u32, Vec<u16>> = BTreeMap::new();
        for (group, label) in groups.iter().zip(labels) {
            classes.entry(*group).or_default().push(*label);
        }
        let count = count.min(classes.len() as u32);
        if count < 2 {
            return None;
        }
        let has_one_class = |labels: &Vec<u16>| labels.iter().all(|label| *label == labels[0]);
        let by_class = classes.values().all(has_one_class);
        // Lists of groups, each divided among all folds by itself: one list per class if every group has one class, else one list.
        let mut strata: BTreeMap<u16, Vec<u32>> = BTreeMap::new();
        for (group, labels) in &classes {
            strata.entry(if by_class { labels[0] } else { 0 }).or_default().push(*group);
        }
        let mut fold_of: BTreeMap<u32, u32> = BTreeMap::new();
        for (first, stratum) in strata.values().enumerate() {
            for (at, group) in stratum.iter().enumerate() {
                // The list of each class begins with another fold, which makes the folds about equally large.
                let run = (at * count as usize / stratum.len()) as u32;
                fold_of.insert(*group, (run + first as u32) % count);
            }
        }
        let of = groups.iter().map(|group| fold_of[group]).collect();
        let folds = Self { of, count };
        // Few groups of many classes may leave a fold empty.
        (0..count).all(|fold| folds.of.contains(&fold)).then_some(folds)
    }

    /// Number of folds, at least 2.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Samples of a fold, on which the network of the fold is not trained.
    pub fn left_out(&self, fold: u32) -> Vec<usize> {
        (0..self.of.len()).filter(|sample| self.of[*sample] == fold).collect()
    }

    /// Samples of the other folds, on which the network of this fold is trained.
    pub fn kept(&self, fold: u32) -> Vec<usize> {
        (0..self.of.len()).filter(|sample| self.of[*sample] != fold).collect()
    }
}

#[cfg(test)]
mod tests {
    use headwater_protocol::SlotSet;

    use super::*;
    use headwater_calibration::data::Samples;

    /// Samples of these groups and classes.
    fn samples(of: impl Iterator<Item = (u32, u16)>) -> Samples {
        let (groups, labels): (Vec<u32>, Vec<u16>) = of.unzip();
        let seen = vec![SlotSet::first(1); labels.len()];
        Samples { shape: [1, 1, 1], slots: 1, classes: 8, labels, groups, seen, ..Samples::default() }
    }

    fn divide(samples: &Samples, count: u32) -> Option<Folds> {
        Folds::divide(&samples.labels, &samples.groups, count)
    }

    /// Eight classes of six objects, four samples each, as `eth80` has them.
    fn objects() -> Samples {
        samples((0..192).map(|sample| (sample / 4, (sample / 24) as u16)))
    }

    #[test]
    fn each_fold_leaves_out_whole_objects_of_every_class() {
        let samples = objects();
        let folds = divide(&samples, 4).unwrap();
        for fold in 0..4 {
            let left_out = samples.subset(&folds.left_out(fold));
            assert_eq!((left_out.len(), left_out.group_count()), (48, Some(12)), "fold {fold}");
            assert!(left_out.prior().iter().all(|share| *share > 0.0), "fold {fold}");
            let kept = samples.subset(&folds.kept(fold));
            assert!(left_out.groups.iter().all(|group| !kept.groups.contains(group)), "fold {fold}");
        }
        assert_eq!(divide(&samples, 4).unwrap(), folds);
    }

    #[test]
    fn scenes_of_several_classes_are_divided_into_runs() {
        // Each scene has a sample of each class; samples are sorted by class, so the two samples of a scene are not neighbours.
        let samples = samples((0..40).map(|sample| (sample % 20, (sample / 20) as u16)));
        let folds = divide(&samples, 4).unwrap();
        let scenes = |fold| samples.subset(&folds.left_out(fold)).groups;
        assert_eq!(scenes(1), [(5..10).collect::<Vec<u32>>(), (5..10).collect()].concat());
    }

    #[test]
    fn there_are_no_more_folds_than_groups() {
        let two = samples((0..8).map(|sample| (sample / 4, (sample % 2) as u16)));
        assert_eq!(divide(&two, 4).unwrap().count(), 2);
        let one = samples((0..8).map(|sample| (0, (sample % 2) as u16)));
        assert_eq!(divide(&one, 4), None);
        assert_eq!(divide(&two, 0), None);
    }

    #[test]
    fn small_grouped_data_has_folds_unless_the_recipe_says_otherwise() {
        let exit = |folds| ExitTarget { folds, ..ExitTarget::default() };
        let count = |folds, validation, calibration| {
            Folds::asked(exit(folds), true, OtherParts { validation, calibration })
        };
        // The least number of samples that can show half a point at 95 % is 598.
        assert_eq!([count(None, 32, 0), count(None, 597, 0), count(None, 598, 0)], [4, 4, 0]);
        assert_eq!([count(None, 32, 1), count(Some(0), 32, 0), count(Some(3), 5000, 9)], [0, 0, 3]);
        assert_eq!(Folds::asked(exit(None), false, OtherParts { validation: 32, calibration: 0 }), 0);
    }
}
