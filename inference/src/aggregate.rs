//! Aggregation: joins what several devices sent, over the slots that are present.
//!
//! | | scores | feature maps |
//! | --- | --- | --- |
//! | max (MP) | `max over present` | the same, of ±1 values |
//! | mean (AP) | `sum over present / number present`, summed in slot order | the same, of ±1 values |
//! | concatenation (CC) | `[slots * classes]`, absent slots 0, then `slots` mask values | `[slots * f]` planes, absent slots 0, then `slots` constant planes of the mask |
//!
//! The mask is a word: bit `i` set where slot `i` is present. With nobody present there is nothing to join: maximum and mean
//! say so, and the caller answers from the class prior. Nothing here allocates.

use headwater_kernels::{packed_len, unpack_signs};
use headwater_protocol::Slot;
use thiserror::Error;

/// What cannot be aggregated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AggregateError {
    /// No slot is present.
    #[error("aggregation: expected at least one present slot, found none")]
    NoView,
    /// A buffer of the wrong length.
    #[error("aggregation: {what}: expected {expected}, found {found}")]
    Length {
        /// Which buffer.
        what: &'static str,
        /// Elements expected.
        expected: usize,
        /// Elements found.
        found: usize,
    },
}

/// Elementwise maximum over the present rows. A NaN counts only where every present row has one.
///
/// # Shapes
/// - `rows`: `[slots, n]`; absent rows are not looked at
/// - `out`: `[n]`
///
/// # Errors
/// [`AggregateError::NoView`] for an empty mask, [`AggregateError::Length`] when `rows` is no multiple of `out`.
pub fn max(rows: &[f32], present: u64, out: &mut [f32]) -> Result<(), AggregateError> {
    fold(rows, present, out, f32::max)
}

/// Elementwise mean over the present rows. Shapes and errors as for [`max`].
///
/// # Errors
/// As for [`max`].
pub fn mean(rows: &[f32], present: u64, out: &mut [f32]) -> Result<(), AggregateError> {
    fold(rows, present, out, |joined, value| joined + value)?;
    divide(out, present & mask_of(rows.len() / out.len().max(1)));
    Ok(())
}

/// Rows side by side, absent ones 0, then the mask as 0 and 1.
///
/// # Shapes
/// - `rows`: `[slots, n]`; absent rows are not looked at
/// - `out`: `[slots * n + slots]`
///
/// # Errors
/// [`AggregateError::Length`] when the buffers do not fit `slots`.
pub fn concat(rows: &[f32], slots: usize, present: u64, out: &mut [f32]) -> Result<(), AggregateError> {
    check_length("concatenated scores", rows.len() + slots, out.len())?;
    let n = rows.len() / slots.max(1);
    check_length("scores", slots * n, rows.len())?;
    let (joined, mask) = out.split_at_mut(rows.len());
    joined.fill(0.0);
    for slot in present_slots(present, slots) {
        joined[slot * n..(slot + 1) * n].copy_from_slice(&rows[slot * n..(slot + 1) * n]);
    }
    write_mask(mask, present, 1);
    Ok(())
}

/// Maximum over the present bit-packed ±1 maps: +1 where any present map has +1.
///
/// # Shapes
/// - `maps`: `[slots, ceil(n / 8)]` bytes; absent maps are not looked at
/// - `out`: `[n]`, values ±1
///
/// # Errors
/// As for [`max`].
pub fn max_of_bits(maps: &[u8], present: u64, out: &mut [f32]) -> Result<(), AggregateError> {
    let slots = check_maps(maps, present, out.len())?;
    let bytes = packed_len(out.len());
    for (at, values) in out.chunks_mut(8).enumerate() {
        let joined = present_slots(present, slots).fold(0, |joined, slot| joined | maps[slot * bytes + at]);
        unpack_signs(&[joined], values);
    }
    Ok(())
}

/// Mean over the present bit-packed ±1 maps. Shapes as for [`max_of_bits`], values in `[-1, 1]`.
///
/// # Errors
/// As for [`max`].
pub fn mean_of_bits(maps: &[u8], present: u64, out: &mut [f32]) -> Result<(), AggregateError> {
    let slots = check_maps(maps, present, out.len())?;
    let bytes = packed_len(out.len());
    out.fill(0.0);
    for slot in present_slots(present, slots) {
        for (byte, values) in maps[slot * bytes..(slot + 1) * bytes].iter().zip(out.chunks_mut(8)) {
            let mut signs = [0.0; 8];
            unpack_signs(&[*byte], &mut signs);
            values.iter_mut().zip(signs).for_each(|(sum, sign)| *sum += sign);
        }
    }
    divide(out, present & mask_of(slots));
    Ok(())
}

/// Bit-packed ±1 maps side by side along the channel axis, absent ones 0, then one constant plane of 0 or 1 a slot.
///
/// # Shapes
/// - `maps`: `[slots, ceil(n / 8)]` bytes, `n = f * plane`; absent maps are not looked at
/// - `plane`: elements of one channel's map, `h * w`
/// - `out`: `[slots * f + slots, h, w]`
///
/// # Errors
/// [`AggregateError::Length`] when the buffers do not fit `slots` and `plane`.
pub fn concat_bits(
    maps: &[u8],
    slots: usize,
    plane: usize,
    present: u64,
    out: &mut [f32],
) -> Result<(), AggregateError> {
    let n = out.len().saturating_sub(slots * plane) / slots.max(1);
    check_length("concatenated maps", slots * n + slots * plane, out.len())?;
    check_length("feature maps", slots * packed_len(n), maps.len())?;
    let (joined, mask) = out.split_at_mut(slots * n);
    joined.fill(0.0);
    let bytes = packed_len(n);
    for slot in present_slots(present, slots) {
        unpack_signs(&maps[slot * bytes..(slot + 1) * bytes], &mut joined[slot * n..(slot + 1) * n]);
    }
    write_mask(mask, present, plane);
    Ok(())
}

/// The mask of a presence row: bit `i` set where `row[i]`; slots from 64 on do not exist.
pub fn mask_from(row: &[bool]) -> u64 {
    row.iter().take(Slot::MAX).enumerate().fold(0, |mask, (slot, &present)| mask | u64::from(present) << slot)
}

fn fold(
    rows: &[f32],
    present: u64,
    out: &mut [f32],
    join: impl Fn(f32, f32) -> f32,
) -> Result<(), AggregateError> {
    let n = out.len();
    let slots = rows.len() / n.max(1);
    check_length("scores", (slots * n).max(n), rows.len())?;
    let mut slots = present_slots(present, slots);
    let first = slots.next().ok_or(AggregateError::NoView)?;
    out.copy_from_slice(&rows[first * n..(first + 1) * n]);
    for slot in slots {
        for (joined, &value) in out.iter_mut().zip(&rows[slot * n..(slot + 1) * n]) {
            *joined = join(*joined, value);
        }
    }
    Ok(())
}

fn divide(sums: &mut [f32], present: u64) {
    let count = present.count_ones() as f32;
    sums.iter_mut().for_each(|sum| *sum /= count);
}

fn write_mask(mask: &mut [f32], present: u64, plane: usize) {
    for (slot, values) in mask.chunks_exact_mut(plane.max(1)).enumerate() {
        values.fill(if present & mask_of(slot + 1) & !mask_of(slot) != 0 { 1.0 } else { 0.0 });
    }
}

/// Number of maps in `maps`, at least one of them present.
fn check_maps(maps: &[u8], present: u64, elements: usize) -> Result<usize, AggregateError> {
    let bytes = packed_len(elements).max(1);
    let slots = maps.len() / bytes;
    check_length("feature maps", (slots * bytes).max(bytes), maps.len())?;
    if present & mask_of(slots) == 0 { Err(AggregateError::NoView) } else { Ok(slots) }
}

/// Slots that are present, in order, one step a set bit.
fn present_slots(present: u64, slots: usize) -> impl Iterator<Item = usize> {
    let mut left = present & mask_of(slots);
    std::iter::from_fn(move || {
        let slot = left.trailing_zeros() as usize;
        left &= left.wrapping_sub(1);
        (slot < Slot::MAX).then_some(slot)
    })
}

fn mask_of(slots: usize) -> u64 {
    if slots >= Slot::MAX { u64::MAX } else { (1 << slots) - 1 }
}

fn check_length(what: &'static str, expected: usize, found: usize) -> Result<(), AggregateError> {
    if expected == found { Ok(()) } else { Err(AggregateError::Length { what, expected, found }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_kernels::pack_signs;
    use proptest::prelude::*;

    /// Rows of equal length, from values and a number of slots.
    fn rows(values: &[f32], slots: usize) -> Vec<&[f32]> {
        values.chunks_exact(values.len() / slots).collect()
    }

    fn is_present(mask: u64, slot: usize) -> bool {
        mask >> slot & 1 == 1
    }

    /// Maximum and mean, written for reading.
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
        let rows = rows(values, slots);
        let n = rows[0].len();
        let (mut largest, mut average) = (vec![9.0; n], vec![9.0; n]);
        match reference_join(&rows, mask) {
            Some((expected_max, expected_mean)) => {
                max(values, mask, &mut largest).unwrap();
                mean(values, mask, &mut average).unwrap();
                assert_eq!((largest, average), (expected_max, expected_mean));
            }
            None => {
                assert_eq!(max(values, mask, &mut largest), Err(AggregateError::NoView));
                assert_eq!(mean(values, mask, &mut average), Err(AggregateError::NoView));
            }
        }
        let mut joined = vec![9.0; values.len() + slots];
        concat(values, slots, mask, &mut joined).unwrap();
        assert_eq!(joined, reference_concat(&rows, mask, 1));

        let signs: Vec<f32> = values.iter().map(|&v| if v >= 0.0 { 1.0 } else { -1.0 }).collect();
        let sign_rows: Vec<_> = signs.chunks_exact(n).collect();
        let maps = pack_rows(&sign_rows);
        let (mut largest, mut average) = (vec![9.0; n], vec![9.0; n]);
        match reference_join(&sign_rows, mask) {
            Some((expected_max, expected_mean)) => {
                max_of_bits(&maps, mask, &mut largest).unwrap();
                mean_of_bits(&maps, mask, &mut average).unwrap();
                assert_eq!((largest, average), (expected_max, expected_mean));
            }
            None => {
                assert_eq!(max_of_bits(&maps, mask, &mut largest), Err(AggregateError::NoView));
                assert_eq!(mean_of_bits(&maps, mask, &mut average), Err(AggregateError::NoView));
            }
        }
        let plane = n / channels;
        let mut joined = vec![9.0; slots * n + slots * plane];
        concat_bits(&maps, slots, plane, mask, &mut joined).unwrap();
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
    fn bits_of_slots_that_do_not_exist_are_not_looked_at() {
        let mut out = [0.0];
        mean(&[2.0, 4.0], u64::MAX, &mut out).unwrap();
        assert_eq!(out, [3.0]);
        assert_eq!(max(&[2.0, 4.0], 0b100, &mut out), Err(AggregateError::NoView));
    }

    #[test]
    fn a_nan_of_one_device_does_not_win_the_maximum_and_is_seen_in_the_mean() {
        let mut out = [0.0];
        max(&[f32::NAN, 1.0], 0b11, &mut out).unwrap();
        assert_eq!(out, [1.0]);
        mean(&[f32::NAN, 1.0], 0b11, &mut out).unwrap();
        assert!(out[0].is_nan());
    }

    #[test]
    fn buffers_that_do_not_fit_are_refused() {
        let mut out = [0.0; 3];
        assert!(matches!(max(&[0.0; 7], 1, &mut out), Err(AggregateError::Length { .. })));
        assert!(matches!(mean(&[0.0; 2], 1, &mut out), Err(AggregateError::Length { .. })));
        assert!(matches!(concat(&[0.0; 4], 2, 1, &mut out), Err(AggregateError::Length { .. })));
        assert!(matches!(max_of_bits(&[], 1, &mut out), Err(AggregateError::Length { .. })));
        assert!(matches!(concat_bits(&[0; 3], 2, 1, 1, &mut out), Err(AggregateError::Length { .. })));
    }

    #[test]
    fn a_presence_row_becomes_a_mask() {
        assert_eq!(mask_from(&[true, false, true]), 0b101);
        assert_eq!(mask_from(&[]), 0);
        assert_eq!(mask_from(&[true; 70]), u64::MAX);
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
}
