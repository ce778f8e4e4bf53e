//! Plain references for the kernels, written for reading: one value at a time, in the order of the definitions.
//!
//! `true` is +1 and `false` is -1. Maps are `[channels, height, width]`, weights `[filters, channels, kernel, kernel]`.

use crate::shape::{Convp, Map, Window};
use crate::threshold::Threshold;

/// Sum of `a[i] * b[i]`.
pub fn dot(a: &[bool], b: &[bool]) -> i32 {
    a.iter().zip(b).map(|(&a, &b)| sign(a) * sign(b)).sum()
}

/// Computes a `convp` block into `[filters, height, width]`; `input(channel, row, column)` is a number of `0..=255` or ±1.
///
/// # Panics
/// If a slice has another length than `shape` requires.
pub fn convp(
    shape: Convp,
    input: impl Fn(usize, usize, usize) -> i32,
    weights: &[bool],
    thresholds: &[Threshold],
    output: &mut [bool],
) {
    let out = shape.output();
    assert_eq!((weights.len(), thresholds.len()), (shape.filters * shape.taps(), shape.filters));
    assert_eq!(output.len(), out.len());
    let weights = weights.chunks_exact(shape.taps());
    for ((map, weights), threshold) in
        output.chunks_exact_mut(out.height * out.width).zip(weights).zip(thresholds)
    {
        for y in 0..out.height {
            for x in 0..out.width {
                let sum = |row, column| convolved(shape, &input, weights, row, column);
                map[y * out.width + x] = threshold.of(largest(shape.pool, shape.convolved(), y, x, sum));
            }
        }
    }
}

/// Largest value in the pooling window at an output pixel; padding is never the largest.
fn largest(pool: Window, map: Map, y: usize, x: usize, value: impl Fn(usize, usize) -> i32) -> i32 {
    let mut largest = i32::MIN;
    each_inside(pool, map, y, x, |_, row, _, column| largest = largest.max(value(row, column)));
    largest
}

/// Sum of the convolution at a pixel; padding contributes 0.
fn convolved(
    shape: Convp,
    input: &impl Fn(usize, usize, usize) -> i32,
    weights: &[bool],
    y: usize,
    x: usize,
) -> i32 {
    let kernel = shape.conv.kernel;
    let mut sum = 0;
    for channel in 0..shape.input.channels {
        each_inside(shape.conv, shape.input, y, x, |ky, row, kx, column| {
            sum += sign(weights[(channel * kernel + ky) * kernel + kx]) * input(channel, row, column);
        });
    }
    sum
}

/// Calls `visit(ky, row, kx, column)` for each kernel position that lies on the map.
fn each_inside(
    window: Window,
    map: Map,
    y: usize,
    x: usize,
    mut visit: impl FnMut(usize, usize, usize, usize),
) {
    let ((top, bottom), (left, right)) = (window.inside(y, map.height), window.inside(x, map.width));
    for ky in top..bottom {
        for kx in left..right {
            visit(ky, y * window.stride + ky - window.pad, kx, x * window.stride + kx - window.pad);
        }
    }
}

fn sign(value: bool) -> i32 {
    if value { 1 } else { -1 }
}
