//! Aggregation: joins scores or maps of the sources that are present.
//!
//! | | scores | feature maps |
//! | --- | --- | --- |
//! | max (MP) | `max over present` | the same, of ±1 values |
//! | mean (AP) | `sum over present / number present`, summed in slot order | the same, of ±1 values |
//! | concatenation (CC) | `[slots * classes]`, absent slots 0, then `slots` values of 0 or 1 | `[slots * f]` planes, absent slots 0, then `slots` constant planes of 0 or 1 |
//!
//! Each row of scores or maps comes from one source: a device slot or an edge. Maximum and mean of no present source are an error;
//! the caller then answers from the class prior. Nothing here allocates.

mod bits;
mod scores;
#[cfg(test)]
mod tests;

use headwater_protocol::{Source, SourceSet};
use thiserror::Error;

pub use bits::{concat_bits, max_of_bits, mean_of_bits};
pub use scores::{concat, concat_maps, max, mean};

/// Inputs that cannot be aggregated.
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

fn divide(sums: &mut [f32], present: SourceSet) {
    let count = present.len() as f32;
    sums.iter_mut().for_each(|sum| *sum /= count);
}

fn write_mask(mask: &mut [f32], present: SourceSet, plane: usize) {
    for (source, values) in mask.chunks_exact_mut(plane.max(1)).enumerate() {
        let is_present = Source::try_from(source as u8).is_ok_and(|source| present.contains(source));
        values.fill(if is_present { 1.0 } else { 0.0 });
    }
}

/// Indices of the present sources among the first `sources`, in rising order.
pub(crate) fn present_rows(present: SourceSet, sources: usize) -> impl Iterator<Item = usize> {
    (present & SourceSet::first(sources)).iter().map(Source::index)
}

fn check_length(what: &'static str, expected: usize, found: usize) -> Result<(), AggregateError> {
    if expected == found { Ok(()) } else { Err(AggregateError::Length { what, expected, found }) }
}
