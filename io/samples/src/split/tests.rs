use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn names(samples: usize) -> Vec<String> {
    (0..samples).map(|sample| format!("sample {sample}")).collect()
}

fn cut(split: Split, classes: &[usize], groups: &[usize]) -> Result<Vec<Part>, MissingClass> {
    let names = names(classes.len());
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut joined = Groups::new(classes.len());
    for sample in 0..groups.len() {
        let first = groups.iter().position(|group| *group == groups[sample]).unwrap();
        joined.join(first, sample);
    }
    split.parts(classes, &names, &mut joined)
}

fn counts(parts: &[Part]) -> [usize; 3] {
    Part::REQUIRED.map(|part| parts.iter().filter(|found| **found == part).count())
}

fn alone(samples: usize) -> Vec<usize> {
    (0..samples).collect()
}

#[test]
fn shares_are_kept_in_every_class() {
    let classes: Vec<usize> = (0..300).map(|sample| usize::from(sample % 3 == 0)).collect();
    let parts = cut(Split::default(), &classes, &alone(300)).unwrap();
    for (class, expected) in [(0, [160, 20, 20]), (1, [80, 10, 10])] {
        let of_class: Vec<Part> =
            parts.iter().zip(&classes).filter(|(_, found)| **found == class).map(|(part, _)| *part).collect();
        assert_eq!(counts(&of_class), expected);
    }
    let halves = Split { shares: "2,1,1".parse().unwrap(), seed: 0 };
    assert_eq!(counts(&cut(halves, &[0; 40], &alone(40)).unwrap()), [20, 10, 10]);
}

#[test]
fn a_class_of_three_groups_is_in_every_part() {
    assert_eq!(counts(&cut(Split::default(), &[0; 9], &[0, 0, 0, 0, 1, 1, 1, 2, 2]).unwrap()), [4, 3, 2]);
}

#[test]
fn a_class_with_too_few_groups_is_named() {
    let mut classes = vec![0; 20];
    classes.extend([1, 1, 1, 1]);
    let mut groups = alone(20);
    groups.extend([20, 20, 21, 21]);
    assert_eq!(cut(Split::default(), &classes, &groups), Err(MissingClass { class: 1, groups: 2 }));
}

#[test]
fn every_group_is_once_in_the_test_part_and_once_in_the_validation_part_of_a_fold() {
    // Nine objects of each of three classes, two samples of each object; a scene shows the last object of two classes.
    let classes: Vec<usize> = (0..54).map(|sample| sample / 18).collect();
    let groups: Vec<usize> = (0..54).map(|sample| if sample == 53 { 17 } else { sample / 2 }).collect();
    let fold = |number: usize, seed: u64| {
        let mut joined = Groups::new(54);
        groups.iter().enumerate().for_each(|(sample, group)| joined.join(2 * group, sample));
        let (names, split) = (names(54), Split { seed, ..Split::default() });
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        split.parts_of_fold(&classes, &names, &mut joined, [number, 9])
    };
    let folds: Vec<Vec<Part>> = (0..9).map(|number| fold(number, 0).unwrap()).collect();
    for sample in 0..54 {
        let of_sample: Vec<Part> = folds.iter().map(|parts| parts[sample]).collect();
        assert_eq!(counts(&of_sample), [7, 1, 1]);
        let first = groups.iter().position(|group| *group == groups[sample]).unwrap();
        assert!(folds.iter().all(|parts| parts[sample] == parts[first]), "sample {sample}");
    }
    for (parts, next) in folds.iter().zip(folds.iter().cycle().skip(1)) {
        for class in 0..3 {
            let of_test = |sample: &usize| classes[*sample] == class && parts[*sample] == Part::Test;
            assert!((0..54).any(|sample| of_test(&sample)), "class {class}");
        }
        assert!((0..54).all(|sample| (parts[sample] == Part::Validation) == (next[sample] == Part::Test)));
    }
    assert_ne!(fold(0, 0), fold(0, 1));
    let mut few = Groups::new(8);
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let refused = Split::default().parts_of_fold(&[0, 0, 0, 0, 0, 1, 1, 1], &names, &mut few, [0, 4]);
    assert_eq!(refused, Err(MissingClass { class: 1, groups: 3 }));
}

#[test]
fn invalid_shares_are_refused() {
    for text in ["", "80", "80,10", "80,20,0", "80,10,10,5", "80,10,x", "-1,1,1"] {
        let error = text.parse::<Shares>().unwrap_err().to_string();
        assert!(error.contains(&format!("found `{text}`")), "{error}");
    }
    assert_eq!("70, 15,15".parse::<Shares>().unwrap().to_string(), "70,15,15");
}

/// One digit per sample: the number of its part.
fn digits(parts: &[Part]) -> String {
    parts.iter().map(|part| (*part as usize).to_string()).collect()
}

#[test]
fn the_parts_of_a_seed_never_change() {
    let classes: Vec<usize> = (0..300).map(|sample| sample * sample % 7 % 3).collect();
    let groups: Vec<usize> = (0..300).map(|sample| sample * 37 % 101 % 80).collect();
    let mut hash = Sha256::new();
    for seed in 0..10 {
        let split = Split { shares: "70,15,15".parse().unwrap(), seed };
        hash.update(digits(&cut(split, &classes, &groups).unwrap()));
    }
    let hash = format!("{:x}", hash.finalize());
    assert_eq!(hash, "e692c3a4136a5dbd7f5c950299dda9aa2cb78f2ff7c2ed0d19519a03f1acff75");
}

proptest! {
    #[test]
    fn a_group_is_in_one_part_and_every_class_in_every_part(
        samples in vec((0..4_usize, 0..25_usize), 1..120), seed in any::<u64>(),
    ) {
        let (classes, groups): (Vec<usize>, Vec<usize>) = samples.into_iter().unzip();
        let split = Split { seed, ..Split::default() };
        if let Ok(parts) = cut(split, &classes, &groups) {
            let torn: BTreeSet<(usize, usize)> =
                groups.iter().zip(&parts).map(|(group, part)| (*group, *part as usize)).collect();
            let whole: BTreeSet<usize> = groups.iter().copied().collect();
            prop_assert_eq!(torn.len(), whole.len());
            let found: BTreeSet<(usize, usize)> =
                classes.iter().zip(&parts).map(|(class, part)| (*class, *part as usize)).collect();
            let known: BTreeSet<usize> = classes.iter().copied().collect();
            prop_assert_eq!(found.len(), 3 * known.len());
        }
    }
}

#[test]
fn a_chain_of_pairs_is_one_group_identified_by_its_first_sample() {
    let mut groups = Groups::new(6);
    for (one, other) in [(5, 3), (1, 5), (4, 2)] {
        groups.join(one, other);
    }
    let firsts: Vec<usize> = (0..6).map(|sample| groups.first(sample)).collect();
    assert_eq!(firsts, [0, 1, 2, 1, 2, 1]);
}
