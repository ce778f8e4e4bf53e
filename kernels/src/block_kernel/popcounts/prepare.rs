//! Layout of the weights, padding masks and bounds.

use super::{Sizes, WORD_CHANNELS, WeightBits};
use crate::pixel_words::{PixelPadding, WORD_PIXELS};
use crate::section::Weights;

/// Writes the words of [`Prepared`](super::Prepared).
pub(super) fn prepare(sizes: &Sizes, weights: WeightBits<'_>, prepared: &mut Weights<'_>) {
    let (shape, area) = (sizes.pixels.shape, sizes.kernel_area());
    let (words, rest) = prepared.words.split_at_mut(sizes.weights());
    fill_weights(sizes, weights, words);
    let (offsets, rest) = rest.split_at_mut(area);
    for (position, offset) in offsets.iter_mut().enumerate() {
        let (ky, kx) = (position / shape.conv.kernel, position % shape.conv.kernel);
        *offset = (ky * sizes.pixels.pitch + kx) as u64;
    }
    let (inside, rest) = rest.split_at_mut(sizes.pixels.words * area);
    let (padded, rest) = rest.split_at_mut(sizes.pixels.words * (sizes.digits + 1));
    fill_padding(sizes, inside, padded);
    let (max_even, max_odd) = rest.split_at_mut(shape.filters);
    for ((even, odd), threshold) in max_even.iter_mut().zip(max_odd).zip(&*prepared.thresholds) {
        // Upper limit of twice the differing bits plus the padded taps. The half of an odd number of padded taps is rounded down,
        // so the limit is one less there.
        let max = i64::from(shape.taps() as i32 - threshold.from);
        *even = (max >> 1).cast_unsigned();
        *odd = ((max - 1) >> 1).cast_unsigned();
    }
}

fn fill_weights(sizes: &Sizes, weights: WeightBits<'_>, words: &mut [u64]) {
    let (shape, area) = (sizes.pixels.shape, sizes.kernel_area());
    words.fill(0);
    for filter in 0..shape.filters {
        for (position, channel) in (0..area * shape.input.channels).map(|tap| (tap % area, tap / area)) {
            let (word, bit) = (channel / WORD_CHANNELS * area + position, channel % WORD_CHANNELS);
            let (pass, of_pass) = (word / sizes.pass_words, word % sizes.pass_words);
            let index = (pass * shape.filters + filter) * sizes.pass_words + of_pass;
            words[index] |= u64::from(weights.is_positive(filter, channel * area + position)) << bit;
        }
    }
}

fn fill_padding(sizes: &Sizes, inside: &mut [u64], padded: &mut [u64]) {
    let (kernel, digits) = (sizes.pixels.shape.conv.kernel, sizes.digits + 1);
    inside.fill(0);
    padded.fill(0);
    sizes.pixels.each_pixel(|PixelPadding { pixel, rows, columns, padded_taps }| {
        let (word, bit) = (pixel / WORD_PIXELS, 1 << (pixel % WORD_PIXELS));
        for ky in rows {
            for kx in columns.clone() {
                inside[(word * kernel + ky) * kernel + kx] |= bit;
            }
        }
        for (digit, mask) in padded[word * digits..][..digits].iter_mut().enumerate() {
            *mask |= if padded_taps >> digit & 1 == 1 { bit } else { 0 };
        }
    });
}
