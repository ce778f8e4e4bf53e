//! Signs of the groups, and masks of the padding.

use super::{GROUP, Sizes, WeightBits};
use crate::block_kernel::sum_tables::group_signs;
use crate::pixel_words::{PixelPadding, PixelWords};
use crate::section::Weights;

/// Writes the signs of each group, one byte a group: `[filters, channel, kernel row, group]`, and the masks of
/// [`TileMasks`](super::TileMasks).
pub(super) fn prepare(sizes: &Sizes, weights: WeightBits<'_>, prepared: &mut Weights<'_>) {
    let (kernel, channels) = (sizes.shape.conv.kernel, sizes.shape.input.channels);
    prepared.signs.fill(0);
    for (filter, signs) in prepared.signs.chunks_exact_mut(sizes.groups).enumerate() {
        for (index, signs) in signs.iter_mut().enumerate().take(channels * kernel * sizes.row_groups) {
            let (row, group) = (index / sizes.row_groups, index % sizes.row_groups);
            *signs = group_signs(weights, filter, row * kernel, group * GROUP..kernel);
        }
    }
    prepared.words.fill(0);
    let mut set = |mask: usize, pixel: usize| {
        prepared.words[mask * sizes.mask_words + pixel / 64] |= 1 << (pixel % 64);
    };
    PixelWords::of(sizes.shape).each_pixel(|PixelPadding { pixel, rows, columns, padded_taps }| {
        rows.for_each(|ky| set(ky, pixel));
        columns.for_each(|kx| set(kernel + kx, pixel));
        for digit in (0..=sizes.digits).filter(|digit| padded_taps >> digit & 1 == 1) {
            set(2 * kernel + digit, pixel);
        }
    });
}
