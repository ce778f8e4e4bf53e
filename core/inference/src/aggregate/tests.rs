//! Aggregation against its definition, for all presence patterns.

use super::*;
use headwater_kernels::{pack_signs, packed_len};
use proptest::prelude::*;

fn rows(values: &[f32], slots: usize) -> Vec<&[f32]> {
    values.chunks_exact(values.len() / slots).collect()
}

fn is_present(mask: u64, slot: usize) -> bool {
    mask >> slot & 1 == 1
}

/// Maximum and mean by their definitions; `None` if no row is present.
fn reference_join(rows: &[&[f32]], mask: u64) -> Option<(Vec<f32>, Vec<f32>)> {
    let present: Vec<_> =
        (0..rows.len()).filter(|&slot| is_present(mask, slot)).map(|slot| rows[slot]).collect();
    let column = |i: usize| present.iter().map(move |row| row[i]);
    let largest = |i| column(i).reduce(f32::max).unwrap();
    let mean = |i| column(i).sum::<f32>() / present.len() as f32;
    let n = present.first()?.len();
    Some(((0..n).map(largest).collect(), (0..n).map(mean).collect()))
}

fn reference_concat(rows: &[&[f32]], mask: u64, plane: usize) -> Vec<f32> {
    let mut joined = Vec::new();
    for (slot, row) in rows.iter().enumerate() {
        joined.extend(row.iter().map(|&value| if is_present(mask, slot) { value } else { 0.0 }));
    }
    for slot in 0..rows.len() {
        joined.extend(vec![if is_present(mask, slot) { 1.0 } else { 0.0 }; plane]);
    }
    joined
}

fn pack_rows(rows: &[&[f32]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for row in rows {
        let start = bytes.len();
        bytes.resize(start + packed_len(row.len()), 0);
        pack_signs(row, &mut bytes[start..]);
    }
    bytes
}

#[track_caller]
fn check(values: &[f32], slots: usize, mask: u64, channels: usize) {
    let present = SourceSet::from_bits(mask);
    let rows = rows(values, slots);
    let n = rows[0].len();
    let (mut largest, mut average) = (vec![9.0; n], vec![9.0; n]);
    match reference_join(&rows, mask) {
        Some((expected_max, expected_mean)) => {
            max(values, present, &mut largest).unwrap();
            mean(values, present, &mut average).unwrap();
            assert_eq!((largest, average), (expected_max, expected_mean));
        }
        None => {
            assert_eq!(max(values, present, &mut largest), Err(AggregateError::NoView));
            assert_eq!(mean(values, present, &mut average), Err(AggregateError::NoView));
        }
    }
    let mut joined = vec![9.0; values.len() + slots];
    concat(values, slots, 1, present, &mut joined).unwrap();
    assert_eq!(joined, reference_concat(&rows, mask, 1));

    let signs: Vec<f32> = values.iter().map(|&v| if v >= 0.0 { 1.0 } else { -1.0 }).collect();
    let sign_rows: Vec<_> = signs.chunks_exact(n).collect();
    let maps = pack_rows(&sign_rows);
    let (mut largest, mut average) = (vec![9.0; n], vec![9.0; n]);
    match reference_join(&sign_rows, mask) {
        Some((expected_max, expected_mean)) => {
            max_of_bits(&maps, present, &mut largest).unwrap();
            mean_of_bits(&maps, present, &mut average).unwrap();
            assert_eq!((largest, average), (expected_max, expected_mean));
        }
        None => {
            assert_eq!(max_of_bits(&maps, present, &mut largest), Err(AggregateError::NoView));
            assert_eq!(mean_of_bits(&maps, present, &mut average), Err(AggregateError::NoView));
        }
    }
    let plane = n / channels;
    let mut joined = vec![9.0; slots * n + slots * plane];
    concat_bits(&maps, slots, plane, present, &mut joined).unwrap();
    assert_eq!(joined, reference_concat(&sign_rows, mask, plane));
}

#[test]
fn every_presence_pattern_of_six_slots_equals_the_reference() {
    let values: Vec<f32> = (0..6 * 18).map(|i| ((i * 37 % 101) as f32 - 50.0) / 7.0).collect();
    for mask in 0..64 {
        check(&values, 6, mask, 2);
    }
}

#[test]
fn sixty_four_slots_work() {
    let values: Vec<f32> = (0..64 * 3).map(|i| i as f32 - 90.0).collect();
    check(&values, 64, u64::MAX, 1);
    check(&values, 64, 1 << 63, 1);
}

#[test]
fn bits_of_slots_that_do_not_exist_have_no_effect() {
    let mut out = [0.0];
    mean(&[2.0, 4.0], SourceSet::from_bits(u64::MAX), &mut out).unwrap();
    assert_eq!(out, [3.0]);
    assert_eq!(max(&[2.0, 4.0], SourceSet::from_bits(0b100), &mut out), Err(AggregateError::NoView));
}

#[test]
fn a_nan_of_one_device_is_not_the_maximum_and_makes_the_mean_nan() {
    let mut out = [0.0];
    max(&[f32::NAN, 1.0], SourceSet::first(2), &mut out).unwrap();
    assert_eq!(out, [1.0]);
    mean(&[f32::NAN, 1.0], SourceSet::first(2), &mut out).unwrap();
    assert!(out[0].is_nan());
}

#[test]
fn buffers_that_do_not_fit_are_refused() {
    let mut out = [0.0; 3];
    let one = SourceSet::first(1);
    assert!(matches!(max(&[0.0; 7], one, &mut out), Err(AggregateError::Length { .. })));
    assert!(matches!(mean(&[0.0; 2], one, &mut out), Err(AggregateError::Length { .. })));
    assert!(matches!(concat(&[0.0; 4], 2, 1, one, &mut out), Err(AggregateError::Length { .. })));
    assert!(matches!(max_of_bits(&[], one, &mut out), Err(AggregateError::Length { .. })));
    assert!(matches!(concat_bits(&[0; 3], 2, 1, one, &mut out), Err(AggregateError::Length { .. })));
}

proptest! {
    #[test]
    fn aggregation_equals_the_reference(
        slots in 1usize..9,
        channels in 1usize..4,
        plane in 1usize..12,
        mask in any::<u64>(),
        seed in prop::collection::vec(-10.0f32..10.0, 400),
    ) {
        check(&seed[..slots * channels * plane], slots, mask, channels);
    }
}
