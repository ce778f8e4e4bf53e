//! Weights and thresholds as they are run.

use super::{ABSENT, CHANNELS, COMPARED, FILTERS, Lanes, Sizes, TOGETHER, TURN, halves_are_whole};
use crate::shape::{Convp, Map};
use crate::threshold::Threshold;
use crate::vectors::{HALF, LANES};

/// Products that are +1.
const fn positive(channels: usize, weights: usize) -> u8 {
    CHANNELS as u8 - (channels ^ weights).count_ones() as u8
}

/// Makes tables of weights `[filters, channels, kernel, kernel]` in the order they are run, `[lookups that are counted together, four of
/// filters, lookup]`, and what a place is missing.
pub(crate) fn prepare(shape: Convp, weight: impl Fn(usize, usize) -> bool, lanes: &mut [Lanes]) {
    let sizes = Sizes::of(shape);
    let (kernel, channels) = (shape.conv.kernel, shape.input.channels);
    // The four weights of a filter for a lookup. A channel that there is not is 0 on the map: its weight is the other one.
    let four = |filter: usize, step: usize| {
        let (place, first) = (step / sizes.fours, step % sizes.fours * CHANNELS);
        (0..CHANNELS).fold(0, |four, at| {
            let channel = first + at;
            let is_set = channel >= channels || weight(filter, channel * kernel * kernel + place);
            four | usize::from(is_set) << at
        })
    };
    let (tables, rest) = lanes.split_at_mut(sizes.groups * sizes.turns * TURN);
    let (masks, rest) = rest.split_at_mut(sizes.masks());
    let (missing, _) = rest.split_at_mut(sizes.missing());
    let mut tables = tables.iter_mut();
    for first in (0..sizes.turns).step_by(sizes.at_once) {
        let end = sizes.turns.min(first + sizes.at_once);
        for group in 0..sizes.groups {
            for step in first * TURN..end * TURN {
                let Some(lanes) = tables.next() else { return };
                let mut table = [0; LANES];
                for (at, filter) in (group * FILTERS..shape.filters).take(FILTERS).enumerate() {
                    if step >= sizes.fours * kernel * kernel {
                        continue;
                    }
                    let weights = four(filter, step);
                    for (number, byte) in table[at / 2 * HALF..][..HALF].iter_mut().enumerate() {
                        *byte |= positive(number, weights) << (at % 2 * 4);
                    }
                }
                *lanes = Lanes::of_bytes(&table);
            }
        }
    }

    let seen = |position: usize, length: usize| {
        let (from, to) = shape.conv.inside(position, length);
        to - from
    };
    let Map { height, width, .. } = shape.input;
    for (at, lanes) in masks.iter_mut().enumerate() {
        let mut mask = [0; LANES];
        let (kind, of_kernel) = (at / TOGETHER / (kernel * kernel), at / TOGETHER % (kernel * kernel));
        let vector = sizes.first(kind) * TOGETHER + at % TOGETHER;
        for (lane, byte) in mask.iter_mut().enumerate() {
            let place = vector * HALF + lane % HALF;
            let (x, y) = (
                place % sizes.places.pitch + of_kernel % kernel,
                place / sizes.places.pitch + of_kernel / kernel,
            );
            let pad = shape.conv.pad;
            let is_there = (pad..pad + width).contains(&x) && (pad..pad + height).contains(&y);
            *byte = if is_there { 0 } else { ABSENT };
        }
        *lanes = Lanes::of_bytes(&mask);
    }
    // Column and row of a place; none where rows have ended.
    let column = |place: usize| Some(place % sizes.places.pitch).filter(|&x| x < shape.convolved().width);
    let row = |place: usize| Some(place / sizes.places.pitch).filter(|&y| y < shape.convolved().height);
    let unit = if halves_are_whole(shape) { 2 } else { 1 };
    for (at, lanes) in missing.iter_mut().enumerate() {
        let (vector, parity) = (sizes.first(at / 2 / TOGETHER) * TOGETHER + at / 2 % TOGETHER, at % 2);
        let missing = |lane: usize| {
            let place = vector * HALF + 2 * (lane % (HALF / 2)) + parity;
            let (x, y) = (column(place)?, row(place)?);
            let seen = seen(x, shape.input.width) * seen(y, shape.input.height);
            Some(((shape.taps() - seen * channels) / unit) as i16)
        };
        *lanes = Lanes(core::array::from_fn(|lane| missing(lane).unwrap_or(0)));
    }
}

/// Writes what counts are compared with.
pub(crate) fn prepare_thresholds(shape: Convp, thresholds: &[Threshold], lanes: &mut [Lanes]) {
    let sizes = Sizes::of(shape);
    let at = lanes.len() - sizes.groups * COMPARED;
    // Twice a count, and what is missing, less all taps, is the sum.
    let least =
        |filter: usize| thresholds.get(filter).map_or(0, |threshold| threshold.from + shape.taps() as i32);
    let (groups, _) = lanes[at..].as_chunks_mut::<COMPARED>();
    for (group, lanes) in groups.iter_mut().enumerate() {
        for (at, lanes) in lanes.iter_mut().enumerate() {
            let (slot, is_parity) = (at % 2, at / 2 == 1);
            let number = |lane: usize| {
                let least = least(group * FILTERS + lane / (HALF / 2) * 2 + slot);
                // A count is too small when it is below half of that.
                (if is_parity { least & 1 } else { (least + 1).div_euclid(2) - 1 }) as i16
            };
            *lanes = Lanes(core::array::from_fn(number));
        }
    }
}
