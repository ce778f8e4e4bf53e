//! A first block of any shape, one sum after the other: large kernels and steps other than 1 are rare there.

use crate::rows::{pool_down, pooled_rows};
use crate::shape::Convp;
use crate::threshold::Threshold;

/// Words of the weights of one filter.
pub(crate) const fn filter_words(shape: Convp) -> usize {
    shape.taps().div_ceil(64)
}

/// Copies weights for [`convolve`]: `[filters, taps]`, each filter in words of its own.
pub(crate) fn prepare(shape: Convp, weight: impl Fn(usize, usize) -> bool, words: &mut [u64]) {
    words.fill(0);
    for (filter, words) in words.chunks_exact_mut(filter_words(shape)).enumerate() {
        for tap in 0..shape.taps() {
            words[tap / 64] |= u64::from(weight(filter, tap)) << (tap % 64);
        }
    }
}

/// Runs convolution, comparison and the pooling down; `pooled` is `[filters, pooled rows, row words]`, zero at first. `row` is one
/// convolved row.
pub(crate) fn convolve(
    shape: Convp,
    pixels: &[u8],
    weights: &[u64],
    thresholds: &[Threshold],
    row: &mut [u64],
    pooled: &mut [u64],
) {
    let map_words = pooled.len() / shape.filters;
    let row_words = map_words / shape.output().height;
    let convolved = shape.convolved();
    let filters = weights.chunks_exact(filter_words(shape)).zip(thresholds);
    for ((weights, threshold), pooled) in filters.zip(pooled.chunks_exact_mut(map_words)) {
        for y in 0..convolved.height {
            let bits = &mut row[..row_words];
            bits.fill(0);
            for x in 0..convolved.width {
                let bit = sum_at(shape, pixels, weights, y, x) >= threshold.from;
                bits[x / 64] |= u64::from(bit) << (x % 64);
            }
            pool_down(bits, pooled_rows(shape.pool, y, shape.output().height), pooled);
        }
    }
}

/// The convolution at a place.
fn sum_at(shape: Convp, pixels: &[u8], weights: &[u64], y: usize, x: usize) -> i32 {
    let (map, conv) = (shape.input, shape.conv);
    let ((top, bottom), (left, right)) = (conv.inside(y, map.height), conv.inside(x, map.width));
    let mut sum = 0;
    for channel in 0..map.channels {
        for ky in top..bottom {
            let row = (channel * map.height + y * conv.stride + ky - conv.pad) * map.width;
            for kx in left..right {
                let tap = (channel * conv.kernel + ky) * conv.kernel + kx;
                let pixel = i32::from(pixels[row + x * conv.stride + kx - conv.pad]);
                sum += if weights[tap / 64] >> (tap % 64) & 1 == 1 { pixel } else { -pixel };
            }
        }
    }
    sum
}
