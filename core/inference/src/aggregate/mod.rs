//! Aggregation: joins scores or maps of the sources that are present.
//!
//! | | scores | feature maps |
//! | --- | --- | --- |
//! | max (MP) | `max over present` | the same, of ±1 values |
//! | mean (AP) | `sum over present / number present`, summed in the order of the sources | the same, of ±1 values |
//! | concatenation (CC) | `[sources * classes]`, absent sources 0, then `sources` values of 0 or 1 | `[sources * f]` planes, absent sources 0, then `sources` constant planes of 0 or 1 |
//!
//! Each row of scores or maps comes from one source: a device slot or an edge. Maximum and mean are an error if no source is
//! present. Nothing here allocates.

#[cfg(test)]
mod tests;

use headwater_kernels::{packed_len, unpack_signs};
use headwater_protocol::SourceSet;
use thiserror::Error;

/// Scores or maps that cannot be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AggregateError {
    /// No source is present.
    #[error("aggregation: expected at least one present slot, found none")]
    NoView,
    /// A map with NaN or infinity.
    #[error("aggregation: map of source {source_index}: expected finite floats, found NaN or infinity")]
    NotFinite {
        /// Position of the source.
        source_index: usize,
    },
    /// A buffer of the wrong length.
    #[error("aggregation: {what}: expected {expected}, found {found}")]
    Length {
        /// Name of the buffer.
        what: &'static str,
        /// Elements expected.
        expected: usize,
        /// Elements found.
        found: usize,
    },
}

/// Elementwise maximum over the present rows. An element is NaN only if every present row has NaN there.
///
/// # Shapes
/// - `rows`: `[slots, n]`; absent rows are not read
/// - `out`: `[n]`
///
/// # Errors
/// [`AggregateError::NoView`] when no row is present; [`AggregateError::Length`] when `rows` is not one or more times as long as `out`.
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

/// Maps concatenated along the channel axis, absent maps 0, then one constant plane of 0 or 1 per slot.
///
/// # Shapes
/// - `rows`: `[slots, f, h, w]`; absent maps are not read
/// - `plane`: elements of one channel, `h * w`; 1 for scores
/// - `out`: `[slots * f + slots, h, w]`
///
/// # Errors
/// [`AggregateError::Length`] when the buffers do not fit `slots` and `plane`.
pub fn concat(
    rows: &[f32],
    slots: usize,
    plane: usize,
    present: SourceSet,
    out: &mut [f32],
) -> Result<(), AggregateError> {
    check_length("concatenated rows", rows.len() + slots * plane, out.len())?;
    let n = rows.len() / slots.max(1);
    check_length("rows", slots * n, rows.len())?;
    concat_rows(slots, plane, present, out, |slot, joined| {
        joined.copy_from_slice(&rows[slot * n..(slot + 1) * n]);
    });
    Ok(())
}

/// Maximum over the present bit-packed ±1 maps: +1 where any present map has +1.
///
/// # Shapes
/// - `maps`: `[slots, ceil(n / 8)]` bytes; absent maps are not read
/// - `out`: `[n]`, values ±1
///
/// # Errors
/// As for [`max`].
pub fn max_of_bits(maps: &[u8], present: SourceSet, out: &mut [f32]) -> Result<(), AggregateError> {
    let slots = check_maps(maps, present, out.len())?;
    let bytes = packed_len(out.len());
    for (at, values) in out.chunks_mut(8).enumerate() {
        let joined = present_rows(present, slots).fold(0, |joined, slot| joined | maps[slot * bytes + at]);
        unpack_signs(&[joined], values);
    }
    Ok(())
}

/// Mean over the present bit-packed ±1 maps. Shapes as for [`max_of_bits`], values in `[-1, 1]`.
///
/// # Errors
/// As for [`max`].
pub fn mean_of_bits(maps: &[u8], present: SourceSet, out: &mut [f32]) -> Result<(), AggregateError> {
    let slots = check_maps(maps, present, out.len())?;
    let bytes = packed_len(out.len());
    out.fill(0.0);
    for slot in present_rows(present, slots) {
        for (byte, values) in maps[slot * bytes..(slot + 1) * bytes].iter().zip(out.chunks_mut(8)) {
            let mut signs = [0.0; 8];
            unpack_signs(&[*byte], &mut signs);
            values.iter_mut().zip(signs).for_each(|(sum, sign)| *sum += sign);
        }
    }
    divide(out, present & SourceSet::first(slots));
    Ok(())
}

/// Bit-packed ±1 maps concatenated along the channel axis, absent maps 0, then one constant plane of 0 or 1 per slot.
///
/// # Shapes
/// - `maps`: `[slots, ceil(n / 8)]` bytes, `n = f * plane`; absent maps are not read
/// - `plane`: elements of one channel's map, `h * w`
/// - `out`: `[slots * f + slots, h, w]`
///
/// # Errors
/// [`AggregateError::Length`] when the buffers do not fit `slots` and `plane`.
pub fn concat_bits(
    maps: &[u8],
    slots: usize,
    plane: usize,
    present: SourceSet,
    out: &mut [f32],
) -> Result<(), AggregateError> {
    let n = out.len().saturating_sub(slots * plane) / slots.max(1);
    check_length("concatenated maps", slots * n + slots * plane, out.len())?;
    check_length("feature maps", slots * packed_len(n), maps.len())?;
    let bytes = packed_len(n);
    concat_rows(slots, plane, present, out, |slot, joined| {
        unpack_signs(&maps[slot * bytes..(slot + 1) * bytes], joined);
    });
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

/// Checks the length of `maps` and that at least one map is present; returns the number of maps.
fn check_maps(maps: &[u8], present: SourceSet, elements: usize) -> Result<usize, AggregateError> {
    let bytes = packed_len(elements).max(1);
    let slots = maps.len() / bytes;
    check_length("feature maps", (slots * bytes).max(bytes), maps.len())?;
    if (present & SourceSet::first(slots)).is_empty() { Err(AggregateError::NoView) } else { Ok(slots) }
}

fn divide(sums: &mut [f32], present: SourceSet) {
    let count = present.len() as f32;
    sums.iter_mut().for_each(|sum| *sum /= count);
}

/// Lets `write` fill in each present row, leaves absent rows 0, and appends one constant plane of 0 or 1 per slot.
fn concat_rows(
    slots: usize,
    plane: usize,
    present: SourceSet,
    out: &mut [f32],
    write: impl Fn(usize, &mut [f32]),
) {
    out.fill(0.0);
    let (joined, mask) = out.split_at_mut(out.len() - slots * plane);
    let n = joined.len() / slots.max(1);
    for slot in present_rows(present, slots) {
        write(slot, &mut joined[slot * n..(slot + 1) * n]);
        mask[slot * plane..(slot + 1) * plane].fill(1.0);
    }
}

/// Indices of the present sources among the first `sources`, in rising order.
pub(crate) fn present_rows(present: SourceSet, sources: usize) -> impl Iterator<Item = usize> {
    (present & SourceSet::first(sources)).positions().map(usize::from)
}

fn check_length(what: &'static str, expected: usize, found: usize) -> Result<(), AggregateError> {
    if expected == found { Ok(()) } else { Err(AggregateError::Length { what, expected, found }) }
}
