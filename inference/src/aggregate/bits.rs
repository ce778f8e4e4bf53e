//! Joining bit-packed feature maps.

use headwater_kernels::{packed_len, unpack_signs};
use headwater_protocol::SourceSet;

use super::{AggregateError, check_length, divide, present_rows, write_mask};

/// Maximum over the present bit-packed ±1 maps: +1 where any present map has +1.
///
/// # Shapes
/// - `maps`: `[slots, ceil(n / 8)]` bytes; absent maps are not read
/// - `out`: `[n]`, values ±1
///
/// # Errors
/// As for [`max`](super::max).
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
/// As for [`max`](super::max).
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

/// Bit-packed ±1 maps concatenated along the channel axis, absent maps 0, then one constant plane of 0 or 1 a slot.
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
    let (joined, mask) = out.split_at_mut(slots * n);
    joined.fill(0.0);
    let bytes = packed_len(n);
    for slot in present_rows(present, slots) {
        unpack_signs(&maps[slot * bytes..(slot + 1) * bytes], &mut joined[slot * n..(slot + 1) * n]);
    }
    write_mask(mask, present, plane);
    Ok(())
}

/// Number of maps in `maps`, at least one of them present.
fn check_maps(maps: &[u8], present: SourceSet, elements: usize) -> Result<usize, AggregateError> {
    let bytes = packed_len(elements).max(1);
    let slots = maps.len() / bytes;
    check_length("feature maps", (slots * bytes).max(bytes), maps.len())?;
    if (present & SourceSet::first(slots)).is_empty() { Err(AggregateError::NoView) } else { Ok(slots) }
}
