//! Making of the tables, masks, padded taps and bounds.

use super::{
    ABSENT, BOUNDS, CHANNELS, FILTERS, LookupVector, ROUND_LOOKUPS, Sizes, WORD_VECTORS, WeightBits,
};
use crate::memory::Weights;
use crate::shape::Map;
use crate::simd::{HALF, LANES};
use crate::threshold::Threshold;

/// Writes the vectors of [`Prepared`](super::Prepared).
pub(super) fn prepare(sizes: &Sizes, weights: WeightBits<'_>, prepared: &mut Weights<'_>) {
    let (tables, rest) = prepared.vectors.split_at_mut(sizes.tables());
    let (masks, rest) = rest.split_at_mut(sizes.masks());
    let (padded, bounds) = rest.split_at_mut(sizes.padded());
    fill_tables(sizes, weights, tables);
    for (index, mask) in masks.iter_mut().enumerate() {
        *mask = padding_mask(sizes, index);
    }
    for (index, padded) in padded.iter_mut().enumerate() {
        *padded = padded_taps(sizes, index);
    }
    fill_bounds(sizes, prepared.thresholds, bounds);
}

/// Fills the tables in the order in which they are read: `[pass, filter group, lookup]`.
fn fill_tables(sizes: &Sizes, weights: WeightBits<'_>, tables: &mut [LookupVector]) {
    let mut tables = tables.iter_mut();
    for first in (0..sizes.rounds).step_by(sizes.pass_rounds) {
        let end = sizes.rounds.min(first + sizes.pass_rounds);
        for group in 0..sizes.filter_groups {
            let lookups = first * ROUND_LOOKUPS..end * ROUND_LOOKUPS;
            for (lookup, table) in lookups.zip(&mut tables) {
                *table = lookup_table(sizes, weights, group, lookup);
            }
        }
    }
}

/// The table of one lookup for four filters; zeros for a lookup that only fills up a round.
fn lookup_table(sizes: &Sizes, weights: WeightBits<'_>, group: usize, lookup: usize) -> LookupVector {
    let mut table = [0; LANES];
    if lookup < sizes.channel_groups * sizes.kernel_area() {
        let filters = group * FILTERS..sizes.pixels.shape.filters;
        for (index, filter) in filters.take(FILTERS).enumerate() {
            let weights = four_weights(sizes, weights, filter, lookup);
            for (number, byte) in table[index / 2 * HALF..][..HALF].iter_mut().enumerate() {
                let positive = CHANNELS as u8 - (number ^ weights).count_ones() as u8;
                *byte |= positive << (index % 2 * 4);
            }
        }
    }
    LookupVector::of_bytes(&table)
}

/// A filter's four weights of a lookup as bits.
fn four_weights(sizes: &Sizes, weights: WeightBits<'_>, filter: usize, lookup: usize) -> usize {
    let (position, group) = (lookup / sizes.channel_groups, lookup % sizes.channel_groups);
    (0..CHANNELS).fold(0, |four, bit| {
        let channel = group * CHANNELS + bit;
        // A missing channel has the bit 0 in the plane and the weight bit 1, so that the product is -1 and is not counted.
        let is_set = channel >= sizes.pixels.shape.input.channels
            || weights.is_positive(filter, channel * sizes.kernel_area() + position);
        four | usize::from(is_set) << bit
    })
}

/// One vector of the masks `[kind of word, kernel position, vector of pixels]`.
fn padding_mask(sizes: &Sizes, index: usize) -> LookupVector {
    let shape = sizes.pixels.shape;
    let (kernel, pad, pitch) = (shape.conv.kernel, shape.conv.pad, sizes.pixels.pitch);
    let Map { height, width, .. } = shape.input;
    let (kind, position) =
        (index / WORD_VECTORS / sizes.kernel_area(), index / WORD_VECTORS % sizes.kernel_area());
    let vector = sizes.first_word(kind) * WORD_VECTORS + index % WORD_VECTORS;
    LookupVector::of_bytes(&core::array::from_fn(|lane| {
        let pixel = vector * HALF + lane % HALF;
        let (x, y) = (pixel % pitch + position % kernel, pixel / pitch + position / kernel);
        let is_inside = (pad..pad + width).contains(&x) && (pad..pad + height).contains(&y);
        if is_inside { 0 } else { ABSENT }
    }))
}

/// One vector of the padded taps `[kind of word, vector of pixels, parity of pixels]`, halved if all numbers are even.
fn padded_taps(sizes: &Sizes, index: usize) -> LookupVector {
    let shape = sizes.pixels.shape;
    let (convolved, pitch) = (shape.convolved(), sizes.pixels.pitch);
    let (vector_index, parity) = (index / 2, index % 2);
    let vector = sizes.first_word(vector_index / WORD_VECTORS) * WORD_VECTORS + vector_index % WORD_VECTORS;
    let unit = if sizes.is_padding_even() { 2 } else { 1 };
    let seen = |position: usize, length: usize| {
        let (from, to) = shape.conv.inside(position, length);
        to - from
    };
    LookupVector(core::array::from_fn(|lane| {
        let pixel = vector * HALF + 2 * (lane % (HALF / 2)) + parity;
        let (x, y) = (pixel % pitch, pixel / pitch);
        if x >= convolved.width || y >= convolved.height {
            return 0;
        }
        let seen = seen(x, shape.input.width) * seen(y, shape.input.height) * shape.input.channels;
        ((shape.taps() - seen) / unit) as i16
    }))
}

/// Writes the numbers that counts must exceed, and the parity of the bounds `n`; see the module.
fn fill_bounds(sizes: &Sizes, thresholds: &[Threshold], bounds: &mut [LookupVector]) {
    // The sum of products is twice the count plus the padded taps, less all taps.
    let taps = sizes.pixels.shape.taps() as i32;
    let min = |filter: usize| thresholds.get(filter).map_or(0, |threshold| threshold.from + taps);
    let (groups, _) = bounds.as_chunks_mut::<BOUNDS>();
    for (group, bounds) in groups.iter_mut().enumerate() {
        for (index, bounds) in bounds.iter_mut().enumerate() {
            let (second, is_parity) = (index % 2, index / 2 == 1);
            *bounds = LookupVector(core::array::from_fn(|lane| {
                let min = min(group * FILTERS + lane / (HALF / 2) * 2 + second);
                // A count must be above the largest number whose double is below `min`.
                (if is_parity { min & 1 } else { (min + 1).div_euclid(2) - 1 }) as i16
            }));
        }
    }
}
