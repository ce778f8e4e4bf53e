//! The sums of all groups of taps over one tile, shared by all filters.

use super::Sizes;
use super::adders::{GROUP, NO_BITS, SIGNS, Sums, TILE, TILE_WORDS, TileRow, and, or, xor};

/// Masks of all pixels, tile after tile.
///
/// ```text
/// rows [kernel row] | columns [kernel column] | padded [binary digit]
/// ```
pub(super) struct TileMasks<'a> {
    /// Pixels where the kernel row lies on the map.
    rows: &'a [u64],
    /// Pixels where the kernel column lies on the map.
    columns: &'a [u64],
    /// Binary digits of the number of padded taps of each pixel.
    pub(super) padded: &'a [u64],
}

impl<'a> TileMasks<'a> {
    #[inline(always)]
    pub(super) fn of(sizes: &Sizes, words: &'a [u64]) -> Self {
        let (rows, rest) = words.split_at(sizes.pixels.shape.conv.kernel * sizes.mask_words);
        let (columns, padded) = rest.split_at(sizes.pixels.shape.conv.kernel * sizes.mask_words);
        Self { rows, columns, padded }
    }
}

/// The 256 bits of `words` that belong to a tile.
#[inline(always)]
pub(super) fn row_at(words: &[u64], tile: usize) -> &TileRow {
    let (rows, _) = words.as_chunks();
    &rows[tile]
}

/// Computes the sums of every group over one tile.
#[inline(always)]
pub(super) fn fill_sums(
    sizes: &Sizes,
    channels: &[u64],
    masks: &TileMasks<'_>,
    tile: usize,
    sums: &mut [Sums],
) {
    let kernel = sizes.pixels.shape.conv.kernel;
    let mut sums = sums.iter_mut();
    for channel in channels.chunks_exact(sizes.channel_words) {
        for (ky, row) in masks.rows.chunks_exact(sizes.mask_words).enumerate() {
            let row = *row_at(row, tile);
            for group in 0..sizes.row_groups {
                let mut positive = [NO_BITS; GROUP];
                let mut negative = [NO_BITS; GROUP];
                for tap in 0..GROUP.min(kernel - group * GROUP) {
                    let kx = group * GROUP + tap;
                    let inside = and(row, *row_at(&masks.columns[kx * sizes.mask_words..], tile));
                    let from = tile * TILE + ky * sizes.pixels.pitch + kx;
                    let Some(words) = channel[from / 64..].first_chunk() else { return };
                    let bits = shifted(words, (from % 64) as u32);
                    positive[tap] = and(inside, bits);
                    negative[tap] = and_not(inside, bits);
                }
                let Some(sums) = sums.next() else { return };
                fill_group(positive, negative, sums);
            }
        }
    }
    // Groups that only fill up the last round count nothing.
    for sums in sums {
        *sums = [[NO_BITS; 2]; SIGNS];
    }
}

/// Computes the ones and twos of three taps; bit `i` of an index of `sums` is the sign of tap `i`.
#[inline(always)]
fn fill_group(positive: [TileRow; GROUP], negative: [TileRow; GROUP], sums: &mut Sums) {
    for signs in 0..SIGNS / 2 {
        let a = if signs & 1 == 1 { positive[0] } else { negative[0] };
        let b = if signs & 2 == 2 { positive[1] } else { negative[1] };
        let (either, both) = (xor(a, b), and(a, b));
        for (signs, c) in [(signs, negative[2]), (signs | 4, positive[2])] {
            sums[signs][0] = xor(either, c);
            sums[signs][1] = or(both, and(either, c));
        }
    }
}

/// The row that begins at bit `shift` of `words`; `shift` is below 64.
#[inline(always)]
fn shifted(words: &[u64; TILE_WORDS + 1], shift: u32) -> TileRow {
    let mut row = NO_BITS;
    for (index, row) in row.iter_mut().enumerate() {
        // Two shifts, because one shift by 64 would overflow.
        *row = words[index] >> shift | words[index + 1] << 1 << (63 - shift);
    }
    row
}

/// `a & !b`.
#[inline(always)]
fn and_not(mut a: TileRow, b: TileRow) -> TileRow {
    a.iter_mut().zip(b).for_each(|(a, b)| *a &= !b);
    a
}
