//! Joining score vectors.

use headwater_protocol::SourceSet;

use super::{AggregateError, check_length, divide, present_rows, write_mask};

/// Elementwise maximum over the present rows. A NaN counts only where every present row has one.
///
/// # Shapes
/// - `rows`: `[slots, n]`; absent rows are not read
/// - `out`: `[n]`
///
/// # Errors
/// [`AggregateError::NoView`] for an empty set, [`AggregateError::Length`] when `rows` is no multiple of `out`.
pub fn max(rows: &[f32], present: SourceSet, out: &mut [f32]) -> Result<(), AggregateError> {
    fold(rows, present, out, f32::max)
}

/// Elementwise mean over the present rows. Shapes and errors as for [`max`].
///
/// # Errors
/// As for [`max`].
pub fn mean(rows: &[f32], present: SourceSet, out: &mut [f32]) -> Result<(), AggregateError> {
    fold(rows, present, out, |joined, value| joined + value)?;
    divide(out, present & SourceSet::first(rows.len() / out.len().max(1)));
    Ok(())
}

/// Concatenated rows, absent rows 0, then 0 or 1 for each row: absent or present.
///
/// # Shapes
/// - `rows`: `[slots, n]`; absent rows are not read
/// - `out`: `[slots * n + slots]`
///
/// # Errors
/// [`AggregateError::Length`] when the buffers do not fit `slots`.
pub fn concat(rows: &[f32], slots: usize, present: SourceSet, out: &mut [f32]) -> Result<(), AggregateError> {
    concat_maps(rows, slots, 1, present, out)
}

/// Maps concatenated along the channel axis, absent maps 0, then one constant plane of 0 or 1 a slot.
///
/// # Shapes
/// - `rows`: `[slots, f, h, w]`; absent maps are not read
/// - `plane`: elements of one channel, `h * w`
/// - `out`: `[slots * f + slots, h, w]`
///
/// # Errors
/// [`AggregateError::Length`] when the buffers do not fit `slots` and `plane`.
pub fn concat_maps(
    rows: &[f32],
    slots: usize,
    plane: usize,
    present: SourceSet,
    out: &mut [f32],
) -> Result<(), AggregateError> {
    check_length("concatenated rows", rows.len() + slots * plane, out.len())?;
    let n = rows.len() / slots.max(1);
    check_length("rows", slots * n, rows.len())?;
    let (joined, mask) = out.split_at_mut(rows.len());
    joined.fill(0.0);
    for slot in present_rows(present, slots) {
        joined[slot * n..(slot + 1) * n].copy_from_slice(&rows[slot * n..(slot + 1) * n]);
    }
    write_mask(mask, present, plane);
    Ok(())
}

fn fold(
    rows: &[f32],
    present: SourceSet,
    out: &mut [f32],
    join: impl Fn(f32, f32) -> f32,
) -> Result<(), AggregateError> {
    let n = out.len();
    let slots = rows.len() / n.max(1);
    check_length("scores", (slots * n).max(n), rows.len())?;
    let mut slots = present_rows(present, slots);
    let first = slots.next().ok_or(AggregateError::NoView)?;
    out.copy_from_slice(&rows[first * n..(first + 1) * n]);
    for slot in slots {
        for (joined, &value) in out.iter_mut().zip(&rows[slot * n..(slot + 1) * n]) {
            *joined = join(*joined, value);
        }
    }
    Ok(())
}
