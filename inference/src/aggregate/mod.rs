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

mod bits;
mod scores;
#[cfg(test)]
mod tests;

use headwater_protocol::Slot;
use thiserror::Error;

pub use bits::{concat_bits, max_of_bits, mean_of_bits};
pub use scores::{concat, concat_maps, max, mean};

/// What cannot be aggregated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AggregateError {
    /// No slot is present.
    #[error("aggregation: expected at least one present slot, found none")]
    NoView,
    /// A map of floats that are no numbers.
    #[error("aggregation: map of source {source_index}: expected finite floats, found NaN or infinity")]
    NotFinite {
        /// Position of the source.
        source_index: usize,
    },
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

/// The mask of a presence row: bit `i` set where `row[i]`; slots from 64 on do not exist.
pub fn mask_from(row: &[bool]) -> u64 {
    row.iter().take(Slot::MAX).enumerate().fold(0, |mask, (slot, &present)| mask | u64::from(present) << slot)
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

/// Slots that are present, in order, one step a set bit.
pub(crate) fn present_slots(present: u64, slots: usize) -> impl Iterator<Item = usize> {
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
